"""Time what makes up the losses on a GPU: products, row passes and launches; supports, and given ids."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import torch
from torch import Tensor

from bench import divergence
from bench.accuracy import gradients
from bench.baselines import SAMPLE_BELOW, ours
from bench.cases import MODELS, Case, make_case
from bench.gpu_parts.report import DEVICE, DRY, GOAL, Figures, Report, release
from bench.gpu_parts.supports import even_support, uneven_support
from bench.loss_plans import NATS
from outcome_rl.bench.measure import fastest_products, interleaved_times, peak_mib
from outcome_rl_kernels import Support, linear_logprobs, linear_policy_loss
from outcome_rl_kernels.loss.inputs import token_batch
from outcome_rl_kernels.loss.rows import triton as row_kernels_triton
from outcome_rl_kernels.loss.types import LogitRows


def products(report: Report) -> Figures:
    """Time the loss's products in every kind of output, a chunk of 8192 rows each, and a copy: what bounds the loss."""
    H, V = MODELS[GOAL.model]
    rows = 4 if DRY else 8192
    new = partial(torch.empty, device=DEVICE, dtype=GOAL.dtype)
    hidden, weight, logits = torch.randn(rows, H, device=DEVICE).to(GOAL.dtype), new(V, H), new(rows, V)
    weight.normal_(std=H**-0.5)
    torch.mm(hidden, weight.t(), out=logits)
    hidden_grad, weight_grad, sums = new(rows, H), new(V, H), torch.zeros(V, H, device=DEVICE)
    calls: dict[str, Callable[[], object]] = {
        "logits": lambda: torch.mm(hidden, weight.t(), out=logits),
        "d hidden": lambda: torch.mm(logits, weight, out=hidden_grad),
        "d weight": lambda: torch.mm(logits.t(), hidden, out=weight_grad),
        "d weight, added": lambda: torch.addmm(weight_grad, logits.t(), hidden, out=weight_grad),
        "copy of the logits": lambda: torch.empty_like(logits).copy_(logits),
    }
    if not DRY:
        calls |= {
            "d weight in float32": lambda: torch.mm(logits.t(), hidden, torch.float32, out=sums),
            "d weight in float32, added": lambda: torch.addmm(sums, logits.t(), hidden, torch.float32, out=sums),
        }
    times = interleaved_times(calls, DEVICE, warmups=3, rounds=2 if DRY else 20, seconds=20)
    found: Figures = {}
    for name, measured in times.items():
        if name.startswith("copy"):
            found[name] = measured | {"TB/s": 2 * rows * V * GOAL.dtype.itemsize / measured["median_ms"] / 1e9}
        else:
            found[name] = measured | {"TFLOP/s": 2 * rows * H * V / measured["median_ms"] / 1e9}
    return found | {"reduces in bfloat16": torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction}


def row_passes(report: Report) -> Figures:
    """Time the one-launch row pass alone, in the variants that take few or many registers."""
    _, V = MODELS[GOAL.model]
    rows = 2 if DRY else 8192
    logits = torch.randn(rows, V, device=DEVICE).to(GOAL.dtype)
    grad, labels = torch.empty_like(logits), torch.randint(V, (1, rows), device=DEVICE)
    ones, active = torch.ones(1, rows, device=DEVICE), torch.ones(1, rows, dtype=torch.bool, device=DEVICE)
    kinds: dict[str, tuple[Figures, bool, Tensor | None]] = {
        "on-policy": ({}, False, grad),
        "on-policy, in place": ({}, False, logits),
        "with a mask": ({}, True, grad),
        "with KL": ({"beta": 0.1, "ref_logps": -ones}, False, grad),
        "with entropy and mask": ({"entropy_coef": 0.01}, True, grad),
        "no gradient": ({}, False, None),
    }
    calls: dict[str, Callable[[], object]] = {}
    for name, (options, masked, target) in kinds.items():
        batch, counted = token_batch(logits[None], labels, ones, active, **options)
        given = LogitRows(logits, batch.labels, 1.0, counted if masked else None)
        calls[name] = partial(row_kernels_triton.default_loss_rows, given, batch, target)
    times = interleaved_times(calls, DEVICE, warmups=1, rounds=1 if DRY else 15, seconds=20)
    found: Figures = {}
    for name, measured in times.items():
        moved = rows * V * GOAL.dtype.itemsize * (1 if kinds[name][2] is None else 2)
        found[name] = measured | {"TB/s, each logit once": moved / measured["median_ms"] / 1e9}
    return found | {"registers": registers()}


def registers() -> list[int]:
    """Return the registers of the compiled variants of the row pass; none where Triton does not tell."""
    caches = getattr(row_kernels_triton._default_loss_kernel, "device_caches", {})
    kernels = [kernel for cache in caches.values() for kernel in cache[0].values()]
    return sorted({kernel.n_regs for kernel in kernels if getattr(kernel, "n_regs", None)})


def time_of_supports(report: Report) -> Figures:
    """Time the loss over kept tokens: 16 at every position, and as top-p 0.95 leaves them."""
    case = make_case(GOAL, DEVICE)
    labels_N, vocabulary = case.batch.labels_N, len(case.weight)
    few = {"longest": 40} if DRY else {}
    calls = {
        "support of 16": partial(loss_over, even_support(labels_N, vocabulary, 16), case),
        "support of top-p 0.95": partial(loss_over, uneven_support(labels_N, vocabulary, **few), case),
    }
    found: Figures = {name: {"peak_mib": peak_mib(call, DEVICE)} for name, call in calls.items()}
    report.keep(found)
    times = interleaved_times(calls, DEVICE, warmups=0 if DRY else 3, rounds=1 if DRY else 20, seconds=20)
    # Three gathers of 1.6 million rows of 8 KB, at the 4.3 TB/s of a copy, take 9.4 ms.
    for name, most_ms in (("support of 16", 4.0), ("support of top-p 0.95", 9.4)):
        report.at_most(f"loss, {name}", most_ms, times[name]["median_ms"], "ms")
        found[name] |= times[name]
    return found


def loss_over(support: Support, case: Case) -> None:
    """Run forward and backward over given supports."""
    batch = case.batch
    hidden, weight = (tensor.detach().requires_grad_() for tensor in (case.hidden, case.weight))
    rows = hidden.view(*batch.labels.shape, -1)
    output = linear_policy_loss(
        rows, weight, batch.labels, batch.advantages, batch.mask, support=support, impl="triton"
    )
    output.loss.backward()  # type: ignore[no-untyped-call]


def time_of_ids(report: Report) -> Figures:
    """Time log-probabilities of 64 ids a token, as of a teacher's most likely tokens, and their gradients."""
    case = make_case(GOAL, DEVICE)
    ids_NK = torch.randint(len(case.weight), (len(case.hidden), 2 if DRY else 64), device=DEVICE)

    def call() -> None:
        hidden, weight = (tensor.detach().requires_grad_() for tensor in (case.hidden, case.weight))
        logps, _ = linear_logprobs(hidden, weight, None, ids=ids_NK, impl="triton")
        logps.sum().backward()  # type: ignore[no-untyped-call]

    found: Figures = {"peak_mib": peak_mib(call, DEVICE)}
    report.keep(found)
    three, _ = fastest_products(case.hidden, case.weight, case.hidden @ case.weight.t())
    one, _ = fastest_products(case.hidden, case.weight, None)
    calls = {"four products": lambda: (three(), one()), "64 ids": call}
    rounds = {"warmups": 0 if DRY else 3, "rounds": 1 if DRY else 20, "seconds": 20}
    found |= interleaved_times(calls, DEVICE, floor="four products", **rounds)
    report.at_most("log-probabilities of 64 ids, over four products", 1.3, found["64 ids"]["of_floor"]["ratio"], "")
    return found


def launches(report: Report) -> Figures:
    """List the kernels of a call with their times: of the loss, whole and sampled, of a divergence."""
    sampled: Figures = {"sample_below": SAMPLE_BELOW, "sample_seed": 0}
    found: Figures = {}
    for nats in NATS[::2]:
        case = make_case(replace(GOAL, nats=nats, beta=0.0), DEVICE)
        inputs = case.hidden, case.weight
        heads = divergence.Heads(*inputs, case.hidden.flip(0), case.weight)
        calls: dict[str, Callable[[], object]] = {
            "sampled": partial(gradients, partial(ours, **sampled), inputs, case.batch),
            "whole": partial(gradients, ours, inputs, case.batch),
            "jsd": partial(divergence.gradients, divergence.ours, heads, "jsd"),
        }
        for name, call in calls.items():
            found[f"{name}, {nats:g} nats"] = kernels_of(call)
            report.keep(found)
    return found


def kernels_of(call: Callable[[], object]) -> Figures:
    """Return milliseconds and launches of each kernel of a call, the longest first; on the CPU of each operation."""
    from torch.profiler import ProfilerActivity, profile

    call()
    with profile(activities=[ProfilerActivity.CPU] if DRY else [ProfilerActivity.CPU, ProfilerActivity.CUDA]) as seen:
        call()
        release()
    rows = [(event.key, event.self_device_time_total / 1e3, event.count) for event in seen.key_averages()]
    return {key: {"ms": ms, "times": n} for key, ms, n in sorted(rows, key=lambda row: -row[1])[:20] if DRY or ms > 0}
