"""Texts that say different things although their keys are equal."""

import pytest

from outcome_rl import OutcomeMatcher, equivalent


@pytest.mark.parametrize(
    ("gold", "answer", "correct"),
    [
        ("y = 2", "x = 2", False),
        ("y = 2x", "z = 2x", False),
        ("r = 3", r"\theta = 3", False),
        ("y = 2", "2", True),
        ("y = 2", "n = 2", True),  # another name for what is asked
        ("S = 5", "A = 5", True),
        (r"5 \text{ km}", r"5 \text{ m}", False),
        (r"5 \text{ km}", "5", True),
        (r"5 \text{ km}", r"5 \text{ units}", True),
        (r"\$0.75", "0.75 cents", False),
        (r"\$5", "5 dollars", True),
        (r"45^\circ", r"45 \text{ radians}", False),
        (r"45^\circ", r"45 \text{ degrees}", True),
        (r"\frac12", r"0.5\%", False),
        (r"\frac{1}{2} \text{ percent}", r"0.5\%", True),
        (r"33\frac13", r"33\frac13\%", True),
    ],
)
def test_correctness_reads_names_and_units(gold: str, answer: str, correct: bool) -> None:
    assert equivalent(gold, answer)
    for tolerance in (True, False):
        with OutcomeMatcher(gold_tolerance=tolerance) as matcher:
            found = matcher.classify_answers(["q", "q"], [answer, gold], [gold, gold])
        assert found.correct.tolist() == [correct or not tolerance, True]
        assert found.keys[0] == found.keys[1]


def test_a_sentence_has_its_own_value() -> None:
    """math-verify takes the last number of it."""
    sentence = "Hence the maximum is 8, attained at $x = 4$."
    with OutcomeMatcher() as matcher:
        assert matcher.classify_answers(["a", "b"], [sentence] * 2, ["4", "8"]).correct.tolist() == [False, True]
