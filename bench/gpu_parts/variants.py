"""The loss with other chunks, sums, grids and row kernels than the code chooses: which choices pay on a GPU."""

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor

from bench.accuracy import gradients, truth_of
from bench.baselines import SAMPLE_BELOW, ours, said
from bench.cases import make_case
from bench.gpu_parts.report import DEVICE, DRY, GOAL, Figures, Report, release, require
from bench.loss_plans import NATS
from outcome_rl.bench.measure import interleaved_times, peak_mib
from outcome_rl_kernels.loss import chunked_head, fused
from outcome_rl_kernels.loss.rows import triton as row_kernels_triton
from outcome_rl_kernels.loss.sampled import triton as sampled_triton
from outcome_rl_kernels.loss.support import triton as support_triton
from outcome_rl_kernels.loss.types import LogitRows, RowGradients


def programs_without_rows_to_follow(launch: Callable[..., None], kernel: Any, rows: Any, **arguments: Any) -> None:
    """Launch a program of 256 threads per row instead of one of 1024 per multiprocessor."""
    launch(kernel, rows, **(arguments | {"is_persistent": False}))


def variants(report: Report) -> Figures:
    """Time the loss with other choices, in turns, and measure their memory and their errors against float64."""
    case = make_case(GOAL, DEVICE)
    inputs = (case.hidden, case.weight)
    row_bytes = len(case.weight) * case.weight.element_size()
    truth = truth_of(inputs, case.batch)
    own_dtype = partial(patch.object, chunked_head, "_OWN_DTYPE_CHUNKS")
    grid = partial(programs_without_rows_to_follow, row_kernels_triton.launch_rows)
    whole, n = {"rows": "all"}, len(case.hidden)
    chosen: dict[str, tuple[Figures, list[Any]]] = {
        "as it is": ({}, []),
        "rows='all'": (whole, []),
        **{f"{k} chunks": (whole | {"workspace_bytes": -(-n // k) * row_bytes}, []) for k in (2, 8)},
        "8 chunks, d weight in float32": (whole | {"workspace_bytes": -(-n // 8) * row_bytes}, [own_dtype(1)]),
        "2 chunks, d weight in float32": (whole | {"workspace_bytes": n // 2 * row_bytes}, [own_dtype(1)]),
        "one program of 256 threads per row": (whole, [patch.object(row_kernels_triton, "launch_rows", grid)]),
        "statistics and gradients apart": (whole, [patch.object(fused, "is_default", lambda inputs: False)]),
        "float32 logits": (whole | {"fp32_logits": True}, []),
    }

    def call(options: Figures, patches: list[Any]) -> tuple[Tensor, tuple[Tensor, ...]]:
        with ExitStack() as stack:
            for change in patches:
                stack.enter_context(change)
            return gradients(partial(ours, impl="triton", **options), inputs, case.batch)

    calls: dict[str, Callable[[], object]] = {}
    found: Figures = {}
    for name, choice in chosen.items():
        try:
            errors = truth.errors_of(*call(*choice), None)["gradients"]
            found[name] = {"errors": errors, "peak_mib": peak_mib(partial(call, *choice), DEVICE)}
            calls[name] = partial(call, *choice)
        except Exception as error:  # noqa: BLE001 - one choice that fails leaves the others
            found[name] = {"not_measured": said(error)}
        report.keep(found)
        release()
    times = interleaved_times(calls, DEVICE, warmups=0 if DRY else 2, rounds=1 if DRY else 20, seconds=120)
    for name, measured in times.items():
        found[name] |= measured
    failed = [name for name in found if name not in calls]
    require(not failed, f"failed: {', '.join(failed)}")
    return found


# Threads of a row, the tokens that they take at a time, and registers of a thread: compiled for sm_90, the first takes
# 88 registers (109 with Triton 3.6), so that one program fits a multiprocessor; but for the last, the others fill it.
SHAPES = ((512, 4096, None), (512, 2048, 64), (1024, 4096, 64), (256, 1024, 64), (256, 2048, None))


def sampling(report: Report) -> Figures:
    """Time the choice of the entries of 8,192 rows by programs of other shapes."""
    found: Figures = {}
    for nats in NATS[::2]:
        case = make_case(replace(GOAL, nats=nats, beta=0.0), DEVICE)
        hidden, labels_R = case.hidden[:8192], case.batch.labels_N[:8192]
        rows = LogitRows(hidden @ case.weight.t(), labels_R, 1.0)
        statistics, ones_R = row_kernels_triton.row_statistics(rows), torch.ones(len(hidden), device=DEVICE)
        log_sums_R = row_kernels_triton.log_sums(statistics, 1.0)
        of = RowGradients(log_sums_R, statistics.logps_R, statistics.entropies_R, ones_R, None)
        room = sampled_triton.room(len(case.weight), case.weight.dtype)
        given = rows, of, torch.arange(len(hidden), device=DEVICE), SAMPLE_BELOW, 0, room
        calls = {f"{nats:g} nats, {shape}": partial(entries_by, shape, *given) for shape in SHAPES}
        counts_R = entries_by(SHAPES[0], *given).counts_R.float()
        found[f"{nats:g} nats, entries a row"] = {
            "mean": float(counts_R.mean()),
            "full": float((counts_R == room).float().mean()),
        }
        rounds = {"warmups": 0 if DRY else 3, "rounds": 1 if DRY else 20, "seconds": 10}
        found |= interleaved_times(calls, DEVICE, floor=next(iter(calls)), **rounds)
        report.keep(found)
    return found


def entries_by(shape: tuple[int, int, int | None], *given: Any) -> sampled_triton.TritonEntries:
    """Sample entries by programs of so many threads, tokens at a time and registers."""
    threads, block, registers = shape
    bound: Figures = {} if registers is None or torch.version.hip else {"maxnreg": registers}
    with (
        patch.object(sampled_triton, "_THREADS", threads),
        patch.object(sampled_triton, "_BLOCK_V", block),
        patch.object(support_triton, "launch", partial(support_triton.launch, **bound)),
    ):
        return sampled_triton.sample(*given)
