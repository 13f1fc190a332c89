"""The losses as modules: the functions with settings fixed."""

import math
import pickle
import re
from typing import Any, get_type_hints

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from loss_cases import ABSENT, SETTINGS, make_case, run

from outcome_rl_kernels import LinearPolicyLoss, PolicyLoss, linear_policy_loss, policy_loss
from outcome_rl_kernels.loss.losses.sapo import sapo
from outcome_rl_kernels.loss.types import LossOptions, LossSettings, TokenLoss, TokenLossFunction


def unclipped(logps: torch.Tensor, entropies: torch.Tensor, inputs: Any) -> torch.Tensor:
    return -inputs.advantages * (logps - logps.detach()).exp()


def assert_equal(ours: Any, theirs: Any) -> None:
    (output, values), (expected, expected_values) = ours, theirs
    assert output.metrics == expected.metrics
    pairs = [(output.logps, expected.logps), (output.entropies, expected.entropies)]
    pairs += [(values[name], expected_values[name]) for name in values]
    for a, b in pairs:
        torch.testing.assert_close(a, b, atol=0, rtol=0, equal_nan=True)


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 100), chosen=SETTINGS, absent=ABSENT, packed=st.booleans())
def test_equal_to_the_functions(seed: int, chosen: dict[str, Any], absent: set[str], packed: bool) -> None:
    case = make_case(seed, torch.float32, chosen, absent=absent, packed=packed)
    fixed = {name: value for name, value in chosen.items() if name != "normalizer"}
    inputs = case.inputs | {"normalizer": chosen["normalizer"]}
    options = {"rows": "active", "workspace_bytes": 5000, "fp32_logits": seed % 2 == 0, "impl": "reference"}
    assert_equal(
        run(LinearPolicyLoss(**fixed, **options), case.operands, torch.float32, {"weight"}, **inputs),
        run(linear_policy_loss, case.operands, torch.float32, {"weight"}, **inputs, **fixed, **options),
    )
    logits = {"logits": case.logits(torch.float32)}
    assert_equal(
        run(PolicyLoss(**fixed), logits, torch.float32, {"logits"}, **inputs),
        run(policy_loss, logits, torch.float32, {"logits"}, **inputs, **fixed),
    )


@pytest.mark.parametrize("chosen", [sapo(2.0), unclipped], ids=["token loss", "function"])
def test_token_losses_of_their_own(chosen: TokenLoss | TokenLossFunction) -> None:
    case = make_case(0, torch.float32, {})
    module = LinearPolicyLoss(token_loss=chosen)
    expected = linear_policy_loss(**case.operands, **case.inputs, token_loss=chosen)
    assert torch.equal(module(**case.operands, **case.inputs).loss, expected.loss)
    assert torch.equal(
        PolicyLoss(token_loss=chosen)(case.logits(torch.float32), **case.inputs).loss,
        policy_loss(case.logits(torch.float32), **case.inputs, token_loss=chosen).loss,
    )
    assert repr(module) == f"LinearPolicyLoss(token_loss={chosen!r})"


def test_rows_of_one_call() -> None:
    case = make_case(0, torch.float32, {})
    rows = torch.tensor([0, 7, 14])
    output = LinearPolicyLoss(rows="active")(**case.operands, **case.inputs, rows=rows)
    assert output.metrics["computed_tokens"] == case.inputs["mask"].flatten()[rows].sum()


@pytest.mark.parametrize("module", [PolicyLoss, LinearPolicyLoss])
def test_settings_are_checked_when_it_is_made(module: Any) -> None:
    with pytest.raises(TypeError, match=f"^{module.__name__} .*'clip_ratio'"):
        module(clip_ratio=0.2)
    with pytest.raises(ValueError, match=r"temperature .*got inf"):
        module(temperature=math.inf)


def test_settings_are_not_of_a_call() -> None:
    case = make_case(0, torch.float32, {})
    with pytest.raises(TypeError, match="multiple values for keyword argument 'temperature'"):
        LinearPolicyLoss()(**case.operands, **case.inputs, temperature=0.5)
    with pytest.raises(TypeError, match="multiple values for keyword argument 'temperature'"):
        PolicyLoss()(case.logits(torch.float32), **case.inputs, temperature=0.5)


def test_repr_shows_what_is_not_default() -> None:
    assert repr(LinearPolicyLoss(beta=0.1, loss_agg="token-sum")) == "LinearPolicyLoss(beta=0.1, loss_agg='token-sum')"
    assert repr(PolicyLoss()) == "PolicyLoss()"


def test_it_has_no_state_and_can_be_pickled() -> None:
    module = pickle.loads(pickle.dumps(LinearPolicyLoss(epsilon_high=0.28, workspace_bytes=10)))
    assert (module.settings.epsilon_high, module.options["workspace_bytes"]) == (0.28, 10)
    assert not module.state_dict()


def test_type_checkers_see_every_setting() -> None:
    """`LossOptions` is written out for them; defaults and ranges are only in `LossSettings`."""
    shown, settings = get_type_hints(LossOptions), get_type_hints(LossSettings)
    assert {name: shown[name] for name in settings} == settings
    documented = re.findall(r"^        (\w[\w, ]*):", str(linear_policy_loss.__doc__), re.MULTILINE)
    assert {*shown} <= {name for names in documented for name in names.split(", ")}
