"""Which implementation of an op runs, and why.

Every op offers `impl="auto" | "reference" | "native" | "triton"`: plain PyTorch, C++ on the CPU, Triton on a GPU.
"auto" takes the fastest that the device and the installation allow; an explicit choice that cannot run raises.
"""

from typing import Literal, get_args

from outcome_rl_kernels.counts import OutcomeCounts

Impl = Literal["auto", "reference", "native", "triton"]

_PLAIN_PYTORCH = ("linear_policy_loss", "policy_loss", "linear_logprobs", "group_advantages")


def check_impl(op: str, impl: Impl) -> None:
    """Refuse an implementation that `op` does not have.

    Raises:
        ValueError: `impl` is unknown, or the op has no such implementation in this version.
    """
    if impl not in get_args(Impl):
        raise ValueError(f"impl must be one of {', '.join(map(repr, get_args(Impl)))}; got {impl!r}")
    if impl not in ("auto", "reference"):
        raise ValueError(f"{op} has no {impl!r} implementation in this version; use impl='auto' or impl='reference'")


def implementations() -> dict[str, tuple[str, str]]:
    """For each op, the implementation that `impl="auto"` takes and the reason in words."""
    plain = ("reference", "plain PyTorch, the only implementation of this version")
    table = OutcomeCounts(capacity=1)
    return dict.fromkeys(_PLAIN_PYTORCH, plain) | {"OutcomeCounts": (table.impl, table.impl_reason)}
