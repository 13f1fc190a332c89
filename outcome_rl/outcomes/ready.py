"""Ready-made outcomes, by name in every stack: `outcome="outcome_rl.outcomes.ready:multiple_choice"`.

A gold answer goes through the same function, so it may be written as briefly as the data has it: `B`, `positive`, a
JSON object.
"""

import json
import os
import re
from collections.abc import Mapping
from contextlib import redirect_stderr, redirect_stdout
from typing import Any

from outcome_rl.outcomes.batch import Row
from outcome_rl.outcomes.extraction.answer import last_match
from outcome_rl.outcomes.extraction.response import MAX_CHARS, extract_answer
from outcome_rl.outcomes.functions import outcome_function
from outcome_rl.outcomes.isolated import isolated
from outcome_rl.outcomes.kinds import OutcomeKind
from outcome_rl.outcomes.outcome import Outcome

_JSON_TRIES = 256  # of opening braces, from the last one backwards


@outcome_function(version="1")
def multiple_choice(response: str, example: Mapping[str, Any]) -> Outcome | None:
    """Return the chosen letter in upper case: `\\boxed{(B) Jupiter}`, `**B**`, `The correct option is B`, `b`."""
    answer = extract_answer(response)
    start, text = (0, response) if answer is None else (answer.start, answer.text)
    match = _ALONE.fullmatch(text) or _MARKED.match(text)
    if match is None and (answer is None or answer.source != "boxed"):
        start = 0
        match = last_match(_CHOSEN, response) or _LAST_LINE.search(response)
    return None if match is None else Outcome(match[1].upper(), start + match.start(1), start + match.end(1))


# Repeats are bounded, so that no text takes more than linear time.
_OPENING = r"[\s*_$({\[]{0,8}(?:\\(?:text|textbf|mathrm|mathbf)\{)?[\s*_$({\[]{0,8}"
_ALONE = re.compile(_OPENING + r"([A-Za-z])[\s*_$)}\].:]{0,8}")
_MARKED = re.compile(_OPENING + r"([A-Z])[*_$]{0,4}[)}\].:][*_$}]{0,4}\s")
_CHOSEN = re.compile(r"(?i:\b(?:answer|option|choice)\b)[\s*_:]{0,8}(?:(?i:is)\b)?[\s*_:(]{0,8}([A-Z])(?![A-Za-z'])")
_LAST_LINE = re.compile(r"(?:^|\n)[ *_(]{0,8}([A-Z])[\s*_).]{0,8}\Z")


@outcome_function(version="1")
def label(response: str, example: Mapping[str, Any]) -> Outcome | None:
    """Return the label in lower case: the last one of `example["labels"]`, or the end of a last line `Name: label`.

    Without the column `labels` a response of one line with at most four words is its label.
    """
    if labels := example.get("labels"):
        words = "|".join(re.escape(str(one)) for one in sorted(labels, key=len, reverse=True))
        match = last_match(re.compile(rf"(?i)(?<!\w)({words})(?!\w)"), response)
        return None if match is None else Outcome(match[1].casefold(), *match.span(1))
    last_line = response.rstrip().rpartition("\n")[2]
    named, text = ":" in last_line, last_line.rpartition(":")[2].strip(_DECORATION)
    if not text or len(text) > 100 or not (named or (last_line == response.strip() and len(text.split()) <= 4)):
        return None
    start = response.rindex(text)
    return Outcome(text.casefold(), start, start + len(text))


_DECORATION = " \t\r*_\"'`.!"


@outcome_function(version="1")
def tool_call(response: str, example: Mapping[str, Any]) -> Outcome | None:
    """Return the last tool call as JSON with sorted keys: in `<tool_call>` tags, or the text's last JSON object."""
    end = response.rfind("</tool_call>")
    start = response.rfind("<tool_call>", 0, max(end, 0))
    return _last_object(response, start, end) if start >= 0 else _last_object(response, 0, len(response))


@outcome_function(version="1")
def final_state(response: str, example: Mapping[str, Any]) -> Outcome | None:
    """Return the last JSON object of an episode of any number of turns, with sorted keys: the state it ends in."""
    return _last_object(response, 0, len(response))


def _last_object(text: str, start: int, end: int) -> Outcome | None:
    """Return the last outermost JSON object in `text[start:end]` in canonical form."""
    start = max(start, end - MAX_CHARS)
    decoder, found, opening = json.JSONDecoder(), None, end
    for _ in range(_JSON_TRIES):
        opening = text.rfind("{", start, opening)
        if opening < 0:
            break
        try:
            value, stop = decoder.raw_decode(text[:end], opening)
        except (ValueError, RecursionError):
            continue
        if found is not None and stop < found.end:
            break  # an earlier object
        found = Outcome(json.dumps(value, sort_keys=True, separators=(",", ":")), opening, stop)
    return found


@outcome_function(version="1")
def run_tests(response: str, example: Mapping[str, Any]) -> tuple[bool, ...] | None:
    """Run a program and return which of `example["tests"]` pass, statements such as `assert add(1, 2) == 3`.

    The program is the last fenced code block of the response, or the whole response without one. Call it only through
    `Program`, in separate processes.
    """
    blocks = re.findall(r"```[\w+-]*\n(.*?)```", response, re.DOTALL)
    code = blocks[-1] if blocks else response
    if not code.strip():
        return None
    namespace: dict[str, Any] = {"__name__": "program"}
    with open(os.devnull, "w") as nothing, redirect_stdout(nothing), redirect_stderr(nothing):
        ran = _runs(code, namespace)
        return tuple(ran and _runs(test, namespace) for test in example["tests"])


def _runs(code: str, namespace: dict[str, Any]) -> bool:
    try:
        exec(compile(code, "program", "exec"), namespace)
    except MemoryError:
        raise
    except BaseException:  # noqa: BLE001 - SystemExit of the program too
        return False
    return True


class Program(OutcomeKind):
    """Tests that a program passes; one that passes all of them is correct.

    Each runs in its own process of at most 10 seconds and 1 GiB. This is not a sandbox.
    """

    rule = "program/1"
    needs_gold = False
    outcome = isolated(run_tests, timeout_s=10, memory_mb=1024)  # type: ignore[assignment]

    def is_correct(self, outcome: Outcome, gold: str, row: Row) -> bool:
        """Return whether every test passed."""
        return outcome.value == (True,) * len(row["tests"])
