"""Time of the losses where logits of a row lie far apart, on the CPU: no gap may make a product slower.

    OMP_NUM_THREADS=1 python -m bench.gaps

Half of the vocabulary lies `gap` below the rest, or one token above it: forbidden tokens, and a policy that is sure. A
probability below the normal numbers of float32 makes products up to 90 times as slow, so the losses take it as 0. All
gaps of a loss run in turns in one process; a figure is the median over rounds of the time over that of the same round
without a gap.
"""

import argparse
import math
from collections.abc import Callable, Sequence
from functools import partial

import torch
from torch import Tensor

from bench.result_file import add_out, write_result
from outcome_rl.bench.measure import Call, interleaved_times
from outcome_rl_kernels import linear_divergence, linear_logprobs, linear_policy_loss

H, V, ROWS = 512, 8192, 512
GAPS = (0.0, 60.0, 100.0, 1e4, torch.inf)
PLACES = {"half of the tokens below": slice(0, V, 2), "one token above": slice(1, 2)}
SAMPLE_BELOW = 1 / 256


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.gaps", description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=9)
    add_out(parser)
    options = parser.parse_args(argv)
    torch.set_num_threads(1)
    figures = {
        f"{name}, {str(dtype).removeprefix('torch.')}: {place}": over_gaps(loss, place, dtype, options.rounds)
        for dtype in (torch.float32, torch.bfloat16)
        for name, loss in LOSSES.items()
        for place in PLACES
    }
    print(table(figures))
    config = {"shape": [ROWS, H, V], "rounds": options.rounds, "sample_below": SAMPLE_BELOW}
    print(f"wrote {write_result(options.out, 'gaps-cpu', config, figures)}")


def over_gaps(loss: Callable[..., Tensor], place: str, dtype: torch.dtype, rounds: int) -> dict[str, float]:
    """Return for each gap the median ratio of the time to that without one."""
    calls = {f"{gap:g}": call_of(loss, place, gap, dtype) for gap in GAPS if gap < torch.inf or "below" in place}
    device = torch.device("cpu")
    times = interleaved_times(calls, device, warmups=1, rounds=rounds, seconds=math.inf, floor="0")
    return {name: one["of_floor"]["ratio"] for name, one in times.items()}


def call_of(loss: Callable[..., Tensor], place: str, gap: float, dtype: torch.dtype) -> Call:
    """Return a call of forward and backward."""
    generator = torch.Generator().manual_seed(0)
    hidden = torch.randn(ROWS, H, generator=generator).to(dtype).requires_grad_()
    weight = (torch.randn(V, H, generator=generator) / H**0.5).to(dtype).requires_grad_()
    labels = 2 * torch.randint(V // 2, (ROWS,), generator=generator) + 1  # never of the lower half
    bias = torch.zeros(V)
    bias[PLACES[place]] = -gap if "below" in place else gap
    return lambda: torch.autograd.grad(loss(hidden, weight, labels, bias.to(dtype)), (hidden, weight))


def policy_loss(hidden: Tensor, weight: Tensor, labels: Tensor, bias: Tensor, below: float) -> Tensor:
    batch = labels[None], torch.ones(1), torch.ones(1, len(labels), dtype=torch.bool)
    return linear_policy_loss(hidden[None], weight, *batch, bias=bias, sample_below=below, sample_seed=0).loss


def logprobs(hidden: Tensor, weight: Tensor, labels: Tensor, bias: Tensor) -> Tensor:
    return linear_logprobs(hidden, weight, labels, bias=bias)[0].sum()


def divergence(hidden: Tensor, weight: Tensor, labels: Tensor, bias: Tensor) -> Tensor:
    mask = torch.ones(1, len(labels), dtype=torch.bool)
    teacher = hidden.detach()[None] / 2, weight.detach()
    return linear_divergence(hidden[None], weight, *teacher, mask, bias=bias, teacher_bias=bias).loss


def plain(hidden: Tensor, weight: Tensor, labels: Tensor, bias: Tensor) -> Tensor:
    logits = torch.nn.functional.linear(hidden, weight, bias)
    return logits.float().log_softmax(dim=-1).gather(1, labels[:, None]).sum()


LOSSES: dict[str, Callable[..., Tensor]] = {
    "linear_policy_loss": partial(policy_loss, below=0.0),
    "linear_policy_loss, sampled": partial(policy_loss, below=SAMPLE_BELOW),
    "linear_logprobs": logprobs,
    "linear_divergence": divergence,
    "plain PyTorch": plain,
}


def table(figures: dict[str, dict[str, float]]) -> str:
    """Return the larger ratio of both places, by loss and gap."""
    gaps = [f"{gap:g}" for gap in GAPS]
    lines = [f"| gap | {' | '.join(gaps)} |", "|---|" + "---:|" * len(gaps)]
    for loss in dict.fromkeys(name.partition(":")[0] for name in figures):
        rows = [row for name, row in figures.items() if name.partition(":")[0] == loss]
        worst = (max(row[gap] for row in rows if gap in row) for gap in gaps)
        lines.append(f"| {loss} | {' | '.join(f'{ratio:.2f}' for ratio in worst)} |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
