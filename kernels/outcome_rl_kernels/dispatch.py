"""Which implementation of an op runs, and why.

Every op offers `impl="auto" | "reference" | "native" | "triton"`: plain PyTorch, C++ on the CPU, Triton on a GPU.
"auto" takes the fastest that the device and the installation allow; an explicit choice that cannot run raises.
"""

from typing import Literal, get_args

import torch
from torch import Tensor

from outcome_rl_kernels.counts import OutcomeCounts, choose_table
from outcome_rl_kernels.logit_rows import LOGIT_DTYPES
from outcome_rl_kernels.native import native_status
from outcome_rl_kernels.triton_support import triton_obstacle

Impl = Literal["auto", "reference", "native", "triton"]

GROUP_DTYPES = (torch.float32, torch.float64)
MAX_GROUP_SAMPLES = 256  # one Triton program holds a group in registers

_NATIVE = ("linear_policy_loss", "linear_logprobs")
_PLAIN_PYTORCH = ("policy_loss",)


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


def choose_group_advantages(
    impl: Impl, rewards: Tensor, counts: OutcomeCounts | None
) -> Literal["reference", "native", "triton"]:
    """The implementation that `group_advantages` runs with, for these rewards (B, n) and counts.

    Raises:
        ValueError: `impl` is unknown, or cannot run here.
    """
    if impl not in get_args(Impl):
        raise ValueError(f"impl must be one of {', '.join(map(repr, get_args(Impl)))}; got {impl!r}")
    fast: Literal["native", "triton"] = "native" if rewards.device.type == "cpu" else "triton"
    wanted = fast if impl == "auto" else impl
    if wanted == "reference":
        return "reference"
    obstacle = _group_obstacle(wanted, rewards, counts)
    if obstacle is None:
        return wanted
    if impl == "auto":
        return "reference"
    raise ValueError(f"group_advantages(impl={impl!r}) cannot run: {obstacle}. Use impl='auto' or impl='reference'")


def implementations() -> dict[str, tuple[str, str]]:
    """For each op, the implementation that `impl="auto"` takes and the reason in words."""
    available, reason = native_status()
    table = choose_table("auto", torch.device("cuda" if torch.cuda.is_available() else "cpu"))
    chosen = dict.fromkeys(_PLAIN_PYTORCH, ("reference", "plain PyTorch, the only implementation of this version"))
    if available:
        chosen |= dict.fromkeys(_NATIVE, ("native", "C++ passes over float32 and bfloat16 logits on the CPU"))
        chosen["linear_logprobs"] = ("native", "likewise, where no gradient is wanted; else plain PyTorch")
    else:
        chosen |= dict.fromkeys(_NATIVE, ("reference", f"the native library is not available: {reason}"))
    return chosen | {"OutcomeCounts": table, "group_advantages": table}


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


def _group_obstacle(impl: Literal["native", "triton"], rewards: Tensor, counts: OutcomeCounts | None) -> str | None:
    """Why `group_advantages` cannot run with `impl`; None where it can."""
    if impl == "native" and not native_status()[0]:
        return native_status()[1]
    if impl == "native" and rewards.device.type != "cpu":
        return f"its tensors must be on the CPU, got {rewards.device}"
    if impl == "triton" and (obstacle := triton_obstacle(rewards.device)) is not None:
        return obstacle
    if rewards.dtype not in GROUP_DTYPES:
        return f"rewards must be float32 or float64, got {rewards.dtype}"
    if impl == "triton" and rewards.shape[1] > MAX_GROUP_SAMPLES:
        return f"a group may have at most {MAX_GROUP_SAMPLES} samples, got {rewards.shape[1]}"
    if counts is not None and counts.impl != impl:
        return f"the counts have impl={counts.impl!r}"
    if torch.compiler.is_compiling():
        return "torch.compile cannot look into it"
    return None
