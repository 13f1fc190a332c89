"""Chunks of logits and the gradients summed over them."""

from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any

import pytest
import torch
from loss_cases import assert_as_exact, make_case, needs_native, run

from outcome_rl_kernels import linear_policy_loss
from outcome_rl_kernels.cpu_memory import KEPT
from outcome_rl_kernels.dtypes import Bfloat16
from outcome_rl_kernels.loss import chunked_head
from outcome_rl_kernels.loss.chunked_head import HeadGradients, LogitChunks
from outcome_rl_kernels.loss.types import Head, Teacher, Wants

R, H, V = 10, 8, 37
ALL = Wants(True, True, True)
DTYPES = [torch.float32, torch.bfloat16]


KINDS = {
    "bfloat16 products": Bfloat16(True, "by the test"),
    "tiles": Bfloat16(True, "by the test", in_tiles=True),
    "no bfloat16 products": Bfloat16(False, "by the test"),
}


@pytest.fixture(params=KINDS)
def is_fast(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Whether the CPU multiplies bfloat16 fast; if not, or if in tiles, the weight is taken in parts of 16 rows."""
    monkeypatch.setattr(chunked_head, "bfloat16_products", lambda _: KINDS[request.param])
    monkeypatch.setattr(chunked_head, "CPU_PART_ROWS", 16)
    monkeypatch.setattr(chunked_head, "TILED_PART_ROWS", 16)
    return KINDS[request.param].is_fast


def operands(dtype: torch.dtype = torch.float32, rows: int = R) -> Head:
    g = torch.Generator().manual_seed(0)
    hidden, weight, bias = (torch.randn(*shape, generator=g).to(dtype) for shape in ((rows, H), (V, H), (V,)))
    return Head(hidden, weight, bias)


@pytest.mark.parametrize(
    ("rows", "workspace_rows", "sizes"),
    [
        (10, 10, [10]),
        (10, 9, [5, 5]),  # equal chunks rather than 9 and 1
        (10, 4, [4, 4, 2]),
        (10, 1, [1] * 10),
        (10, 0.5, [1] * 10),  # less than a row: a row
        (10, None, [10]),
        (9011, 8192, [5120, 3891]),  # whole tiles of 1024 rows rather than 4506 and 4505
        (900, 500, [450, 450]),  # 512 is more than there is room for
        (900, 600, [512, 388]),  # of 128
        (1, 1, [1]),
        (0, 1, []),
    ],
)
def test_chunks_cover_the_rows_within_the_workspace(rows: int, workspace_rows: float | None, sizes: list[int]) -> None:
    workspace = None if workspace_rows is None else int(workspace_rows * V * 4)
    hidden, weight, bias = operands(rows=rows)
    chunks = LogitChunks(Head(hidden, weight, bias), workspace, wants=ALL, fp32_logits=False, widest=V)
    seen = [(part.start, part.stop, logits.clone()) for part, logits in chunks]
    assert [stop - start for start, stop, _ in seen] == sizes
    assert len(chunks) == len(sizes)
    if sizes:
        torch.testing.assert_close(torch.cat([logits for *_, logits in seen]), hidden @ weight.T + bias)


@pytest.mark.parametrize(
    ("rows", "most_rows", "size", "room"),
    [
        (16384, 2790, 2432, 2790),  # seven chunks of 19 tiles of 128 rows rather than six of 2731 rows
        (16384, 8192, 8192, 8192),
        (900, 4096, 900, 1024),  # the next micro-batch may have 1000 rows, and use the same block of memory
        (900, 960, 900, 960),
        (100, 64, 50, 64),  # no whole tile has room
    ],
)
def test_chunks_on_a_gpu_have_whole_tiles_and_rows_aligned_to_128_bytes(
    rows: int, most_rows: int, size: int, room: int
) -> None:
    hidden, weight = (torch.empty(count, H, dtype=torch.bfloat16, device="meta") for count in (rows, V))
    chunks = LogitChunks(Head(hidden, weight, None), most_rows * V * 2, wants=ALL, fp32_logits=False, widest=V)
    logits = next(logits for _, logits in chunks)
    assert logits.shape == (size, V)
    assert logits.stride() == (64, 1)
    assert logits.untyped_storage().nbytes() == room * 64 * 2


def test_float32_logits_of_half_precision_need_room_for_their_gradients(is_fast: bool) -> None:
    hidden, weight, bias = operands(torch.bfloat16)
    chunks = LogitChunks(Head(hidden, weight, bias), 5 * V * (4 + 2), wants=ALL, fp32_logits=True, widest=V)
    assert len(chunks) == 2
    for part, logits in chunks:
        exact = hidden[part].double() @ weight.double().T + bias.double()
        assert (logits - exact).abs().max() < 1e-5
        gradients = chunks.gradients_of(logits)
        assert gradients.dtype == torch.bfloat16
        assert gradients.shape == logits.shape
    plain = LogitChunks(Head(hidden, weight, bias), None, wants=ALL, fp32_logits=False, widest=V)
    for _, logits in plain:
        assert plain.gradients_of(logits) is logits


def test_iterating_again_takes_the_same_room() -> None:
    chunks = LogitChunks(operands(), 3 * V * 4, wants=ALL, fp32_logits=False, widest=V)
    assert len({logits.data_ptr() for _ in range(2) for _, logits in chunks}) == 1


def chunks_of(head: Head, **options: Any) -> LogitChunks:
    return LogitChunks(head, options.pop("workspace", None), wants=ALL, widest=len(head.weight), **options)


@pytest.mark.parametrize("size", [3, R, 1])
def test_a_later_call_takes_the_room_of_an_earlier_one(size: int) -> None:
    KEPT.clear()
    [first] = {logits.data_ptr() for _, logits in chunks_of(operands(), fp32_logits=False)}
    [again] = {logits.data_ptr() for _, logits in chunks_of(operands(rows=size), fp32_logits=False)}
    assert again == first


def test_what_a_caller_still_holds_is_not_overwritten() -> None:
    head, other = operands(), operands(torch.bfloat16)
    held = next(logits for _, logits in chunks_of(head, fp32_logits=False))  # its chunks are gone
    exact = head.hidden @ head.weight.T + head.bias
    first = chunks_of(other, fp32_logits=True, softcap=3.0, teacher=Teacher(*other))
    second = chunks_of(other, fp32_logits=True, softcap=3.0, teacher=Teacher(*other))
    places = [held]
    for (rows, logits), (_, of_second) in zip(first, second, strict=True):
        places += [logits, first.teacher_logits(rows), first.gradients_of(logits), of_second]  # type: ignore[list-item]
    torch.testing.assert_close(held, exact)
    spans = sorted((place.data_ptr(), place.data_ptr() + place.numel() * place.itemsize) for place in places)
    assert all(end <= start for (_, end), (start, _) in pairwise(spans))


def test_threads_never_share_a_room() -> None:
    heads = [Head(torch.full((R, H), float(i)), torch.ones(V, H), None) for i in range(8)]

    def is_own(i: int) -> bool:
        return all(
            bool((logits == H * i).all()) for _ in range(200) for _, logits in chunks_of(heads[i], fp32_logits=False)
        )

    with ThreadPoolExecutor(len(heads)) as pool:
        assert all(pool.map(is_own, range(len(heads))))


@pytest.mark.parametrize("hidden_size", [8, 64, 512])
@pytest.mark.parametrize("rows", [100, 1000, 5000])
def test_a_smaller_workspace_takes_no_more_memory_though_the_room_is_kept(rows: int, hidden_size: int) -> None:
    hidden, weight = torch.empty(rows, hidden_size, dtype=torch.bfloat16), torch.empty(999, hidden_size).bfloat16()
    weight_bytes, peaks = weight.numel() * 2, []
    for workspace_rows in range(1, rows + 1):
        chunks = chunks_of(Head(hidden, weight, None), workspace=workspace_rows * 999 * 2, fp32_logits=False)
        room = -(-rows // len(chunks)) * 999 * 2
        peaks.append(room + weight_bytes * (1 if len(chunks) <= 8 else 3))  # a sum in float32, and its cast
    assert all(smaller <= larger for smaller, larger in pairwise(peaks))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("chunk", [R, 3, 1])
@pytest.mark.parametrize("transposed", [False, True])
def test_gradients_add_up(dtype: torch.dtype, chunk: int, transposed: bool, is_fast: bool) -> None:
    hidden, weight, bias = operands(dtype)
    if transposed:
        hidden, weight = hidden.t().contiguous().t(), weight.t().contiguous().t()
    logit_grads = torch.randn(R, V, generator=torch.Generator().manual_seed(1)).to(dtype)
    parts = [slice(start, min(start + chunk, R)) for start in range(0, R, chunk)]
    gradients = HeadGradients(Head(hidden, weight, bias), Wants(True, True, True), len(parts))
    for part in parts:
        gradients.add(part, logit_grads[part])
    exact = logit_grads.double()
    truth = exact @ weight.double(), exact.T @ hidden.double(), exact.sum(0)
    eager = logit_grads @ weight, logit_grads.T @ hidden, logit_grads.sum(0)
    for ours, theirs, want in zip(gradients.results(), eager, truth, strict=True):
        assert ours.dtype == dtype
        assert ours.is_contiguous()
        assert (ours - want).norm() <= 2 * (theirs - want).norm() + 1e-6 * want.norm()


@pytest.mark.parametrize(("chunks", "loss"), [(1, 1.0), (2, 1.5**0.5), (4, 2.5**0.5), (8, 4.5**0.5), (10, 1.0)])
def test_the_error_of_the_weight_gradient_grows_with_its_roundings_up_to_eight_chunks(
    chunks: int, loss: float, is_fast: bool
) -> None:
    """Relative to one rounding, 1.7e-3 in norm: a partial sum over k of n chunks has k / n of the variance of all, so n
    roundings have (n + 1) / 2 of the variance of one. Sums in float32 are rounded once."""
    rows, hidden_size, vocabulary = 640, 64, 256
    g = torch.Generator().manual_seed(0)
    hidden, weight = (torch.randn(n, hidden_size, generator=g).bfloat16() for n in (rows, vocabulary))
    grads = torch.randn(rows, vocabulary, generator=g).bfloat16()
    truth = grads.double().T @ hidden.double()
    gradients = HeadGradients(Head(hidden, weight, None), Wants(False, True, False), chunks)
    for start in range(0, rows, rows // chunks):
        part = slice(start, start + rows // chunks)
        gradients.add(part, grads[part])
    error, rounding = (
        float((value - truth).norm() / truth.norm()) for value in (gradients.results()[1], truth.bfloat16())
    )
    assert rounding == pytest.approx(1.7e-3, abs=1e-4)
    # PyTorch rounds half-precision products that are summed in float32, too, to 1 / chunks of the variance.
    expected = loss if chunks <= 8 else 2**0.5 if is_fast else 1.0
    assert error == pytest.approx(expected * rounding, rel=0.05)


@needs_native
@pytest.mark.parametrize("options", [{}, {"fp32_logits": True}, {"workspace_bytes": 3 * 211 * 2}])
def test_the_loss_is_as_exact_without_bfloat16_products(
    options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chunked_head, "bfloat16_products", lambda _: Bfloat16(False, "by the test"))
    monkeypatch.setattr(chunked_head, "CPU_PART_ROWS", 64)
    case = make_case(0, torch.bfloat16, {}, absent={"ref_logps"})
    arguments = (linear_policy_loss, case.operands)
    wants = set(case.operands)
    truth = run(*arguments, torch.float64, wants, **case.inputs)[1]
    eager = run(*arguments, torch.bfloat16, wants, **case.inputs, impl="reference")[1]
    ours = run(*arguments, torch.bfloat16, wants, **case.inputs, **options, impl="native")[1]
    assert_as_exact(ours, eager, truth)


@needs_native
@pytest.mark.parametrize("chunks", [1, 3, 9])
@pytest.mark.parametrize(("rows", "vocabulary"), [(512, 1500), (31, 3), (33, 512), (1, 1025)])
def test_products_of_tiles_have_the_values_of_others_and_the_same_bits_on_two_threads(
    rows: int, vocabulary: int, chunks: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    g = torch.Generator().manual_seed(0)
    hidden, weight, logit_grads = (
        torch.randn(*shape, generator=g).bfloat16() for shape in ((rows, 64), (vocabulary, 64), (rows, vocabulary))
    )

    def weight_gradient(kind: str, threads: int) -> torch.Tensor:
        monkeypatch.setattr(chunked_head, "bfloat16_products", lambda _: KINDS[kind])
        before = torch.get_num_threads()
        torch.set_num_threads(threads)
        gradients = HeadGradients(Head(hidden, weight, None), Wants(False, True, False), chunks)
        for start in range(chunks):
            part = slice(start * rows // chunks, (start + 1) * rows // chunks)
            gradients.add(part, logit_grads[part])
        torch.set_num_threads(before)
        return gradients.results()[1]

    exact = logit_grads.double().T @ hidden.double()
    found = weight_gradient("tiles", 1)
    assert (found - exact).norm() <= 1.1 * (weight_gradient("bfloat16 products", 1) - exact).norm()
    assert torch.equal(found, weight_gradient("tiles", 2))


def test_sums_of_chunks_are_not_rounded() -> None:
    """(1 + 1/256) - 1 is 1/256; the first sum rounded to bfloat16 would leave 0."""
    operand = torch.zeros(4, 1).bfloat16()
    gradients = HeadGradients(Head(operand, operand[:1], operand[0]), Wants(False, False, True), 2)
    gradients.add(slice(0, 2), torch.tensor([[1.0], [1 / 256]]).bfloat16())
    gradients.add(slice(2, 4), torch.tensor([[-1.0], [0.0]]).bfloat16())
    assert gradients.results()[2].item() == 1 / 256


@pytest.mark.parametrize("rows", [1, 2, 3, 4, 5, 7, 8, 63])
@pytest.mark.parametrize("dtype", DTYPES)
def test_rows_that_fill_up_a_product_reach_no_result(rows: int, dtype: torch.dtype) -> None:
    """Whatever lies in them: a room that is taken again holds an earlier call's numbers."""
    head = operands(dtype, rows=64)
    KEPT.clear()
    for _, logits in chunks_of(head, fp32_logits=False):
        logits.fill_(torch.nan)
    del logits
    few = Head(head.hidden[:rows], head.weight, head.bias)
    chunks = chunks_of(few, fp32_logits=False)
    gradients = HeadGradients(few, ALL, len(chunks))
    for part, logits in chunks:
        assert few.bias is not None
        wanted = few.hidden.double() @ few.weight.double().T + few.bias.double()
        assert (logits - wanted).norm() <= (0.01 if dtype == torch.bfloat16 else 1e-5) * wanted.norm()
        gradient = chunks.gradients_of(logits)
        gradients.add(part, chunks.before_cap_(gradient, logits))
        exact = logits.double()
    truth = exact @ few.weight.double(), exact.T @ few.hidden.double(), exact.sum(0)
    for ours, want in zip(gradients.results(), truth, strict=True):
        assert (ours - want).norm() <= (0.01 if dtype == torch.bfloat16 else 1e-5) * want.norm()
