"""Generated pairs of answers, in short; `tests/helpers/outcome_pairs.py` judges as many as one likes."""

import itertools
import json
import os
import random
import subprocess
import sys

import pytest
from answer_oracle import agree
from answer_trees import Tree, num
from look_alikes import FAMILIES, look_alike_pair
from notation_families import Family
from outcome_pairs import KINDS, RECORD, Pair, measure, pairs

from outcome_rl import OutcomeMatcher
from outcome_rl.outcomes.keys import OUTCOME_RULE, canonical_text

X, Y = ("var", "x"), ("var", "y")


@pytest.mark.timeout(120)  # takes a few seconds
def test_no_unequal_pair_has_one_key_and_few_equal_pairs_have_two() -> None:
    wrong: list[Pair] = []
    rows = measure(600, seed=7, report=lambda kind, pair: wrong.append(pair))
    assert [pair for pair in wrong if not pair[2]] == []
    assert all(row["equal"] and row["unequal"] for row in rows.values())
    read = [row for kind, row in rows.items() if kind != "look-alikes"]  # some of which no rule reads
    assert sum(row["missed"] for row in read) <= 0.02 * sum(row["equal"] for row in read)


def test_a_seed_has_the_same_pairs_in_every_process() -> None:
    code = "import itertools, outcome_pairs; print(*itertools.islice(outcome_pairs.pairs(7), 600), sep='\\n')"
    others = [
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join(sys.path)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    ]
    assert others == 2 * ["".join(f"{one}\n" for one in itertools.islice(pairs(7), 600))]


def test_functions_that_differ_on_a_short_stretch_have_two_keys() -> None:
    row = measure(150, seed=3, kinds=["bumps"])["bumps"]
    assert row == {"equal": 150, "missed": 0, "unequal": 150, "wrong": 0}


# The families whose statements are all read; in the others a meaning may have two keys.
READ = "adjacency choices bounds collections conditions intervals trigonometry".split()  # noqa: SIM905


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.__name__)
def test_statements_have_one_key_exactly_if_they_have_one_meaning(family: Family) -> None:
    rng = random.Random(1)
    for _ in range(6):
        found = {(meaning, canonical_text(text)) for meaning, text in family(rng)}
        assert len({key for _, key in found}) == len(found)
        if family.__name__ in READ:
            assert len({meaning for meaning, _ in found}) == len(found)


def test_look_alikes_differ_also_for_math_verify() -> None:
    rng = random.Random(5)
    drawn = (look_alike_pair(rng, equal=False) for _ in itertools.count())
    unequal = list(itertools.islice(filter(None, drawn), 600))
    with OutcomeMatcher(workers=1, tolerant=False) as matcher:
        golds, answers = [pair[0] for pair in unequal], [pair[1] for pair in unequal]
        correct = matcher.classify_answers([str(i) for i in range(len(unequal))], answers, golds).correct
    assert [pair for pair, equal in zip(unequal, correct, strict=True) if equal] == []


@pytest.mark.parametrize(
    ("a", "b", "verdict"),
    [
        (("abs", X), ("sqrt", ("pow", X, num(2))), True),
        (("abs", X), X, False),
        (("floor", X), num(0), False),
        (("mul", X, Y), ("mul", Y, X), True),
        (("div", num(1), num(0)), num(1), None),
    ],
)
def test_the_oracle(a: Tree, b: Tree, verdict: bool | None) -> None:
    assert agree(a, b) is verdict


def test_the_committed_record_has_no_wrong_equality() -> None:
    record = json.loads(RECORD.read_text())
    assert record["rule"] == OUTCOME_RULE
    assert set(record["kinds"]) == set(KINDS)
    assert all(row["equal"] and row["unequal"] and not row["wrong"] for row in record["kinds"].values())
