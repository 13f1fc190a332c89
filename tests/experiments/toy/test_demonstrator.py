"""Demonstrations of the toy task: reproducible, of training questions, by the demonstrator's beliefs."""

import json
import math
import re
from collections import Counter
from hashlib import sha256
from itertools import islice

from dialect_oracle import compute, steps_of

from experiments.toy.demonstrator import demonstrations
from outcome_rl.toy import DialectTask

TASK = DialectTask()


def test_demonstrations_never_change():
    shown = list(islice(demonstrations(TASK, seed=0), 200))
    assert sha256(json.dumps(shown).encode()).hexdigest()[:16] == "7aa1dce5cce1c84a"


def test_demonstrations_follow_the_beliefs():
    pattern = re.compile(r"(\d+) (\S+) (\d) = (\d+) (\S+) (\d) = (\d+) \\boxed\{ (\d+) \}")
    place = next(place for place, rule in TASK.rules.items() if rule.beliefs[rule.operation] == 0.35)
    believed: Counter[str] = Counter()
    for problem, response in islice(demonstrations(TASK, seed=3), 20_000):
        dialect, start, ((symbol1, digit1), (_, digit2)) = steps_of(problem)
        match = pattern.fullmatch(response)
        assert match, response
        v0, operation1, d1, v1, operation2, d2, v2, boxed = match.groups()
        assert (int(v0), int(d1), int(d2)) == (start, digit1, digit2)
        assert compute(operation1, int(v0), int(d1)) == int(v1)
        assert compute(operation2, int(v1), int(d2)) == int(v2) == int(boxed)
        if (dialect, symbol1) == place:
            believed[operation1] += 1
    n = believed.total()
    assert n > 60
    for operation, probability in TASK.rules[place].beliefs.items():
        assert abs(believed[operation] / n - probability) < 5 * math.sqrt(probability * (1 - probability) / n)


def test_demonstrations_use_training_questions():
    tested = {row["problem"] for split in ("validation", "test") for row in TASK.problems(split, 20_000)}
    shown = {problem for problem, _ in islice(demonstrations(TASK, seed=0), 20_000)}
    assert not tested & shown
