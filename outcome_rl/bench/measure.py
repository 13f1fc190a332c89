"""Time and peak memory of calls, on the CPU and on a GPU."""

import ctypes
import math
import random
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NotRequired, TypedDict

import torch
from torch import Tensor

from outcome_rl.isolation.process_memory import status_kib
from outcome_rl_kernels.cpu_memory import KEPT

Call = Callable[[], object]
QUEUED_CYCLES = 10_000_000  # of a GPU: about 5 ms, more than the host needs to launch a loss
LEAST_ROUNDS = 5  # rounds of a call that is too slow for its share of the time


# Of a call to the floor of the same round: the median, and an interval that holds the true median with 95 %.
Ratio = TypedDict("Ratio", {"ratio": float, "from": float, "to": float})


class Times(TypedDict):
    """Milliseconds of one call over the rounds."""

    median_ms: float
    p20_ms: float
    p80_ms: float
    rounds: int
    of_floor: NotRequired[Ratio]


def interleaved_times(
    calls: Mapping[str, Call],
    device: torch.device,
    *,
    warmups: int,
    rounds: int,
    seconds: float,
    floor: str | None = None,
) -> dict[str, Times]:
    """Time `calls` in rounds, in another order each round, so that all calls meet the same state of the machine.

    Each call gets an equal share of `seconds`; a call that has used its share stops after `LEAST_ROUNDS` rounds. With
    the name of a `floor`, every call has its ratio to that of the same round.
    """
    milliseconds: dict[str, list[float]] = {name: [] for name in calls}
    share_ms = 1e3 * seconds / len(calls)
    for call in calls.values():
        used_ms = 0.0
        for _ in range(warmups):
            used_ms += time_ms(call, device)
            if used_ms > share_ms:
                break
    order = list(calls)
    shuffle = random.Random(0).shuffle
    for _ in range(rounds):
        shuffle(order)
        for name in order:
            measured = milliseconds[name]
            if len(measured) < min(LEAST_ROUNDS, rounds) or sum(measured) < share_ms:
                measured.append(time_ms(calls[name], device))
    times = {name: summary(measured) for name, measured in milliseconds.items()}
    if floor is not None:
        for name, measured in milliseconds.items():
            times[name]["of_floor"] = ratio_to(milliseconds[floor], measured)
    return times


def fastest_products(
    hidden: Tensor, weight: Tensor, gradient: Tensor | None
) -> tuple[Call, dict[str, dict[str, float]]]:
    """Return a call of the matrix products of a head, each in its fastest layout, and the milliseconds of the layouts.

    On a CPU a product may take three times as long in one layout as in another, and a quarter longer for 427 or 511
    rows than with zeros that fill them up to a multiple of four: so no fixed layout is a floor. On a GPU cuBLAS picks.
    Results go to memory that is there.

    Args:
        hidden, weight: (N, H) and (V, H).
        gradient: (N, V), of the logits; None leaves out its two products.
    """
    hidden, weight = hidden.detach(), weight.detach()
    logits = hidden.new_empty(len(hidden), len(weight))
    to_hidden, to_weight = torch.empty_like(hidden), torch.empty_like(weight)
    layouts: dict[str, dict[str, Call]] = {"logits": {"by rows": lambda: torch.mm(hidden, weight.t(), out=logits)}}
    if gradient is not None:
        gradient = gradient.detach()
        layouts["d hidden"] = {"by rows": lambda: torch.mm(gradient, weight, out=to_hidden)}
        layouts["d weight"] = {"by rows": lambda: torch.mm(gradient.t(), hidden, out=to_weight)}
    if hidden.device.type == "cpu":
        columns = weight.new_empty(len(weight), len(hidden))
        layouts["logits"]["by columns"] = lambda: torch.mm(weight, hidden.t(), out=columns)
        lacking = (0, 0, 0, -len(hidden) % 4)
        if lacking[-1]:
            filled = torch.nn.functional.pad(hidden, lacking)
            to_filled, filled_logits = torch.empty_like(filled), hidden.new_empty(len(filled), len(weight))
            layouts["logits"]["by rows, filled up"] = lambda: torch.mm(filled, weight.t(), out=filled_logits)
        if gradient is not None:
            lying = gradient.t().contiguous()
            layouts["d hidden"]["by columns"] = lambda: torch.mm(lying.t(), weight, out=to_hidden)
            layouts["d weight"]["by columns"] = lambda: torch.mm(lying, hidden, out=to_weight)
            if lacking[-1]:
                filled_gradient = torch.nn.functional.pad(gradient, lacking)
                layouts["d hidden"]["by rows, filled up"] = lambda: torch.mm(filled_gradient, weight, out=to_filled)
    measured: dict[str, dict[str, float]] = {}
    chosen: list[Call] = []
    for product, calls in layouts.items():
        times = interleaved_times(calls, hidden.device, warmups=1, rounds=LEAST_ROUNDS, seconds=math.inf)
        measured[product] = {layout: one["median_ms"] for layout, one in times.items()}
        chosen.append(calls[min(times, key=measured[product].__getitem__)])

    def call() -> None:
        for product in chosen:
            product()

    return call, measured


def layouts_text(measured: Mapping[str, Mapping[str, float]]) -> str:
    """Return the milliseconds of every product in its layouts, the fastest first."""
    shown = []
    for product, times in measured.items():
        ordered = sorted(times, key=times.__getitem__)
        shown.append(f"{product} {', '.join(f'{times[layout]:.3g} ms {layout}' for layout in ordered)}")
    return "; ".join(shown)


def summary(milliseconds: list[float]) -> Times:
    """Return the median and the 20th and 80th percentile."""
    low = high = milliseconds[0]
    if len(milliseconds) > 1:
        low, _, _, high = statistics.quantiles(milliseconds, n=5, method="inclusive")
    return Times(median_ms=statistics.median(milliseconds), p20_ms=low, p80_ms=high, rounds=len(milliseconds))


def ratio_to(floor: Sequence[float], measured: Sequence[float]) -> Ratio:
    """Return the ratio over the rounds that both have; round i stands at place i of both."""
    ratios = [mine / its for mine, its in zip(measured, floor, strict=False)]
    low, high = median_interval(ratios)
    return {"ratio": statistics.median(ratios), "from": low, "to": high}


def ratio_text(ratio: Ratio) -> str:
    return f"{ratio['ratio']:.2f} ({ratio['from']:.2f} to {ratio['to']:.2f})"


def median_interval(values: Sequence[float]) -> tuple[float, float]:
    """Return the narrowest pair of values, alike in rank from both ends, that holds the median with 95 % confidence.

    The median lies outside the k-th smallest and k-th largest of n independent values with probability
    `2 P(Binomial(n, 1/2) < k)`. Fewer than six values give their least and their most.
    """
    ordered, rank = sorted(values), 1
    while 2 * sum(math.comb(len(ordered), i) for i in range(rank + 1)) <= 0.05 * 2 ** len(ordered):
        rank += 1
    return ordered[rank - 1], ordered[-rank]


def peak_mib(call: Call, device: torch.device) -> float | None:
    """Return the peak memory of `call` above the memory before it, in MiB; None if the system does not report it.

    On a GPU it is the memory of PyTorch's allocator. On Linux it is the growth of the process's resident memory, whose
    high-water mark the kernel resets on request; that includes allocations of other libraries, and the room that our
    losses keep.
    """
    call()  # compiles, and allocates permanent memory
    if device.type == "cuda":
        torch.cuda.synchronize(device)
        torch.cuda.reset_peak_memory_stats(device)
        before = torch.cuda.memory_allocated(device)
        call()
        torch.cuda.synchronize(device)
        return (torch.cuda.max_memory_allocated(device) - before) / 2**20
    if sys.platform != "linux":
        return None
    KEPT.clear()
    ctypes.CDLL(None).malloc_trim(0)  # else memory that malloc kept from earlier calls would hide growth
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except PermissionError:
        return None
    before_kib = status_kib("VmRSS")
    call()
    return (status_kib("VmHWM") - before_kib) / 2**10


def time_ms(call: Call, device: torch.device) -> float:
    """Return the milliseconds of one call; on a GPU, device time, with the host ahead of the GPU."""
    if device.type == "cuda":
        # Else the GPU would wait for the host to launch, and that would be timed.
        torch.cuda._sleep(QUEUED_CYCLES)  # type: ignore[no-untyped-call]
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
        start.record()
        call()
        end.record()
        end.synchronize()
        return float(start.elapsed_time(end))
    begin = time.perf_counter()
    call()
    return 1e3 * (time.perf_counter() - begin)
