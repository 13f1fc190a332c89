"""Measures of the claims, and differences taken where they are like for like."""

import math
from dataclasses import replace

import pytest
from reproduce_records import PLAN, records

from experiments import claims
from experiments.judged import judge_rows
from experiments.lab.verdicts import per_unit
from experiments.paper.claims import MEASURES, Unit, differences_by_unit, entropy_gap, late_change, solved_early
from experiments.paper.measures import (
    Results,
    best,
    distinct_on_common_unsolved,
    final,
    late,
    planned_final,
)
from experiments.paper.plan import ABLATIONS, FULL, METHODS, TOY, Cell

WIDE = replace(PLAN, instances=(0, 1, 2, 3, 4, 5), methods=FULL.methods, seeds=(0, 1))


def judged(results: Results) -> dict[tuple[str, str, str], str]:
    rows = judge_rows(lambda row: per_unit(differences_by_unit(results, row)))
    return {(row["statement"], row["measure"], row["split"]): row["word"] if row["differences"] else "" for row in rows}


def test_every_measure_of_a_claim_is_known() -> None:
    assert set(MEASURES) | {"answers unsolved"} == set(claims.MEASURES)
    assert set(FULL.methods) == set(METHODS)
    assert set(FULL.ablations) | set(TOY.ablations) == set(ABLATIONS)


def test_an_effect_that_is_there_is_seen_and_its_opposite_is_not() -> None:
    def better(method: str, name: str, chance: float) -> float:
        return {"batch": 0.9, "none": 0.5}.get(method, 0.7) + 0.01 * chance

    words = judged(Results(records(better, WIDE)))
    assert words["Batch is best at large k at the end: above GRPO", "final pass@32", "medium"] == "seen"
    assert words["Batch is best at large k at the end: above GRPO", "final pass@32", "easy"] == ""  # no such split
    assert words["RL raises pass@1", "final pass@1", "medium"] == "opposite"  # 0.5 against the base policy's 0.7
    solves = "RL solves questions faster than base sampling at first"
    assert words[solves, "solved early", "medium"] == ""  # 16 samples a step are not in the plan


def test_twice_the_samples_are_compared_with_twice_the_base_samples() -> None:
    def early(method: str, name: str, chance: float) -> float:
        return {"none@16": 0.9, "base@16": 0.5}.get(method, 0.1) + 0.01 * chance

    plan = replace(WIDE, methods=("none", "none@16"))
    words = judged(Results(records(early, plan)))
    assert words["RL solves questions faster than base sampling at first", "solved early", "medium"] == "seen"


def test_final_is_the_last_checkpoint_and_planned_final_the_mean_that_the_plan_fixed() -> None:
    one, three = (
        Results(records(plan=replace(PLAN, test_freq=2, final_evaluations=count))).runs(
            Cell(0, "strong", "hard"), "none"
        )
        for count in (1, 3)
    )
    for last, mean in zip(one, three, strict=True):
        values = [row["pass_at_k"]["1"] for row in last["evaluations"] if row["dataset"] == "test"]
        assert final(1)(last) == final(1)(mean) == planned_final(1)(last) == values[-1]
        assert planned_final(1)(mean) == pytest.approx(sum(values[-3:]) / 3)


@pytest.mark.parametrize("split", ["medium", "hard", "hard-medium"])
def test_pairs_are_those_of_one_unit_and_seed(split: str) -> None:
    results = Results(records(plan=WIDE))
    claim = claims.Claim("", "", "ucb", "none", ("final pass@32",), (split,), 1)
    found = list(differences_by_unit(results, claims.Row(claim, "final pass@32", split)))
    assert [unit for unit, _ in found] == [Unit(instance, "strong") for instance in WIDE.instances for _ in (0, 1)]

    def values(part: str, method: str) -> list[float]:
        return [final(32)(run) for cell in results.cells if cell.split == part for run in results.runs(cell, method)]

    first, *others = (
        [left - right for left, right in zip(values(part, "ucb"), values(part, "none"), strict=True)]
        for part in split.split("-")
    )
    expected = [value - sum(rest) for value, *rest in zip(first, *others, strict=True)]
    assert [value for _, value in found] == pytest.approx(expected)


def test_measures_by_hand() -> None:
    run = {
        "curves": {
            "solved": [0.1 * i for i in range(14)],
            "entropy_incorrect": [0.3] * 8,
            "entropy_correct": [0.1] * 8,
        },
        "evaluations": [
            {"step": step, "dataset": "test", "pass_at_k": {"32": value}}
            for step, value in ((0, 0.1), (2, 0.9), (7, 0.5), (14, 0.6))
        ],
    }
    assert solved_early(run) == pytest.approx(0.1)  # step 2 of 14
    assert late_change(final(32))(run) == pytest.approx(0.6 - 0.9)
    assert entropy_gap(run) == pytest.approx(0.2)


def test_the_checkpoint_is_chosen_on_validation() -> None:
    run = {
        "evaluations": [
            {"step": step, "dataset": dataset, "pass_at_k": {"1": value}}
            for dataset, values in (("validation", (0.9, 0.2, 0.6, 0.6)), ("test", (0.1, 0.8, 0.3, 0.4)))
            for step, value in zip((0, 4, 8, 12), values, strict=True)
        ]
    }
    assert best(1)(run) == 0.3  # step 8: not the untrained policy, not the test set's best, the earliest of equals
    assert final(1)(run) == 0.4


def test_unsolved_questions_are_compared_where_neither_solved() -> None:
    left = {"questions_solved": [True, False, False], "questions_distinct": [9, 3, 5]}
    right = {"questions_solved": [False, False, True], "questions_distinct": [1, 2, 9]}
    assert distinct_on_common_unsolved(left, right) == 1
    right["questions_solved"] = [True] * 3
    assert distinct_on_common_unsolved(left, right) is None


def test_the_last_quarter_skips_steps_without_a_value() -> None:
    assert late("x")({"curves": {"x": [9.0] * 6 + [None, 1.0]}}) == 1.0
    assert math.isnan(late("x")({"curves": {"x": [1.0] * 6 + [None, None]}}))
