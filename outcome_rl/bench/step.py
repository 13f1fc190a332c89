"""Tokens a second and peak memory of a training step, and of the rollout before it, beside TRL's GRPOTrainer.

    outcome-rl bench step
    outcome-rl bench step --models toy --rounds 3

Both train the same model in float32 on the same batch (made once, with random advantages), in micro-batches of as many
responses, without a KL term, with AdamW and without gradient checkpointing. Loss and norm of the gradient of the first
step must agree before anything is timed. Steps are timed in rounds, in another order each round. The share of
extraction, matching, counting and bonus in a whole step is measured as well; for a random model, which gives no
answers, on responses of the same lengths that end in one.
"""

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import torch

from outcome_rl.bench.measure import interleaved_times, peak_mib
from outcome_rl.bench.record import add_out, write_result
from outcome_rl.bench.step_trl import INSTALL, TrlStep
from outcome_rl.exploration import Explorer
from outcome_rl.grpo.config.load import load_config
from outcome_rl.grpo.config.schema import ModelConfig, TrainConfig
from outcome_rl.grpo.data.problems import BatchOrder, load_problems
from outcome_rl.grpo.model.policy import Policy
from outcome_rl.grpo.rollout.collector import Collector
from outcome_rl.grpo.rollout.transformers_engine import TransformersEngine
from outcome_rl.grpo.types import Problem, ProblemSet, Rollout, Sample
from outcome_rl.grpo.update.updater import Updater

OURS, TRL = "outcome_rl", "TRL"
LR = 1e-6


class Workload(NamedTuple):
    """What is trained, and on how much."""

    questions: int
    n: int
    prompt_tokens: int
    response_tokens: int  # at most
    micro_batch_size: int  # responses; divides questions * n


WORKLOADS = {
    "toy": Workload(questions=64, n=8, prompt_tokens=8, response_tokens=16, micro_batch_size=128),
    "llama-100m": Workload(questions=4, n=4, prompt_tokens=64, response_tokens=64, micro_batch_size=8),
}


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        prog="outcome-rl bench step", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--models", nargs="+", choices=list(WORKLOADS), default=list(WORKLOADS))
    parser.add_argument("--device", default="cpu", help="cpu or cuda")
    parser.add_argument("--rounds", type=int, default=10, help="of each measurement")
    add_out(parser)
    options = parser.parse_args(argv)
    if options.device == "cpu" and find_spec("trl") is None:
        print(f"TRL is left out: {INSTALL}", file=sys.stderr)
    figures = {name: measure(name, options.device, options.rounds) for name in options.models}
    print(table(figures))
    config = {"rounds": options.rounds, "workloads": {name: WORKLOADS[name]._asdict() for name in options.models}}
    print(f"wrote {write_result(options.out, 'step', config, figures)}", file=sys.stderr)


def measure(name: str, device: str, rounds: int) -> dict[str, dict[str, Any]]:
    """Figures of each trainer: milliseconds of a step and of a rollout, tokens of each, MiB at the peak of a step."""
    workload = WORKLOADS[name]
    config = _config(workload)
    with TemporaryDirectory() as folder:
        settings = ModelConfig(path=_model(name, Path(folder)), device=device)
        policy = Policy.load(settings)
        prompts, problems = _prompts(policy, workload)
        engine = TransformersEngine(policy, workload.questions * workload.n)
        rollouts = engine.generate(prompts, config.rollout, workload.response_tokens, seed=0)
        batch = _scored(rollouts)
        updater = Updater(policy, config, total_steps=1000)

        def our_step() -> None:
            updater.step(batch)
            updater.optimizer.zero_grad()  # as TRL does: else the gradients would be there before the next step

        steps: dict[str, Callable[[], object]] = {OURS: our_step}
        generation: dict[str, Callable[[], object]] = {
            OURS: partial(engine.generate, prompts, config.rollout, workload.response_tokens, seed=0)
        }
        sampled = {OURS: _num_tokens(rollouts)}
        if find_spec("trl") is not None:
            trl = TrlStep(Policy.load(settings), batch, n=workload.n, micro_batch_size=workload.micro_batch_size, lr=LR)
            steps[TRL], generation[TRL] = trl, partial(trl.generate, prompts, workload.n)
            first, (loss, norm) = updater.step(batch), trl()
            check_agreement((first["actor/loss"], first["actor/grad_norm"]), (loss, norm))
            sampled[TRL] = trl.generate(prompts, workload.n)
        timed = partial(interleaved_times, device=policy.device, warmups=1, rounds=rounds, seconds=600)
        step_times, rollout_times = timed(steps), timed(generation)
        figures: dict[str, dict[str, Any]] = {
            trainer: {
                "step": step_times[trainer],
                "rollout": rollout_times[trainer],
                "trained_tokens": _num_tokens(rollouts),
                "sampled_tokens": sampled[trainer],
                "peak_mib": peak_mib(step, policy.device),
            }
            for trainer, step in steps.items()
        }
        whole_ms = step_times[OURS]["median_ms"] + rollout_times[OURS]["median_ms"]
        scored = rollouts if name == "toy" else _with_answers(policy, rollouts)
        figures[OURS]["outcomes_ms"] = _outcomes_ms(policy, config, problems, scored, rounds)
        figures[OURS]["outcomes_share"] = figures[OURS]["outcomes_ms"] / (whole_ms + figures[OURS]["outcomes_ms"])
        return figures


def check_agreement(ours: tuple[float, float], theirs: tuple[float, float]) -> None:
    """Loss and norm of the gradient of both trainers on one batch.

    Raises:
        ValueError: they differ by more than float32 rounding, so the two do not do the same work.
    """
    for what, our, their in zip(("loss", "norm of the gradient"), ours, theirs, strict=True):
        if abs(our - their) > 1e-3 * max(abs(our), abs(their), 1e-3):
            raise ValueError(f"the {what} of {OURS} is {our}, of {TRL} {their}: nothing is timed")


def table(figures: dict[str, dict[str, dict[str, Any]]]) -> str:
    """In Markdown, a row for each model and trainer."""
    lines = [
        "| model | trainer | training, tokens/s | rollout, tokens/s | peak of training, MiB | outcomes, of a step |",
        "|---|---|---|---|---|---|",
    ]
    for model, trainers in figures.items():
        for trainer, found in trainers.items():
            training = 1e3 * found["trained_tokens"] / found["step"]["median_ms"]
            rollout = 1e3 * found["sampled_tokens"] / found["rollout"]["median_ms"]
            peak = "" if found["peak_mib"] is None else f"{found['peak_mib']:.0f}"
            share = f"{found['outcomes_share']:.2%}" if "outcomes_share" in found else ""  # TRL's is not measured
            lines.append(f"| {model} | {trainer} | {training:.0f} | {rollout:.0f} | {peak} | {share} |")
    return "\n".join(lines) + "\n"


def _config(workload: Workload) -> TrainConfig:
    config = load_config(
        "toy",
        [
            f"data.train_batch_size={workload.questions}",
            f"data.max_prompt_length={workload.prompt_tokens}",
            f"data.max_response_length={workload.response_tokens}",
            f"rollout.n={workload.n}",
            f"actor.ppo_micro_batch_size_per_gpu={workload.micro_batch_size}",
            "actor.kl_loss_coef=0",
            f"actor.optim.lr={LR}",
            "actor.optim.lr_warmup_steps=0",
            "exploration.answer_mask_mode=none",
        ],
    )
    return replace(config, rollout=replace(config.rollout, temperature=1.0))


def _model(name: str, folder: Path) -> str:
    """The path of a model: the toy policy, or a random Llama of 100 million parameters with its tokenizer."""
    if name == "toy":
        return name
    from transformers import LlamaConfig, LlamaForCausalLM

    tokenizer = Policy.load(ModelConfig(path="toy", device="cpu")).tokenizer
    torch.manual_seed(0)
    model = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=32000,
            hidden_size=640,
            intermediate_size=2048,
            num_hidden_layers=12,
            num_attention_heads=10,
            num_key_value_heads=10,
            eos_token_id=tokenizer.eos_token_id,
            bos_token_id=tokenizer.bos_token_id,
            pad_token_id=tokenizer.pad_token_id,
        )
    )
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return str(folder)


def _prompts(policy: Policy, workload: Workload) -> tuple[list[list[int]], list[Problem]]:
    """Prompts of as many tokens each: toy problems, repeated where that takes more than one."""
    config = load_config("toy", [])
    problems = list(load_problems(["toy:train"], config.data, workload.questions).problems)
    prompts = [policy.tokenizer(problem.problem)["input_ids"] for problem in problems]
    return [(ids * workload.prompt_tokens)[: workload.prompt_tokens] for ids in prompts], problems


def _num_tokens(rollouts: Sequence[Rollout]) -> int:
    return sum(len(rollout.token_ids) for rollout in rollouts)


def _scored(rollouts: Sequence[Rollout]) -> list[Sample]:
    generator = torch.Generator().manual_seed(0)
    advantages = torch.randn(len(rollouts), generator=generator).tolist()
    bonuses = torch.rand(len(rollouts), generator=generator).tolist()
    correct = (torch.rand(len(rollouts), generator=generator) < 0.5).tolist()
    question = Problem("", "", "")
    rows = zip(rollouts, correct, advantages, bonuses, strict=True)
    return [Sample(question, rollout, None, right, 0, a, b) for rollout, right, a, b in rows]


def _with_answers(policy: Policy, rollouts: Sequence[Rollout]) -> list[Rollout]:
    """Responses of the same lengths, each of them another number in a box behind numbers."""
    completions = []
    for row, rollout in enumerate(rollouts):
        length = len(rollout.token_ids)
        answer = policy.tokenizer(f"\\boxed{{ {row % 50} }}")["input_ids"]
        before = policy.tokenizer(" ".join(str((row + place) % 50) for place in range(length)))["input_ids"]
        completions.append(Rollout.decoded(policy.tokenizer, rollout.prompt_ids, [*before, *answer][-length:]))
    return completions


def _outcomes_ms(
    policy: Policy, config: TrainConfig, problems: Sequence[Problem], rollouts: Sequence[Rollout], rounds: int
) -> float:
    """Median milliseconds from responses to advantages, with a new count table each time."""
    config = replace(config, exploration=replace(config.exploration, answer_mask_mode="policy"))
    milliseconds = []
    for _ in range(rounds + 1):  # the first fills caches
        with Explorer() as explorer:
            order = BatchOrder(len(problems), len(problems), shuffle=False, seed=0)
            engine = TransformersEngine(policy, len(rollouts))
            collector = Collector(config, ProblemSet("toy", tuple(problems), ""), order, policy, engine, explorer)
            begin = time.perf_counter()
            collector.score(problems, rollouts)
            milliseconds.append(1e3 * (time.perf_counter() - begin))
    return float(torch.tensor(milliseconds[1:]).median())


if __name__ == "__main__":
    main()
