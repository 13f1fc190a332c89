"""Importance weights of rollouts, by hand and against TRL's four modes."""

import math
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from outcome_rl_kernels import linear_logprobs, linear_policy_loss, rollout_weights
from outcome_rl_kernels.loss.selections import engine_corrected

LOGPS = torch.tensor([[-1.0, -2.0, -0.5], [-3.0, -1.0, -9.0]], dtype=torch.float64)
RATIOS = torch.tensor([[0.5, 1.0, 4.0], [3.0, 1.5, 7.0]], dtype=torch.float64)
MASK = torch.tensor([[True, True, True], [True, True, False]])


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, [[0.5, 1, 2], [2, 1.5, 2]]),
        ({"high": math.inf}, RATIOS.tolist()),
        ({"low": 0.8, "high": 3.5}, [[0.8, 1, 3.5], [3, 1.5, 3.5]]),
        ({"outside": "mask", "high": 3.5}, [[0.5, 1, 0], [3, 1.5, 0]]),
        ({"outside": "mask", "low": 0.8, "high": 3.5}, [[0, 1, 0], [3, 1.5, 0]]),
        ({"level": "sequence", "high": 3.0}, [2, 3]),  # 0.5 * 1 * 4 and 3 * 1.5
        ({"level": "sequence", "outside": "mask", "high": 3.0}, [2, 0]),
    ],
)
def test_by_hand(options: dict[str, Any], expected: list[Any]) -> None:
    found = rollout_weights(LOGPS, LOGPS - RATIOS.log(), MASK, **options)
    torch.testing.assert_close(found, torch.tensor(expected, dtype=torch.float64))
    assert torch.equal(rollout_weights(LOGPS, LOGPS - RATIOS.log(), MASK.int(), **options), found)


@pytest.mark.parametrize("level", ["token", "sequence"])
def test_a_missing_log_probability_is_no_correction(level: Any) -> None:
    missing = torch.tensor([[False, True, False], [True, False, False]])
    found = rollout_weights(LOGPS, LOGPS.masked_fill(missing, math.nan), MASK, level=level)
    assert torch.equal(found, torch.ones_like(found))
    engine = LOGPS - RATIOS.log()
    found = rollout_weights(LOGPS, engine.masked_fill(missing, math.nan), MASK, level=level, high=9.0)
    expected = RATIOS.masked_fill(missing, 1.0)
    torch.testing.assert_close(found, expected if level == "token" else expected.where(MASK, 1).prod(dim=1))


@pytest.mark.parametrize("level", ["token", "sequence"])
@pytest.mark.parametrize("engine", [-math.inf, -1e4, 1e4])
def test_weights_are_finite_whatever_the_engine_returned(level: Any, engine: float) -> None:
    found = rollout_weights(LOGPS, LOGPS.new_full((2, 3), engine), MASK, level=level, high=math.inf)
    torch.testing.assert_close(found, torch.full_like(found, math.exp(math.copysign(20, -engine))))


@given(
    seed=st.integers(0, 1000),
    level=st.sampled_from(["token", "sequence"]),
    outside=st.sampled_from(["truncate", "mask"]),
    bounds=st.sampled_from([(0.0, 2.0), (0.5, 5.0), (0.0, math.inf)]),
)
def test_weights_lie_within_the_bounds_and_masked_tokens_have_no_part(
    seed: int, level: Any, outside: Any, bounds: tuple[float, float]
) -> None:
    g = torch.Generator().manual_seed(seed)
    logps = -torch.rand(3, 4, generator=g).requires_grad_()
    engine, mask = -torch.rand(3, 4, generator=g), torch.rand(3, 4, generator=g) < 0.7
    options = {"level": level, "outside": outside, "low": bounds[0], "high": bounds[1]}
    found = rollout_weights(logps, engine, mask, **options)
    assert not found.requires_grad
    inside = (found >= bounds[0]) & (found <= bounds[1])
    assert (inside | (found == 0)).all() if outside == "mask" else inside.all()
    if level == "sequence":
        assert torch.equal(found, rollout_weights(logps, engine.masked_fill(~mask, torch.nan), mask, **options))


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"rollout_logps": LOGPS[:1]}, ValueError, "rollout_logps must have"),
        ({"level": "turn"}, ValueError, "level .*got 'turn'"),
        ({"outside": "drop"}, ValueError, "outside .*got 'drop'"),
        ({"low": 3.0}, ValueError, "low <= high; got 3.0 and 2.0"),
        ({"high": math.nan}, ValueError, "0 <= low <= high"),
        ({"mask": MASK[:1]}, ValueError, "mask must have the shape of logps"),
        ({"level": "sequence", "mask": None}, ValueError, "needs logps of shape"),
        ({"logps": [0.0]}, TypeError, "logps must be a torch.Tensor"),
    ],
)
def test_errors_name_the_argument(change: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        rollout_weights(**({"logps": LOGPS, "rollout_logps": LOGPS, "mask": MASK} | change))


@pytest.mark.parametrize("token_loss", ["gspo", "vespo", "cispo"])
@pytest.mark.parametrize("off_policy", [False, True])
def test_weights_inside_the_loss_are_those_given_to_it(token_loss: str, off_policy: bool) -> None:
    """In several chunks, of sequences and of tokens, values and gradients."""
    g = torch.Generator().manual_seed(0)
    hidden, weight = torch.randn(30, 8, generator=g), torch.randn(50, 8, generator=g)
    labels, mask = torch.randint(50, (30,), generator=g), torch.ones(30, dtype=torch.bool)
    logps, _ = linear_logprobs(hidden, weight, labels)
    engine = logps + 0.5 * torch.randn(30, generator=g)
    options: dict[str, Any] = {"cu_seqlens": torch.tensor([0, 10, 30]), "workspace_bytes": 8 * 50 * 4}
    if off_policy:
        options["old_logps"] = logps + 0.1 * torch.randn(30, generator=g)
    weights = rollout_weights(options.get("old_logps", logps), engine, high=1.5)
    found = []
    for weighed in (
        {"token_loss": token_loss, "rollout_weights": weights},
        {"token_loss": engine_corrected(token_loss, 1.5), "rollout_logps": engine},
    ):
        leaves = [leaf.clone().requires_grad_() for leaf in (hidden, weight)]
        output = linear_policy_loss(*leaves, labels, torch.tensor([1.2, -0.7]), mask, **options, **weighed)
        output.loss.backward()
        found.append([output.loss.detach(), *(leaf.grad for leaf in leaves)])
    torch.testing.assert_close(found[1], found[0], rtol=1e-5, atol=1e-6)
