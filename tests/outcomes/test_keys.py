"""Keys: equal for all spellings of an answer, different for different answers, the same on every machine."""

import os
import subprocess
import sys
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outcome_rl.outcomes import keys
from outcome_rl.outcomes.keys import (
    MAX_ANSWER_CHARS,
    MAX_CANONICAL_CHARS,
    NO_ANSWER,
    canonical_text,
    equivalent,
    is_open,
    outcome_key,
)
from outcome_rl.questions import question_key

SPELLINGS = [
    ["27", "27.0", "027", "$27$", r"\boxed{27}", "27.", "x=27", r"27\text{ cm}", r"\$27", r"27\%", r"27^\circ", "[27]"],
    [
        "1/2", r"\frac12", r"\dfrac{1}{2}", "0.5", ".50", r"\frac{2}{4}", "50.0/100", "1:2", r"\sqrt{\frac14}",
        r"\sin 30^\circ",
    ],
    ["-3/2", r"-1\frac{1}{2}", r"-\frac{3}{2}", r"\frac{-3}{2}", "-1.5", "−1.5", "-1 1/2", r"\log_4 \frac18"],
    ["1234567", "1,234,567", r"1{,}234{,}567", r"1,\!234,\! 567", "1 234 567"],
    ["0", "-0", "0.0", "0/5", "x-x", r"\sin\pi", "[0]", r"\text{only } x = 0", r"\ln 1", r"\sqrt{3+2\sqrt2}-\sqrt2-1"],
    ["1/3", r"0.\overline{3}", r"\frac{\sqrt[3]{8}}{6}", r"\frac{1}{\sqrt3\cdot\sqrt3}"],
    ["12", r"12^{\text{th}}", r"12^{\mathrm{th}}"],
    [r"\text{Evelyn}", "Evelyn", r"\mathrm{Evelyn}", "evelyn"],
    [r"\text{no}", "No"],
    ["1, 234", "234 , 1", r"\{1, 234\}", r"1 \text{ and } 234", "$1$ and $234$", r"\boxed{1}, \boxed{234}"],
    [
        r"2\sqrt{3}", r"2 \sqrt3", "2√3", r"\sqrt{12}", r"\frac{6}{\sqrt{3}}", "2*sqrt(3)",
        r"y = 2 \cdot 3^{1/2} \approx 3.46",
    ],
    [r"\frac{\pi}{3}", "pi/3", r"\frac13\pi", r"\arccos\frac12", r"\cos^{-1} 0.5", "π/3"],
    ["3+4i", "4i + 3", r"5e^{i\arctan\frac43}", r"(2+i)^2"],
    [r"3 \pm 2\sqrt2", r"3-2\sqrt2, 3+2\sqrt2", r"x = 3 + 2\sqrt{2} \text{ or } x = 3 - 2\sqrt{2}"],
    ["x+1", "1+x", "f(x) = x + 1", r"\frac{x^2-1}{x-1}", r"\frac{2x+2}{2}"],
    ["y=2x+3", "2x-y+3=0", "y - 5 = 2(x-1)", "4x + 6 = 2y", r"x = \frac{y-3}{2}"],
    [r"(n-1)2^n", r"(n-1) \cdot 2^n", "2^n(n-1)", "n2^n - 2^n"],
    [r"\hat y = 7", "7", r"\overline{AB} = 7", r"\det A = 7", "7 or 7.0", "7 (i.e. 14/2)"],
    [r"\sec^2(y)", r"\tan^2 y + 1", r"\frac{1}{\cos^2 y}"],
    [r"\binom{n}{2}", r"\frac{n(n-1)}{2}", r"\frac{n!}{2(n-2)!}"],
    [
        r"(\frac{1}{2}, x^{2})",
        r"\left( \dfrac12 ,\, x^2 \right)",
        "(p, q) = (0.5, x^2)",
        r"\begin{pmatrix} 1/2 \\ x^2 \end{pmatrix}",
    ],
    ["(3, 2)", "(x,y)=(3,2)", "x=3, y=2", r"y = 2,\ x = 3", r"\langle 3, 2\rangle"],
    ["(5,2),(7,2)", "p=5,q=2;p=7,q=2", r"p = 5, q = 2 \quad \text{and} \quad p = 7, q = 2", "(7,2), (5,2)"],
    [r"x \geq 5", r"5 \leq y", r"[5, \infty)", "-2x <= -10", r"x \in [5, +\infty)", r"\{x \mid x \geq 5\}"],
    ["0<x<1", "(0,1)", r"\{t : 0 < t < 1\}", r"1 > x > 0", r"(0,\frac12)\cup[\frac12,1)"],
    [r"x \neq 2", r"(-\infty,2)\cup(2,\infty)", r"\mathbb{R}\setminus\{2\}", r"x < 2 \text{ or } x > 2"],
    [r"(-\infty,-2]\cup\{1\}", r"a \leqslant -2 \text{ or } a = 1"],
    ["x^2/4 + y^2/3 = 1", "x^2/16 + y^2/12 = 1/4", "3x^2 + 4y^2 - 12 = 0"],
    [r"\begin{bmatrix} 1 & 0 \\ 0 & 0.5 \end{bmatrix}", r"\begin{pmatrix}1&0\\0&\frac12\end{pmatrix}"],
    [
        r"x = \frac{\pi}{6} + k\pi, \frac{\pi}{3} + k\pi",
        r"\frac{\pi}{3} + n\pi, \frac{\pi}{6} + n\pi",
    ],
    [r"x = \pm \frac{\pi}{3} + 2k\pi", r"\frac{\pi}{3} + 2n\pi, -\frac{\pi}{3} + 2n\pi"],
    ["|x-2| < 3", "(-1, 5)", r"-1 \lt x \lt 5", "x > -1 and x < 5"],
    ["2^{n+1}", "2**(n+1)", r"2 \cdot 2^n"],
    [r"\binom{n}{3}", "binomial(n, 3)"],
    [r"\arcsin \frac{x}{2}", "asin(x/2)"],
    [r"\frac{\sqrt{x+1}}{y}", "sqrt(x+1)/y"],
    [r"(\sqrt{z})^2", "z"],
    ["2024-07-04", "2024/7/4"],
    ["②③", r"\{3, 2\}"],
    ["5 million", r"\$5,000,000"],
    ["3x - y + 2 = 0", "6x + 4 = 2y"],
    [r"10_2", r"10_{2}", r"10_{\text{two}}"],
    ["4:30 p.m.", r"\text{4:30 p.m.}", r"4:30\text{ PM}", "04:30pm"],
    [r"\text{(B)}", "B", "(B)", r"\textbf{(B)}\ 17", "B: 17", "B) 17", "B. 17", r"\text{B. } 17"],
    [r"I_{\max} \frac{q_{0}}{\sqrt{2 L C}}", r"\frac{ q_{0} I_\max }{ \sqrt{2 C L} }"],
    [r"k\pi", r"n \pi", r"x = k\pi"],
    ["AB", r"\text{AB}"],
    [r"\emptyset", r"\varnothing", r"\{\}", r"\text{There is no solution}"],
    ["1/2004!"],
    ["1/2006!"],
    [r"10^{-20}\pi"],
    [r"2\cdot10^{-20}\pi"],
    ["BA"],
    [r"(2, \pi/3)", r"\theta = \pi/3, r = 2", r"(r, \theta) = (2, \pi/3)"],
    [r"\text{Dogs} = 2, \text{Cats} = 1", r"\text{cats} = 1, \text{dogs} = 2"],
    [r"\theta = 1, \phi = 2", r"\phi = 2, \theta = 1"],
    [r"x \in(-\infty ;-2) \cup(1 ;+\infty)", r"(-\infty, -2) \cup (1, \infty)"],
    [r"\infty", "infinity", r"\text{infinity}"],
    [r"-\infty", "negative infinity"],
    [r"2 \pm 3", "2 +/- 3"],
    ["①③", "①、③", "①和③", "(1)(3)", "(1), (3)", "(1) and (3)", "1, 3"],
    ["(a)(c)", "(a), (c)", "a, c"],
    [r"\text{Solution: } x = 43, y = 104", "x = 43, y = 104"],
]  # fmt: skip


@pytest.mark.parametrize("spellings", SPELLINGS, ids=lambda spellings: spellings[0])
def test_spellings_share_one_key(spellings: list[str]) -> None:
    assert {outcome_key(text) for text in spellings} == {outcome_key(spellings[0])}  # fmt: skip
    others = {outcome_key(text) for group in SPELLINGS if group is not spellings for text in group}
    assert outcome_key(spellings[0]) not in others


FUNCTIONS = ("sin", "cos", "tan", "cot", "csc", "arcsin", "arccos", "arctan", "sinh", "ln", "log", "exp")


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize(
    "form", [r"\operatorname{{{}}} x", r"\operatorname{{{}}}(x)", r"\mathrm{{{}}}\,x", r"2\mathrm{{{}}}(x)"]
)
def test_a_function_is_the_same_in_every_font(name: str, form: str) -> None:
    factor = 2 if form.startswith("2") else ""
    assert canonical_text(form.format(name)) == canonical_text(rf"{factor}\{name} x")


@pytest.mark.parametrize("formula", [r"32\%", "3:4", "(2,3)", "x = 5", "[1, 2]", "2x + 1", "-7"])
@pytest.mark.parametrize("group", ["text", "mathrm", "textbf"])
def test_a_formula_in_text_is_a_formula(formula: str, group: str) -> None:
    assert canonical_text(rf"\{group}{{{formula}}}") == canonical_text(formula)


def test_near_misses_have_different_keys() -> None:
    answers = [
        "1/3", "0.333333", "0.5%", "50", "2^{99}", "2^{99}+1", "10_2", "10_3", "3_{10}", "5m", r"5\text{ million}",
        "5", "5i", "(1,2)", "(2,1)", "[1,2]", "[1,2)", r"\{1,2\}", "x=1, y=-2", "x=-2, y=1", "x+1", "x-1", "y+1", "x",
        "|x|", "x^2", r"\sqrt{x}", "X", "xy", "x_1", "x'", "12", "1 2", "9^{9^{9}}", "9^{9^{9}}+1", "1_0", "10",
        "f(x)", "f(y)", "f(x+1)=f(x)+f(1)", "11a+c",
        "7=11a+c", "2x+z=1", "2x+z=2", "a+3z=0", "x<5", r"x\leq5", "x>5", r"x\neq5", "x^2=4", "odd", "oddd",
        "4:30 p.m.", "4:30 a.m.", "4:05", "A", "B", "July 4", "July 5", r"\sin x", r"\cos x", r"\ln x", r"\lg x",
        r"\log_2 x", "e^x", r"x^{1000}+1", r"x^{1001}+1", r"\sqrt{2}",
        "1.41421356237309504880168872420969807856967187537694", "{", "}",
    ]  # fmt: skip
    keys = [outcome_key(answer) for answer in answers]
    assert len(set(keys)) == len(answers), [a for a, key in zip(answers, keys, strict=True) if keys.count(key) > 1]


LOOK_ALIKES = [
    # functions that agree near 1, or on one side
    ("|x-2| = 3", "-1"),
    ("|x+10|-10", "x"),
    (r"\sqrt{(x-3)^2}", "3-x"),
    (r"|\cos x|", r"\cos x"),
    (r"\arcsin(\sin x)", "x"),
    ("|a-b|", "a-b"),
    ("|x-40|+|x-41|-1", "|2x-81|"),
    (r"\min(|y|, 10^{12})", "|y|"),
    (r"\lfloor x \rfloor", r"\lceil x \rceil - 1"),  # but at whole numbers
    (r"\lfloor x + 0.5 \rfloor", r"\lceil x - 0.5 \rceil"),
    (r"\operatorname{sgn}(x)^2", "1"),
    # readings
    ("3^{2}.5", "3^{2.5}"),
    ("2^{3}{4}", "2^{34}"),
    ("3sec(x)", "3x"),
    ("3!!", "720"),
    ("n! = 6", r"n \neq 6"),
    ("P(2)", "2P"),
    ("F(b)-F(a)", "F(b-a)"),
    ("f^{-1}(x)", r"\frac{x}{f}"),
    ("f'(x)", "xf'"),
    (r"\pi(x)", r"\pi x"),
    (r"\frac{dy}{dx}", r"\frac{y}{x}"),
    (r"\vec a \cdot \vec b", r"\vec a \times \vec b"),
    (r"\mathbf{a} \times \mathbf{b}", r"\mathbf{b} \times \mathbf{a}"),
    (r"\mathbf{a} \times 2\mathbf{b}", r"\mathbf{b} \times 2\mathbf{a}"),
    (r"(\mathbf{a} + \mathbf{b}) \times \mathbf{c}", r"\mathbf{c} \times (\mathbf{a} + \mathbf{b})"),
    (r"\cos(x)^2", r"\cos(x^2)"),
    (r"\gcd(a,b)", "1"),
    (r"\prod_{i=1}^4 i", "1"),
    ("not 5", "5not"),
    (r"3\text{ feet }5\text{ inches}", "15"),
    (r"1 \\ 2", "1"),
    # domains, dates, limits
    (r"\{x \in \mathbb{Z} \mid x > 5\}", r"(5,\infty)"),
    ("2024-01-02", "2021"),
    ("1/2/2024", r"\frac{1}{4048}"),
    (r"\tanh 200", "1"),
    (r"\tanh 100", r"\tanh 101"),
    (r"\arcsec(10^{80})", r"\pi/2"),
    (r"\sinh 300", r"\cosh 300"),
    # Indices of a series; both signs of a condition; names in brackets, and of several values each.
    (r"\sum_{i=1}^{10} x_i", r"\sum_{i=11}^{20} x_i"),
    (r"\sum_{k=1}^{3} a_k", r"3a_k"),
    (r"\sum_{k=0}^{2} f^{k}(x)", r"3f^k(x)"),
    (r"\{ x \in \mathbb{R} : x \neq \pm 1 \}", r"x \neq 1"),
    (r"\{x \mid x = \pm 2\}", r"2"),
    (r"x = \pm 1, y = \pm 2", r"x = \pm 2, y = \pm 1"),
    (r"x=1,2; y=3,4", r"x=3,4; y=1,2"),
    (r"\pm 1\frac{1}{2}", r"\pm \frac12"),
    (r"3 \times 2\frac{1}{2}", r"3"),
    (r"\lfloor 2\frac12 \rfloor", r"1"),
    (r"2 s t", r"2"),
    (r"\operatorname{Re}(z)^2", r"\operatorname{Re}(z^2)"),
    (r"2\operatorname{cis}(\frac{\pi}{3})", r"\operatorname{cis}(\frac{2\pi}{3})"),
    (r"\{f(x) \mid x > 1\}", r"x > 1"),
    # Words, other sides and labels beside a value
    (r"\text{hole at }x=2", r"\text{vertical asymptote: }x=2"),
    ("only n=1", "all n=1"),
    ("a/b = 2", "2"),
    (r"\vec a \cdot \vec b = 0", "0"),
    ("(a), (c)", "(b), (d)"),
    ("(1)3(2)5", "(1)3(3)5"),
    ("5–10", "5 - 10"),
    ("5—10", "5 - 10"),
    # Relations, domains and indices
    ("x^2<4", "x^2>4"),
    ("x^3=x", "x^2=x"),
    ("x<y", r"x\leq y"),
    (r"x<1 \text{ or } x>2", r"x<1 \text{ and } x>2"),
    (r"x\equiv3\pmod7", r"x\equiv3\pmod8"),
    (r"3k, k \in \mathbb{Z}", r"3k, k \in \mathbb{R}"),
    (r"(k\pi, m\pi)", r"(k\pi, k\pi)"),
    (r"\frac{\Delta v}{\Delta t}", r"\frac{v}{t}"),
    (r"x_{1,234}", "x_{1234}"),
    # Notation of other languages
    (r"\operatorname{tg} x", r"\operatorname{ctg} x"),
    (r"n \pi, n \in \mathbf{N}", r"n \pi, n \in \mathbf{Z}"),
    (r"\mathbf{C}", r"\mathbb{C}"),  # a choice
    (r"x \in R_1", r"\mathbb{R}"),
]


@pytest.mark.parametrize(("a", "b"), LOOK_ALIKES)
def test_different_answers_that_look_alike_differ(a: str, b: str) -> None:
    assert not equivalent(a, b)


def test_a_canonical_text_is_never_much_longer_than_its_answer() -> None:
    answer = ",".join(f"7^{{{n}}}" for n in range(11600, 11560, -1))
    assert len(canonical_text(answer)) <= MAX_CANONICAL_CHARS
    assert canonical_text(answer).startswith("{")
    assert equivalent(answer, ",".join(reversed(answer.split(","))))
    assert not equivalent(answer, answer.replace("11600", "11601"))


@pytest.mark.parametrize("blank", ["", "  ", "$$", r"\(\)", ".", r"\left.\right."])
def test_blank_is_no_answer(blank: str) -> None:
    assert outcome_key(blank) == NO_ANSWER


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1,234,567.50", Fraction(2469135, 2)),
        ("1 234 567", 1234567),
        ("x = 1 234.5", Fraction(2469, 2)),
        (r"\frac{1 234}{5}", Fraction(1234, 5)),
        (r"\frac{12}{5,525}", Fraction(12, 5525)),
        ("-1 1/2", Fraction(-3, 2)),
        ("3 125/250", Fraction(7, 2)),
        (r"2\frac32", 3),  # a product to TeX
        (r"\theta=\frac12", Fraction(1, 2)),
        ("1e3", 1000),
        (r"1.5\times10^{-3}", Fraction(3, 2000)),
        ("2^3 456", 3648),
        *((f"5{unit}", 5) for unit in (r"\text{ cm}", r"\text{ cm}^2", "%", r"\%", r"^\circ", " degrees", "个")),
        *((f"5{unit}", 5) for unit in (" square units", r"\text{ m}", " cm^2")),
    ],
)
def test_rational_numbers_are_exact(text: str, value: Fraction | int) -> None:
    assert canonical_text(text) == f"q:{Fraction(value).numerator}/{Fraction(value).denominator}"


@pytest.mark.parametrize(
    "text",
    [
        *(
            "", "-", "1/0", r"\frac10", "1,23", "1234,567", "12,34,567", "1, 234", "1 2", "12 34", "1 234,567",
            r"\frac123",
        ),
        *("9^{9^9}", "1e9999", "1_000", "²", "xy=5", "nan", "inf", "1.2.3", "5m", "5x", "5cmx", "cm", "5万左右"),
        *(r"5\text{ p.m.}", r"x\text{ cm}", "x^2 345", r"x^{2},345"),
        *("2 hours 30 minutes", r"30^\circ 15", r"20\% \frac12"),
    ],
)  # fmt: skip
def test_anything_else_is_no_rational_number(text: str) -> None:
    assert not canonical_text(text).startswith("q:")


@given(st.fractions(), st.integers(0, 3))
def test_reads_back_every_fraction(value: Fraction, zeros: int) -> None:
    sign, n, d = "-" if value < 0 else "", abs(value.numerator), value.denominator
    key = f"q:{value.numerator}/{d}"
    assert canonical_text(f"{value.numerator}/{d}") == canonical_text(f"{3 * value.numerator}/{3 * d}") == key
    assert canonical_text(rf"{sign}\frac{{{n}}}{{{d}}}") == key
    assert canonical_text(f"{'0' * zeros}{n:,}") == f"q:{n}/1" or zeros


@given(st.from_regex(keys._PLAIN_NUMBER, fullmatch=True))
def test_the_short_way_for_plain_numbers_agrees_with_the_grammar(text: str) -> None:
    assert canonical_text(text) == keys._canonical(text)


@given(st.decimals(allow_nan=False, allow_infinity=False, places=4, min_value=-(10**12), max_value=10**12))
def test_decimals_are_exact(value: object) -> None:
    exact = Fraction(str(value))
    assert canonical_text(f"{value:f}") == f"q:{exact.numerator}/{exact.denominator}"


@pytest.mark.parametrize(
    ("answer", "open_"),
    [("x+1", False), (r"\sum_{k=1}^n k", True), ("odd", False), ("5 apples and 3 pears", True), ("9^{9^{9}}", False)],
)
def test_is_open(answer: str, open_: bool) -> None:
    assert is_open(canonical_text(answer)) is open_


def test_known_keys_never_change() -> None:
    # Snapshots of counts hold these numbers: a change needs a new OUTCOME_RULE.
    assert outcome_key("1/2") == -5091495733681770406
    assert outcome_key("x+1") == 5720228471435528433
    assert outcome_key(r"\sqrt{2}, 1") == 5905669757747990440
    assert question_key("gsm8k-1") == -4854922150587578329


PROCESS = """
import sys, threading
if {without_gmpy2}:
    sys.modules["gmpy2"] = None
from outcome_rl.outcomes.keys import canonical_text
answers, results, barrier = {answers!r}, {{}}, threading.Barrier(8)
def run(first):  # from another answer in each thread, so that all of them meet what is made at the first use
    barrier.wait()
    keys = {{answer: canonical_text(answer) for answer in answers[first:] + answers[:first]}}
    results[first] = [keys[answer] for answer in answers]
threads = [threading.Thread(target=run, args=(first,)) for first in range(0, 80, 10)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
assert len(results) == 8 and all(result == results[0] for result in results.values())
print("\\n".join(results[0]))
"""


@pytest.mark.parametrize("without_gmpy2", [True, False])
def test_same_keys_in_threads_and_other_processes(without_gmpy2: bool) -> None:
    # gmpy2, where it is installed, does mpmath's integer arithmetic.
    answers = [spelling for spellings in SPELLINGS for spelling in spellings]
    output = subprocess.run(
        [sys.executable, "-c", PROCESS.format(answers=answers, without_gmpy2=without_gmpy2)],
        env={**os.environ, "PYTHONHASHSEED": "7"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert output.stdout.splitlines() == [canonical_text(answer) for answer in answers]


@pytest.mark.parametrize(("pair", "named"), [((1, "1"), r"a must be a str; got 1 \(int\)"), (("1", None), "b must be")])
def test_equivalent_names_the_argument(pair: tuple[Any, Any], named: str) -> None:
    with pytest.raises(TypeError, match=named):
        equivalent(*pair)


def test_type_error_names_the_type() -> None:
    with pytest.raises(TypeError, match="answer must be a str; got NoneType"):
        canonical_text(None)


def test_overlong_answers_equal_only_themselves() -> None:
    long = "1+" * MAX_ANSWER_CHARS
    assert equivalent(long, f" {long} ")
    assert not equivalent(long, long + "1")
    assert len(canonical_text(long)) < 50


@pytest.mark.timeout(20)
@pytest.mark.parametrize("text", ["where{}x", "so{}5", "twenty{}one{}", "\\text{{ten{}}}", "${}ten{}$", "minus{}"])
def test_spaces_cost_linear_time(text: str) -> None:
    canonical_text(text.format(" " * 900, " " * 50))
