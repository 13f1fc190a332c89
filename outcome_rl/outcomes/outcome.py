"""An outcome: a final answer, or whatever else a rule takes from a response."""

from collections.abc import Hashable
from typing import Literal, NamedTuple

Source = Literal["", "boxed", "tag", "hash", "phrase", "conclusion", "line"]


class Outcome(NamedTuple):
    """An outcome: its value, the characters `response[start:end]` that spell it, and the key that names it.

    - `value`: text, a number, a boolean, or a tuple of them; of a final answer the text, without surrounding spaces.
    - `start`, `end`: the answer mask covers these characters; an empty span covers none.
    - `key`: an integer, 0 for no answer; None takes the hash of the value.
    - `source`: the rule of extraction that found it, so that `value == response[start:end]`; empty for all others.
    """

    value: Hashable
    start: int = 0
    end: int = 0
    key: int | None = None
    source: Source = ""

    @property
    def text(self) -> str:
        """The value as text."""
        return self.value if isinstance(self.value, str) else repr(self.value)
