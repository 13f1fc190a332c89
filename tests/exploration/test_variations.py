"""Bonuses over steps, named methods, advantage estimators."""

import re
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from explorer_rows import score

from outcome_rl import ExplorationConfig, Explorer, Groups
from outcome_rl_kernels.advantages.bonuses import BONUSES
from outcome_rl_kernels.advantages.estimators import ADV_ESTIMATORS
from outcome_rl_kernels.settings import values_of

METHODS = (Path(__file__).resolve().parents[2] / "docs" / "methods.md").read_text()


def test_a_bonus_knows_the_number_of_the_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    """So it may fade; the number goes on with a saved state."""
    monkeypatch.setitem(BONUSES, "number", replace(BONUSES["ucb"], function=number_of_batch))
    explorer, loaded = Explorer(bonus="number", coef=1.0), Explorer(bonus="number", coef=1.0)
    assert [score(explorer, [(0, 1)]).bonuses.tolist() for _ in range(2)] == [[0], [1]]
    explorer.count(["q0"], [r"\boxed{1}"], ["1"])
    loaded.load_state_dict(explorer.state_dict())
    assert score(loaded, [(0, 1)]).bonuses.tolist() == [2]


def number_of_batch(groups: Groups) -> torch.Tensor:
    return torch.full_like(groups.rewards, groups.batch)


def test_without_a_method_the_recommended_one_and_a_named_one_alone() -> None:
    def chosen(**settings: str) -> tuple[str, str]:
        config = ExplorationConfig(**settings)
        return config.adv_estimator, config.bonus

    recommended = re.search(r'\| `adv_estimator="(\w+)", bonus="(\w+)", coef=(.*)` \|', METHODS)
    assert (*chosen(), str(ExplorationConfig().coef)) == recommended.groups()
    assert chosen(bonus="ucb") == ("grpo", "ucb")  # the paper's methods
    assert chosen(adv_estimator="pkpo(k=4)") == ("pkpo(k=4)", "none")
    assert chosen(adv_estimator="rloo", bonus="batch") == ("rloo", "batch")
    config = ExplorationConfig()
    assert ExplorationConfig.from_mapping(values_of(config), "saved") == config


def test_majority_needs_no_gold() -> None:
    explorer = Explorer(adv_estimator="majority", bonus="none")
    responses = [r"\boxed{1/2}", r"\boxed{7}", r"\boxed{0.5}", "I give up"]
    scored = explorer.score(["q"] * 4, responses, None)
    assert scored.advantages[0] == scored.advantages[2] > 0 > scored.advantages[1] == scored.advantages[3]
    with pytest.raises(ValueError, match=r"because bonus='ucb_con' requires"):
        Explorer(adv_estimator="majority", bonus="ucb_con").score(["q"] * 4, responses, None)
    with pytest.raises(ValueError, match=r"because adv_estimator='pass_at_k\(k=2\)' requires"):
        Explorer(adv_estimator="pass_at_k(k=2)").score(["q"] * 4, responses, None, [1.0, 0, 0, 0.5])
    with pytest.raises(ValueError, match="because adv_estimator without rewards requires"):
        Explorer(adv_estimator="rloo", bonus="none").score(["q"] * 4, responses, None)


def test_a_configuration_file_names_the_module_of_a_function(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "methods_of_a_file.py").write_text(
        "from outcome_rl import register_adv_estimator, register_bonus\n"
        "@register_adv_estimator('doubled_reward')\n"
        "def doubled_reward(groups, *, factor=2.0):\n    return groups.rewards * factor\n"
        "@register_bonus('one_each')\n"
        "def one_each(groups):\n    return (groups.outcome_keys != 0).float()\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    config = ExplorationConfig(
        adv_estimator="methods_of_a_file:doubled_reward(factor=3)", bonus="methods_of_a_file:one_each + batch"
    )
    try:
        scored = score(Explorer(config), [(0, 1), (0, 2)])
        assert scored.advantages.tolist() == [3, 0]
        assert scored.bonuses.tolist() == pytest.approx([0.2, 0.2])
    finally:
        ADV_ESTIMATORS.pop("doubled_reward")
        BONUSES.pop("one_each")
    with pytest.raises(ValueError, match="no_such_module"):
        ExplorationConfig(adv_estimator="no_such_module:f")
