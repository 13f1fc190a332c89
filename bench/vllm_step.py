"""Seconds and bytes that vLLM's weights cost a step, with `rollout.engine=vllm`.

    python -m bench.vllm_step --threads 1

Each model trains in three ways: all of its weights, and LoRA adapters of rank 16 that are merged for vLLM (in float32)
or sent alone (in bfloat16). An update of the weights is timed as a rollout of one token with new weights less
one with old weights. On a CPU vLLM and the trainer share the cores.
"""

import argparse
import statistics
import time
from contextlib import ExitStack, closing
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

from bench.result_file import add_out, write_result
from bench.step import DEFAULT_MODELS, MODELS, model_inputs
from outcome_rl.grpo.config.load import load_config
from outcome_rl.grpo.config.schema import SamplingConfig
from outcome_rl.grpo.parts import open_parts
from outcome_rl.grpo.plan import plan
from outcome_rl.grpo.rollout.vllm_engine import sends_adapters
from outcome_rl.grpo.trainer import Trainer
from outcome_rl.terminal.arguments import at_least_one

WAYS = {
    "all weights": (),
    "merged adapters": ("model.lora_rank=16", "model.dtype=float32"),
    "adapters": ("model.lora_rank=16", "model.dtype=bfloat16"),
}
VLLM = ("rollout.engine=vllm", "rollout.enforce_eager=true", "rollout.importance_cap=2", "trainer.logger=[]")


def main() -> None:
    """Run the benchmark from a command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", choices=MODELS, default=DEFAULT_MODELS, help="%(default)s")
    parser.add_argument("--threads", type=at_least_one, help="CPU threads of the trainer (PyTorch's own default)")
    parser.add_argument("--steps", type=at_least_one, default=10, help="steps that are timed (%(default)s)")
    add_out(parser)
    options = parser.parse_args()
    if options.threads is not None:
        torch.set_num_threads(options.threads)
    figures = {
        name: {way: measure(name, settings, options.steps) for way, settings in WAYS.items()} for name in options.models
    }
    print(table(figures))
    config = {key: value for key, value in vars(options).items() if key != "out"}
    print(f"wrote {write_result(options.out, 'vllm-step', config, figures)}")


def measure(name: str, settings: tuple[str, ...], steps: int) -> dict[str, Any]:
    """Return bytes and seconds of an update of vLLM's weights, and the median seconds of a step and its wait."""
    with TemporaryDirectory() as folder, ExitStack() as stack:
        inputs = (*MODELS[name], *model_inputs(name, Path(folder)), *VLLM, *settings)
        total = f"trainer.total_training_steps={steps + 3}"  # the first three warm up
        trainer = Trainer(
            open_parts(plan(load_config("toy", [*inputs, total, f"trainer.default_local_dir={folder}/runs"])))
        )
        stack.enter_context(closing(trainer.parts))
        rows = [trainer.train_step()[1] for _ in range(steps + 2)][2:]
        return {
            "bytes": sent_bytes(trainer),
            "update_s": update_s(trainer, steps),
            **{part: statistics.median(row[f"time/{part}"] for row in rows) for part in ("step_s", "rollout_s")},
        }


def sent_bytes(trainer: Trainer) -> int:
    """Return the bytes of the tensors that an update sends."""
    policy = trainer.parts.policy
    if not sends_adapters(trainer.parts.config.model):
        return sum(tensor.nbytes for tensor in policy.published_weights().values())
    return sum(tensor.nbytes for name, tensor in policy.model.state_dict().items() if ".lora_" in name)


def update_s(trainer: Trainer, rounds: int) -> float:
    """Return the median seconds of an update of the engine's weights."""

    def one_token() -> float:
        start = time.perf_counter()
        trainer.parts.engine.generate(trainer.parts.plan.train_set.prompts[:1], SamplingConfig(n=1), 1, 0)
        return time.perf_counter() - start

    found = []
    for _ in range(rounds):
        old = one_token()
        trainer.parts.engine.update_weights(trainer.parts.policy)
        found.append(one_token() - old)
    return statistics.median(found)


def table(figures: dict[str, dict[str, dict[str, Any]]]) -> str:
    """Return a row for each model and way, in Markdown."""
    lines = [
        "| model | trained | MiB sent | update of vLLM | step | of which wait for samples |",
        "|---|---|---:|---:|---:|---:|",
    ]
    for name, ways in figures.items():
        for way, found in ways.items():
            seconds = " | ".join(f"{found[part]:.3g} s" for part in ("update_s", "step_s", "rollout_s"))
            lines.append(f"| {name} | {way} | {found['bytes'] / 2**20:.3g} | {seconds} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
