"""The loss and log-probabilities over kept tokens: against float64, and against a softmax of masked logits."""

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from loss_cases import (
    BACKENDS,
    CASES,
    DTYPES,
    GPU,
    ON_GPU,
    ROWS,
    WANTS,
    Case,
    H,
    V,
    check_loss,
    make_case,
    needs_native,
    needs_triton,
    threads,
)
from torch import Tensor

from outcome_rl_kernels import Support, linear_logprobs, linear_policy_loss
from outcome_rl_kernels.backends import kernels_for

FAST = [pytest.param("native", marks=needs_native), pytest.param("triton", marks=needs_triton)]


def make_support(case: Case, seed: int, most: int = V) -> Support:
    """A support for each token: one token, some, or all; unsorted, with duplicates, and token 0 nearly everywhere."""
    g = torch.Generator().manual_seed(seed)
    labels_N, mask_N = case.inputs["labels"].flatten(), case.inputs["mask"].flatten()
    kept = []
    for label, active in zip(labels_N.tolist(), mask_N.tolist(), strict=True):
        size = min(most, [0, 1, 5, 40, V][int(torch.randint(5, (), generator=g))])
        ids = torch.randperm(V, generator=g)[:size]
        if size > 1:
            ids = torch.cat([ids, torch.zeros(1, dtype=torch.int64), ids[: size // 3]])
        if active:
            ids = torch.cat([ids, torch.tensor([label])])
        kept.append(ids[torch.randperm(len(ids), generator=g)])
    lengths = torch.tensor([0, *map(len, kept)])
    return Support(lengths.cumsum(0), torch.cat(kept))


def move_to_support(case: Case, support: Support, temperature: float, softcap: float | None) -> None:
    """Keep the distances of old and reference log-probabilities from the policy's, which grow on a support."""
    exact = {name: value.double() for name, value in case.operands.items()}
    shared: Any = {name: case.inputs[name] for name in ("labels", "mask")}
    shared |= {"temperature": temperature, "softcap": softcap}
    kept, _ = linear_logprobs(**exact, **shared, support=support, impl="reference")
    whole, _ = linear_logprobs(**exact, **shared, impl="reference")
    for name in case.inputs.keys() & {"old_logps", "ref_logps"}:
        case.inputs[name] = (case.inputs[name] + kept - whole).float()


def compare(
    seed: int, dtype: torch.dtype, chosen: dict[str, Any], wants: set[str], impl: str, rows: Any, **drawn: Any
) -> None:
    case = make_case(seed, dtype, chosen, **drawn)
    support = make_support(case, seed, most=V if impl == "native" else 20)  # the interpreter is slow
    move_to_support(case, support, chosen["temperature"], chosen.get("softcap"))
    if impl == "triton":
        case, support = case.moved(GPU), Support(*(column.to(GPU) for column in support))
    check_loss(linear_policy_loss, case, dtype, wants, chosen | {"rows": rows, "support": support}, impl=impl)


@pytest.mark.parametrize("impl", [BACKENDS[1], ON_GPU])
def test_as_exact_as_plain_pytorch(impl: str) -> None:
    @settings(max_examples=4 if impl == "triton" and GPU == "cpu" else 100, deadline=None)
    @given(**CASES, dtype=st.sampled_from(DTYPES[impl]), wants=WANTS, rows=ROWS)
    def holds(**drawn: Any) -> None:
        compare(**drawn, impl=impl)

    holds()


@pytest.mark.parametrize(
    ("impl", "dtype", "shape"),
    [
        pytest.param("native", torch.float32, (40, 24), marks=needs_native),
        pytest.param("native", torch.bfloat16, (40, 24), marks=needs_native),
        pytest.param("native", torch.bfloat16, (9000, 1030), marks=needs_native),  # more than the caches hold
        pytest.param("triton", torch.bfloat16, (40, 24), marks=needs_triton),
    ],
)
@pytest.mark.parametrize("is_sorted", [True, False])
def test_sums_of_long_segments(impl: str, dtype: torch.dtype, shape: tuple[int, int], is_sorted: bool) -> None:
    """A position that kept 1,100 tokens, a token that 700 positions kept, and the ends of pieces.

    Each sum has the bits that it has alone, so none depends on the others or on the order of the programs.
    """
    lengths = [1100, 0, 1, 255, 256, 257, 512, 513, 700]
    g = torch.Generator().manual_seed(0)
    table = torch.randn(*shape, generator=g).to(dtype)
    parts = torch.randint(-1, len(table), (sum(lengths),), generator=g).split(lengths)
    index = torch.cat([torch.cat([part[:1], part[1:].sort()[0] if is_sorted else part[1:]]) for part in parts])
    coefficients = torch.randn(len(index), generator=g)
    offsets = torch.tensor([0, *lengths]).cumsum(0)
    sums = kernels_for("support", impl).segment_sums(table, index, coefficients, offsets)
    terms = (coefficients.double() * (index >= 0))[:, None] * table.double()[index]
    exact = torch.stack([part.sum(0) for part in terms.split(lengths)])
    size = torch.stack([part.abs().sum(0) for part in terms.split(lengths)])
    assert ((sums - exact).abs() <= 1e-6 * size + torch.finfo(dtype).eps * exact.abs()).all()
    for segment in (0, 3, 5, 8):
        part = slice(int(offsets[segment]), int(offsets[segment + 1]))
        bounds = torch.tensor([0, lengths[segment]])
        alone = kernels_for("support", impl).segment_sums(table, index[part], coefficients[part], bounds)
        assert torch.equal(alone[0], sums[segment])


@pytest.mark.parametrize("impl", FAST)
def test_softmax_of_long_and_short_supports(impl: str) -> None:
    """A position that kept 3,000 tokens, ends of a block, duplicates, an impossible token, one kept token, and none.

    Values and gradients have the bits that a position has alone, so none depends on the others.
    """
    lengths = [3000, 127, 128, 129, 1, 0, 6]
    g = torch.Generator().manual_seed(0)
    offsets = torch.tensor([0, *lengths]).cumsum(0)
    token_ids = torch.cat([torch.randperm(4000, generator=g)[:length] for length in lengths])
    token_ids[-3:] = token_ids[-6:-3]
    scores, ids = 5 * torch.randn(len(token_ids), generator=g).double(), token_ids.clone()
    scores[-3:], ids[-3:] = scores[-6:-3], -2
    scores[7] = -torch.inf
    scores[offsets[4]], ids[offsets[4]] = 0, -1  # one kept token is not computed
    labels = token_ids[(offsets[1:] - 1).clamp(min=0)]
    active, grads = torch.tensor([True] * 5 + [False, True]), torch.randn(2, len(lengths), generator=g).double()
    kernels = kernels_for("support", impl)

    def both(part: slice, positions: slice, bounds: Tensor) -> tuple[Tensor, Tensor]:
        support, label = Support(bounds, token_ids[part]), labels[positions].contiguous()
        values = kernels.log_softmax(scores[part], ids[part], support, label, active[positions], 4000)
        upstream = grads[:, positions].contiguous()
        return values, kernels.token_gradients(scores[part], ids[part], bounds, label, values, upstream)

    values, token_grads = both(slice(None), slice(None), offsets)
    for n, length in enumerate(lengths):
        part = slice(int(offsets[n]), int(offsets[n + 1]))
        alone = both(part, slice(n, n + 1), torch.tensor([0, length]))
        assert torch.equal(alone[0][:, 0], values[:, n])
        assert torch.equal(alone[1], token_grads[part])
        if length == 0:
            assert not values[:, n].any()
            continue
        leaf = scores[part].clone().requires_grad_()
        is_new = ids[part] != -2
        log_p = leaf[is_new].log_softmax(0)
        logp = log_p[(token_ids[part][is_new] == labels[n]).nonzero()[0, 0]]
        entropy = -(log_p.exp() * log_p.clamp(min=-1e6)).sum()
        torch.testing.assert_close(values[:2, n], torch.stack([logp, entropy]).detach(), atol=1e-12, rtol=1e-12)
        if length > 1:
            (grads[0, n] * logp + grads[1, n] * entropy).backward()
            torch.testing.assert_close(token_grads[part].double(), leaf.grad, atol=1e-7, rtol=1e-6)
        else:
            assert not token_grads[part].any()


@pytest.mark.parametrize("impl", FAST)
def test_a_label_that_is_not_kept_and_a_token_out_of_range_give_nan(impl: str) -> None:
    """As under torch.compile and on a GPU, where the values are not checked beforehand."""
    support = Support(torch.tensor([0, 2, 4, 6, 8]), torch.tensor([1, 2, 1, 2, 1, V, -2, 1]))
    head = torch.randn(4, H), torch.randn(V, H), None
    labels = torch.tensor([1, 3, 1, 1])
    values = torch.ops.outcome_rl.support_logprobs(*head, labels, None, *support, 1.0, None, impl)[0]
    assert values[0].isnan().tolist() == [False, True, True, True]


def with_kept(*kept: list[int], labels: list[int], impl: str, weight: Tensor | None = None) -> Any:
    """Log-probabilities of packed tokens with these kept tokens, and the leaves."""
    g = torch.Generator().manual_seed(0)
    hidden = torch.randn(len(kept), H, generator=g).requires_grad_()
    weight = (torch.randn(V, H, generator=g) if weight is None else weight).requires_grad_()
    offsets = torch.tensor([0, *map(len, kept)]).cumsum(0)
    token_ids = torch.tensor([token for ids in kept for token in ids], dtype=torch.int64)
    given: Any = {"support": (offsets, token_ids), "return_entropy": True, "impl": impl}
    logps, entropies = linear_logprobs(hidden, weight, torch.tensor(labels, dtype=torch.int64), **given)
    return logps, entropies, hidden, weight


@pytest.mark.parametrize("impl", ["reference", *FAST])
def test_no_tokens_have_no_gradient(impl: str) -> None:
    """A micro-batch whose tokens all have advantage 0."""
    logps, entropies, hidden, weight = with_kept(labels=[], impl=impl)
    (logps.sum() + entropies.sum()).backward()
    assert hidden.grad.shape == hidden.shape
    assert not weight.grad.any()


@pytest.mark.parametrize("impl", ["reference", *FAST])
def test_one_kept_token_has_probability_one_and_no_gradient(impl: str) -> None:
    logps, entropies, hidden, weight = with_kept([7], [7, 7], labels=[7, 7], impl=impl)
    assert logps.tolist() == entropies.tolist() == [0, 0]
    (logps.sum() + entropies.sum()).backward()
    assert not hidden.grad.any()
    assert not weight.grad.any()


@pytest.mark.parametrize("impl", FAST)
def test_other_rows_of_the_head_are_not_read(impl: str) -> None:
    weight = torch.full((V, H), torch.nan)
    weight[[3, 5, 8]] = torch.randn(3, H)
    logps, _, hidden, weight = with_kept([5, 3], [8, 5, 3], [9], labels=[3, 8, 9], impl=impl, weight=weight)
    logps.sum().backward()
    assert (logps[:2] < 0).all()
    assert hidden.grad.isfinite().all()
    kept = weight.grad.any(dim=1).nonzero()[:, 0]
    assert kept.tolist() == [3, 5, 8]


@needs_native
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_results_do_not_depend_on_the_number_of_threads(dtype: torch.dtype) -> None:
    """Enough numbers for several threads, one token in every support, and one segment longer than a part."""
    g = torch.Generator().manual_seed(0)
    count, width, vocabulary = 300, 600, 1000
    hidden, weight = torch.randn(count, width, generator=g), torch.randn(vocabulary, width, generator=g)
    ids = torch.randint(vocabulary, (count, 12), generator=g)
    ids[:, 5] = 77
    support = torch.arange(count + 1) * 12, ids.flatten()
    found = []
    for number in (1, 2, 5):
        leaves = [tensor.to(dtype).requires_grad_() for tensor in (hidden, weight)]
        with threads(number):
            logps, _ = linear_logprobs(*leaves, ids[:, 5], support=support, temperature=3.0, impl="native")
            logps.sum().backward()
        found.append([logps.detach(), *(leaf.grad for leaf in leaves)])
    for other in found[1:]:
        assert all(torch.equal(a, b) for a, b in zip(found[0], other, strict=True))


def arguments(impl: str = "auto") -> dict[str, Any]:
    """Two sequences of two tokens, each of which kept the tokens 1 and 2."""
    return {
        "hidden": torch.randn(2, 2, H),
        "weight": torch.randn(V, H),
        "labels": torch.ones(2, 2, dtype=torch.int64),
        "advantages": torch.ones(2),
        "mask": torch.ones(2, 2, dtype=torch.bool),
        "support": Support(torch.arange(5) * 2, torch.tensor([1, 2] * 4)),
        "impl": impl,
    }


OFFSETS, IDS = arguments()["support"]
WRONG: dict[str, tuple[Any, type[Exception], str]] = {
    "no pair": (OFFSETS, TypeError, "pair"),
    "int32": ((OFFSETS, IDS.int()), TypeError, "token_ids must have dtype int64"),
    "short": ((OFFSETS[:-1], IDS), ValueError, r"\(N \+ 1,\) = \(5,\)"),
    "matrix": ((OFFSETS, IDS.view(4, 2)), ValueError, "token_ids of shape"),
    "falling": ((OFFSETS[[0, 2, 1, 3, 4]], IDS), ValueError, "rise from 0 to E = 8"),
    "out of the vocabulary": ((OFFSETS, IDS + V - 2), ValueError, rf"lie in \[0, {V}\)"),
    "without a label": ((OFFSETS, IDS * 2), ValueError, r"label 1 at flat position 0, which kept tensor\(\[2, 4\]\)"),
}


@pytest.mark.parametrize("name", sorted(WRONG))
def test_errors_name_the_argument(name: str) -> None:
    support, kind, text = WRONG[name]
    with pytest.raises(kind, match=f"(?s)support.*{text}"):
        linear_policy_loss(**arguments() | {"support": support})
