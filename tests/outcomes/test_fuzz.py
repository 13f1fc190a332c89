"""Generated texts: of pieces, of formulas, of mutated, nested and repeated answers. None raises or takes long."""

import time

import pytest
from hypothesis import HealthCheck, find, given, settings
from hypothesis import strategies as st

from outcome_rl.outcomes.extraction.response import extract_answer
from outcome_rl.outcomes.keys import NO_ANSWER, canonical_text, outcome_key
from outcome_rl.outcomes.tolerance import within_tolerance

COMMANDS = r"""
\frac \dfrac \sqrt \binom \sin \arcsin \tan \ln \log \exp \lfloor \rfloor \pi \infty \theta \pm \mp \cdot \times \div
\circ \overline \vec \leq \geq \neq \in \cup \cap \setminus \approx \equiv \pmod \mathbb \{ \} \left \right \\ \, \!
\% \$ \boxed \text \mathrm \mid \begin{pmatrix} \end{pmatrix} \begin{array}{cc} \end{array} \langle \rangle \emptyset
and or inf sqrt pi cm degrees p.m. July million True __import__ eval 10_2 9^9 1000000000 1,234 1e9 e99 !! 9! .5
"""
ODD = ["\x00", "\u202e", "\u200b", "\ufeff", "\ud800", *"٣²é中🙂−π≤∪½①ﬁ", " and ", " or ", "1 1/2", "\\ "]
PIECES = [*"0123456789abcefinxyzABCN+-*/^_=<>!,.;:|&%$'\"~(){}[] \n\t", *COMMANDS.split(), *ODD]
ANSWERS = r"""
\frac{1+\sqrt{5}}{2} x^2+2x+1 (-\infty,3)\cup[5,\infty) \{1,2,3\} x=5,\,y=-\frac{3}{2} 3\pm2\sqrt{2} -1<x\leq4 2^{99}+1
\begin{pmatrix}1&2\\3&4\end{pmatrix} \text{(B)} 4:30\text{p.m.} 1{,}234.50\text{dollars} \sin^2\theta+\cos^2\theta
\binom{10}{3} e^{i\pi} x\equiv3\pmod7 12! \log_2(3) \left|x-1\right| \lfloor\pi\rfloor y=2x+3 \sqrt[3]{7} 2:3:5
0.\overline{142857}
"""
WRAPPERS = ["{}", "${}$", "\\boxed{{{}}}", "The answer is {}.", "\\frac{{{}}}{{2}}", "\\text{{{}}}", "#### {}", "({})"]
EXPRESSIONS = r"""
{}+{} {}-{} {}\cdot{} {}/{} ({}){} ({}) -{} {}^{{{}}} ({})! \frac{{{}}}{{{}}} \sqrt{{{}}} \sqrt[3]{{{}}}
\binom{{{}}}{{{}}} \sin({}) \tan({}) \arcsin({}) \ln({}) \log_{{{}}}({}) e^{{{}}} |{}| \lfloor{}\rfloor f({})
"""
STATEMENTS = r"""
{} {}={} {}<{} {}\leq{}<{} {}\neq{} x\in({},{}] (-\infty,{})\cup[{},{}] ({},{}) [{},{}) \{{{},{}\}} {},{}
x={},y={} {}\pm{} {}:{}:{} x\equiv{}\pmod{{{}}} \begin{{pmatrix}}{}\\{}\end{{pmatrix}} \{{x|{}<x<{}\}}
"""
LEAVES = r"0 1 2 3 7 12 100 0.5 1.25 99999999999 x y n k i e \pi x_1 \theta 30^\circ 1,234 \frac12"


def filled(shapes: str, inside: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    holes = st.lists(inside, min_size=3, max_size=3)
    return st.builds(lambda shape, parts: shape.format(*parts), st.sampled_from(shapes.split()), holes)


@st.composite
def mutated(draw: st.DrawFn) -> str:
    text = draw(st.sampled_from(ANSWERS.split()))
    for piece in draw(st.lists(st.sampled_from(PIECES), max_size=4)):
        at = draw(st.integers(0, len(text)))
        text = text[:at] + piece + text[at + draw(st.sampled_from((0, 0, 1, 2, 6))) :]
    for wrapper in draw(st.lists(st.sampled_from(WRAPPERS), min_size=1, max_size=12)):
        text = wrapper.format(text)
    return text


PIECED = st.lists(st.sampled_from(PIECES), min_size=1, max_size=14).map("".join)
REPEATED = st.builds(lambda text, times: text[:20] * times, PIECED, st.sampled_from((10, 100, 330, 10_000)))
EXPRESSION = st.recursive(st.sampled_from(LEAVES.split()), lambda inner: filled(EXPRESSIONS, inner), max_leaves=8)
RESPONSE = st.text(alphabet=r"\{}boxedf 5$#A:answer is.<>/" + "\n", max_size=60)
TEXTS = st.one_of(PIECED, filled(STATEMENTS, EXPRESSION), mutated(), REPEATED, RESPONSE, st.text(max_size=60))


@pytest.mark.timeout(120)
@settings(max_examples=1000, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(TEXTS)
def test_every_text_has_a_key(text: str) -> None:
    start = time.process_time()
    key, canonical = outcome_key(text), canonical_text(text)
    assert -(2**63) <= key < 2**63
    assert (key == NO_ANSWER) == (canonical == "")
    assert canonical_text(f"  {text}\n") == canonical
    answer = extract_answer(text)
    if answer is not None:
        assert text[answer.start : answer.end] == answer.text == answer.text.strip() != ""
    within_tolerance(text, f"0+{text}")  # the same variables, so that values are compared
    assert time.process_time() - start < 0.5


@pytest.mark.parametrize("tag", ["q:", "r:", "f:", "t:", "s:", "l:", "eq"])
def test_texts_of_each_kind_are_generated(tag: str) -> None:
    """Else the texts would not reach the rules that make them."""
    assert find(TEXTS, lambda text: canonical_text(text).startswith(tag))
