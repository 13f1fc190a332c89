"""Other spellings of the same mathematics."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outcome_rl.outcomes.keys import canonical_text
from outcome_rl.outcomes.tolerance.spellings import respelled
from outcome_rl.outcomes.tolerance.within import within_tolerance

EQUAL = [
    (r"(0, 1) \cup (2, 3)", "(0, 1) U (2, 3)"),
    (r"\binom{12}{4}", r"{}_{12}C_{4}"),
    (r"\binom{40}{4} \cdot \binom{20}{2}", r"C_{40}^{4} \cdot C_{20}^{2}"),
    ("20", "A_5^2"),
    (r"\frac{3}{4}", "Rational(3, 4)"),
    (r"\frac{\pi}{2}", "np.pi/2"),
    ("1+274i", "1 + 274 I"),
    (r"\begin{pmatrix} 1 & 2 \\ 3 & 4 \end{pmatrix}", "[[1, 2], [3, 4]]"),
    (r"\begin{pmatrix} -1 \\ 2 \end{pmatrix}", "(-1, 2)^T"),
    (r"\sqrt{3}+i", r"2 \operatorname{cis} 30^\circ"),
    (r"2 \operatorname{cis}\left(\frac{\pi}{2}\right)", "2i"),
    ("0.335", "33.5 percent"),
    (r"\frac13", r"33\frac{1}{3}\%"),
    (r"\frac{1}{36}", "1 in 36"),
    (r"\{3k \mid k \in \mathbb{Z}\}", r"\{x | x = 3k, k \in \mathbb{Z}\}"),
    (r"\{2k+1: k \in \mathbb{Z}\}", r"\{2k-1 \mid k \in \mathbb{Z}\}"),
    (r"\langle 3, -2, 1 \rangle", r"3\mathbf{i} - 2\mathbf{j} + \mathbf{k}"),
    ("(a, 2)", r"a\hat{i} + 2\hat{j}"),
    (r"\mathbf{v} = 2\mathbf{i} + 3\mathbf{k}", "(2, 0, 3)"),
    (r"576\pi\;m^{2}", r"576\pi"),
    ("1.325e-27", r"1.325 \times 10^{-27} \mathrm{~kg} \cdot \mathrm{m} / \mathrm{s}"),
    ("28.26", "28.26平方单位"),
    (r"\langle 1, -2, 2 \rangle", r"\mathbf{i} - 2\mathbf{j} + 2\mathbf{k}"),
    ("a = b = c = 1", "(a, b, c) = (1, 1, 1)"),
    (r"(1, 2, 3) \text{ and its cyclic permutations}", "(2, 3, 1), (1, 2, 3), (3, 1, 2)"),
    (r"(x, y) = (1, 2) \text{ and permutations}", "(2, 1), (1, 2)"),
]


@pytest.mark.parametrize(("gold", "answer"), EQUAL)
def test_agreement(gold: str, answer: str) -> None:
    assert canonical_text(gold) != canonical_text(answer)
    assert within_tolerance(gold, answer)
    assert within_tolerance(answer, gold)


@pytest.mark.parametrize(
    ("gold", "answer"),
    [
        (r"(0, 1) \cup (2, 3)", "(0, 1) U (2, 4)"),
        (r"\binom{12}{4}", r"{}_{12}C_{5}"),
        ("6", "C_1^2"),  # an index of a constant
        ("1+274i", "1 + 274 J"),
        (r"\begin{pmatrix} 1 & 2 \\ 3 & 4 \end{pmatrix}", "[[1, 3], [2, 4]]"),
        (r"\begin{pmatrix} -1 \\ 2 \end{pmatrix}", "(2, -1)^T"),
        (r"\sqrt{3}+i", r"2 \operatorname{cis} 60^\circ"),
        ("0.335", "3.35 percent"),
        (r"\frac13", r"\frac13\%"),
        (r"\frac{1}{36}", "36 in 1"),
        (r"\{3k \mid k \in \mathbb{Z}\}", r"\{x | x = 3k + 1, k \in \mathbb{Z}\}"),
        (r"\langle 3, -2, 1 \rangle", r"3\mathbf{i} + 2\mathbf{j} + \mathbf{k}"),
        (r"\langle 3, -2, 1 \rangle", r"3\mathbf{i} - 2\mathbf{k} + \mathbf{j}"),
        (r"576\pi", r"576\pi\;m"),  # a variable
        ("a = b = c = 1", "(a, b, c) = (1, 1, 2)"),
        (r"(1, 2, 3) \text{ and its permutations}", "(1, 2, 3), (2, 3, 1), (3, 1, 2)"),
    ],
)
def test_difference(gold: str, answer: str) -> None:
    assert not within_tolerance(gold, answer)


@given(st.integers(0, 30), st.integers(0, 30))
def test_binomials(n: int, k: int) -> None:
    for text in (f"C_{{{n}}}^{{{k}}}", f"{{}}_{{{n}}}C_{{{k}}}"):
        expected = str(math.comb(n, k)) if n >= k and n > 1 else None
        assert (canonical_text(respelled(text)) == f"q:{expected}/1") == (expected is not None)


@given(st.text(alphabet="0123CAI_^{}[]()U,. \\|:xk=cisnp%$", max_size=40))
def test_respelling_twice_changes_nothing_more(text: str) -> None:
    once = respelled(text)
    assert canonical_text(respelled(once)) == canonical_text(once)
