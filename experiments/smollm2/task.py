"""Sums of two numbers of four digits: a small language model half knows them, and a wrong carry makes a plausible
wrong answer.

After the warm start the model has pass@1 .24, pass@32 .81 and 10.1 distinct answers in 32 samples (32 questions). After
40 steps of it, .50, 1.00 and 5.9. Others after 40 steps: sums of three digits (.66, .96, 3.4) are easier, sums of three
numbers (.01, .31, 26.9) and a product with a sum (.00, .10, 30.4) too hard.

The splits share no question: a question belongs to the split that a hash of its text names. Draws use
`random.Random(str).random()`, the one generator that Python keeps unchanged.
"""

from collections.abc import Iterator
from hashlib import sha256
from itertools import islice
from random import Random
from typing import Literal, NamedTuple

Split = Literal["warm", "train", "validation", "test"]
SPLITS: tuple[Split, ...] = ("warm", "warm", "warm", "train", "train", "train", "validation", "test")


class Question(NamedTuple):
    """An expression, and its value."""

    expression: str
    value: int

    @property
    def split(self) -> Split:
        return SPLITS[sha256(self.expression.encode()).digest()[0] % len(SPLITS)]

    @property
    def text(self) -> str:
        return f"What is {self.expression}?"

    @property
    def demonstration(self) -> str:
        """A response in the format that is rewarded."""
        return rf"{self.expression} = \boxed{{{self.value}}}"


def questions(split: Split) -> Iterator[Question]:
    """Yield the questions of a split, each once."""
    rng, seen = Random(f"smollm2/{split}"), set()
    while True:
        question = _draw(rng)
        if question.split == split and question not in seen:
            seen.add(question)
            yield question


def problems(split: Split, count: int) -> list[dict[str, str]]:
    """Return the first `count` problems of a split, as rows of a data file."""
    return [
        {"id": f"{split}-{index}", "problem": question.text, "answer": str(question.value)}
        for index, question in enumerate(islice(questions(split), count))
    ]


def _draw(rng: Random) -> Question:
    a, b = (1000 + int(9000 * rng.random()) for _ in range(2))
    return Question(f"{a} + {b}", a + b)
