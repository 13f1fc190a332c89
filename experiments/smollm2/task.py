"""Arithmetic in words that a small language model half knows, with many plausible wrong answers.

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
    def between(low: int, high: int) -> int:
        return low + int(rng.random() * (high - low + 1))

    a, b, c = between(10, 99), between(2, 9), between(10, 99)
    return Question(f"{a} * {b} + {c}", a * b + c)
