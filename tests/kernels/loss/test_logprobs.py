"""linear_logprobs against log_softmax, its gradients, masks and errors."""

import math

import pytest
import torch
from loss_cases import needs_native
from torch import Tensor

from outcome_rl_kernels import linear_logprobs

H, V = 6, 13


def data(*leading: int) -> tuple[Tensor, Tensor, Tensor]:
    g = torch.Generator().manual_seed(0)
    hidden = torch.randn(*leading, H, generator=g, dtype=torch.float64)
    return hidden, torch.randn(V, H, generator=g, dtype=torch.float64), torch.randint(V, leading, generator=g)


@pytest.mark.parametrize("leading", [(3, 4), (7,), (0, 4)])
def test_matches_log_softmax(leading: tuple[int, ...]) -> None:
    hidden, weight, labels = data(*leading)
    logps, entropies = linear_logprobs(hidden, weight, labels, temperature=0.5, return_entropy=True)
    log_probs = (hidden @ weight.T / 0.5).log_softmax(-1)
    torch.testing.assert_close(logps, log_probs.gather(-1, labels[..., None])[..., 0])
    torch.testing.assert_close(entropies, -(log_probs.exp() * log_probs).sum(-1))


def test_entropy_only_on_request() -> None:
    assert linear_logprobs(*data(2, 3))[1] is None


def test_gradients() -> None:
    hidden, weight, labels = data(2, 3)
    bias = torch.zeros(V, dtype=torch.float64)
    mask = torch.tensor([[True, False, True], [True, True, False]])

    def function(hidden: Tensor, weight: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
        logps, entropies = linear_logprobs(hidden, weight, labels, bias=bias, mask=mask, return_entropy=True)
        assert entropies is not None
        return logps, entropies

    assert torch.autograd.gradcheck(function, (hidden.requires_grad_(), weight.requires_grad_(), bias.requires_grad_()))


def test_masked_rows_are_zero_and_never_read() -> None:
    hidden, weight, labels = data(2, 3)
    mask = torch.tensor([[True, False, True], [False, False, False]])
    poisoned = hidden.masked_fill(~mask[..., None], math.nan)
    logps, _ = linear_logprobs(poisoned, weight, labels.masked_fill(~mask, -100), mask=mask)
    full, _ = linear_logprobs(hidden, weight, labels)
    torch.testing.assert_close(logps, full.masked_fill(~mask, 0))


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({"temperature": 0.0}, "temperature must be > 0"),
        ({"mask": torch.ones(2, 2, dtype=torch.bool)}, "mask must have the shape of labels"),
        ({"temperature": -1}, "temperature must be > 0"),
        ({"workspace_bytes": 0}, "workspace_bytes must be > 0; got 0"),
        ({"impl": "triton"}, r"linear_logprobs\(impl='triton'\) cannot run: it computes in float32 or bfloat16 or"),
        ({"impl": "native"}, "it computes in float32 or bfloat16, got float64"),
        ({"impl": "bogus"}, "impl must be one of 'auto'"),
    ],
)
@pytest.mark.parametrize("wants_grad", [False, True])
def test_errors(kwargs: dict[str, object], message: str, wants_grad: bool) -> None:
    hidden, weight, labels = data(2, 3)
    with pytest.raises(ValueError, match=message):
        linear_logprobs(hidden.requires_grad_(wants_grad), weight, labels, **kwargs)  # type: ignore[arg-type]


def test_types_are_named() -> None:
    hidden, weight, labels = data(2, 3)
    with pytest.raises(TypeError, match=r"hidden must be a torch\.Tensor; got list"):
        linear_logprobs([1.0], weight, labels)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"temperature must be a Python number; got Tensor\. Use temperature\.item"):
        linear_logprobs(hidden, weight, labels, temperature=torch.tensor(0.5))  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"workspace_bytes must be an int or None; got float"):
        linear_logprobs(hidden, weight, labels, workspace_bytes=1e9)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"bias and weight must have the same dtype.*bias\.to\(weight\.dtype\)"):
        linear_logprobs(hidden, weight, labels, bias=torch.zeros(V))


def test_label_out_of_range() -> None:
    hidden, weight, labels = data(2, 3)
    labels[1, 2] = V
    with pytest.raises(ValueError, match=r"\[0, 13\); got 13 at flat position 5"):
        linear_logprobs(hidden, weight, labels)


@needs_native
def test_labels_and_hidden_states_may_be_strided_views() -> None:
    hidden, weight, _ = data(6)
    labels = torch.arange(12)[::2]
    views = hidden.float().t().contiguous().t(), weight.float().t().contiguous().t()
    got, _ = linear_logprobs(*views, labels, impl="native")
    torch.testing.assert_close(got, linear_logprobs(hidden, weight, labels)[0].float(), atol=1e-5, rtol=1e-5)
