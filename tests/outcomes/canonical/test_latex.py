"""Plain LaTeX: what is removed, what must stay, and units."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outcome_rl.outcomes.canonical.latex import plain_latex, unwrap_text


@pytest.mark.parametrize(
    ("answer", "plain"),
    [
        (r"$\left( \dfrac{1}{2},\, x^{2} \right)$.", r"(\frac12,x^2)"),
        (r"\[ \tfrac{ab}{c} \]", r"\frac{ab}c"),
        (r"{{a+b}}", "a+b"),
        (r"{a}{b}", "ab"),
        (r"\pi{r}", r"\pi r"),
        (r"\left\{ x \right.", r"\{x"),
        (r"\boxed{\mathbf{v}}", "v"),
        (r"1{,}234", "1,234"),
        ("1, 234", "1, 234"),
        ("1 1/2", "1 1/2"),
        (r"x^{2}3", "x^2 3"),
        (r"\boxed{1}, \boxed{234}", "1, 234"),
        (r"\text{New  York}", r"\text{New York}"),
        (r"\begin{pmatrix} 1 \\ 2 \end{pmatrix}", r"\begin{pmatrix}1\\2\end{pmatrix}"),
        ("a}b{", "ab{"),
        ("0.33...", "0.33..."),
    ],
)
def test_plain_latex(answer: str, plain: str) -> None:
    assert plain_latex(answer) == plain


@pytest.mark.parametrize(
    ("text", "unwrapped"),
    [
        (r"\text{New York}", "NewYork"),
        (r"10_\text{two}", "10_{two}"),
        (r"10_{\text{two}}", "10_{two}"),
        (r"\pi\text{ cm}", r"\pi cm"),
        (r"A_\text{b}", "A_b"),
    ],
)
def test_unwrap_text(text: str, unwrapped: str) -> None:
    assert unwrap_text(plain_latex(text)) == unwrapped


LATEX = st.lists(st.sampled_from([*r"\{}$ ,.^_5x", r"\frac", r"\text", r"\left", r"\,", r"\boxed", "\n", "é"])).map(
    "".join
)


@given(LATEX | st.text())
def test_a_plain_form_is_its_own_plain_form(answer: str) -> None:
    plain = plain_latex(answer)
    assert plain_latex(plain) == plain


@given(st.text(alphabet="ab+5^", min_size=1))
def test_spaces_and_delimiters_change_nothing(text: str) -> None:
    assert plain_latex(rf"$\displaystyle \left. {text} \right. $") == plain_latex(text)
    letters = text.replace("5", "x")
    assert plain_latex(r"\,".join(letters)) == plain_latex(letters)
