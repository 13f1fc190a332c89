"""Dialect arithmetic: reproducibility, disjoint splits, and answers against an independent solver."""

import json
import math
from collections import Counter
from hashlib import sha256

import pytest
from dialect_oracle import FORMULAS, compute, steps_of
from hypothesis import given, settings
from hypothesis import strategies as st

from experiments.toy.task import DIALECTS, SYMBOLS, DialectTask
from outcome_rl import toy
from outcome_rl.toy import Split

SPLITS: tuple[Split, ...] = ("train", "validation", "test")
TASK = DialectTask()


def solve(task: DialectTask, problem: str) -> str:
    dialect, value, steps = steps_of(problem)
    for symbol, digit in steps:
        value = compute(task.rules[dialect, symbol].operation, value, digit)
    return str(value)


def test_the_task_never_changes():
    """Counts, checkpoints and the installed policy depend on exactly these rows."""
    rows = [row for split in SPLITS for row in TASK.problems(split, 200)]
    assert rows[0] == {"id": "dialect0-train-0", "problem": "D12 39 ^ 9 ! 3 =>", "answer": "1"}
    assert sha256(json.dumps(rows).encode()).hexdigest()[:16] == "7093b2927a0feff6"


def test_the_package_has_the_default_problems():
    assert all(toy.problems(split) == TASK.problems(split) for split in SPLITS)
    assert [len(toy.problems(split)) for split in SPLITS] == [512, 256, 1024]


@given(instance=st.integers(0, 10**9), small=st.integers(1, 60), large=st.integers(60, 150))
@settings(max_examples=20, deadline=None)
def test_any_instance_is_consistent(instance: int, small: int, large: int):
    task = DialectTask(instance)
    seen: set[str] = set()
    for split in SPLITS:
        rows = task.problems(split, large)
        assert task.problems(split, small) == rows[:small]
        assert [row["answer"] for row in rows] == [solve(task, row["problem"]) for row in rows]
        problems = {row["problem"] for row in rows}
        assert len(problems) == large
        assert not problems & seen
        seen |= problems


def test_held_out_rules():
    held_out = {place for place, rule in TASK.rules.items() if rule.held_out}
    assert len(held_out) == 48
    for split in SPLITS:
        used = Counter(
            (dialect, symbol)
            for row in TASK.problems(split)
            for dialect, _, steps in [steps_of(row["problem"])]
            for symbol, _ in steps
        )
        if split == "train":
            assert not held_out & set(used)
        else:
            share = sum(used[place] for place in held_out) / used.total()
            assert 0.2 < share < 0.3


def test_rules_have_the_documented_shares_and_beliefs():
    rules = TASK.rules
    assert set(rules) == {(dialect, symbol) for dialect in DIALECTS for symbol in SYMBOLS}
    assert len(rules) == 24 * 8
    levels = Counter(round(rule.beliefs[rule.operation], 6) for rule in rules.values())
    assert levels == {0.85: 96, 0.35: 58, 0.03: 38}
    for symbol in SYMBOLS:
        favourites = {max(rules[d, symbol].beliefs, key=rules[d, symbol].beliefs.__getitem__) for d in DIALECTS}
        assert len(favourites) == 1  # the default meaning is shared by all dialects
    for rule in rules.values():
        assert set(rule.beliefs) == set(FORMULAS)
        assert math.isclose(sum(rule.beliefs.values()), 1.0)
        assert min(rule.beliefs.values()) > 0


def test_an_unknown_split_is_named():
    with pytest.raises(ValueError, match=r"split of toy .* got 'dev'"):
        toy.problems("dev")
