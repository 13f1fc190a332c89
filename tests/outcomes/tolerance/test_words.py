"""Answers in words."""

import pytest

from outcome_rl.outcomes.tolerance.within import within_tolerance


@pytest.mark.parametrize(
    ("gold", "answer"),
    [
        ("D", "(D) $4(x+1)=4x$"),
        ("K", r"(K) $\cos (360-A)^{\circ}$"),
        ("(C)", "C. Paris"),
        ("A, C", "AC"),
        ("A and C", "(A), (C)"),
        (r"\text{Alice and Bob}", "Bob and Alice"),
        (r"\text{diverges}", "The series diverges."),
        ("even", "The function f is even."),
        (r"\text{no solution}", "There are no real solutions"),
        ("12", r"\text{The area is } 12 \text{ square units}"),
        (r"\frac{54\sqrt{6}}{25}", r"The\ area\ of\ triangle\ ABC\ is\ \frac{54\sqrt{6}}{25}"),
        ("(a) 3; (b) 5", "3, 5"),
        ("(1) 3 (2) 5", "(i) 3, (ii) 5"),
        ("8", "Therefore the minimum value is 8, attained at a = b = 2."),
        ("15", "fifteen apples"),
        ("36", "3 dozen"),
        (r"1 \frac{1}{4} \text{ cups}", "1.25 cups"),
    ],
)
def test_agreement(gold: str, answer: str) -> None:
    assert within_tolerance(gold, answer)


@pytest.mark.parametrize(
    ("gold", "answer"),
    [
        ("D", "(C) $4(x+1)=4x$"),
        ("D", "(C) or (D)"),
        ("D", "D = 5"),
        ("D", "D) 35, B) 35"),
        ("A, C", "AB"),
        ("A, C", "CA B"),
        (r"\text{Alice and Bob}", "Alice and Carol"),
        (r"\text{Alice and Bob}", "not Alice and Bob"),
        ("even", "The function is not even."),
        ("even", "The function is odd or even."),
        (r"\text{diverges}", "The series never diverges"),
        (r"\text{no solution}", "There are two real solutions"),
        ("12", "Half of the area is 12"),
        ("12", "The answer is not 12"),
        ("12", "The area is 12 more"),
        ("(a) 3; (b) 5", "5, 3"),
        ("(a) 3; (b) 5", "(a) 5; (b) 3"),
        ("3", "(a) 3; (b) 5"),
        ("4", "Hence the maximum is 8, attained at x = 4."),
        ("8", "The minimum is 8 if x > 0"),
        ("15", "fifteen percent"),
        ("15", "fifteen or more"),
        ("3", "3 dozen"),
        ("24", "2 dozen hundreds"),
        ("15", "fifteen hundred"),
        ("15", "fifteen times"),
        ("8", "The answer is 8 (million)"),
        ("8", "The maximum is 8 when n is even, and 9 when n is odd"),
        ("8", "The result is 8 when doubled"),
        ("x = 3 apples", "y = 3 apples"),
        ("3, 4 apples", "4, 3 apples"),
        ("2 cups", "2 spoons"),
    ],
)
def test_difference(gold: str, answer: str) -> None:
    assert not within_tolerance(gold, answer)
