"""Time of the policy loss, forward and backward, from hidden states, against its floor of three matrix products.

    python bench/loss.py --dtype float32 bfloat16

Accuracy against float64 is checked first. All variants run in one process, one after another in every round, and each
is reported as the ratio of its median to the median of the three products of the same rounds.
"""

import argparse
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
from record import write_result
from torch import Tensor

from outcome_rl_kernels.checks import token_batch
from outcome_rl_kernels.fused_policy_loss import fused_policy_loss
from outcome_rl_kernels.reference import LossSettings, TokenBatch, policy_loss_from_logits

SETTINGS = LossSettings(beta=0.001)
Loss = Callable[[Tensor, Tensor], Tensor]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shape", nargs=4, type=int, default=[8, 64, 512, 32000], metavar=("B", "T", "H", "V"))
    parser.add_argument("--dtype", nargs="+", default=["float32", "bfloat16"], choices=["float32", "bfloat16"])
    parser.add_argument("--rounds", type=int, default=15)
    arguments = parser.parse_args()
    figures = {dtype: compare(getattr(torch, dtype), *arguments.shape, arguments.rounds) for dtype in arguments.dtype}
    for dtype, rows in figures.items():
        print(f"\n{dtype}\n| | median ms | of three products | error of the weight's gradient |\n|---|---|---|---|")
        for name, row in rows.items():
            error = f"{row['weight_grad_error']:.1e}" if "weight_grad_error" in row else ""
            print(f"| {name} | {row['median_ms']:.0f} | {row['of_floor']:.2f} | {error} |")
    print(f"\nwrote {write_result('loss-cpu', {'shape_BTHV': arguments.shape, 'rounds': arguments.rounds}, figures)}")


def compare(dtype: torch.dtype, B: int, T: int, H: int, V: int, rounds: int) -> dict[str, dict[str, float]]:
    """Medians of every variant, after the check of its gradient."""
    generator = torch.Generator().manual_seed(0)
    hidden = torch.randn(B * T, H, generator=generator).to(dtype)
    weight = (0.05 * torch.randn(V, H, generator=generator)).to(dtype)
    batch, _ = token_batch(
        torch.randint(V, (B, T), generator=generator),
        torch.randn(B, generator=generator),
        torch.ones(B, T, dtype=torch.bool),
        bonuses=0.1 * torch.randn(B, generator=generator),
        answer_mask=torch.rand(B, T, generator=generator) < 0.1,
        ref_logps=torch.randn(B, T, generator=generator) - 10,
        old_logps=None,
        rollout_weights=None,
        cu_seqlens=None,
        device=hidden.device,
    )
    logits_bytes = B * T * V * hidden.element_size()
    variants: dict[str, Loss] = {
        "plain PyTorch": lambda h, w: eager(h, w, batch),
        "plain PyTorch, torch.compile": torch.compile(lambda h, w: eager(h, w, batch)),
        "fused, workspace of all logits": lambda h, w: (
            fused_policy_loss(h, w, None, batch, SETTINGS, None, logits_bytes).loss
        ),
        "fused, workspace of a quarter": lambda h, w: (
            fused_policy_loss(h, w, None, batch, SETTINGS, None, logits_bytes // 4).loss
        ),
    }
    truth = gradients(variants["plain PyTorch"], hidden.double(), weight.double())
    result: dict[str, dict[str, Any]] = {"three matrix products": {}}
    for name, loss in variants.items():
        error = (gradients(loss, hidden, weight).double() - truth).norm() / truth.norm()
        result[name] = {"weight_grad_error": error.item()}
    allowed = 2 * result["plain PyTorch"]["weight_grad_error"]
    for name, row in result.items():
        if row.get("weight_grad_error", 0.0) > allowed:
            raise RuntimeError(f"{name}: error {row['weight_grad_error']:.1e} against {allowed:.1e} allowed; not timed")

    logits = torch.empty(B * T, V, dtype=dtype)

    def products() -> None:
        torch.mm(hidden, weight.t(), out=logits)
        torch.mm(logits, weight)
        torch.mm(logits.t(), hidden)

    calls: dict[str, Callable[[], Any]] = {"three matrix products": products}
    calls |= {name: lambda loss=loss: gradients(loss, hidden, weight) for name, loss in variants.items()}
    times: dict[str, list[float]] = {name: [] for name in calls}
    for round_number in range(rounds + 2):  # two to warm up
        for name, call in calls.items():
            start = time.perf_counter()
            call()
            if round_number >= 2:
                times[name].append(1e3 * (time.perf_counter() - start))
    floor = statistics.median(times["three matrix products"])
    for name, measured in times.items():
        median = statistics.median(measured)
        low, _, _, _, _, _, _, _, high = statistics.quantiles(measured, n=10)
        result[name] |= {"median_ms": median, "p10_ms": low, "p90_ms": high, "of_floor": median / floor}
    return result


def eager(hidden: Tensor, weight: Tensor, batch: TokenBatch) -> Tensor:
    return policy_loss_from_logits(hidden @ weight.t(), batch, SETTINGS).loss


def gradients(loss: Loss, hidden: Tensor, weight: Tensor) -> Tensor:
    hidden, weight = hidden.detach().requires_grad_(), weight.detach().requires_grad_()
    loss(hidden, weight).backward()
    assert weight.grad is not None
    return weight.grad


if __name__ == "__main__":
    main()
