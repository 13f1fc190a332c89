"""Time and error of the policy loss with sampled gradients, on the responses of SmolLM2-135M-Instruct, on the CPU.

    python -m experiments.smollm2 model      # once
    OMP_NUM_THREADS=1 python -m bench.sampled --threads 1

All losses run in rounds in one process, beside the floor: the three matrix products that a dense loss cannot do
without, of which two multiply gradients of logits, as those losses do. A figure is the median over rounds of the ratio
to the floor of the same round, with the second smallest and the second largest ratio. Errors are those of the gradients
of hidden states and of the weight, relative in norm, against float64.
"""

import argparse
import statistics
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from bench.accuracy import gradients
from bench.baselines import BASELINES, COMPILED, Baseline
from bench.cases import Batch, Case, Spec, make_case
from bench.result_file import add_out, measured_on, write_result
from outcome_rl_kernels import linear_policy_loss
from outcome_rl_kernels.backends import in_huge_pages

TEMPERATURES = (1.0, 0.7, 0.5)
OTHERS = (COMPILED, "TRL chunked log-probs", "CCE")
FLOOR = "three products"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.sampled", description=__doc__)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--tokens", type=int, default=512)
    parser.add_argument("--sample-below", type=float, default=1.25e-4)
    parser.add_argument("--temperatures", type=float, nargs="+", default=TEMPERATURES)
    add_out(parser)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    sections = {}
    for temperature in options.temperatures:
        spec = Spec(
            model="SmolLM2-135M",
            dtype=torch.bfloat16,
            sequences=8,
            length=options.tokens // 8,
            layout="packed",
            temperature=temperature,
            beta=0.0,
        )
        case = make_case(spec, torch.device("cpu"))
        sections[f"temperature {temperature:g}"] = section = measure(case, options.sample_below, options.rounds)
        print(f"temperature {temperature:g}: {len(case.hidden)} tokens, {case.entropy:.2f} nats", flush=True)
        for name, row in section.items():
            print(f"  {name:32} " + "  ".join(f"{key} {value:.3g}" for key, value in row.items()), flush=True)
    config = {"threads": options.threads, "rounds": options.rounds, "sample_below": options.sample_below}
    write_result(options.out, f"sampled-cpu-{options.threads}", config, {"sections": sections})


def measure(case: Case, sample_below: float, rounds: int) -> dict[str, dict[str, float]]:
    """Return for each loss its ratio to the floor with bounds, its errors, and the entries that it keeps a token."""
    exact_hidden, exact_weight, logit_gradients = truth(case)
    calls: dict[str, Callable[[], object]] = {FLOOR: partial(products, case, logit_gradients)}
    rows: dict[str, dict[str, float]] = {}
    variants: dict[str, dict[str, Any]] = {
        "outcome_rl": {},
        "outcome_rl, sampled": {"sample_below": sample_below},
        "outcome_rl, fp32_logits": {"fp32_logits": True},
        "outcome_rl, sampled, fp32_logits": {"sample_below": sample_below, "fp32_logits": True},
    }
    losses: dict[str, Callable[..., Tensor]] = {name: partial(_ours, **how) for name, how in variants.items()}
    losses |= {other.name: other.loss for other in _installed()}
    inputs = case.hidden, case.weight
    for name, loss in losses.items():
        calls[name] = partial(gradients, loss, inputs, case.batch)
        kept: list[float] = []
        checked = partial(loss, kept=kept) if name in variants else loss
        _, (hidden_grad, weight_grad) = gradients(checked, inputs, case.batch)
        errors = {"error_hidden": _relative(hidden_grad, exact_hidden)}
        errors["error_weight"] = _relative(weight_grad, exact_weight)
        rows[name] = errors | ({"entries": kept[0]} if kept else {})
    times: dict[str, list[float]] = {name: [] for name in calls}
    for done in range(rounds + 1):
        for name, call in calls.items():
            start = time.perf_counter()
            call()
            if done:  # the first round warms up
                times[name].append(time.perf_counter() - start)
    for name, row in rows.items():
        ratios = sorted(mine / floor for mine, floor in zip(times[name], times[FLOOR], strict=True))
        row |= {"ratio": statistics.median(ratios), "from": ratios[1], "to": ratios[-2]}
    return {FLOOR: {"seconds": statistics.median(times[FLOOR])}} | rows


def truth(case: Case) -> tuple[Tensor, Tensor, Tensor]:
    """Return the gradients of hidden states and weight in float64, and those of the logits in the operands' dtype."""
    hidden, weight = case.hidden.double(), case.weight.double()
    logit_gradients = (hidden @ weight.T).softmax(dim=-1)
    logit_gradients[torch.arange(len(hidden)), case.batch.labels_N] -= 1
    logit_gradients *= (case.batch.advantages_N.double() / len(hidden))[:, None]
    return logit_gradients @ weight, logit_gradients.T @ hidden, logit_gradients.to(case.hidden.dtype)


def products(case: Case, logit_gradients: Tensor) -> None:
    torch.mm(case.hidden, case.weight.t(), out=in_huge_pages(torch.empty_like(logit_gradients)))
    torch.mm(logit_gradients, case.weight)
    torch.mm(logit_gradients.t(), case.hidden, out=in_huge_pages(torch.empty_like(case.weight)))


def _ours(hidden: Tensor, weight: Tensor, batch: Batch, kept: list[float] | None = None, **how: Any) -> Tensor:
    """Return our loss; `kept` gets the number of entries a token."""
    given = batch.labels, batch.advantages, batch.mask
    output = linear_policy_loss(hidden, weight, *given, cu_seqlens=batch.cu_seqlens, impl="native", **how)
    if kept is not None and "sampled_entries" in output.metrics:
        kept.append(float(output.metrics["sampled_entries"]))
    return output.loss


def _installed() -> list[Baseline]:
    return [one for one in BASELINES if one.name in OTHERS and one.obstacle(torch.device("cpu")) is None]


def _relative(found: Tensor, exact: Tensor) -> float:
    return float((found.double() - exact).norm() / exact.norm())


def table(records: Sequence[dict[str, Any]]) -> str:
    """Return ratios and errors of result files, one for each number of threads, in Markdown."""
    heading = ["SmolLM2-135M's own responses, bfloat16", "threads", "dense", "sampled", "sampled, `fp32_logits`"]
    heading += ["entries a token", "errors, dense", "errors, sampled", "errors, sampled, `fp32_logits`"]
    lines = [f"| {' | '.join(heading)} |", "|---" * len(heading) + "|"]
    for name in records[0]["figures"]["sections"]:
        for record in records:
            rows = record["figures"]["sections"][name]
            shown = [rows[f"outcome_rl{suffix}"] for suffix in ("", ", sampled", ", sampled, fp32_logits")]
            times = [f"{row['ratio']:.2f} ({row['from']:.2f} to {row['to']:.2f})" for row in shown]
            errors = [f"{row['error_hidden']:.1e}, {row['error_weight']:.1e}" for row in shown]
            cells = [name, str(record["config"]["threads"]), *times, f"{shown[1]['entries']:.0f}", *errors]
            lines.append(f"| {' | '.join(cells)} |")
    return "\n".join([*lines, f"\n{measured_on(records[0])}"]) + "\n"


if __name__ == "__main__":
    main()
