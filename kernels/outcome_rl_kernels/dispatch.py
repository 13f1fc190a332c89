"""Which implementation of an op runs, and why.

Every op offers `impl="auto" | "reference" | "native" | "triton"`: plain PyTorch, C++ on the CPU, Triton on a GPU.
"auto" takes the fastest that the device and the installation allow; an explicit choice that cannot run raises.
"""

from typing import Literal, get_args

import torch
from torch import Tensor

from outcome_rl_kernels.counts import OutcomeCounts
from outcome_rl_kernels.logit_rows import LOGIT_DTYPES
from outcome_rl_kernels.native import native_status

Impl = Literal["auto", "reference", "native", "triton"]

_NATIVE = ("linear_policy_loss", "linear_logprobs")
_PLAIN_PYTORCH = ("policy_loss", "group_advantages")


def choose(op: str, impl: Impl, logits_like: Tensor | None = None) -> Literal["reference", "native"]:
    """The implementation that `op` runs with.

    Args:
        op: name of a public function.
        impl: what the caller asked for.
        logits_like: a tensor with the device and dtype that the op's logits will have, for ops that compute them.

    Raises:
        ValueError: `impl` is unknown, the op does not have it in this version, or it cannot run on this device and
            dtype.
    """
    if impl not in get_args(Impl):
        raise ValueError(f"impl must be one of {', '.join(map(repr, get_args(Impl)))}; got {impl!r}")
    if impl == "reference" or (impl == "auto" and op not in _NATIVE):
        return "reference"
    if impl == "triton" or op not in _NATIVE:
        raise ValueError(f"{op} has no {impl!r} implementation in this version; use impl='auto' or impl='reference'")
    obstacle = _native_obstacle(logits_like)
    if obstacle is None:
        return "native"
    if impl == "native":
        raise ValueError(f"{op}(impl='native') cannot run: {obstacle}. Use impl='auto' or impl='reference'")
    return "reference"


def implementations() -> dict[str, tuple[str, str]]:
    """For each op, the implementation that `impl="auto"` takes and the reason in words."""
    available, reason = native_status()
    table = OutcomeCounts(capacity=1)
    chosen = dict.fromkeys(_PLAIN_PYTORCH, ("reference", "plain PyTorch, the only implementation of this version"))
    if available:
        chosen |= dict.fromkeys(_NATIVE, ("native", "C++ passes over float32 and bfloat16 logits on the CPU"))
        chosen["linear_logprobs"] = ("native", "likewise, where no gradient is wanted; else plain PyTorch")
    else:
        chosen |= dict.fromkeys(_NATIVE, ("reference", f"the native library is not available: {reason}"))
    return chosen | {"OutcomeCounts": (table.impl, table.impl_reason)}


def _native_obstacle(logits_like: Tensor | None) -> str | None:
    """Why the C++ passes cannot run on such logits; None where they can."""
    available, reason = native_status()
    if not available:
        return reason
    if logits_like is not None and logits_like.device.type != "cpu":
        return f"its tensors must be on the CPU, got {logits_like.device}"
    if logits_like is not None and logits_like.dtype not in LOGIT_DTYPES:
        return f"its logits must be float32 or bfloat16, got {logits_like.dtype}"
    if torch.compiler.is_compiling():
        return "torch.compile cannot look into it"
    return None
