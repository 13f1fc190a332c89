"""Profile of a call: the products and bytes that it costs, and the operators of ours that it reaches."""

from collections.abc import Callable
from typing import Any, NamedTuple

from torch import Tensor
from torch.profiler import ProfilerActivity, profile
from torch.utils._python_dispatch import TorchDispatchMode

from outcome_rl_kernels.cpu_memory import KEPT

PRODUCTS = ("aten::mm", "aten::addmm", "aten::addmm_")


class Cost(NamedTuple):
    multiply_adds: int
    largest_bytes: int  # of one operation
    peak_bytes: int  # beyond what was there before, without the libraries' room inside a product


def cost_of(call: Callable[[], Any]) -> Cost:
    """The cost of `call`, of its backward pass too if it runs one.

    The profiler looks into operators; dispatch modes, such as PyTorch's counter of operations, do not.
    """
    KEPT.clear()  # what an earlier call left is no saving of this one
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True, record_shapes=True) as record:
        call()
    multiply_adds = 0
    for event in record.events():
        if event.name in PRODUCTS:
            first = 0 if event.name == "aten::mm" else 1  # a summand precedes the factors
            (rows, inner), (_, columns) = event.input_shapes[first : first + 2]
            multiply_adds += rows * inner * columns
    live = peak = 0
    product_ends = 0
    for event in sorted(record.profiler.kineto_results.events(), key=lambda event: event.start_ns()):
        if event.name() in PRODUCTS:
            product_ends = event.start_ns() + event.duration_ns()
        elif event.name() == "[memory]":
            live += event.nbytes()
            # What a product takes and gives back is its library's, and another on each kind of processor.
            if event.start_ns() > product_ends:
                peak = max(peak, live)
    return Cost(multiply_adds, max(event.self_cpu_memory_usage for event in record.events()), peak)


class _Catcher(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.calls: list[tuple[Any, tuple[Any, ...]]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func.namespace == "outcome_rl":
            self.calls.append((func, args))
        return func(*args, **(kwargs or {}))


def caught_operator(call: Callable[[], Any]) -> tuple[Any, tuple[Any, ...]]:
    """The last operator of `outcome_rl` that `call` reaches, and its arguments, detached."""
    with _Catcher() as catcher:
        call()
    operator, arguments = catcher.calls[-1]
    return operator, tuple(argument.detach() if isinstance(argument, Tensor) else argument for argument in arguments)
