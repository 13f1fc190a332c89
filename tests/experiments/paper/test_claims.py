"""Verdicts follow the rule that the report prints, and differences are taken where they are like for like."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from reproduce_records import PLAN, records

from experiments.paper.claims import CLAIMS, judge, verdict
from experiments.paper.measures import (
    BASE,
    Estimate,
    Results,
    best,
    distinct_on_common_unsolved,
    estimate,
    final,
    late,
    of,
)
from experiments.paper.plan import ABLATIONS, FULL, METHODS, TOY


@pytest.mark.parametrize(
    ("mean", "error", "pairs", "sign", "expected"),
    [
        (0.5, 0.2, 4, 1, "seen"),
        (0.5, 0.2, 3, 1, "inconclusive"),
        (0.3, 0.2, 4, 1, "inconclusive"),
        (-0.5, 0.2, 4, 1, "not seen"),
        (-0.5, 0.2, 4, -1, "seen"),
        (0.0, 0.0, 4, 1, "inconclusive"),
        (0.0, 0.002, 4, 0, "seen"),
        (0.0, 0.02, 4, 0, "inconclusive"),
        (0.05, 0.02, 4, 0, "not seen"),
    ],
)
def test_the_rule(mean: float, error: float, pairs: int, sign: int, expected: str) -> None:
    assert verdict(Estimate(mean, error, pairs), sign) == expected


@given(st.floats(-1, 1), st.floats(0, 1), st.integers(4, 50))
def test_a_claim_and_its_opposite_are_never_both_seen(mean: float, error: float, pairs: int) -> None:
    found = Estimate(mean, error, pairs)
    opposite = {"seen": "not seen", "not seen": "seen", "inconclusive": "inconclusive"}
    assert verdict(found, -1) == opposite[verdict(found, 1)]


def test_every_claim_names_methods_of_the_full_plan() -> None:
    known = {BASE, *FULL.methods}
    assert all({claim.left, claim.right} <= known for claim in CLAIMS)
    assert set(FULL.methods) == set(METHODS)
    assert set(FULL.ablations) | set(TOY.ablations) == set(ABLATIONS)


def test_an_effect_that_is_there_is_seen_and_its_opposite_is_not() -> None:
    def better(method: str, name: str, chance: float) -> float:
        return {"batch": 0.9, "none": 0.5}.get(method, 0.7) + 0.01 * chance

    verdicts = {claim.text: judge(claim, Results(records(better)))[1] for claim in CLAIMS}
    assert verdicts["Batch is best at large k at the end: above GRPO"] == "seen"
    assert verdicts["Historical exploration finds more in training than Batch"] == "inconclusive"  # all solved all
    assert verdicts["RL raises pass@1"] == "not seen"  # 0.5 against the base policy's 0.7
    assert verdicts["The mean baseline helps UCB on test questions"] == "not run"


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


def test_pairs_are_those_of_one_cell_and_seed() -> None:
    results = Results(records())
    found = results.difference("ucb", "none", of(final(32)))
    pairs = [
        final(32)(left) - final(32)(right)
        for cell in results.cells
        for left, right in zip(results.runs(cell, "ucb"), results.runs(cell, "none"), strict=True)
    ]
    assert found == estimate(pairs)
    assert found.pairs == len(PLAN.seeds) * len(PLAN.splits)
