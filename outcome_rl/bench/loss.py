"""Time, peak memory and error of the policy loss on this machine, for the head of one model.

The loss is compared with plain PyTorch, with and without torch.compile, and with the time of the three matrix products
that no loss from hidden states can do without, each in the layout that is fastest here. All run in rounds on the same
random inputs. The error is the relative error of the gradients, compared with float64, on the first `CHECKED` tokens.
"""

import math
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor

from outcome_rl.bench.measure import Times, fastest_products, interleaved_times, layouts_text, peak_mib, ratio_text
from outcome_rl.terminal.tables import print_table
from outcome_rl_kernels import linear_policy_loss, policy_loss
from outcome_rl_kernels.dtypes import preferred_dtype

CHECKED = 64
EPSILON = 0.2  # the default of `linear_policy_loss`
PRODUCTS = "three matrix products"
ROWS = "softmax and gradient"
SIZES = {"cpu": (512, 32_000, 512), "cuda": (4096, 128_256, 16_384)}  # hidden, vocabulary, tokens


class Inputs(NamedTuple):
    """N tokens of sequences of one token each: hidden states (N, H), weight (V, H), labels and advantages (N,)."""

    hidden: Tensor
    weight: Tensor
    labels: Tensor
    advantages: Tensor


def fused(inputs: Inputs) -> Tensor:
    """Return the loss of this library."""
    labels_N1 = inputs.labels[:, None]
    mask_N1 = torch.ones_like(labels_N1, dtype=torch.bool)
    return linear_policy_loss(inputs.hidden[:, None], inputs.weight, labels_N1, inputs.advantages, mask_N1).loss


def plain(inputs: Inputs) -> Tensor:
    """Return the same loss in plain PyTorch: ratio, clip, mean over the tokens."""
    hidden, weight, labels, advantages = inputs
    logits_NV = hidden @ weight.t()
    wide_NV = logits_NV if logits_NV.dtype == torch.float64 else logits_NV.float()
    logps = wide_NV.log_softmax(dim=-1).gather(1, labels[:, None])[:, 0]
    ratios = (logps - logps.detach()).exp()
    return -torch.minimum(ratios * advantages, ratios.clamp(1 - EPSILON, 1 + EPSILON) * advantages).mean()


def gradients(loss: Callable[[Inputs], Tensor], inputs: Inputs) -> tuple[Tensor, Tensor]:
    """Return the gradients of the hidden states and of the weight."""
    hidden, weight = (tensor.detach().requires_grad_() for tensor in inputs[:2])
    loss(inputs._replace(hidden=hidden, weight=weight)).backward()  # type: ignore[no-untyped-call]
    assert hidden.grad is not None
    assert weight.grad is not None
    return hidden.grad, weight.grad


def measure(
    device: str | None, hidden: int | None, vocabulary: int | None, tokens: int | None, rounds: int | None
) -> None:
    """Print a table with a row for each loss; None takes the default of the device."""
    if device == "cuda" and not torch.cuda.is_available():
        raise ValueError("--device cuda, but PyTorch sees no GPU; use --device cpu")
    place = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
    on_gpu = place.type == "cuda"
    given = (hidden, vocabulary, tokens)
    H, V, N = (size or default for size, default in zip(given, SIZES[place.type], strict=True))
    dtype, _ = preferred_dtype(place)
    inputs = _random_inputs(H, V, N, dtype, place)
    compiled = torch.compile(plain, fullgraph=True, dynamic=False)  # static shapes: its best case
    losses = {"outcome_rl": fused, "plain PyTorch": plain, "with torch.compile": compiled}
    floor, layouts = fastest_products(inputs.hidden, inputs.weight, logits := inputs.hidden @ inputs.weight.t())
    leaf = logits.requires_grad_()
    rows: dict[str, list[str]] = {}
    calls: dict[str, Callable[[], object]] = {
        PRODUCTS: floor,
        ROWS: lambda: torch.autograd.grad(_rows(inputs, leaf), leaf),
    }
    few = Inputs(inputs.hidden[:CHECKED], inputs.weight, inputs.labels[:CHECKED], inputs.advantages[:CHECKED])
    true = gradients(plain, Inputs(few.hidden.double(), few.weight.double(), few.labels, few.advantages.double()))
    for name, loss in losses.items():
        try:
            error = max(
                float((a.double() - b).norm() / b.norm()) for a, b in zip(gradients(loss, few), true, strict=True)
            )
            memory = peak_mib(partial(gradients, loss, inputs), place)
        except Exception as failure:  # noqa: BLE001 - out of memory, or no compiler: the row says so
            rows[name] = ["", f"failed: {type(failure).__name__}"]
            continue
        calls[name] = partial(gradients, loss, inputs)
        rows[name] = ["" if memory is None else f"{memory:,.0f}", f"{error:.1e}"]
    rounds = rounds or (30 if on_gpu else 15)
    times = interleaved_times(calls, place, warmups=5 if on_gpu else 2, rounds=rounds, seconds=math.inf, floor=PRODUCTS)
    print(f"{N:,} tokens, hidden {H:,}, vocabulary {V:,}, {str(dtype).removeprefix('torch.')} on {place.type}")
    print("Forward and backward: median (20th to 80th percentile), the same over the")
    print("matrix products (95 % interval), peak memory, error of the gradients.\n")
    print_table(
        ["", "ms", "products", "MiB", "error"],
        [[name, *_shown(times.get(name)), *rows.get(name, ["", ""])] for name in (PRODUCTS, ROWS, *losses)],
    )
    share = times[ROWS]["of_floor"]["ratio"]
    print(f"Products in their layouts: {layouts_text(layouts)}.")
    print(f"The softmax of a row and its gradient cost {share:.2f} of the products, whatever the width of the head.")
    print(
        f"At hidden 4,096 that would be {share * H / 4096:.2f}: fast products leave a small head bound by its softmax."
    )
    print("In a checkout, `python -m bench.loss` compares other libraries and more shapes.")


def _random_inputs(H: int, V: int, N: int, dtype: torch.dtype, device: torch.device) -> Inputs:
    generator = torch.Generator(device).manual_seed(0)
    hidden = torch.randn(N, H, generator=generator, device=device).to(dtype)
    weight = (torch.randn(V, H, generator=generator, device=device) / math.sqrt(H)).to(dtype)
    labels = torch.randint(V, (N,), generator=generator, device=device)
    return Inputs(hidden, weight, labels, torch.where(torch.arange(N, device=device) % 2 == 0, 1.2, -0.7))


def _rows(inputs: Inputs, logits: Tensor) -> Tensor:
    """Return the loss from logits: its gradients are the logits'."""
    labels_N1 = inputs.labels[:, None]
    mask_N1 = torch.ones_like(labels_N1, dtype=torch.bool)
    return policy_loss(logits[:, None], labels_N1, inputs.advantages, mask_N1).loss


def _shown(times: Times | None) -> list[str]:
    if times is None:
        return ["", ""]
    spread = f"{times['median_ms']:.3g} ({times['p20_ms']:.3g} to {times['p80_ms']:.3g})"
    return [spread, ratio_text(times["of_floor"])]
