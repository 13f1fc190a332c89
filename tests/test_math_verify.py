"""The drop-in for math-verify: its verdicts and results, in bounded time, from any thread."""

import inspect
import itertools
import logging
import re
import threading
from collections.abc import Callable
from typing import Any

import math_verify
import pytest
import sympy
from dropped_things import RULES
from hypothesis import given, settings
from hypothesis import strategies as st
from math_verify.errors import TimeoutException
from outcome_pairs import pairs

from outcome_rl import math_verify as drop_in
from outcome_rl.math_verify import (
    LIMIT_S,
    ExprExtractionConfig,
    LatexExtractionConfig,
    LatexNormalizationConfig,
    StringExtractionConfig,
    accuracy_reward,
    parse,
    verify,
)

HANGS = "$9^{9^{9^{9}}}$"


def theirs(gold: str, response: str, **options: Any) -> bool:
    """Return math-verify's own verdict, without its limits of real time."""
    a, b = (math_verify.parse(text, parsing_timeout=None) for text in (gold, response))
    return bool(math_verify.verify(a, b, timeout_seconds=None, **options))


@pytest.fixture
def no_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(tasks: list[Any], timeout_s: float) -> list[Any]:
        assert not tasks, "the keys decide"
        return []

    monkeypatch.setattr(drop_in._WORKERS, "ask", refuse)


@pytest.mark.parametrize("name", ["parse", "verify"])
def test_signatures(name: str) -> None:
    ours, others = (inspect.signature(getattr(module, name)).parameters for module in (drop_in, math_verify))
    for own, other in itertools.zip_longest(ours.values(), others.values()):
        assert (own.name, own.kind) == (other.name, other.kind)
        assert (list(own.default) if own.name == "extraction_config" else own.default) == other.default
    names = {name for name in math_verify.__all__ if name.endswith("Config")}
    assert all(getattr(drop_in, name) is getattr(math_verify, name) for name in names)


@pytest.mark.parametrize(
    ("gold", "response", "equal"),
    [
        ("1/2", r"so \boxed{0.5}", True),
        (r"$\frac12$", r"The final answer is $\boxed{\frac{1}{2}}$. I hope it is correct.", True),
        ("2x", r"\boxed{x+x}", True),  # math-verify reads the gold answer as 2
        (r"\sqrt{12}", r"\[ \boxed{2\sqrt{3}} \]", True),
        (r"\{1, 3\}", r"\boxed{3, 1}", True),
        ("5", r"\boxed{7}", False),
        ("0.5", r"\boxed{0.51}", False),
        (HANGS, HANGS, True),
    ],
)
@pytest.mark.usefixtures("no_workers")
def test_texts_that_the_keys_decide(gold: str, response: str, equal: bool) -> None:
    assert verify(parse(gold), parse(response)) is equal


@pytest.mark.parametrize(
    ("gold", "response", "options"),
    [
        ("1/3", r"\boxed{0.333333}", {}),  # rounds alike
        ("1/3", r"\boxed{0.333333}", {"float_rounding": 9}),
        ("$f(x)$", "$f(y)$", {}),
        ("$f(x)$", "$f(y)$", {"strict": False}),
        (r"$[0, \infty)$", r"$x \geq 0$", {}),
        (r"$[0, \infty)$", r"$x \geq 0$", {"allow_set_relation_comp": True}),
        (r"$x \geq 0$", r"$[0, \infty)$", {}),
        ("$x = 1$", "$y = 1$", {}),
        ("$1$", "$x = 1$", {}),
        (r"$2k\pi$", r"$2n\pi$", {}),
        ("$5$", r"First \boxed{4}, then a long way on, at last after more than seventy characters, \boxed{5}", {}),
        ("$5$", r"The final answer is $5$. No: \boxed{6}", {}),
        ("50", r"$\boxed{50}$%", {}),
        (r"$\int_0^1 2x dx$", "$1$", {"numeric_precision": 20}),
        ("none", r"\boxed{5}", {}),
    ],
)
def test_verdicts_of_math_verify(gold: str, response: str, options: dict[str, Any]) -> None:
    a, b = (parse(text, parsing_timeout=LIMIT_S) for text in (gold, response))
    assert verify(a, b, **options) is theirs(gold, response, **options)


def test_a_bare_formula_is_the_whole_gold_answer() -> None:
    assert theirs("2x", r"\boxed{2}")
    assert not verify(parse("2x"), parse(r"\boxed{2}"))


NUMBERS = st.one_of(
    st.integers(-999, 999).map(str),
    st.decimals(-20, 20, places=7).map(lambda value: f"{value:f}".rstrip("0").rstrip(".")),
)


@given(a=NUMBERS, b=NUMBERS)
@settings(max_examples=60, deadline=None)
def test_numbers_that_the_keys_decide_differ(a: str, b: str) -> None:
    for gold, target in ((parse(a), parse(rf"\boxed{{{b}}}")), (parse(f"${a}$"), parse(f"${b}$"))):
        decided = drop_in._decided(gold, target, drop_in._Options())
        if decided is not None:
            assert decided.equal is theirs(gold.text, target.text)


@pytest.mark.parametrize(
    "arguments",
    [
        (r"The answer is $\frac{1}{2}$",),
        ("1+1",),
        ("$x=1, y=2$", [LatexExtractionConfig()]),
        (r"$\frac12$", [LatexExtractionConfig(normalization_config=LatexNormalizationConfig())], "no_fallback"),
        ("The answer is A.", [StringExtractionConfig()]),
        ("12 or $13$", [ExprExtractionConfig()], "no_fallback", "first_match"),
        (r"$(1, 2) \cup [3, \infty)$",),
        (r"$\begin{pmatrix} 1 & 2x \\ 3 & 4 \end{pmatrix}$",),
        ("nothing",),
        (None,),
    ],
    ids=str,
)
def test_results_of_parse(arguments: tuple[Any, ...]) -> None:
    parsed, items = parse(*arguments, parsing_timeout=LIMIT_S), math_verify.parse(*arguments, parsing_timeout=None)
    assert parsed == items
    assert [*parsed] == items
    assert (len(parsed), repr(parsed), parsed[:1]) == (len(items), repr(items), items[:1])
    assert (parsed + items, items + parsed) == (items + items, items + items)


def test_sympy_objects_and_lists() -> None:
    x = sympy.Symbol("x")
    assert verify(sympy.Rational(1, 3), sympy.Float(0.333333), timeout_seconds=LIMIT_S)
    assert verify((x + 1) ** 2, [x**2 + 2 * x + 1, "text"], timeout_seconds=LIMIT_S)
    assert verify([sympy.Integer(1), " a "], ["a"], timeout_seconds=LIMIT_S)
    assert not verify("a", sympy.Symbol("a"))
    assert verify(parse("$x+1$"), math_verify.parse("$1+x$"), timeout_seconds=LIMIT_S)
    assert not verify([], [])


def test_any_thread() -> None:
    verdicts: list[bool] = []
    pairs = [("$2x + 1$", "$1 + x + x$"), ("$x = 3$", "$3$")]
    threads = [
        threading.Thread(target=lambda gold, text: verdicts.append(verify(parse(gold), parse(text))), args=pair)
        for pair in pairs
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert verdicts == [True, True]


def test_a_hang_ends_at_the_limit_and_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    pair = parse("$7$", parsing_timeout=0.2), parse(HANGS, parsing_timeout=0.2)
    with caplog.at_level(logging.WARNING, "outcome_rl.math_verify"):
        assert not verify(*pair, timeout_seconds=0.2)
    assert "timeout" in caplog.text
    with pytest.raises(TimeoutException):
        verify(*pair, timeout_seconds=0.2, raise_on_error=True)


def test_errors_are_raised_on_request() -> None:
    bad = [StringExtractionConfig(strings=("(",)), "no config"]
    with pytest.raises(Exception, match="string"):  # that of math-verify
        math_verify.parse("x", bad, raise_on_error=True)
    with pytest.raises(AttributeError, match="string"):
        parse("x", bad, raise_on_error=True)
    assert parse("x", bad) == math_verify.parse("x", bad) == []


@pytest.mark.parametrize(
    ("name", "call"),
    [
        ("parsing_timeout", lambda: parse("1", parsing_timeout=LIMIT_S + 1)),
        ("timeout_seconds", lambda: verify("1", "1", timeout_seconds=LIMIT_S + 1)),
    ],
    ids=["parse", "verify"],
)
def test_limits_above_the_bound_are_refused(name: str, call: Callable[[], Any]) -> None:
    with pytest.raises(ValueError, match=name):
        call()


def test_accuracy_reward() -> None:
    columns: dict[str, list[Any]] = {}
    completions: list[Any] = [
        [{"role": "assistant", "content": r"My answer is \boxed{\frac{1}{3}}"}],
        [{"role": "assistant", "content": r"My answer is \boxed{\frac{1}{2}}"}],
        r"\boxed{2}",
        r"\boxed{x + x}",
        "$5$ without a box",
        r"\boxed{5}",
    ]
    solution = [r"\frac{1}{3}", r"\frac{1}{3}", "2x", "2x", "5", "no mathematics"]
    rewards = accuracy_reward(completions, solution, log_extra=columns.__setitem__, prompts=["unread"])
    assert rewards == [1.0, 0.0, 0.0, 1.0, 0.0, None]
    assert columns["solution"] == solution
    assert columns["gold_parsed"] == [r"\frac{1}{3}", r"\frac{1}{3}", "2x", "2x", "5", "[unparseable]"]
    assert columns["answer_parsed"] == [r"\frac{1}{3}", r"\frac{1}{2}", "2", "x + x", "[unparseable]", "[skipped]"]
    with pytest.raises(ValueError, match="completions and solution must have one length; got 1 and 2"):
        accuracy_reward(["1"], ["1", "2"])


def test_a_hanging_response_is_wrong_and_not_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    def killed(tasks: list[Any], timeout_s: float) -> list[Any]:
        return [{"verdict": "timeout", "reason": "killed"}] * len(tasks)

    monkeypatch.setattr(drop_in._WORKERS, "ask", killed)
    assert accuracy_reward([r"\boxed{9^{9^{9}}}", r"\boxed{7}"], ["7", "7"]) == [0.0, 1.0]


@pytest.mark.parametrize(
    ("gold", "response"),
    [
        ("2x", r"\boxed{2x}"),
        ("(1, 2)", r"\boxed{(1,2)}"),
        (r"\sqrt{5}", r"\boxed{\sqrt{5}}"),
        (r"1\frac{1}{4}", r"\boxed{1 \frac{1}{4}}"),
        (r"10{,}000", r"\boxed{10000}"),
        ("$(-∞, -3)$", r"\boxed{(-\infty, -3)}"),
        ("$①③$", r"\boxed{1, 3}"),
        ("$20$", r"\boxed{20.0\%}"),
        ("$12$", r"\boxed{12^{\mathrm{th}}}"),
        ("4:30 PM", r"\boxed{\text{4:30 p.m.}}"),
        ("2024/7/4", r"\boxed{2024-07-04}"),
        (r"\text{No solution}", r"\boxed{\text{no solution.}}"),
        ("12", "答案是：12"),
        ("10", r"<think>maybe \boxed{3}</think> **Answer:** 10"),
    ],
)
@pytest.mark.usefixtures("no_workers")
def test_differences_that_the_page_lists(gold: str, response: str) -> None:
    assert not theirs(gold, response)
    assert verify(parse(gold), parse(response))


def test_nothing_is_equal_that_math_verify_tells_apart() -> None:
    drawn = [(a, b) for _, (a, b, equal) in itertools.islice(pairs(seed=11), 160) if not equal]
    drawn += [(a, b) for _, (a, b, equal) in itertools.islice(pairs(12, ["look-alikes"]), 60) if not equal]
    look_alikes = [pair for rule in RULES for pair in rule.unlike]
    texts = [(a, b) for a, b in drawn + look_alikes if not re.search(r"\$|boxed|\\\(", a + b)]
    shapes = itertools.cycle((r"\boxed{%s}", "$%s$", "%s"))
    wrapped = [(shape % a, shape % b) for shape, (a, b) in zip(shapes, texts, strict=False)]
    parsed = [(parse(a, parsing_timeout=LIMIT_S), parse(b, parsing_timeout=LIMIT_S)) for a, b in wrapped]
    verdicts = drop_in._verdicts(parsed, drop_in._Options(), LIMIT_S)
    equal = [pair for pair, verdict in zip(wrapped, verdicts, strict=True) if verdict.equal]
    assert [pair for pair in equal if not theirs(*pair)] == []


@pytest.mark.timeout(20)
@pytest.mark.parametrize("text", [" " * 16000 + "I say $5$ and $6$", "a" + " " * 16000 + "$", "$" + " " * 16000])
def test_spaces_cost_no_time_of_the_caller(text: str) -> None:
    verify(parse("$5$"), parse(text))
