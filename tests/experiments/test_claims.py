"""The claims as data, and the paper's own effects against sums done by hand."""

import pytest

from experiments import claims
from experiments.claims import CLAIMS, MEASURES, NOTHING, Row, paper_effects, rows

METHODS = {"none", "ucb", "ucb_mean", "ucb_con", "batch", "batch_positive", "base", "none@16", "base@16"}


def effects(left: str, right: str, measure: str, split: str) -> dict[str, tuple[float, float]]:
    claim = claims.Claim("", "", left, right, (measure,), (split,), 1)
    return {effect.model: (effect.mean, effect.error) for effect in paper_effects(Row(claim, measure, split))}


def test_every_claim_is_complete() -> None:
    assert len({claim.statement for claim in CLAIMS}) == len(CLAIMS)
    for claim in CLAIMS:
        assert {claim.left, claim.right} <= METHODS | {NOTHING}
        assert set(claim.measures) <= set(MEASURES)
        assert claim.measures
        assert {part for split in claim.splits for part in split.split("-")} <= {"easy", "medium", "hard"}
        assert claim.direction in (-1, 0, 1)
    assert len(list(rows())) == sum(len(claim.measures) * len(claim.splits) for claim in CLAIMS)


def test_effects_of_tables_3_and_4_by_hand() -> None:
    """Llama on MATH: 0.242 (0.003) against 0.231 (0.006), three seeds each."""
    mean, error = effects("ucb_con", "none", "best pass@1", "easy")["Llama"]
    assert mean == pytest.approx(0.011)
    assert error == pytest.approx((0.003**2 / 3 + 0.006**2 / 3) ** 0.5)
    assert effects("batch", "none", "final pass@32", "medium")["Qwen"][0] == pytest.approx(0.594 - 0.580)
    assert effects("none", NOTHING, "late pass@32", "medium")["Llama"][0] == pytest.approx(0.362 - 0.474)


def test_effects_of_tables_1_and_2_by_hand() -> None:
    assert effects("batch", "none", "entropy incorrect", "medium")["Qwen"][0] == pytest.approx(0.057)
    mean, error = effects("batch", "ucb_con", "group answers unsolved", "medium")["Qwen"]
    assert mean == pytest.approx(0.535)
    assert error == pytest.approx(((0.102**2 + 0.084**2) / 2) ** 0.5)


def test_no_effect_is_invented_where_the_paper_prints_none() -> None:
    assert effects("ucb", "none", "solved", "medium") == {}
    assert effects("batch_positive", "none", "final pass@1", "medium") == {}
    assert effects("ucb_con", "none", "best pass@1", "hard") == {}
