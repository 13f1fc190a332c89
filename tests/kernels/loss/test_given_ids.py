"""Log-probabilities of labels, or of given tokens and of all others together, and their gradients: against float64 and
against plain PyTorch in its own dtype."""

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from loss_cases import BACKENDS, DTYPES, FLOOR, GPU, ON_GPU, WANTS, H, V, assert_as_exact, make_case
from torch import Tensor

from outcome_rl_kernels import linear_logprobs


def expected(operands: dict[str, Tensor], ids: Tensor, mask: Tensor, temperature: float, softcap: Any) -> Any:
    """In float64, by the definition: the others' probability is the sum of theirs."""
    logits = torch.nn.functional.linear(operands["hidden"].nan_to_num(), operands["weight"], operands.get("bias"))
    logits = logits if softcap is None else softcap * (logits / softcap).tanh()
    log_probs = (logits / temperature).log_softmax(dim=-1)
    rest = log_probs.exp().scatter(-1, ids, 0).sum(dim=-1, keepdim=True).log()
    values = torch.cat([log_probs.gather(-1, ids), rest], dim=-1)
    return values * mask[..., None], -(log_probs.exp() * log_probs).sum(dim=-1) * mask


def with_gradients(function: Any, operands: dict[str, Tensor], wants: set[str], upstream: Tensor) -> Any:
    """Values and gradients of a function, whose log-probabilities of labels are columns (..., 1)."""
    leaves = {name: value.clone().requires_grad_(name in wants) for name, value in operands.items()}
    logps, entropies = function(leaves)
    logps = logps[..., None] if logps.dim() == entropies.dim() else logps
    logps = logps[..., : upstream.shape[-1] - 1]
    total = (logps * upstream[..., :-1]).sum() + (entropies * upstream[..., -1]).sum()
    if total.requires_grad:
        total.backward()
    return (logps.detach(), entropies.detach()), {name: leaf.grad for name, leaf in leaves.items()}


CASES = {
    "seed": st.integers(0, 1000),
    "half": st.integers(0, 2),
    "K": st.sampled_from([0, 1, 3, V - 1]),  # 0: labels
    "twice": st.booleans(),
    "numbers": st.fixed_dictionaries(
        {"temperature": st.sampled_from([1.0, 0.7]), "softcap": st.sampled_from([None, 12.0])}
    ),
    "absent": st.sets(st.just("bias")),
    "packed": st.booleans(),
    "wants": WANTS,
    "chunk_rows": st.sampled_from([None, 1, 4]),
    "fp32_logits": st.booleans(),
}


def check(
    seed: int, half: int, impl: str, K: int, twice: bool, numbers: Any, wants: Any, chunk_rows: Any, fp32_logits: bool,
    **drawn: Any,
) -> None:  # fmt: skip
    dtype = DTYPES[impl][half % len(DTYPES[impl])]
    case = make_case(seed, dtype, {}, **drawn).moved(GPU if impl == "triton" else "cpu")
    mask, g = case.inputs["mask"], torch.Generator().manual_seed(seed)
    ids = torch.rand(*mask.shape, V, generator=g).argsort(dim=-1)[..., : K or 1].to(mask.device)
    ids[..., -1] = ids[..., 0] if twice else ids[..., -1]
    upstream = torch.randn(*mask.shape, K + 2, generator=g).to(mask.device)
    workspace = None if chunk_rows is None else chunk_rows * V * (4 + dtype.itemsize)

    def ours(**options: Any) -> Any:
        poisoned = ids.masked_fill(~mask[..., None], -7)
        given: Any = {"labels": None, "ids": poisoned} if K else {"labels": poisoned[..., 0]}
        given |= {"mask": mask, "return_entropy": True}
        return lambda leaves: linear_logprobs(**leaves, **given, **numbers, **options)

    exact = {name: value.double() for name, value in case.operands.items()}
    values, truth = with_gradients(lambda leaves: expected(leaves, ids, mask, **numbers), exact, wants, upstream)
    specified = with_gradients(ours(impl="reference"), exact, wants, upstream)
    torch.testing.assert_close(specified, (values, truth), atol=1e-8, rtol=1e-6)
    plain, eager = with_gradients(ours(impl="reference"), case.operands, wants, upstream)
    options = {"impl": impl, "workspace_bytes": workspace, "fp32_logits": fp32_logits}
    found, got = with_gradients(ours(**options), case.operands, wants, upstream)
    assert_as_exact(got, eager, truth)
    for one, theirs, want in zip(found, plain, values, strict=True):
        assert not one[~mask].any()
        far = [(each - want).abs().max() for each in (one, theirs)]
        assert far[0] <= 2 * far[1] + 16 * FLOOR


@pytest.mark.parametrize("impl", [BACKENDS[1], ON_GPU])
def test_as_exact_as_plain_pytorch(impl: Any) -> None:
    @settings(max_examples=100 if impl == "native" else 12, deadline=None)
    @given(**CASES)
    def holds(**drawn: Any) -> None:
        check(impl=impl, **drawn)

    holds()


@pytest.mark.parametrize("impl", BACKENDS[:2])
def test_the_others_are_exact_where_they_are_rare(impl: Any) -> None:
    """1 less the ids' probabilities would be rounding alone."""
    weight = torch.tensor([[18.5], [0.0], [-1.0], [-40.0]])
    leaf = torch.ones(1, 1, requires_grad=True)
    logps, _ = linear_logprobs(leaf, weight, None, ids=torch.tensor([[0]]), impl=impl)
    logps[0, 1].backward()
    double = torch.ones(1, 1, dtype=torch.float64, requires_grad=True)
    log_probs = (double @ weight.double().T).log_softmax(dim=-1)
    rest = log_probs[0, 1:].logsumexp(dim=0)
    rest.backward()
    assert rest.exp() < 2e-8
    assert logps[0, 1].exp().item() == pytest.approx(rest.exp().item(), rel=1e-6)
    assert leaf.grad.item() == pytest.approx(double.grad.item(), rel=1e-6)


@pytest.mark.parametrize("impl", BACKENDS[:2])
def test_ids_of_the_whole_vocabulary_leave_nothing(impl: Any) -> None:
    hidden, weight = torch.randn(2, H).requires_grad_(), torch.randn(V, H)
    logps, _ = linear_logprobs(hidden, weight, None, ids=torch.arange(V).expand(2, V), impl=impl)
    assert logps[:, -1].isneginf().all()
    logps[:, :-1].sum().backward()
    assert hidden.grad.isfinite().all()
