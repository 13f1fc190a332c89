"""The Triton passes over rows of logits: on the GPU where there is one, else interpreted (tests/conftest.py).

The interpreter cuts float32 off to bfloat16 where a GPU rounds, so a bfloat16 gradient may be a whole ulp off.
"""

import math
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

pytest.importorskip("triton", reason="Triton has no build for this platform")

import triton
import triton.language as tl

from outcome_rl_kernels.loss import row_kernels_triton as policy_rows_triton
from outcome_rl_kernels.loss.reference import (
    LossSettings,
    TokenBatch,
    kl_divergence,
    logps_and_entropies,
    policy_gradient_losses,
    token_sums,
)
from outcome_rl_kernels.loss.row_kernels import PolicyTokens, RowTerms
from outcome_rl_kernels.loss.row_kernels_triton import logprob_rows, logprob_rows_backward, policy_rows
from outcome_rl_kernels.loss.terms_triton import kl_terms, policy_terms

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
DTYPES = [torch.float32, torch.bfloat16, torch.float16]
# One logit; odd ones; around the small block of unaligned (512) and of aligned rows (2048); likewise the large blocks
# (2048 and 16384), which rows longer than 8192 take; real vocabularies, one of them odd.
VOCABULARIES = [1, 2, 13, 511, 513, 2032, 2048, 2064, 8191, 8193, 8208, 16384, 16400, 50257, 152064]

# NumPy, which interprets, warns where a GPU silently overflows to the wanted infinity.
pytestmark = pytest.mark.filterwarnings("ignore:(overflow|invalid value|divide by zero) encountered:RuntimeWarning")


def rows_of(count: int, vocabulary: int, dtype: torch.dtype, scale: float = 3.0) -> tuple[Tensor, Tensor]:
    g = torch.Generator().manual_seed(vocabulary)
    logits = scale * torch.randn(count, vocabulary, generator=g)
    labels = torch.randint(vocabulary, (count,), generator=g)
    labels[0], labels[-1] = 0, vocabulary - 1  # the ends of a row
    return logits.to(DEVICE, dtype), labels.to(DEVICE)


def relative(value: Tensor, truth: Tensor, scale: float = 0.0) -> float:
    return float((value.double() - truth).norm() / truth.norm().clamp(min=max(scale, 1e-30)))


def differentiate(
    logits: Tensor, labels: Tensor, temperature: float, g: Tensor, e: Tensor | None, dtype: torch.dtype
) -> tuple[Tensor, Tensor, Tensor]:
    """logps, entropies and the gradient by plain PyTorch in a dtype."""
    leaf = logits.to(dtype, copy=True).requires_grad_()
    logps, entropies = logps_and_entropies(leaf, labels, temperature)
    ((logps * g).sum() + (0 if e is None else (entropies * e).sum())).backward()
    assert leaf.grad is not None
    return logps.detach(), entropies.detach(), leaf.grad


# --- log-probabilities and entropies ---


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("vocabulary", VOCABULARIES)
@pytest.mark.parametrize(("temperature", "scale"), [(1.0, 3.0), (0.6, 30.0)])  # soft rows; peaked rows
def test_logprobs_and_their_gradient(vocabulary: int, dtype: torch.dtype, temperature: float, scale: float) -> None:
    logits, labels = rows_of(4, vocabulary, dtype, scale)
    labels[1] = logits[1].argmax()  # 1 - p cancels
    before = logits.clone()
    g = torch.tensor([1.0, -2.0, 0.5, 3.0], device=DEVICE)
    e = torch.tensor([0.1, 0.0, -0.3, 1.0], device=DEVICE)
    for entropy_grads in (None, e):
        truth = differentiate(logits, labels, temperature, g, entropy_grads, torch.float64)
        eager = differentiate(logits, labels, temperature, g, entropy_grads, dtype)
        grad = torch.full_like(logits, math.nan, dtype=torch.float32)
        ours = *logprob_rows(logits, labels, temperature), grad
        logprob_rows_backward(logits, labels, temperature, g, entropy_grads, grad)
        assert torch.equal(logits, before)
        # Plain PyTorch can be right by luck in a few rows, and with one logit all is 0: hence half an ulp of the scale.
        for name, a, b, exact, size in zip(("logps", "entropies", "grad"), ours, eager, truth, (4, 4, 1), strict=True):
            error, allowed = relative(a, exact, size), 2 * relative(b, exact, size) + 2**-24
            assert error <= allowed, f"{name}: {error:.1e} against {allowed:.1e}"


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("vocabulary", [13, 2064])
def test_the_gradient_may_overwrite_the_logits(vocabulary: int, dtype: torch.dtype) -> None:
    logits, labels = rows_of(3, vocabulary, dtype)
    g = torch.tensor([1.0, -2.0, 3.0], device=DEVICE)
    exact = torch.empty_like(logits, dtype=torch.float32)
    logprob_rows_backward(logits, labels, 1.0, g, g, exact)
    logprob_rows_backward(logits, labels, 1.0, g, g, logits)
    # Below the least normal number of float16 its ulp no longer shrinks.
    ulps = torch.finfo(dtype).eps * exact.abs().clamp(min=torch.finfo(dtype).tiny)
    assert ((logits.float() - exact).abs() <= ulps).all()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("stride", [2017, 2032])  # unaligned, aligned
def test_columns_past_the_vocabulary_never_count(dtype: torch.dtype, stride: int) -> None:
    logits, labels = rows_of(3, 2016, dtype)
    padded = torch.full((3, stride), math.nan, dtype=dtype, device=DEVICE)
    padded[:, :2016] = logits
    ones = torch.ones(3, device=DEVICE)
    for a, b in zip(logprob_rows(padded[:, :2016], labels, 1.0), logprob_rows(logits, labels, 1.0), strict=True):
        torch.testing.assert_close(a, b, atol=1e-6, rtol=1e-6)
    logprob_rows_backward(padded[:, :2016], labels, 1.0, ones, ones, padded[:, :2016])
    logprob_rows_backward(logits, labels, 1.0, ones, ones, logits)
    torch.testing.assert_close(padded[:, :2016], logits, atol=1e-6, rtol=torch.finfo(dtype).eps)
    assert padded[:, 2016:].isnan().all()


# --- the loss ---

LENGTHS = [3, 1, 4]
R, V = sum(LENGTHS), 37
# exp(distance) keeps away from every bound of the tests, on which rounding would decide.
DISTANCES = torch.tensor([0.0, 0.05, -0.05, -0.5, 0.5, 1.5, -1.5, 0.1])


def inputs_of(seed: int, dtype: torch.dtype, temperature: float, absent: set[str]) -> tuple[Tensor, TokenBatch]:
    g = torch.Generator().manual_seed(seed)
    logits = (2 * torch.randn(R, V, generator=g)).to(dtype)
    labels = torch.randint(V, (R,), generator=g)
    logps = logps_and_entropies(logits.double(), labels, temperature)[0]
    optional = {
        "bonuses_N": 0.1 * torch.randn(R, generator=g),
        "answer_mask_N": torch.rand(R, generator=g) < 0.4,
        "ref_logps_N": (logps + DISTANCES[torch.randperm(R, generator=g)]).float(),
        "old_logps_N": (logps - DISTANCES[torch.randperm(R, generator=g)]).float(),
        "rollout_weights_N": 2 * torch.rand(R, generator=g),
    }
    sequence_ids = torch.arange(len(LENGTHS)).repeat_interleave(torch.tensor(LENGTHS))
    advantages, ones = torch.randn(R, generator=g), torch.ones(R, dtype=torch.bool)
    kept = {name: value for name, value in optional.items() if name not in absent}
    return logits, TokenBatch(labels, advantages, ones, sequence_ids, len(LENGTHS), 4, **kept)


def by_plain_pytorch(logits: Tensor, batch: TokenBatch, weights: Tensor, options: LossSettings) -> dict[str, Tensor]:
    logits, weights = logits.clone().requires_grad_(), weights.to(logits.dtype).requires_grad_()
    logps, entropies = logps_and_entropies(logits, batch.labels_N, options.temperature)
    sums = token_sums(logps, entropies, batch, weights, options)
    sums.loss.backward()
    assert logits.grad is not None
    assert weights.grad is not None  # the loss of each row
    found = {"grad": logits.grad, "losses": weights.grad * weights, **sums._asdict(), "logps": logps}
    return {name: value.detach() for name, value in found.items()}


def by_triton(
    logits: Tensor, batch: TokenBatch, weights: Tensor, options: LossSettings, grad: Tensor | None
) -> dict[str, Tensor]:
    optional = {
        name.removesuffix("_N") + "_R": value.to(DEVICE)
        for name, value in batch._asdict().items()
        if name in TokenBatch._field_defaults and value is not None
    }
    if options.importance_level == "sequence" and batch.old_logps_N is not None:
        logps = logps_and_entropies(logits.double(), batch.labels_N, options.temperature)[0]
        parts = (logps - batch.old_logps_N).split(LENGTHS)
        means = torch.cat([part.mean().expand(len(part)) for part in parts])
        optional["sequence_log_ratios_R"] = means.float().to(DEVICE)
    tokens = PolicyTokens(batch.labels_N.to(DEVICE), batch.advantages_N.to(DEVICE), weights.to(DEVICE), **optional)
    terms_7R = policy_rows(logits.to(DEVICE), tokens, options, grad)
    terms, sums = RowTerms(*terms_7R), terms_7R.sum(dim=1)
    names = ("_", "entropy", "loss", "kl", "ratio", "clipped", "policy_tokens")
    return {"logps": terms.logps, "losses": terms.losses, **dict(zip(names, sums, strict=True))}


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    dtype=st.sampled_from(DTYPES),
    absent=st.sets(st.sampled_from(["bonuses_N", "answer_mask_N", "ref_logps_N", "old_logps_N", "rollout_weights_N"])),
    answer_mask_mode=st.sampled_from(["policy", "bonus", "none"]),
    importance_level=st.sampled_from(["token", "sequence"]),
    kl_penalty=st.sampled_from(["k1", "k2", "k3"]),
    beta=st.sampled_from([0, 0.2]),
    entropy_coef=st.sampled_from([0, 0.05]),
    temperature=st.sampled_from([1, 0.7]),
    delta=st.sampled_from([None, 3]),
    log_ratio_clamp=st.sampled_from([None, 0.3]),
    kl_clamp=st.sampled_from([None, 0.2]),
)
def test_the_loss_and_its_gradient(seed: int, dtype: torch.dtype, absent: set[str], **options: Any) -> None:
    chosen = LossSettings(**options)
    logits, batch = inputs_of(seed, dtype, chosen.temperature, absent)
    weights = 1 / torch.tensor(LENGTHS).float().repeat_interleave(torch.tensor(LENGTHS))
    truth = by_plain_pytorch(logits.double(), batch, weights, chosen)
    eager = by_plain_pytorch(logits, batch, weights, chosen)
    grad = torch.full((R, V), math.nan, device=DEVICE)
    ours = by_triton(logits, batch, weights, chosen, grad) | {"grad": grad}
    del ours["_"]
    assert ours.keys() == truth.keys()
    for name, exact in truth.items():
        exact = exact.double()  # some are counts
        # Plain PyTorch can be right by luck: an ulp of the largest logp, by which its exponential is off as well, and
        # in a sum one of each row.
        ulp = torch.finfo(torch.float32).eps * float(truth["logps"].abs().max())
        error = relative(ours[name].cpu(), exact, 1.0)
        allowed = 2 * relative(eager[name], exact, 1.0) + ulp * (1 if exact.dim() else R)
        assert error <= allowed, f"{name}: {error:.1e} against {allowed:.1e}"
    without_gradient = by_triton(logits, batch, weights, chosen, None)
    assert all(torch.equal(without_gradient[name], ours[name]) for name in without_gradient if name != "_")


def test_the_loss_in_place_and_in_another_dtype() -> None:
    logits, batch = inputs_of(0, torch.float32, 1.0, set())
    options, weights = LossSettings(beta=0.1, entropy_coef=0.1), torch.ones(R)
    grad = torch.empty(R, V, device=DEVICE)
    by_triton(logits, batch, weights, options, grad)
    half = torch.empty(R, V, device=DEVICE, dtype=torch.bfloat16)
    by_triton(logits, batch, weights, options, half)
    assert ((half.float() - grad).abs() <= torch.finfo(torch.bfloat16).eps * grad.abs()).all()
    overwritten = logits.to(DEVICE, copy=True)
    by_triton(overwritten, batch, weights, options, overwritten)
    assert torch.equal(overwritten, grad)


@triton.jit
def _policy_terms_kernel(
    logp_ptr, advantage_ptr, old_logp_ptr, terms_ptr, ratio_low, ratio_high, delta, log_ratio_clamp, N: tl.constexpr
):  # fmt: skip
    i = tl.arange(0, N)
    loss, grad, ratio, clipped = policy_terms(
        tl.load(logp_ptr + i), tl.load(advantage_ptr + i), None, tl.load(old_logp_ptr + i), None, None,
        ratio_low, ratio_high, delta, log_ratio_clamp,
    )  # fmt: skip
    tl.store(terms_ptr + i, loss)
    tl.store(terms_ptr + N + i, grad)
    tl.store(terms_ptr + 2 * N + i, ratio)
    tl.store(terms_ptr + 3 * N + i, clipped)


@pytest.mark.parametrize("delta", [None, 4.0])
@pytest.mark.parametrize("bound", [0.8, 1.2, 4.0])
def test_derivatives_at_ties_are_those_of_autograd(bound: float, delta: float | None) -> None:
    """Ratios one ulp apart around a bound, with advantages whose products with both may be equal, and 0."""
    g = torch.Generator().manual_seed(0)
    steps = torch.arange(-32, 32).repeat_interleave(64)
    logps = (math.log(bound) + steps.double() * 2**-26).float()
    advantages = torch.randn(64, generator=g).repeat(64)
    advantages[::64] = 0.0
    terms = torch.empty(4, len(logps), device=DEVICE)
    old_logps = torch.zeros_like(logps)
    pointers = [x.to(DEVICE) for x in (logps, advantages, old_logps)]
    _policy_terms_kernel[(1,)](*pointers, terms, 0.8, 1.2, delta, None, N=len(logps))
    losses, grads, ratios, clipped = terms.cpu()
    leaf = ratios.clone().requires_grad_()
    expected, is_clipped = policy_gradient_losses(leaf, advantages, LossSettings(delta=delta))
    expected.sum().backward()
    assert leaf.grad is not None
    limits = torch.tensor([0.8, 1.2, 4.0])
    assert (ratios[:, None] == limits).any()
    if bound != 4.0:  # a product with 4 is exact
        inner = ratios.clamp(0.8, 1.2)
        assert ((inner * advantages == ratios * advantages) & (inner != ratios) & (advantages != 0)).any()
    assert torch.equal(losses, expected.detach())
    assert torch.equal(grads, leaf.grad * ratios)
    assert torch.equal(clipped.bool(), is_clipped)


@triton.jit
def _kl_terms_kernel(
    logp_ptr, ref_logp_ptr, terms_ptr, log_ratio_clamp, kl_clamp, KL_PENALTY: tl.constexpr, N: tl.constexpr
):  # fmt: skip
    i = tl.arange(0, N)
    kl, grad = kl_terms(
        tl.load(logp_ptr + i), tl.load(ref_logp_ptr + i), log_ratio_clamp, kl_clamp, KL_PENALTY
    )  # fmt: skip
    tl.store(terms_ptr + i, kl)
    tl.store(terms_ptr + N + i, grad)


# The middle log-ratios are on the clamps, and so is their KL under k1 and k2.
@pytest.mark.parametrize("clamps", [(None, None), (0.5, None), (None, 0.5), (None, 0.125), (0.5, 0.125)])
@pytest.mark.parametrize("kl_penalty", ["k1", "k2", "k3"])
def test_kl_and_its_derivative_as_autograd_of_the_reference(
    kl_penalty: str, clamps: tuple[float | None, float | None]
) -> None:
    logps = torch.tensor([0.0, 0.0, 0.0, 0.0, -1e-3, 1e-3, -30.0, 5.0])
    refs = torch.tensor([0.5, -0.5, 0.6, -0.6, 0.0, 0.0, 0.0, 0.0])
    options = LossSettings(kl_penalty=kl_penalty, log_ratio_clamp=clamps[0], kl_clamp=clamps[1])  # type: ignore[arg-type]
    leaf = logps.double().requires_grad_()
    expected = kl_divergence(leaf, refs.double(), options)
    expected.sum().backward()
    terms = torch.empty(2, len(logps), device=DEVICE)
    _kl_terms_kernel[(1,)](logps.to(DEVICE), refs.to(DEVICE), terms, *clamps, KL_PENALTY=kl_penalty, N=len(logps))
    torch.testing.assert_close(terms[0].cpu().double(), expected.detach(), atol=1e-10, rtol=1e-6)
    torch.testing.assert_close(terms[1].cpu().double(), leaf.grad, atol=1e-10, rtol=1e-6)


# --- what is not finite, what is not a label, and sizes ---


def all_terms(logits: Tensor, labels: Tensor, **optional: Tensor) -> tuple[Tensor, Tensor]:
    """(R, 7) terms and the gradient, with an entropy term and advantages of 1."""
    ones, grad = torch.ones(len(logits), device=DEVICE), torch.empty_like(logits, dtype=torch.float32)
    tokens = PolicyTokens(labels.to(DEVICE), ones, ones, **optional)
    terms = policy_rows(logits, tokens, LossSettings(entropy_coef=0.1), grad)
    return terms.T, grad


@pytest.mark.parametrize("dtype", DTYPES)
def test_probabilities_of_zero(dtype: torch.dtype) -> None:
    logits = torch.tensor([[-math.inf, 0.0, 0.0], [0.0, -math.inf, 0.0]]).to(DEVICE, dtype)
    labels = torch.tensor([1, 1], device=DEVICE)  # the second label is itself impossible
    logps, entropies = logprob_rows(logits, labels, 1.0)
    assert logps.tolist() == pytest.approx([-math.log(2), -math.inf])
    assert entropies.tolist() == pytest.approx([math.log(2)] * 2)
    grad, ones = torch.empty_like(logits), torch.ones(2, device=DEVICE)
    logprob_rows_backward(logits, labels, 1.0, ones, ones, grad)
    assert grad.tolist() == [pytest.approx(row, abs=1e-2) for row in ([0.0, 0.5, -0.5], [-0.5, 1.0, -0.5])]
    assert grad[0, 0] == 0


@pytest.mark.parametrize("dtype", DTYPES)
def test_logits_at_the_ends_of_their_range(dtype: torch.dtype) -> None:
    top = torch.finfo(dtype).max
    rows = [[top, 0.0, -top, -math.inf], [-top, -top, -top, -math.inf], [-top, top, top, 0.0]]
    logits, labels = torch.tensor(rows, dtype=torch.float64).to(DEVICE, dtype), torch.tensor([0, 1, 2], device=DEVICE)
    logps, entropies = logprob_rows(logits, labels, 0.5)
    assert logps.tolist() == pytest.approx([0.0, -math.log(3), -math.log(2)])
    assert entropies.tolist() == pytest.approx([0.0, math.log(3), math.log(2)])
    _, grad = all_terms(logits, labels)
    assert grad.isfinite().all()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("bad", [math.nan, math.inf])
@pytest.mark.parametrize("answer", [False, True])
def test_what_is_not_finite_reaches_the_loss(dtype: torch.dtype, bad: float, answer: bool) -> None:
    logits, labels = rows_of(3, 2100, dtype)
    logits[1, 2099] = bad
    terms, grad = all_terms(logits, labels, answer_mask_R=torch.full((3,), answer, device=DEVICE))
    for column in (0, 1, 2):  # logps, entropies, losses
        assert terms[:, column].isnan().tolist() == [False, True, False]
    assert grad[1].isnan().all()
    assert grad[[0, 2]].isfinite().all()


def test_a_row_without_a_possible_token_is_not_a_number() -> None:
    terms, grad = all_terms(torch.full((1, 5), -math.inf, device=DEVICE), torch.tensor([0]))
    assert terms[0, :3].isnan().all()
    assert grad.isnan().all()


@pytest.mark.parametrize("label", [-1, -100, 13, 2**40, -(2**63)])
@pytest.mark.parametrize("answer", [False, True])  # an answer token's policy term is dropped
def test_a_label_outside_the_vocabulary_is_never_loaded_nor_silent(label: int, answer: bool) -> None:
    logits, _ = rows_of(3, 13, torch.float32)
    labels = torch.tensor([1, label, 1])
    terms, grad = all_terms(logits, labels, answer_mask_R=torch.full((3,), answer, device=DEVICE))
    assert terms[:, 0].isnan().tolist() == terms[:, 2].isnan().tolist() == [False, True, False]
    assert terms[:, 1].isfinite().all()  # the entropy knows no label
    assert grad.isnan().all(dim=1).tolist() == [False, True, False]
    ones = torch.ones(3, device=DEVICE)
    logprob_rows_backward(logits, labels.to(DEVICE), 1.0, ones, None, grad)
    assert grad.isnan().all(dim=1).tolist() == [False, True, False]


def test_no_rows_launch_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("_policy_rows_kernel", "_logprob_rows_kernel", "_logprob_rows_backward_kernel"):
        monkeypatch.setattr(policy_rows_triton, name, None)
    logits, empty = torch.empty(0, 5, device=DEVICE), torch.empty(0, device=DEVICE)
    labels = empty.long()
    terms = policy_rows(logits, PolicyTokens(labels, empty, empty), LossSettings(), logits)
    assert terms.sum(dim=1).tolist() == [0.0] * 7
    assert [x.shape for x in logprob_rows(logits, labels, 1.0)] == [(0,), (0,)]
    logprob_rows_backward(logits, labels, 1.0, empty, None, logits)


def test_offsets_past_2_to_31() -> None:
    stride = 2**30 + 16
    logits = torch.empty(2 * stride + 32, dtype=torch.bfloat16, device=DEVICE).as_strided((3, 32), (stride, 1))
    small, labels = rows_of(3, 32, torch.bfloat16)  # only these pages of the 4 GiB are ever touched
    logits.copy_(small)
    ours, expected = logprob_rows(logits, labels, 1.0), logprob_rows(small, labels, 1.0)
    assert all(torch.equal(a, b) for a, b in zip(ours, expected, strict=True))
    ones = torch.ones(3, device=DEVICE)
    logprob_rows_backward(logits, labels, 1.0, ones, ones, logits)
    logprob_rows_backward(small, labels, 1.0, ones, ones, small)
    assert torch.equal(logits, small)


def test_vectors_may_be_strided() -> None:
    logits, labels = rows_of(3, 13, torch.float32)
    grads = torch.tensor([1.0, -2.0, 3.0], device=DEVICE)
    written = []
    for a, b in ((labels, grads), (labels.repeat_interleave(2)[::2], grads.repeat_interleave(2)[::2])):
        grad = torch.empty_like(logits)
        logprob_rows_backward(logits, a, 1.0, b, b, grad)
        written.append(grad)
    assert torch.equal(*written)


def test_rows_with_gaps_are_refused() -> None:
    logits, labels = rows_of(3, 13, torch.float32)
    columns = logits.t().contiguous().t()
    with pytest.raises(ValueError, match=r"logits must be contiguous along the vocabulary; got strides \(1, 3\)"):
        logprob_rows(columns, labels, 1.0)
    with pytest.raises(ValueError, match="grad must be contiguous along the vocabulary"):
        logprob_rows_backward(logits, labels, 1.0, torch.ones(3), None, columns)


def test_more_rows_than_a_grid_has_on_its_other_axes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Axes 1 and 2 end at 65535. So many rows take the interpreter minutes: on the CPU only the grid is read."""
    rows = 65537
    logits, labels = torch.zeros(rows, 2, device=DEVICE), torch.zeros(rows, dtype=torch.int64, device=DEVICE)
    if DEVICE == "cuda":
        assert torch.allclose(logprob_rows(logits, labels, 1.0)[0], torch.tensor(-math.log(2), device=DEVICE))
        return
    grids = []

    class Recorder:
        def __getitem__(self, grid: tuple[int, ...]) -> Any:
            grids.append(grid)
            return lambda **arguments: None

    monkeypatch.setattr(policy_rows_triton, "_logprob_rows_kernel", Recorder())
    logprob_rows(logits, labels, 1.0)
    assert grids == [(rows,)]


@pytest.mark.parametrize("vocabulary", [13, 2048, 20000])
def test_inactive_rows_are_not_read_and_give_zeros(vocabulary: int) -> None:
    logits, labels = rows_of(4, vocabulary, torch.float32)
    active = torch.tensor([True, False, True, False], device=DEVICE)
    ones = torch.ones(4, device=DEVICE)
    full = policy_rows(logits, PolicyTokens(labels, ones, ones), LossSettings(), expected := torch.empty_like(logits))
    logits[~active], labels[~active] = math.nan, -100
    grad = torch.full_like(logits, math.nan)
    terms = policy_rows(logits, PolicyTokens(labels, ones, ones, active_R=active), LossSettings(), grad)
    assert torch.equal(terms[:, active], full[:, active])
    assert torch.equal(grad[active], expected[active])
    assert not terms[:, ~active].any()
    assert not grad[~active].any()
