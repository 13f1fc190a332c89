"""Random families of texts that grow: one to three pieces, repeated to a length, in a frame that a rule reads."""

import math
import random
import time
from collections.abc import Callable, Iterator
from typing import NamedTuple

from outcome_rl.outcomes.extraction.announcements import ANNOUNCEMENTS, LANGUAGES

_SIGNS = r"""
( ) [ ] { } < > $ $$ \( \) \[ \] \{ \} * ** _ ` ``` # #### | = == : ; , . ! ? " ' “ ” « » - – — → + / \ ^ & ~ %
。 ， 、 ： （ ） é 😀 \n \t 0 1 12 1,234 1/2 0.5 A B (C) A) A. 1. x x= x^2 n! $x$ \frac \frac{1}{2} \boxed \boxed{
\boxed{1} \text{ \sqrt <|user|> <|im_end|> </s> <eoa> <answer> </answer> <think> </think> [END] [/INST] [ANSWER] </ <|
\(<|user|> \[<|im_end|> is are equals the The of in and or not if So Therefore, Thus Wait, Correction: Mrs. approx. 5.
i.e. because , I think (since "answer": {"answer": \" \\" Question: Q: A: Answer: 答案 所以 故选 正确 that it most
likely to 12 pens per box
"""
PIECES = (
    *_SIGNS.split(),
    " ",
    "\n",
    "\n\n",
    ", ",
    ". ",
    " - ",
    *ANNOUNCEMENTS,
    *(row.so.split("|")[0] for row in LANGUAGES),
)
FRAMES = (
    "{}",
    "Answer: {}",
    "The answer is {}.",
    "So {} 7.",
    "{}</think> 12",
    "x {}\nThe sum is 7.",
    "#### {}",
    "Answer: 7. {}",
)


class Family(NamedTuple):
    """Pieces that are repeated in a frame."""

    frame: str
    pieces: tuple[str, ...]

    def text(self, length: int) -> str:
        """Return a text of at most a length: what is longer than extraction reads would lose its frame."""
        unit = "".join(self.pieces)
        return self.frame.replace("{}", unit * ((length - len(self.frame)) // len(unit)), 1)


def families(rng: random.Random) -> Iterator[Family]:
    """Yield families without end."""
    while True:
        yield Family(rng.choice(FRAMES), tuple(rng.choices(PIECES, k=rng.randint(1, 3))))


def seconds(call: Callable[[str], object], text: str) -> float:
    """Return the shortest of three CPU times."""
    times = []
    for _ in range(3):
        start = time.process_time()
        call(text)
        times.append(time.process_time() - start)
    return min(times)


def exponent(call: Callable[[str], object], family: Family, longest: int, floor: float = 2e-3) -> tuple[float, float]:
    """Return the growth of a call's time from a quarter of a length to all of it, and the time of all."""
    whole = seconds(call, family.text(longest))
    if whole < floor:
        return 0.0, whole
    return math.log2(whole / max(seconds(call, family.text(longest // 4)), 1e-6)) / 2, whole
