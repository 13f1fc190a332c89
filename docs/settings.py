"""Writes the table of settings into driver.md, from the comments in outcome_rl/grpo/config/schema.py.

python docs/settings.py
"""

import dataclasses
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from outcome_rl.grpo.config import schema

PAGE = Path(__file__).with_name("driver.md")
FIELD = re.compile(r" {4}\w+: ")
BEGIN, END = "<!-- settings: written by docs/settings.py -->", "<!-- end of settings -->"


def rows(settings: Any, prefix: str = "") -> Iterator[tuple[str, str, str]]:
    """(key, default, meaning) of every setting; inherited fields are described where they are defined."""
    comments = {}
    for owner in reversed(type(settings).__mro__[:-1]):
        pending: list[str] = []
        for line in inspect.getsource(owner).splitlines():
            text = line.strip()
            if text.startswith("#"):
                pending.append(text.removeprefix("#").strip())
            elif FIELD.match(line):
                comments[text.partition(":")[0]] = " ".join(pending)
                pending = []
    for field in dataclasses.fields(settings):
        default = getattr(settings, field.name)
        if dataclasses.is_dataclass(default):
            yield from rows(default, f"{prefix}{field.name}.")
        else:
            shown = "null" if default is None else str(default).lower() if isinstance(default, bool) else f"{default}"
            yield f"{prefix}{field.name}", shown, comments.get(field.name, "")


def table() -> str:
    lines = ["| setting | default | |", "|---|---|---|"]
    for key, default, meaning in rows(schema.TrainConfig()):
        shown = f"`{default}`" if default else ""
        lines.append(f"| `{key}` | {shown} | {meaning.replace('|', chr(92) + '|')} |")
    return "\n".join(lines)


def page(text: str) -> str:
    """The page with its table brought up to date."""
    head, _, rest = text.partition(BEGIN)
    _, _, tail = rest.partition(END)
    return f"{head}{BEGIN}\n{table()}\n{END}{tail}"


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text()))
