"""Plain LaTeX: what is removed, what must stay, and units."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tables import cases

from outcome_rl.outcomes.canonical.latex import plain_latex, unwrap_text


@pytest.mark.parametrize(("answer", "plain"), cases(__file__, "plain"))
def test_plain_latex(answer: str, plain: str) -> None:
    assert plain_latex(answer) == plain


@pytest.mark.parametrize(("text", "unwrapped"), cases(__file__, "unwrapped"))
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
