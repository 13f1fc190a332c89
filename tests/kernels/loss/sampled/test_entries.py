"""The entries of a sampled backward pass against float64: which they are, their mean, and the sums of them."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest
import torch
from loss_cases import BACKENDS, GPU, ON_GPU, H, threads
from splitmix import mix64
from torch import Tensor

from outcome_rl_kernels.loss.sampled import cpu as sampled_cpu
from outcome_rl_kernels.loss.types import LogitRows, RowGradients, map_tensors, select

KERNELS = [BACKENDS[1], ON_GPU]
needs_native = BACKENDS[1].marks[0]
GOLDEN = 0x9E3779B97F4A7C15


class Rows(NamedTuple):
    """Rows of logits with their gradient in float64."""

    logits: LogitRows
    of: RowGradients
    index_R: Tensor
    p_RV: Tensor
    grads_RV: Tensor


def make_rows(
    seed: int, vocabulary: int, spread: float, dtype: torch.dtype = torch.float32, temperature: float = 0.8
) -> Rows:
    """Five rows: the fourth is not active, the last has no gradient."""
    g = torch.Generator().manual_seed(seed)
    logits = (spread * torch.randn(5, vocabulary, generator=g)).to(dtype)
    labels = torch.randint(vocabulary, (5,), generator=g)
    logp_grads, entropy_grads = torch.randn(2, 5, generator=g, dtype=torch.float64)
    logp_grads[4] = entropy_grads[4] = 0
    active = torch.arange(5) != 3
    scores = logits.double() / temperature
    log_sums = scores.logsumexp(dim=-1)
    log_p = scores - log_sums[:, None]
    entropies = -(log_p.exp() * log_p).sum(dim=-1)
    is_label = torch.nn.functional.one_hot(labels, vocabulary)
    grads = logp_grads[:, None] * (is_label - log_p.exp())
    grads -= entropy_grads[:, None] * log_p.exp() * (log_p + entropies[:, None])
    logps = log_p.gather(1, labels[:, None])[:, 0]
    index = torch.tensor([3, 4, 11, 12, 900])
    of = RowGradients(log_sums, logps, entropies, logp_grads, entropy_grads)
    return Rows(
        LogitRows(logits, labels, temperature, active), of, index, log_p.exp(), grads * active[:, None] / temperature
    )


def kernels_of(impl: str) -> Any:
    if impl == "native":
        return sampled_cpu
    pytest.importorskip("triton", reason="Triton has no build for this platform")
    from outcome_rl_kernels.loss.sampled import triton as sampled_triton

    return sampled_triton


def sampled(impl: str, rows: Rows, threshold: float, seed: int, room: int) -> Any:
    """Return the entries, on the GPU where there is one and it is Triton's."""
    logits, of, index_R, *_ = map_tensors(rows, lambda column: on(impl, column))
    return kernels_of(impl).sample(logits, of, index_R, threshold, seed, room)


def on(impl: str, tensor: Tensor) -> Tensor:
    return tensor.to(GPU if impl == "triton" else "cpu")


def entries_of(impl: str, rows: Rows, threshold: float, seed: int, room: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield token ids and values of each row."""
    found = map_tensors(sampled(impl, rows, threshold, seed, room), Tensor.cpu)
    if impl == "native":
        for start, end in found.offsets.unfold(0, 2, 1):
            yield found.ids_E[start:end], found.values[start:end].double()
        return
    for ids, values, count in zip(found.ids_RK, found.values, found.counts_R, strict=True):
        assert (ids[count:] == -1).all()
        yield ids[:count].long(), values[:count].double()


@pytest.mark.parametrize("impl", KERNELS)
@pytest.mark.parametrize("vocabulary", [1, 13, 255, 3000])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(("threshold", "room"), [(0.01, 200), (0.003, 64), (0.5, 64)])
def test_entries_are_large_ones_and_draws_of_the_others(
    impl: str, vocabulary: int, dtype: torch.dtype, threshold: float, room: int
) -> None:
    rows = make_rows(0, vocabulary, 2.0, dtype)
    for row, (ids, values) in enumerate(entries_of(impl, rows, threshold, 5, room)):
        p, exact = rows.p_RV[row], rows.grads_RV[row]
        if exact.eq(0).all() and vocabulary > 1:
            assert len(ids) == 0
            continue
        if row >= 3:
            continue
        label = int(rows.logits.labels_R[row])
        others = p.masked_fill(torch.arange(vocabulary) == label, 0.0)

        def needed(threshold: float, others: Tensor = others) -> float:
            return 1 + float((others >= threshold).sum() + others[others < threshold].sum() / threshold)

        least = threshold if needed(threshold) <= room - 1 else 1 / (room - 3)  # the threshold that fits
        assert abs(needed(threshold) - room) > 1.5 or room == 64  # no row of this test lies between
        assert len(ids) == len(set(ids.tolist())) <= room
        assert ids[0] == label
        torch.testing.assert_close(values[0], exact[label], rtol=1e-5, atol=1e-7)
        kept = ids[1:]
        is_large = p[kept] >= least
        assert set(kept[is_large].tolist()) == set((others >= least).nonzero()[:, 0].tolist())
        torch.testing.assert_close(values[1:][is_large], exact[kept[is_large]], rtol=1e-4, atol=1e-6)
        drawn = kept[~is_large]
        points = values[1:][~is_large] / (least * exact[drawn] / p[drawn])
        torch.testing.assert_close(points, points.round().clamp(1, 2), rtol=1e-4, atol=1e-4)
        length = float(others[others < least].sum() / least)
        assert int(points.sum().round()) in (int(length + 1e-4), int(length - 1e-4) + 1, int(length + 1e-4) + 1)


@needs_native
def test_the_choice_is_that_of_its_definition() -> None:
    """The walk of csrc/sampled.cpp in float64: one SplitMix64 point in each cell, tokens in columns of 16."""
    threshold, seed = 0.004, 2**63 + 17
    rows = make_rows(1, 1000, 1.5)
    order = torch.arange(1024).view(4, 16, 16).transpose(1, 2).reshape(-1)
    order = order[order < 1000]
    checked = 0
    for row, (ids, _) in enumerate(entries_of("native", rows, threshold, seed, 400)):
        if row >= 3:
            continue
        p = rows.p_RV[row].clone()
        p[rows.logits.labels_R[row]] = 0
        lengths = (p.where(p < threshold, 0) / threshold)[order]
        ends = lengths.cumsum(0)
        key = mix64((mix64((seed + GOLDEN) % 2**64) + GOLDEN * int(rows.index_R[row])) % 2**64)
        for cell in range(int(ends[-1])):
            point = cell + (mix64((key + GOLDEN * (cell + 1)) % 2**64) >> 11) * 2.0**-53
            token = order[int(torch.searchsorted(ends, torch.tensor(point, dtype=torch.float64), right=True))]
            if (ends - point).abs().min() > 1e-4:  # else float32 may decide
                assert token in ids
                checked += 1
    assert checked > 300


@pytest.mark.parametrize("impl", KERNELS)
def test_rows_with_broken_numbers_show(impl: str) -> None:
    rows = make_rows(0, 300, 1.0)
    of = rows.of._replace(log_sums_R=rows.of.log_sums_R * torch.nan, logps_R=rows.of.logps_R * torch.nan)
    found = list(entries_of(impl, rows._replace(of=of), 0.01, 0, 64))
    assert all(values.isnan().any() for row, (_, values) in enumerate(found) if row != 3)


@pytest.mark.parametrize("impl", KERNELS)
def test_the_mean_of_the_entries_is_the_gradient(impl: str) -> None:
    """The error of a mean over 64 seeds is an eighth of that of one; every row draws for itself."""
    rows, draws = make_rows(2, 1000, 1.5), 64 if impl == "native" or GPU == "cuda" else 16  # interpreted
    errors = torch.zeros(draws, 5, 1000, dtype=torch.float64) - rows.grads_RV
    for draw in range(draws):
        for row, (ids, values) in enumerate(entries_of(impl, rows, 0.004, draw << 33, 300)):
            errors[draw, row, ids] += values
    single, mean = errors.square().sum(dim=(1, 2)).mean(), errors.mean(dim=0).square().sum()
    assert 0 < mean <= 1.4**2 * single / draws


@pytest.mark.parametrize("impl", KERNELS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_sums_are_products_with_the_entries(impl: str, dtype: torch.dtype) -> None:
    kernels, rows, g = kernels_of(impl), make_rows(3, 60, 2.0), torch.Generator().manual_seed(0)
    weight, hidden, out = (
        torch.randn(60, H, generator=g),
        torch.randn(10, H, generator=g),
        torch.empty(5, H, dtype=dtype),
    )
    weight, hidden, out = (on(impl, one.to(dtype)) for one in (weight, hidden, out))
    dense, kept = torch.zeros(10, 60, dtype=torch.float64), []
    for part, seed in enumerate((1, 2)):
        kept.append(sampled(impl, rows, 0.05, seed, 64))
        for row, (ids, values) in enumerate(entries_of(impl, rows, 0.05, seed, 64)):
            dense[5 * part + row, ids] = values
    least = 1e-6 if dtype == torch.float32 else 6e-3  # the result is rounded once
    kernels.hidden_gradient(kept[1], weight, out)
    torch.testing.assert_close(out.cpu().double(), dense[5:] @ weight.double(), rtol=least, atol=least)
    found = kernels.weight_gradient(kept, hidden, 60)
    assert found.dtype == dtype
    torch.testing.assert_close(found.cpu().double(), dense.T @ hidden.double(), rtol=least, atol=least)


@needs_native
def test_selection_and_sums_have_the_same_bits_on_two_threads() -> None:
    g = torch.Generator().manual_seed(0)
    logits, hidden, weight = (torch.randn(*shape, generator=g) for shape in ((90, 5000), (90, 48), (5000, 48)))
    labels = torch.randint(5000, (90,), generator=g)
    log_sums = logits.double().logsumexp(dim=-1)
    logps = logits.double().gather(1, labels[:, None])[:, 0] - log_sums
    of = RowGradients(log_sums, logps, -logps, torch.randn(90, generator=g), None)
    found = []
    for number in (1, 2):
        with threads(number):
            entries = sampled_cpu.sample(LogitRows(logits, labels, 1.0), of, torch.arange(90), 0.002, 3, 1000)
            sums = torch.empty_like(hidden)
            sampled_cpu.hidden_gradient(entries, weight, sums)
            found.append([*entries, sums, sampled_cpu.weight_gradient([entries], hidden, 5000)])
    assert all(torch.equal(one, two) for one, two in zip(*found, strict=True))


@pytest.mark.parametrize("impl", KERNELS)
def test_selection_and_sums_have_the_same_bits_in_any_chunks(impl: str) -> None:
    vocabulary = 700 if impl == "native" else 100  # interpreted
    kernels, rows, g = kernels_of(impl), make_rows(4, vocabulary, 2.0), torch.Generator().manual_seed(0)
    weight, hidden = (on(impl, torch.randn(size, 20, generator=g)) for size in (vocabulary, 5))
    found = []
    for sizes in ((5,), (5,), (2, 3), (1, 1, 3)):
        kept, sums, start = [], torch.empty_like(hidden), 0
        for size in sizes:
            part = slice(start, start + size)
            logits_RV, labels_R, temperature, active_R, _ = rows.logits
            logits = LogitRows(logits_RV[part], labels_R[part], temperature, active_R[part])
            chunk = rows._replace(logits=logits, of=select(rows.of, part), index_R=rows.index_R[part])
            kept.append(sampled(impl, chunk, 0.004, 9, 300))
            kernels.hidden_gradient(kept[-1], weight, sums[part])
            start += size
        counts = torch.cat([entries.counts_R for entries in kept])
        found.append([counts, sums, kernels.weight_gradient(kept, hidden, vocabulary)])
    for other in found[1:]:
        assert all(map(torch.equal, found[0], other))
