"""Variations: some responses alone, counts after the batch, fading counts, schedules, advantage estimators."""

import math
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from outcome_rl import ExplorationConfig, Explorer, group_advantages
from outcome_rl_kernels.advantages.estimators import ADV_ESTIMATORS
from outcome_rl_kernels.advantages.reference import REGISTERED_BONUSES

# A batch: question and answer of each response; the gold of both questions is 1.
BATCH = st.lists(st.tuples(st.integers(0, 1), st.integers(1, 3)), min_size=1, max_size=8)


def score(explorer: Explorer, batch: list[tuple[int, int]]) -> Any:
    questions, answers = zip(*batch, strict=True)
    responses = [rf"\boxed{{{answer}}}" for answer in answers]
    return explorer.score([f"q{question}" for question in questions], responses, ["1"] * len(batch))


@settings(max_examples=60, deadline=None)
@given(
    st.lists(BATCH, min_size=1, max_size=6),
    st.sampled_from(["all", "incorrect", "unsolved"]),
    st.sampled_from(["before", "after"]),
    st.sampled_from([None, 1, 2]),
    st.sampled_from([None, 3]),
    st.sampled_from([0.5, 0.0, 1.0, 0.3]),
)
def test_bonuses_follow_the_formulas(
    batches: list[Any], only: Any, count: Any, halved: int | None, schedule: int | None, exponent: float
) -> None:
    ends = {} if schedule is None else {"schedule_batches": schedule, "coef_end": 0.25, "baseline_end": 1.0}
    explorer = Explorer(
        bonus="ucb_con",
        coef=0.8,
        baseline=0.5,
        exponent=exponent,
        zero_when_all_correct=False,
        only=only,
        count=count,
        halve_counts_every=halved,
        **ends,
    )
    counts: Counter[tuple[int, int]] = Counter()
    solved: set[int] = set()
    for step, batch in enumerate(batches):
        done = 0.0 if schedule is None else min(step / schedule, 1.0)
        coef, baseline = 0.8 * (1 - 0.75 * done), 0.5 + 0.5 * done
        before = Counter(counts)
        counts.update(batch)
        solved_here = solved | {question for question, answer in batch if answer == 1}
        without = {
            "all": lambda q, a: False,
            "incorrect": lambda q, a: a == 1,
            "unsolved": lambda q, a, solved=solved_here: q in solved,
        }[only]
        used = counts if count == "after" else before
        expected = [0.0 if without(*pair) else coef * (max(used[pair], 1) ** -exponent - baseline) for pair in batch]
        scored = score(explorer, batch)
        assert scored.bonuses.tolist() == pytest.approx(expected, abs=1e-6)
        assert scored.counts.tolist() == [before[pair] for pair in batch]
        solved = solved_here
        if halved is not None and (step + 1) % halved == 0:
            counts = Counter({pair: math.ceil(n / 2) for pair, n in counts.items()})
        seen = {(q, int(a)): n for q in range(2) for a, n in explorer.seen(f"q{q}") if a is not None}
        assert seen == counts


@settings(max_examples=20, deadline=None)
@given(st.lists(BATCH, min_size=2, max_size=5), st.data())
def test_a_run_that_goes_on_from_a_folder_is_the_same(
    tmp_path_factory: pytest.TempPathFactory, batches: list[Any], data: st.DataObject
) -> None:
    options: dict[str, Any] = {"halve_counts_every": 2, "schedule_batches": 4, "only": "unsolved", "count": "after"}
    stop = data.draw(st.integers(1, len(batches) - 1))
    whole, parts = Explorer(**options), Explorer(**options)
    folder = tmp_path_factory.mktemp("state") / "exploration"
    for step, batch in enumerate(batches):
        if step == stop:
            parts.save(folder)
            parts = Explorer.load(folder)
        assert score(parts, batch).bonuses.tolist() == score(whole, batch).bonuses.tolist()
    assert parts.state_dict()["batches"] == whole.batches == len(batches)


def test_correctness_is_needed_by_only() -> None:
    explorer = Explorer(bonus="ucb", only="incorrect")
    with pytest.raises(ValueError, match="golds or correct must tell"):
        explorer.score(["q"], ["x"], None, rewards=[1.0])


@pytest.mark.parametrize("end", [{"coef_end": 0.5}, {"baseline_end": 1.0}])
def test_ends_of_schedules_need_their_length(end: dict[str, float], tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="need schedule_batches"):
        ExplorationConfig(**end)  # type: ignore[arg-type]


@pytest.mark.parametrize("estimator", ["dr_grpo", "rloo", "pass_at_k(k=2)", "edas"])
def test_advantages_are_those_of_the_estimator(estimator: str) -> None:
    explorer = Explorer(adv_estimator=estimator, bonus="batch")
    scored = score(explorer, [(0, 1), (1, 2), (0, 2), (0, 2), (1, 1)])
    for rows in ([0, 2, 3], [1, 4]):  # groups of two sizes
        part = group_advantages(
            scored.rewards[rows][None],
            torch.tensor([1]),
            scored.keys[rows][None],
            adv_estimator=estimator,
            bonus="batch",
        )
        assert scored.advantages[rows].tolist() == part.advantages[0].tolist()
        assert scored.bonuses[rows].tolist() == part.bonuses[0].tolist()


def test_majority_needs_no_gold() -> None:
    explorer = Explorer(adv_estimator="majority", bonus="none")
    responses = [r"\boxed{1/2}", r"\boxed{7}", r"\boxed{0.5}", "I give up"]
    scored = explorer.score(["q"] * 4, responses, None)
    assert scored.advantages[0] == scored.advantages[2] > 0 > scored.advantages[1] == scored.advantages[3]
    with pytest.raises(ValueError, match=r"bonus='ucb_con'.* follow from it"):
        Explorer(adv_estimator="majority").score(["q"] * 4, responses, None)
    with pytest.raises(ValueError, match="the rewards would follow"):
        Explorer(adv_estimator="rloo", bonus="none").score(["q"] * 4, responses, None)


def test_unlikeliness_takes_log_probabilities() -> None:
    explorer = Explorer(adv_estimator="unlikeliness", bonus="none")
    arguments = (["q"] * 3, [r"\boxed{1}", r"\boxed{1}", r"\boxed{2}"], ["1"] * 3)
    scored = explorer.score(*arguments, logps=[-0.1, -3.0, -0.2])
    assert scored.advantages[1] > scored.advantages[0] > 0 > scored.advantages[2]
    for logps, match in ((None, "logps"), ([0.0], "logps must be 3 finite"), ([0.0, math.nan, 0.0], "1 that are not")):
        with pytest.raises(ValueError, match=match):
            explorer.score(*arguments, logps=logps)


def test_an_estimator_is_checked_when_the_settings_are_made() -> None:
    with pytest.raises(ValueError, match="adv_estimator must be one of"):
        ExplorationConfig(adv_estimator="gae")
    with pytest.raises(ValueError, match="takes"):
        ExplorationConfig(adv_estimator="pkpo")


def test_a_configuration_file_names_the_module_of_a_function(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "methods_of_a_file.py").write_text(
        "from outcome_rl import register_adv_estimator, register_bonus\n"
        "@register_adv_estimator('doubled_reward')\n"
        "def doubled_reward(groups, *, factor=2.0):\n    return groups.rewards * factor\n"
        "@register_bonus('one_each')\n"
        "def one_each(outcome_keys, counts):\n    return (outcome_keys != 0).float()\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    config = ExplorationConfig(
        adv_estimator="methods_of_a_file:doubled_reward(factor=3)", bonus="methods_of_a_file:one_each + batch"
    )
    try:
        scored = score(Explorer(config), [(0, 1), (0, 2)])
        assert scored.advantages.tolist() == [3, 0]
        assert scored.bonuses.tolist() == pytest.approx([0.1, 0.1])
    finally:
        ADV_ESTIMATORS.pop("doubled_reward")
        REGISTERED_BONUSES.pop("one_each")
    with pytest.raises(ValueError, match="no_such_module"):
        ExplorationConfig(adv_estimator="no_such_module:f")
