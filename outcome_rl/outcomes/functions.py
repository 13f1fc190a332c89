"""Outcome functions: any rule from a response to an outcome, instead of a final mathematical answer.

    def sign(response: str, example: Mapping[str, Any]) -> Hashable | None:
        return "negative" if "-" in response else "positive"

`example` is the data row of the question. The result is text, a number, a boolean, or a tuple of them, because counts
outlive the process and need the same key everywhere; None is no answer. `Outcome(value, start, end)` adds the
characters of the response that spell the outcome, which the answer mask then covers.
"""

import json
import os
import sys
from collections.abc import Callable, Hashable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any, Literal, NamedTuple, TypeVar

Example = Mapping[str, Any]
OutcomeFunction = Callable[..., Any]
FailureKind = Literal["timeout", "crash", "memory", "error", "cut"]

MAX_VALUE_CHARS = 1 << 16
"""Maximum length of an outcome's text; use a digest for longer texts."""

_to_json = json.JSONEncoder().encode  # not json.dumps, which a function may have replaced
F = TypeVar("F", bound=Callable[..., Any])


class Outcome(NamedTuple):
    """An outcome with the characters `response[start:end]` that spell it, for the answer mask."""

    value: Hashable
    start: int
    end: int


class Failure(NamedTuple):
    """Outcome of a response on which the function failed; failures of one kind are one outcome.

    "cut" says that the function was not called, because the time of the step was over: such a response has no answer.
    """

    kind: FailureKind
    reason: str


class Found(NamedTuple):
    """Result of a function in canonical form: the text of its value and its span, (0, 0) without one."""

    text: str
    start: int = 0
    end: int = 0


def outcome_function(*, version: str = "1", batched: bool = False) -> Callable[[F], F]:
    """Mark an outcome function.

    Args:
        version: part of the rule of the counts, which the function's qualified name begins; raise it with every change
            of outcomes, so that counts of the older function are refused.
        batched: whether the function takes all responses of a step at once, `(responses, examples) -> outcomes`, one
            entry per response.
    """

    def mark(function: F) -> F:
        function.outcome_version, function.outcome_batched = version, batched  # type: ignore[attr-defined]
        return function

    return mark


@outcome_function()
def given(response: str, example: Example) -> int | None:
    """Return the key that a caller gave in place of a response, such as a cluster; 0 is no answer."""
    return int(response) or None


def load_function(name: str) -> Callable[..., Any]:
    """Import a function that is named as "module:function" or "path.py:function".

    A module that is not installed may be in the current folder, which is then put on the path and stays there.

    Raises:
        ValueError: the name has another form, or there is no such file, module or function.
    """
    module, _, attribute = name.rpartition(":")
    if not (module and attribute):
        raise ValueError(f'a function must be named as "module:function" or "path.py:function"; got {name!r}')
    file = Path(module).resolve() if module.endswith(".py") else None
    if file is not None and not file.is_file():
        raise ValueError(f"{name}: there is no file {module}; give its path from the current folder")
    try:
        found: Any = _import(module, os.getcwd()) if file is None else _import(file.stem, str(file.parent))
        if file is not None and Path(found.__file__ or "").resolve() != file:
            raise ValueError(f"{name}: Python finds another module named {file.stem!r}; rename the file")
        for part in attribute.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError) as error:
        raise ValueError(f"{name}: {error}; put the module on PYTHONPATH or into the current folder") from error
    if not callable(found):
        raise ValueError(f"{name} must be a function; got {type(found).__name__}")
    return found  # type: ignore[no-any-return]


def _import(module: str, folder: str) -> ModuleType:
    """Import a module, from a folder only where it is nowhere else: files beside data must not become modules."""
    try:
        return import_module(module)
    except ModuleNotFoundError:
        if folder in sys.path:
            raise
    sys.path.append(folder)
    return import_module(module)


def rule_of(function: OutcomeFunction) -> str:
    """Return the rule of the counts that are made with a function: its qualified name and its version.

    Raises:
        ValueError: the function has no name that tells it from other functions.
    """
    name = getattr(function, "__qualname__", "")
    if not name or "<" in name:
        raise ValueError(
            "outcome must be a function with a name of its own, at the top of a module, because the name is the rule "
            f"of its counts; got {function!r}"
        )
    return f"function/{function.__module__}:{name}/{getattr(function, 'outcome_version', '1')}"


def call(
    function: OutcomeFunction, responses: Sequence[str], examples: Sequence[Example], deadline: float = float("inf")
) -> list[Found | Failure]:
    """Call an outcome function on N responses; an exception is the outcome of its response, not of the call.

    Args:
        deadline: time, by `time.monotonic()`, after which an isolated function is not called any more.

    Raises:
        ValueError: a batched function returned another number of outcomes.
        TypeError, RuntimeError: the processes of an isolated function cannot get an example, or do not start.
    """
    if getattr(function, "outcome_isolated", False):  # its exceptions are those of the processes, not of the function
        return list(function(responses, examples, deadline))
    if not getattr(function, "outcome_batched", False):
        return [_attempt(len(row[0]), function, *row) for row in zip(responses, examples, strict=True)]
    try:
        results = function(responses, examples)
    except Exception as error:  # noqa: BLE001 - the run goes on, and the outcome is logged
        return [Failure("error", describe(error))] * len(responses)
    if len(results) != len(responses):
        raise ValueError(
            f"{rule_of(function)} must return {len(responses)} outcomes, one per response; got {len(results)}"
        )
    rows = zip(results, responses, strict=True)
    return [_attempt(len(response), lambda one: one, result) for result, response in rows]


def _attempt(length: int, function: Callable[..., Any], *arguments: Any) -> Found | Failure:
    """Bring the result for a response of that many characters to its canonical form."""
    try:
        return found(function(*arguments), length)
    except Exception as error:  # noqa: BLE001 - as above
        return Failure("error", describe(error))


def describe(error: BaseException) -> str:
    """Return the type and the message of an error, on one line of bounded length."""
    return " ".join(f"{type(error).__name__}: {error}"[:300].split())


def found(result: Any, length: int) -> Found:
    """Return a result in canonical form; no answer has an empty text.

    Raises:
        TypeError, ValueError: it is no outcome, or its span is not in the response.
    """
    value, start, end = result if isinstance(result, Outcome) else (result, 0, 0)
    if not (type(start) is int and type(end) is int and 0 <= start <= end <= length):
        raise ValueError(f"the span of an outcome must be in the response of {length} characters; got {start}:{end}")
    if value is None:
        return Found("")
    _check(value)
    text = _to_json(value)
    if len(text) > MAX_VALUE_CHARS:
        raise ValueError(f"an outcome may have {MAX_VALUE_CHARS} characters; got {len(text)}. Return a digest of it")
    return Found(text, start, end)


def value_of(text: str) -> Any:
    """Return the value of a canonical text."""
    return _tuples(json.loads(text))


def _check(value: Any) -> None:
    if type(value) is tuple:
        for item in value:
            _check(item)
    elif value is not None and type(value) not in (str, int, float, bool):
        raise TypeError(
            f"an outcome must be text, a number, a boolean, None or a tuple of them; got {type(value).__name__}. Use "
            "tuple(...) for a list, tuple(sorted(...)) for a set, json.dumps(..., sort_keys=True) for a dictionary"
        )


def _tuples(value: Any) -> Any:
    return tuple(map(_tuples, value)) if isinstance(value, list) else value
