"""The paper's classes: facts that are only added, whatever the check, the order and the steps."""

import random
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from outcome_rl import Explorer
from outcome_rl.outcomes.keys import NO_ANSWER, hash_key
from outcome_rl.outcomes.paper import PaperClasses

Check = Callable[[str, str], bool]


def same_residue(a: str, b: str) -> bool:
    return len(a) % 3 == len(b) % 3


def intransitive(a: str, b: str) -> bool:
    return abs(len(a) - len(b)) <= 1


def classes_by(check: Check) -> type[PaperClasses]:
    """Return the classes with a check in place of math-verify."""

    class Classes(PaperClasses):
        def __init__(self) -> None:
            super().__init__()
            self.pool.vote = lambda pairs, *_: ["equal" if check(*pair) else "different" for pair in pairs]  # type: ignore

    return Classes


ANSWERS = st.lists(st.sampled_from(["", "a", "b", "aa", "bb", "aaa", "5", "66", "aaaa"]), max_size=10)


def responses(answers: list[str]) -> list[str]:
    return [rf"\boxed{{{answer}}}" if answer else "" for answer in answers]


def score(explorer: Explorer, answers: list[str], gold: str | None = "ab") -> list[int]:
    ids, golds = ["q"] * len(answers), None if gold is None else [gold] * len(answers)
    keys: list[int] = explorer.score(ids, responses(answers), golds, [0.0] * len(answers)).keys.tolist()
    return keys


@pytest.mark.filterwarnings("ignore:no response of a batch")
@settings(deadline=None)
@given(
    st.sampled_from([same_residue, intransitive]), st.lists(ANSWERS.filter(bool), min_size=1, max_size=3), st.randoms()
)
def test_a_text_keeps_its_class_and_the_order_of_the_responses_does_not_matter(
    check: Any, steps: list[list[str]], rng: random.Random
) -> None:
    explorer, shuffled = (Explorer(bonus="ucb", outcome=classes_by(check)) for _ in range(2))
    key_of: dict[str, int] = {"": NO_ANSWER}
    for answers in steps:
        for answer, key in zip(answers, score(explorer, answers), strict=True):
            assert key_of.setdefault(answer, key) == key
        score(shuffled, rng.sample(answers, len(answers)))
    assert shuffled.state_dict()["texts"] == explorer.state_dict()["texts"]
    for key in {*key_of.values()} - {NO_ANSWER}:
        first = explorer.state_dict()["texts"]["q"]
        founder = first[first.index(key) + 1]
        members = [text for text, own in key_of.items() if own == key]
        assert all(text == founder or check(founder, text) or check("ab", text) for text in members)


@settings(deadline=None)
@given(ANSWERS.filter(any), ANSWERS.filter(any))
def test_a_run_that_continues_equals_one_that_did_not_stop(before: list[str], after: list[str]) -> None:
    whole, stopped, continued = (Explorer(bonus="ucb", outcome=classes_by(intransitive)) for _ in range(3))
    assert score(whole, before) == score(stopped, before)
    continued.load_state_dict(stopped.state_dict())
    assert score(continued, after) == score(whole, after)
    assert continued.state_dict()["texts"] == whole.state_dict()["texts"]


def test_the_gold_is_compared_first_and_then_the_oldest_class() -> None:
    matcher = classes_by(lambda a, b: True)()
    assert matcher.classify_answers(["q"], ["y"], ["x"]).correct.tolist() == [True]
    explorer = Explorer(bonus="ucb", outcome=classes_by(lambda a, b: b == "zz joins" and a != "gold"))
    score(explorer, ["two"], "gold")
    two, one, joins = score(explorer, ["two", "one", "zz joins"], "gold")
    assert joins == two != one


def test_all_texts_that_differ_are_compared() -> None:
    matcher = classes_by(lambda a, b: abs(float(a) - float(b)) < 0.01)()
    outcomes = matcher.classify_answers(["q"] * 3, ["0.333", "0.5", "1"], ["0.3333"] * 3)
    assert outcomes.correct.tolist() == [True, False, False]
    assert outcomes.keys.tolist() == [hash_key(f"r:{text}") for text in ("0.3333", "0.5", "1")]


def test_math_verify_compares_numbers() -> None:
    with PaperClasses(workers=1, timeout_s=30) as matcher:
        outcomes = matcher.classify_answers(["q"] * 2, ["0.3333333", "0.3"], ["1/3"] * 2)
    assert outcomes.correct.tolist() == [True, False]


def test_a_check_that_fails_changes_nothing() -> None:
    def broken(a: str, b: str) -> bool:
        raise ZeroDivisionError

    explorer = Explorer(bonus="ucb", outcome=classes_by(broken))
    with pytest.raises(ZeroDivisionError):
        score(explorer, ["x"], "y")
    assert explorer.state_dict()["texts"] == {}


def test_what_a_time_limit_cuts_has_no_answer_and_is_asked_again() -> None:
    with PaperClasses(workers=1, timeout_s=30) as matcher:
        columns = (["q"] * 3, responses(["7", "1/3", "0.3333333"]), ["1/3"] * 3)
        cut = matcher.classify(*columns, limit_s=-1)
        assert (cut.unresolved, cut.correct.tolist(), cut.keys[2]) == (2, [False, True, False], NO_ANSWER)
        again = matcher.classify(*columns)
    assert (again.unresolved, again.correct.tolist()) == (0, [False, True, True])
