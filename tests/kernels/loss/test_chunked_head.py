"""Chunks of logits and the gradients summed over them."""

import pytest
import torch

from outcome_rl_kernels.loss.chunked_head import HeadGradients, LogitChunks
from outcome_rl_kernels.loss.types import Head

R, H, V = 10, 8, 37
DTYPES = [torch.float32, torch.bfloat16]


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
    chunks = LogitChunks(Head(hidden, weight, bias), workspace, fp32_logits=False, widest=V)
    seen = [(part.start, part.stop, logits.clone()) for part, logits in chunks]
    assert [stop - start for start, stop, _ in seen] == sizes
    assert len(chunks) == len(sizes)
    if sizes:
        torch.testing.assert_close(torch.cat([logits for *_, logits in seen]), hidden @ weight.T + bias)


def test_float32_logits_of_half_precision_need_room_for_their_gradients() -> None:
    hidden, weight, bias = operands(torch.bfloat16)
    chunks = LogitChunks(Head(hidden, weight, bias), 5 * V * (4 + 2), fp32_logits=True, widest=V)
    assert len(chunks) == 2
    for part, logits in chunks:
        exact = hidden[part].double() @ weight.double().T + bias.double()
        assert (logits - exact).abs().max() < 1e-5
        gradients = chunks.gradients_of(logits)
        assert gradients.dtype == torch.bfloat16
        assert gradients.shape == logits.shape
    plain = LogitChunks(Head(hidden, weight, bias), None, fp32_logits=False, widest=V)
    for _, logits in plain:
        assert plain.gradients_of(logits) is logits


def test_iterating_again_takes_the_same_room() -> None:
    chunks = LogitChunks(operands(), 3 * V * 4, fp32_logits=False, widest=V)
    assert len({logits.data_ptr() for _ in range(2) for _, logits in chunks}) == 1


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("chunk", [R, 3, 1])
@pytest.mark.parametrize("transposed", [False, True])
def test_gradients_add_up(dtype: torch.dtype, chunk: int, transposed: bool) -> None:
    hidden, weight, bias = operands(dtype)
    if transposed:
        hidden, weight = hidden.t().contiguous().t(), weight.t().contiguous().t()
    logit_grads = torch.randn(R, V, generator=torch.Generator().manual_seed(1)).to(dtype)
    parts = [slice(start, min(start + chunk, R)) for start in range(0, R, chunk)]
    gradients = HeadGradients(Head(hidden, weight, bias), (True, True, True), len(parts))
    for part in parts:
        gradients.add(part, logit_grads[part])
    exact = logit_grads.double()
    truth = exact @ weight.double(), exact.T @ hidden.double(), exact.sum(0)
    eager = logit_grads @ weight, logit_grads.T @ hidden, logit_grads.sum(0)
    for ours, theirs, want in zip(gradients.results(), eager, truth, strict=True):
        assert ours.dtype == dtype
        assert ours.is_contiguous()
        assert (ours - want).norm() <= 2 * (theirs - want).norm() + 1e-6 * want.norm()


@pytest.mark.parametrize(("chunks", "loss"), [(1, 1.0), (2, 1.5**0.5), (4, 2.5**0.5), (5, 1.0), (8, 1.0)])
def test_the_error_of_the_weight_gradient_grows_with_its_roundings_up_to_four_chunks(chunks: int, loss: float) -> None:
    """Relative to one rounding, 1.7e-3 in norm: a partial sum over k of n chunks has k / n of the variance of all, so n
    roundings have (n + 1) / 2 of the variance of one. Sums in float32 are rounded once."""
    rows, hidden_size, vocabulary = 640, 64, 256
    g = torch.Generator().manual_seed(0)
    hidden, weight = (torch.randn(n, hidden_size, generator=g).bfloat16() for n in (rows, vocabulary))
    grads = torch.randn(rows, vocabulary, generator=g).bfloat16()
    truth = grads.double().T @ hidden.double()
    gradients = HeadGradients(Head(hidden, weight, None), (False, True, False), chunks)
    for start in range(0, rows, rows // chunks):
        part = slice(start, start + rows // chunks)
        gradients.add(part, grads[part])
    error, rounding = (
        float((value - truth).norm() / truth.norm()) for value in (gradients.results()[1], truth.bfloat16())
    )
    assert rounding == pytest.approx(1.7e-3, abs=1e-4)
    # On the CPU, products that are summed in float32 are rounded themselves, to 1 / chunks of the variance.
    assert error == pytest.approx(loss * rounding if chunks <= 4 else 2**0.5 * rounding, rel=0.05)


def test_half_precision_is_summed_in_float32() -> None:
    """1 + 256 times 1/256 is 2; in bfloat16 it stays 1."""
    rows = 257
    hidden, weight = torch.ones(rows, 1).bfloat16(), torch.ones(1, 1).bfloat16()
    grads = torch.full((rows, 1), 1 / 256).bfloat16()
    grads[0] = 1
    gradients = HeadGradients(Head(hidden, weight, weight[0]), (False, True, True), rows)
    for row in range(rows):
        gradients.add(slice(row, row + 1), grads[row : row + 1])
    hidden_grad, weight_grad, bias_grad = gradients.results()
    assert hidden_grad.numel() == 0
    assert weight_grad.item() == bias_grad.item() == 2


def test_sums_of_chunks_are_not_rounded() -> None:
    """(1 + 1/256) - 1 is 1/256; the first sum rounded to bfloat16 would leave 0."""
    operand = torch.zeros(4, 1).bfloat16()
    gradients = HeadGradients(Head(operand, operand[:1], operand[0]), (False, False, True), 2)
    gradients.add(slice(0, 2), torch.tensor([[1.0], [1 / 256]]).bfloat16())
    gradients.add(slice(2, 4), torch.tensor([[-1.0], [0.0]]).bfloat16())
    assert gradients.results()[2].item() == 1 / 256


def test_no_chunk_gives_zeros() -> None:
    hidden, weight, bias = operands(rows=0)
    results = HeadGradients(Head(hidden, weight, bias), (True, True, True), 0).results()
    assert [tuple(grad.shape) for grad in results] == [(0, H), (V, H), (V,)]
    assert not any(grad.any() for grad in results)
