"""Table of sample completions in a terminal."""

from collections.abc import Mapping, Sequence
from typing import Any

from rich import box
from rich.markup import escape
from rich.table import Table

from outcome_rl.terminal.text import on_one_line

SHOWN_CHARS = 120  # of a text


def samples_table(rows: Sequence[Mapping[str, Any]]) -> Table:
    """Return a table of sample completions below their questions, with reward, count, bonus and advantage."""
    table = Table(
        title=f"samples of step {rows[0]['step']}", title_justify="left", box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0)
    )
    table.add_column("sample", overflow="fold")
    for name in ("gold", "outcome"):
        table.add_column(name, overflow="fold", max_width=12)
    for name in ("reward", "count", "bonus", "advantage"):
        table.add_column(name, justify="right", no_wrap=True)
    for row in rows:
        table.add_row(
            f"[dim]{escape(_shortened(row['question']))}[/]\n{escape(_shortened(row['completion'], end=True))}",
            escape(_shortened(row["gold"])),
            "none" if row["outcome"] is None else escape(_shortened(row["outcome"])),
            f"{row['reward']:.3g}",
            str(row["count"]),
            f"{row['bonus']:+.3f}",
            f"{row['advantage']:+.3f}",
        )
    return table


def _shortened(text: str, *, end: bool = False) -> str:
    """Return the first characters of a text on one line, or the last ones."""
    line = on_one_line(text)
    if len(line) <= SHOWN_CHARS:
        return line
    return "…" + line[-SHOWN_CHARS:] if end else line[:SHOWN_CHARS] + "…"
