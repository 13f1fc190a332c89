"""The verdict rule: Holm's correction, the four words, and how often it is wrong."""

import math
import statistics

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from experiments.lab.verdicts import LEVEL, Case, holm, judge, per_unit, t_quantile

MARGIN = 0.01
SPREAD = (-0.001, 0.0, 0.001, -0.0005, 0.0005)  # noise around a mean, with mean zero


def one(mean: float, direction: int, spread: tuple[float, ...] = SPREAD) -> str:
    return judge([Case([mean + noise for noise in spread], direction, MARGIN)])[0].word


def test_holm_on_a_worked_example() -> None:
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([]) == []
    assert holm([0.9, 0.8]) == [1.0, 1.0]


@settings(deadline=None)
@given(st.lists(st.floats(0.0, 1.0), min_size=1, max_size=12))
def test_holm_rejects_what_stepping_down_rejects(p_values: list[float]) -> None:
    """Holm's own words: from the smallest on, reject while `p_(i) < level / (m - i + 1)`; stop at the first failure."""
    rejected = set()
    for rank, index in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        if not p_values[index] * (len(p_values) - rank) < LEVEL:
            break
        rejected.add(index)
    assert {i for i, p in enumerate(holm(p_values)) if p < LEVEL} == rejected


@pytest.mark.parametrize(
    ("mean", "direction", "word"),
    [
        (0.02, -1, "opposite"),
        (0.003, 1, "no difference"),  # not zero, and too small to matter
        (0.0002, 0, "seen"),
        (-0.03, 0, "seen"),  # a loss is no gain
        (0.003, 0, "seen"),  # a gain that is too small to matter
        (0.03, 0, "opposite"),
    ],
)
def test_the_four_words(mean: float, direction: int, word: str) -> None:
    assert one(mean, direction) == word


@pytest.mark.parametrize("direction", [-1, 0, 1])
def test_too_much_noise_or_too_few_tables_are_undecided(direction: int) -> None:
    assert one(0.004, direction, (-0.05, 0.05, 0.03, -0.03)) == "undecided"
    verdict = judge([Case([0.5, 0.5], direction, MARGIN)])[0]
    assert (verdict.word, verdict.mean, verdict.units) == ("undecided", 0.5, 2)
    assert judge([Case([], direction, MARGIN)])[0].word == "undecided"


def test_equal_differences_have_no_error() -> None:
    assert one(0.0, 1, (0.0,) * 4) == "no difference"
    assert one(0.5, 1, (0.0,) * 4) == "seen"
    assert one(0.5, 0, (0.0,) * 4) == "opposite"


@settings(deadline=None)
@given(st.lists(st.floats(-1.0, 1.0), min_size=3, max_size=9), st.floats(0.001, 0.5))
def test_a_claim_alone_is_judged_by_its_interval(differences: list[float], margin: float) -> None:
    verdict = judge([Case(differences, 1, margin)])[0]
    mirrored = judge([Case([-value for value in differences], -1, margin)])[0]
    assert verdict.word == mirrored.word
    half = t_quantile(0.95, len(differences) - 1) * statistics.stdev(differences) / math.sqrt(len(differences))
    assert (verdict.low, verdict.high) == pytest.approx((verdict.mean - half, verdict.mean + half))
    edges = (verdict.low, verdict.high, verdict.low + margin, margin - verdict.high)
    if all(abs(edge) > 1e-9 for edge in edges):  # away from the edges, where rounding decides
        excludes_zero = verdict.low > 0 or verdict.high < 0
        inside = -margin < verdict.low and verdict.high < margin
        direction = "seen" if verdict.mean > 0 else "opposite"
        assert verdict.word == ("no difference" if inside else direction if excludes_zero else "undecided")


def test_other_claims_make_a_verdict_harder() -> None:
    weak = Case([0.01, 0.03, 0.0, 0.02, 0.025], 1, MARGIN)
    assert judge([weak])[0].word == "seen"
    noise = Case([0.5, -0.4, 0.3, -0.6, 0.1], 1, MARGIN)
    assert judge([weak, *[noise] * 20])[0].word == "undecided"


def test_false_verdicts_are_as_rare_as_promised() -> None:
    """Studies of ten claims without an effect, and of ten whose effect is the margin itself."""
    rng, studies = np.random.default_rng(0), 300
    noise = rng.standard_normal((studies, 10, 6)) * 0.004
    for shift, wrong in ((0.0, {"seen", "opposite"}), (MARGIN, {"no difference"})):
        found = sum(
            any(v.word in wrong for v in judge([Case((row + shift).tolist(), 1, MARGIN) for row in study]))
            for study in noise
        )
        assert found / studies <= LEVEL + 3 * math.sqrt(LEVEL * (1 - LEVEL) / studies)


def test_seeds_are_averaged_within_their_table() -> None:
    pairs = [("a", 1.0), ("b", 4.0), ("a", 3.0), ("b", None), ("c", math.nan)]
    assert per_unit(pairs) == [2.0, 4.0]


@pytest.mark.parametrize(
    ("case", "message"),
    [
        (Case([0.0], 1, 0.0), "margin must be above 0"),
        (Case([0.0], 2, 0.1), "direction must be 1, -1, or 0"),
        (Case([math.nan], 1, 0.1), "differences must be finite"),
    ],
)
def test_wrong_cases_are_named(case: Case, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        judge([case])
