"""Checkpoints that a run may continue, and what its processes must have in common."""

from pathlib import Path

import pytest
from grpo_runs import MakeConfig

from outcome_rl import OutcomeMatcher
from outcome_rl.grpo.plan import outcome_rule, plan
from outcome_rl.outcomes.keys import OUTCOME_RULE
from outcome_rl.outcomes.paper import PaperClasses


@pytest.mark.parametrize("before", ["canonical/3", OUTCOME_RULE])
def test_a_checkpoint_of_an_older_rule_continues(before: str) -> None:
    assert outcome_rule(OutcomeMatcher(), {"identity": {"outcome rule": before}}) == before


@pytest.mark.parametrize("before", ["math_verify/1", "function/m:f/1", ""])
def test_one_of_other_outcomes_does_not(before: str) -> None:
    assert outcome_rule(OutcomeMatcher(), {"identity": {"outcome rule": before}}) == OUTCOME_RULE
    assert outcome_rule(PaperClasses(), {"identity": {"outcome rule": OUTCOME_RULE}}) == "math_verify/1"


@pytest.mark.parametrize(
    ("setting", "names"),
    [
        ("trainer.seed=1", {"trainer.seed"}),
        ("trainer.save_freq=3", {"trainer.save_freq"}),  # saving is collective
        ("data.prompt_template=1 {problem}", {"data.prompt_template", "prompts"}),
        ("data.train_files=toy:train[8:24]", {"data.train_files", "training data", "prompts", "columns of the data"}),
        ("model.device=cpu", set()),
    ],
)
def test_processes_must_have_settings_data_and_prompts_in_common(
    setting: str, names: set[str], small_config: MakeConfig, tmp_path: Path
) -> None:
    one, other = (plan(small_config(tmp_path, *more)).facts for more in ((), (setting,)))
    assert {name for name in one if one[name] != other[name]} == names
