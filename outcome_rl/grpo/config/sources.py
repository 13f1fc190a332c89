"""Names of data sources: a file, "toy:SPLIT", a function that returns rows, or a Hugging Face data set, and a slice."""

import re
from collections.abc import Sequence

from outcome_rl.files.rows import SUFFIXES

_SLICE = re.compile(r"(.*)\[(\d*):(\d*)\]")


def split_slice(source: str) -> tuple[str, slice]:
    """Split "problems.jsonl[:32]" or "toy:test[8:]" into source and slice; a hub data set keeps its own."""
    match = _SLICE.fullmatch(source)
    if match is None or "@" in match[1]:
        return source, slice(None)
    return match[1], slice(*(int(bound) if bound else None for bound in match.groups()[1:]))


def is_function(source: str) -> bool:
    """Return whether a source is "module:function" or "path.py:function", perhaps with "?TEXT" for an argument."""
    function = split_slice(source)[0].partition("?")[0]
    is_other = function.startswith("toy:") or "@" in function or function.endswith(SUFFIXES)
    return ":" in function and not is_other


def any_function(sources: str | Sequence[str]) -> bool:
    """Return whether a source of a setting, one or a list, is a function."""
    return any(map(is_function, [sources] if isinstance(sources, str) else sources))
