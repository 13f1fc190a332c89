"""Which implementation of an op runs, and why.

Every op offers `impl="auto" | "reference" | "native" | "triton"`: plain PyTorch, C++ on the CPU, Triton on a GPU.
"auto" takes the fastest that the device and the installation allow; an explicit choice that cannot run raises.
"""

from collections.abc import Callable, Iterable
from typing import Literal, get_args

import torch
from torch import Tensor

from outcome_rl_kernels.counts.api import OutcomeCounts, choose_table
from outcome_rl_kernels.loss.row_kernels import LOGIT_DTYPES
from outcome_rl_kernels.native import native_status
from outcome_rl_kernels.triton_support import triton_obstacle

Impl = Literal["auto", "reference", "native", "triton"]
Fast = Literal["native", "triton"]

GROUP_DTYPES = (torch.float32, torch.float64)
MAX_GROUP_SAMPLES = 256  # one Triton program holds a group in registers

_LOSSES = ("linear_policy_loss", "policy_loss", "linear_logprobs")


def choose(op: str, impl: Impl, like: Tensor) -> Literal["reference"] | Fast:
    """The implementation that a loss or `linear_logprobs` runs with.

    Args:
        op: name of the public function.
        impl: what the caller asked for.
        like: a tensor with the device and dtype of its logits.

    Raises:
        ValueError: `impl` is unknown, or cannot run on this device and dtype.
    """
    return _choose(op, impl, like.device, lambda fast: _loss_obstacle(fast, like))


def choose_group_advantages(impl: Impl, rewards: Tensor, counts: OutcomeCounts | None) -> Literal["reference"] | Fast:
    """The implementation that `group_advantages` runs with, for these rewards (B, n) and counts.

    Raises:
        ValueError: `impl` is unknown, or cannot run here.
    """
    return _choose("group_advantages", impl, rewards.device, lambda fast: _group_obstacle(fast, rewards, counts))


def implementations() -> dict[str, tuple[str, str]]:
    """For each op, what `impl="auto"` takes, on a GPU where there is one, else on the CPU, and the reason in words."""
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    fast = _fast(device)
    obstacle = _loss_obstacle(fast, torch.empty(0, device=device))
    passes = "C++ row passes on the CPU" if fast == "native" else "Triton row passes on the GPU"
    loss = (fast, f"{passes}, for {_names(LOGIT_DTYPES[device.type])}") if obstacle is None else ("reference", obstacle)
    table = choose_table("auto", device)
    return dict.fromkeys(_LOSSES, loss) | {"group_advantages": table, "OutcomeCounts": table}


def _choose(
    op: str, impl: Impl, device: torch.device, obstacle_of: Callable[[Fast], str | None]
) -> Literal["reference"] | Fast:
    if impl not in get_args(Impl):
        raise ValueError(f"impl must be one of {', '.join(map(repr, get_args(Impl)))}; got {impl!r}")
    if impl == "reference":
        return "reference"
    if impl == "auto":
        return _fast(device) if obstacle_of(_fast(device)) is None else "reference"
    obstacle = obstacle_of(impl)
    if obstacle is not None:
        raise ValueError(f"{op}(impl={impl!r}) cannot run: {obstacle}. Use impl='auto' or impl='reference'")
    return impl


def _fast(device: torch.device) -> Fast:
    return "native" if device.type == "cpu" else "triton"


def _loss_obstacle(impl: Fast, like: Tensor) -> str | None:
    """Why the losses cannot run with `impl` on such logits; None where they can."""
    device = "cpu" if impl == "native" else "cuda"
    if like.device.type != device:
        return f"its tensors must be on {device}, got {like.device}"
    if like.dtype not in LOGIT_DTYPES[device]:
        return f"its logits must be {_names(LOGIT_DTYPES[device])}, got {_names([like.dtype])}"
    return _missing(impl, like.device)


def _group_obstacle(impl: Fast, rewards: Tensor, counts: OutcomeCounts | None) -> str | None:
    """Why `group_advantages` cannot run with `impl`; None where it can."""
    if impl == "native" and rewards.device.type != "cpu":
        return f"its tensors must be on the CPU, got {rewards.device}"
    if (missing := _missing(impl, rewards.device)) is not None:
        return missing
    if rewards.dtype not in GROUP_DTYPES:
        return f"rewards must be {_names(GROUP_DTYPES)}, got {_names([rewards.dtype])}"
    if impl == "triton" and rewards.shape[1] > MAX_GROUP_SAMPLES:
        return f"a group may have at most {MAX_GROUP_SAMPLES} samples, got {rewards.shape[1]}"
    if counts is not None and counts.impl != impl:
        return f"the counts have impl={counts.impl!r}"
    return "torch.compile cannot look into it" if torch.compiler.is_compiling() else None


def _missing(impl: Fast, device: torch.device) -> str | None:
    """What keeps this installation from running `impl` on a device, in words; None for nothing."""
    if impl == "triton":
        return triton_obstacle(device)
    available, reason = native_status()
    return None if available else f"the native library is not available: {reason}"


# torch.compile cannot look for files. This is what `torch.compiler.assume_constant_result` does, which as a decorator
# would import the compiler into every process.
_missing._dynamo_marked_constant = True  # type: ignore[attr-defined]


def _names(dtypes: Iterable[torch.dtype]) -> str:
    return " or ".join(str(dtype).removeprefix("torch.") for dtype in dtypes)
