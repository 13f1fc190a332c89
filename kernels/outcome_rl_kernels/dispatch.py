"""Which implementation of an op runs, and why.

Every op offers `impl="auto" | "reference" | "native" | "triton"`: plain PyTorch, C++ on the CPU, Triton on a GPU.
"auto" takes the fastest that the device and the installation allow; an explicit choice that cannot run raises.
"""

from collections.abc import Iterable
from importlib.util import find_spec
from typing import Literal, get_args

import torch
from torch import Tensor

from outcome_rl_kernels.counts import OutcomeCounts
from outcome_rl_kernels.native import native_status
from outcome_rl_kernels.policy_rows import LOGIT_DTYPES

Impl = Literal["auto", "reference", "native", "triton"]
Fast = Literal["native", "triton"]

_FUSED = ("linear_policy_loss", "policy_loss", "linear_logprobs")


def choose(op: str, impl: Impl, like: Tensor) -> Literal["reference"] | Fast:
    """The implementation that `op` runs with.

    Args:
        op: name of a public function.
        impl: what the caller asked for.
        like: a tensor with the device and dtype of the op's work.

    Raises:
        ValueError: `impl` is unknown, the op does not have it, or it cannot run on this device and dtype.
    """
    if impl not in get_args(Impl):
        raise ValueError(f"impl must be one of {', '.join(map(repr, get_args(Impl)))}; got {impl!r}")
    if impl == "reference":
        return "reference"
    if impl == "auto":
        fast = _fast(like.device)
        return fast if _obstacle(op, fast, like) is None else "reference"
    obstacle = _obstacle(op, impl, like)
    if obstacle is not None:
        raise ValueError(f"{op}(impl={impl!r}) cannot run: {obstacle}. Use impl='auto' or impl='reference'")
    return impl


def implementations() -> dict[str, tuple[str, str]]:
    """For each op, what `impl="auto"` takes, on a GPU where there is one, else on the CPU, and the reason in words."""
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    fast = _fast(device)
    chosen: dict[str, tuple[str, str]] = {}
    for op in (*_FUSED, "group_advantages"):
        like = torch.empty(0, device=device)
        obstacle = _obstacle(op, fast, like)
        reason = f"{_KINDS[fast]}, for {_names(LOGIT_DTYPES[device.type])}" if obstacle is None else obstacle
        chosen[op] = (fast if obstacle is None else "reference", reason)
    table = OutcomeCounts(capacity=1)
    return chosen | {"OutcomeCounts": (table.impl, table.impl_reason)}


def _fast(device: torch.device) -> Fast:
    return "native" if device.type == "cpu" else "triton"


_KINDS = {"native": "C++ row passes on the CPU", "triton": "Triton row passes on the GPU"}


def _obstacle(op: str, impl: Fast, like: Tensor) -> str | None:
    """Why `op` cannot run so; None where it can."""
    if op not in _FUSED:
        return f"plain PyTorch is the only implementation of {op} in this version"
    device = "cpu" if impl == "native" else "cuda"
    if like.device.type != device:
        return f"its tensors must be on {device}, got {like.device}"
    if like.dtype not in LOGIT_DTYPES[device]:
        return f"its logits must be {_names(LOGIT_DTYPES[device])}, got {_names([like.dtype])}"
    return _missing(impl)


def _missing(impl: Fast) -> str | None:
    """What would have to be installed for `impl`, in words; None for nothing."""
    if impl == "native":
        available, reason = native_status()
        return None if available else f"the native library is not available: {reason}"
    return None if find_spec("triton") else "triton is not installed (it exists for Linux only)"


# torch.compile cannot look for files. This is what `torch.compiler.assume_constant_result` does, which as a decorator
# would import the compiler into every process.
_missing._dynamo_marked_constant = True  # type: ignore[attr-defined]


def _names(dtypes: Iterable[torch.dtype]) -> str:
    return " or ".join(str(dtype).removeprefix("torch.") for dtype in dtypes)
