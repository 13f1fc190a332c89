"""Checkpoints that a run may continue."""

import pytest

from outcome_rl import ExplorationConfig, OutcomeMatcher
from outcome_rl.grpo.parts import outcome_rule
from outcome_rl.outcomes.keys import OUTCOME_RULE


@pytest.mark.parametrize("before", ["canonical/3", OUTCOME_RULE])
def test_a_checkpoint_of_an_older_rule_continues(before: str) -> None:
    assert outcome_rule(OutcomeMatcher(), {"identity": {"outcome rule": before}}) == before


@pytest.mark.parametrize("before", [f"{OUTCOME_RULE}+math_verify", "function/m:f/1", ""])
def test_one_of_other_outcomes_does_not(before: str) -> None:
    assert outcome_rule(OutcomeMatcher(), {"identity": {"outcome rule": before}}) == OUTCOME_RULE
    by_pairs = ExplorationConfig(equivalence="math_verify").matcher()
    assert outcome_rule(by_pairs, {}) == f"{OUTCOME_RULE}+math_verify"
