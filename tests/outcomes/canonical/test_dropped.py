"""Everything that a reader drops or rewrites, with the reason why it never tells two answers to one question apart.

A rule without such a reason is not allowed: its text is not read (`s:`), and equals the same text or what math-verify
says. A row has two spellings that are equal because something is dropped, and pairs that look alike and differ.
"""

from importlib.resources import files
from typing import NamedTuple

import pytest
from tables import rows

from outcome_rl.outcomes.keys import canonical_text, equivalent


class Rule(NamedTuple):
    """A thing that is dropped, two spellings, why it never distinguishes, and look-alikes that it must not merge."""

    why: str
    group: str
    dropped: str
    a: str
    b: str
    unlike: list[tuple[str, str]]


RULES = [Rule(*cells[:5], list(zip(cells[5::2], cells[6::2], strict=True))) for cells in rows(__file__, "dropped")]


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.dropped)
def test_what_is_dropped_and_what_is_not(rule: Rule) -> None:
    assert rule.why
    assert equivalent(rule.a, rule.b)
    assert not canonical_text(rule.a).startswith("s:")
    assert [pair for pair in rule.unlike if equivalent(*pair)] == []


def test_every_name_of_the_table_of_units_is_dropped_from_plain_text() -> None:
    table = files("outcome_rl.outcomes.canonical").joinpath("units.txt").read_text("utf-8").splitlines()
    names = [name for line in table if line[0] not in "#+" for name in line.partition(";")[2].split() if name.isascii()]
    texts = [f"20 {written}" for name in names for written in (name, f"{name}s", name.title(), f"{name}s per week")]
    assert [text for text in texts if not equivalent(text, "20")] == []
    assert [text for text in ("20 million", "20 m", "20 kN", "20 sec(x)") if equivalent(text, "20")] == []
