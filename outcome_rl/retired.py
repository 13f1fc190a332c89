"""Settings and values of earlier files of this repository, and what to write in their place."""

from functools import cache
from importlib.resources import files


@cache
def replacements() -> dict[str, str]:
    """Return what to write now, by the name of a setting that left, or of one some of whose values left."""
    table = files("outcome_rl").joinpath("retired.tsv").read_text(encoding="utf-8")
    return dict(row.split("\t") for row in table.splitlines())
