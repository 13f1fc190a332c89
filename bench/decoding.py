"""Tokens per second of sampling: our decode loop, transformers' `generate`, and vLLM where it is installed.

    python -m experiments.smollm2 warm
    python -m bench.decoding --threads 1

All sample `--samples` responses to each of `--prompts` questions from SmolLM2 at temperature 1, in rounds, in another
order each round. vLLM has its own settings: compiled, without seeds and without log-probabilities; on a CPU it keeps a
core for itself, so that on two cores it computes with one thread. Responses differ by chance; tokens are counted.
"""

import argparse
import os
import statistics
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import torch

from bench.result_file import add_out, write_result
from experiments.smollm2.task import problems
from outcome_rl.bench.measure import interleaved_times
from outcome_rl.grpo.config.schema import ModelConfig, SamplingConfig
from outcome_rl.grpo.model.policy import Policy
from outcome_rl.grpo.rollout.decode_loop import decode
from outcome_rl.terminal.arguments import at_least_one

OURS = "outcome_rl"


def main() -> None:
    """Run the benchmark from a command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="models/smollm2-135m-arithmetic", help="%(default)s")
    parser.add_argument("--device", default="cpu", help="cpu or cuda (%(default)s)")
    parser.add_argument("--threads", type=at_least_one, help="CPU threads of PyTorch (its own default)")
    parser.add_argument("--prompts", type=at_least_one, default=32, help="%(default)s")
    parser.add_argument("--samples", type=at_least_one, default=8, help="responses to each prompt (%(default)s)")
    parser.add_argument("--tokens", type=at_least_one, default=24, help="longest response (%(default)s)")
    parser.add_argument("--rounds", type=at_least_one, default=5, help="%(default)s")
    add_out(parser)
    options = parser.parse_args()
    if options.threads:
        torch.set_num_threads(options.threads)
    policy = Policy.load(ModelConfig(path=options.model, device=options.device))
    chats = [[{"role": "user", "content": row["problem"]}] for row in problems("train", options.prompts)]
    prompts = policy.tokenizer.apply_chat_template(chats, add_generation_prompt=True, return_dict=True)["input_ids"]
    engines: dict[str, Callable[[], int]] = {
        OURS: _ours(policy, prompts, options.samples, options.tokens),
        "transformers": _transformers(policy, prompts, options.samples, options.tokens),
    }
    if find_spec("vllm") is not None:
        engines["vLLM"] = _vllm(policy, options.model, prompts, options.samples, options.tokens)
    tokens: dict[str, list[int]] = {name: [] for name in engines}
    calls = {name: (lambda name=name: tokens[name].append(engines[name]())) for name in engines}
    times = interleaved_times(calls, policy.device, warmups=1, rounds=options.rounds, seconds=float("inf"))
    figures: dict[str, dict[str, Any]] = {}
    for name, measured in times.items():
        count = statistics.mean(tokens[name])
        figures[name] = {"times": measured, "tokens": count, "tokens_per_s": 1e3 * count / measured["median_ms"]}
    print(table(figures))
    config = {key: value for key, value in vars(options).items() if key != "out"}
    name = f"decoding-{policy.device.type}"
    print(f"wrote {write_result(options.out, name, config, figures)}")


def table(figures: dict[str, dict[str, Any]]) -> str:
    """Return a row for each engine, in Markdown."""
    lines = ["| | seconds | tokens/s | outcome_rl, times as fast |", "|---|---:|---:|---:|"]
    ours = figures[OURS]["tokens_per_s"]
    for name, found in figures.items():
        seconds = {key: value / 1e3 for key, value in found["times"].items() if key != "rounds"}
        spread = f"{seconds['median_ms']:.1f} ({seconds['p20_ms']:.1f} to {seconds['p80_ms']:.1f})"
        ratio = "" if name == OURS else f"{ours / found['tokens_per_s']:.1f}"
        lines.append(f"| {name} | {spread} | {found['tokens_per_s']:.0f} | {ratio} |")
    return "\n".join(lines) + "\n"


def _ours(policy: Policy, prompts: list[list[int]], samples: int, tokens: int) -> Callable[[], int]:
    repeated = [prompt for prompt in prompts for _ in range(samples)]
    seeds = iter(range(2**31))

    def call() -> int:
        own_seeds = [next(seeds) for _ in repeated]
        return sum(len(one.token_ids) for one in decode(policy, repeated, own_seeds, SamplingConfig(), tokens))

    return call


def _transformers(policy: Policy, prompts: list[list[int]], samples: int, tokens: int) -> Callable[[], int]:
    from transformers import AutoModelForCausalLM

    tokenizer = policy.tokenizer
    # As transformers loads it: the policy's has other attention.
    model = AutoModelForCausalLM.from_pretrained(policy.model.name_or_path, dtype=policy.dtype).to(policy.device)
    inputs = tokenizer.pad({"input_ids": prompts}, padding_side="left", return_tensors="pt").to(policy.device)
    sampling = {"do_sample": True, "temperature": 1.0, "top_k": 0, "top_p": 1.0, "num_return_sequences": samples}

    @torch.no_grad()
    def call() -> int:
        sequences = model.generate(
            **inputs,
            **sampling,
            max_new_tokens=tokens,
            eos_token_id=policy.end_token_ids,
            pad_token_id=tokenizer.pad_token_id,
        )
        ended = torch.isin(sequences[:, inputs["input_ids"].shape[1] :], torch.tensor(policy.end_token_ids))
        after_end = ended.cumsum(dim=1) - ended.long() > 0
        return int((~after_end).sum())

    return call


def _vllm(policy: Policy, model: str, prompts: list[list[int]], samples: int, tokens: int) -> Callable[[], int]:
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "WARNING")
    os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "1")  # GiB; otherwise nearly all of the memory
    os.environ.setdefault("VLLM_WORKER_MULTIPROC_METHOD", "spawn")
    from vllm import LLM, SamplingParams

    engine = LLM(model=model, dtype=policy.dtype, max_model_len=max(map(len, prompts)) + tokens)
    sampling = SamplingParams(
        n=samples, temperature=1.0, max_tokens=tokens, stop_token_ids=policy.end_token_ids, detokenize=False
    )

    def call() -> int:
        found = engine.generate([{"prompt_token_ids": ids} for ids in prompts], sampling, use_tqdm=False)
        return sum(len(output.token_ids) for request in found for output in request.outputs)

    return call


if __name__ == "__main__":
    main()
