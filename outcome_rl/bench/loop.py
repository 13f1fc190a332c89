"""A whole training step of the toy task, beside the loop that one would write with transformers and PyTorch.

    outcome-rl bench loop

The plain loop samples with `model.generate`, passes whole sequences through the policy and a frozen reference, takes
log-softmax and gather of all their logits, and steps AdamW. Problems, scoring, advantages, micro-batches and threads
are those of `outcome-rl train --config toy`. First both losses and gradients are compared on the same responses;
then whole steps are timed in turns. The learning rate is so small that no step changes the work of the next.
"""

import argparse
import statistics
import time
from collections.abc import Sequence
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from outcome_rl.bench.measure import interleaved_times
from outcome_rl.bench.padding import Padded, answer_mask, pad_rollouts
from outcome_rl.bench.record import add_out, write_result
from outcome_rl.grpo.config.load import load_config
from outcome_rl.grpo.trainer import Trainer
from outcome_rl.grpo.types import Rollout, Sample

PARTS = ("rollout", "outcomes", "reference", "update")
LOOPS = {"outcome_rl": "outcome_rl", "plain": "model.generate, eager loss and reference"}
WORST_ERROR = 1e-4  # of loss and gradient, relative, in float32


class PlainLoop:
    """One training step without anything of this library but its scores."""

    def __init__(self, trainer: Trainer) -> None:
        self.trainer = trainer
        self.policy, self.config = trainer.policy, trainer.config
        self.reference = self.policy.frozen_copy()
        self.optimizer = torch.optim.AdamW(self.policy.model.parameters(), lr=self.config.actor.optim.lr)

    def step(self, number: int) -> dict[str, float]:
        """Seconds of each part of a step."""
        trainer, actor = self.trainer, self.config.actor
        chosen = trainer.order.batch(number)
        marks = [time.perf_counter()]
        rollouts = self.generate([trainer.train_set.prompts[i] for i in chosen])
        marks.append(time.perf_counter())
        batch, _ = trainer.collector.score([trainer.train_set.problems[i] for i in chosen], rollouts)
        marks.append(time.perf_counter())
        padded = self.pad(rollouts)
        with torch.no_grad():
            size = actor.ppo_micro_batch_size_per_gpu
            starts = range(0, len(batch), size)
            ref_logps = [self.logps(self.reference.model, padded, slice(i, i + size)) for i in starts]
        marks.append(time.perf_counter())
        self.optimizer.zero_grad(set_to_none=True)
        for start, ref in zip(starts, ref_logps, strict=True):
            self.loss(batch, padded, slice(start, start + size), ref).backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(self.policy.model.parameters(), actor.grad_clip)
        self.optimizer.step()
        marks.append(time.perf_counter())
        return {part: end - start for part, start, end in zip(PARTS, marks, marks[1:], strict=False)}

    @torch.no_grad()
    def generate(self, prompts: Sequence[Sequence[int]]) -> list[Rollout]:
        model, tokenizer = self.policy.model, self.policy.tokenizer
        inputs = tokenizer.pad({"input_ids": list(prompts)}, return_tensors="pt").to(self.policy.device)
        n, width = self.config.rollout.n, inputs.input_ids.shape[1]
        sampled = model.generate(
            input_ids=inputs.input_ids,
            attention_mask=inputs.attention_mask,
            num_return_sequences=n,
            max_new_tokens=self.config.data.max_response_length,
        )[:, width:]
        # Up to and including the first end token.
        ends_before = (sampled == tokenizer.eos_token_id).cumsum(dim=1).roll(1, dims=1)
        ends_before[:, 0] = 0
        lengths = (ends_before == 0).sum(dim=1).tolist()
        texts = tokenizer.batch_decode(sampled, skip_special_tokens=True)
        columns = zip(sampled.tolist(), lengths, texts, strict=True)
        return [Rollout(prompts[row // n], ids[:length], text) for row, (ids, length, text) in enumerate(columns)]

    def pad(self, rollouts: Sequence[Rollout]) -> Padded:
        return pad_rollouts(rollouts, self.policy.tokenizer.pad_token_id, self.policy.device)

    def logps(self, model: Any, rollouts: Padded, rows: slice) -> Tensor:
        ids = torch.cat([rollouts.prompt_ids[rows], rollouts.completion_ids[rows]], dim=1)
        mask = torch.cat([rollouts.prompt_mask[rows], rollouts.completion_mask[rows]], dim=1).long()
        width = rollouts.prompt_ids.shape[1]
        logits = model(input_ids=ids, attention_mask=mask, use_cache=False).logits[:, width - 1 : -1]
        found: Tensor = F.log_softmax(logits, dim=-1).gather(-1, rollouts.completion_ids[rows, :, None])[..., 0]
        return found

    def loss(self, batch: Sequence[Sample], padded: Padded, rows: slice, ref: Tensor) -> Tensor:
        """Of some rows, so that the rows' losses add up to the token mean of the batch."""
        mask = padded.completion_mask[rows]
        logps = self.logps(self.policy.model, padded, rows)
        coefficients = torch.tensor([sample.advantage + sample.bonus for sample in batch[rows]], device=mask.device)
        advantages = coefficients[:, None] * ~answer_mask(batch[rows], mask.shape[1], mask.device)
        ratio = torch.exp(logps - logps.detach())
        k3 = torch.exp(ref - logps) - (ref - logps) - 1
        per_token = self.config.actor.kl_loss_coef * k3 - ratio * advantages
        return (per_token * mask).sum() / padded.completion_mask.sum()


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        prog="outcome-rl bench loop", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=20, help="steps of each loop (%(default)s)")
    parser.add_argument("--threads", type=int, default=1, help="of PyTorch (%(default)s)")
    parser.add_argument("--set", nargs="*", default=[], metavar="KEY=VALUE", help="settings of both loops")
    add_out(parser)
    arguments = parser.parse_args(argv)
    figures = measure(arguments.rounds, arguments.threads, arguments.set)
    config = {"preset": "toy", "settings": arguments.set, "threads": arguments.threads}
    print(f"{table(figures)}\n\nwrote {write_result(arguments.out, 'loop-cpu', config, figures)}")


def measure(rounds: int, threads: int, settings: Sequence[str]) -> dict[str, Any]:
    """Compare both loops, then time them in turns."""
    with TemporaryDirectory() as folder:
        fixed = [
            "actor.optim.lr=1e-12",
            "model.device=cpu",
            f"trainer.num_threads={threads}",
        ]
        trainer = Trainer(load_config("toy", [*settings, *fixed, f"trainer.default_local_dir={folder}"]))
        try:
            plain = PlainLoop(trainer)
            error = compare(trainer, plain)
            print(f"largest relative difference of loss and gradient: {error:.1e}", flush=True)
            parts: dict[str, list[dict[str, float]]] = {name: [] for name in LOOPS}

            def ours() -> None:
                row = trainer._train_step()[1]
                parts["outcome_rl"].append({part: row[f"time/{part}_s"] for part in PARTS})

            times = interleaved_times(
                {"outcome_rl": ours, "plain": lambda: parts["plain"].append(plain.step(1))},
                trainer.policy.device,
                warmups=2,
                rounds=rounds,
                seconds=float("inf"),
            )
        finally:
            trainer.close()
    return {
        "error": error,
        "steps": times,
        "parts_ms": {
            name: {part: 1e3 * statistics.median(row[part] for row in rows[-rounds:]) for part in PARTS}
            for name, rows in parts.items()
        },
    }


def compare(trainer: Trainer, plain: PlainLoop) -> float:
    """The largest relative difference of loss and gradient on the same responses.

    Raises:
        ArithmeticError: it is beyond rounding, so that the loops do not do the same.
    """
    chosen = trainer.order.batch(1)
    rollouts = plain.generate([trainer.train_set.prompts[i] for i in chosen])
    batch, _ = trainer.collector.score([trainer.train_set.problems[i] for i in chosen], rollouts)
    padded = plain.pad(rollouts)
    rows = slice(0, len(batch))
    plain.optimizer.zero_grad(set_to_none=True)
    for reference in (plain.reference, trainer.updater.reference):
        assert reference is not None
        reference.model.load_state_dict(_moved(trainer.policy.model.state_dict()))
    with torch.no_grad():
        reference_logps = plain.logps(plain.reference.model, padded, rows)
    loss = plain.loss(batch, padded, rows, reference_logps)
    loss.backward()  # type: ignore[no-untyped-call]
    norm = torch.nn.utils.get_total_norm([p.grad for p in plain.policy.model.parameters() if p.grad is not None])
    metrics = trainer.updater.step(batch)
    pairs = ((loss.item(), metrics["actor/loss"]), (norm.item(), metrics["actor/grad_norm"]))
    error = max(abs(a - b) / max(abs(a), 1e-6) for a, b in pairs)
    if error > WORST_ERROR:
        raise ArithmeticError(f"loss and gradient norm of the plain loop and of ours differ: {pairs}")
    return error


def _moved(weights: dict[str, Tensor]) -> dict[str, Tensor]:
    """Away from the policy, where the KL term and its gradient would be zero, the same for both references."""
    return {name: 1.05 * weight for name, weight in weights.items()}


def table(figures: dict[str, Any]) -> str:
    """Milliseconds of a step and of its parts, in Markdown."""
    lines = [
        f"| | steps/s | step, ms | {', ms | '.join(PARTS)}, ms |",
        "|---|---:|---:|" + "---:|" * len(PARTS),
    ]
    for name, label in LOOPS.items():
        step = figures["steps"][name]
        cells = [f"{1e3 / step['median_ms']:.2f}"]
        cells.append(f"{step['median_ms']:.0f} ({step['p20_ms']:.0f} to {step['p80_ms']:.0f})")
        cells += [f"{figures['parts_ms'][name][part]:.0f}" for part in PARTS]
        lines.append(f"| {label} | {' | '.join(cells)} |")
    ratio = figures["steps"]["plain"]["median_ms"] / figures["steps"]["outcome_rl"]["median_ms"]
    return "\n".join([*lines, "", f"{ratio:.2f} times the steps/s of the plain loop."])


if __name__ == "__main__":
    main()
