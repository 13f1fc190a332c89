"""Methods as a setting writes them: a name with arguments, such as "pass_at_k(k=4)", or a sum of them with factors.

    "0.1*ucb_con(b0=1) + my_bonuses:inverse_count"

One grammar for estimators and bonuses. An argument is a number, true, false or a word; the annotation of the function's
parameter says which ones it takes.
"""

import ast
import inspect
import math
import re
from collections.abc import Callable, Mapping
from typing import Annotated, Any, Literal, NamedTuple, get_args, get_origin

from outcome_rl_kernels.settings import yaml_text

_TERM = re.compile(
    r"\s*(?:(?P<factor>\d[\d.]*(?:e-?\d+)?)\s*\*)?\s*(?:(?P<module>[^():*]+):)?\s*(?P<name>\w+)\s*"
    r"(?:\((?P<arguments>.*)\))?\s*"
)
_PLUS = re.compile(r"\+(?![^(]*\))")  # not between parentheses


class Range(NamedTuple):
    """Numbers that an argument takes, in its annotation: settings are checked when they are made."""

    words: str
    holds: Callable[[float], bool]


def at_least(low: float) -> Range:
    return Range(f">= {low:g}", lambda value: value >= low)


def above(low: float) -> Range:
    return Range(f"> {low:g}", lambda value: value > low)


class Written(NamedTuple):
    """One term of a setting."""

    factor: float | None
    module: str  # of a function that is not registered yet; else empty
    name: str
    arguments: str


def parse(setting: str, text: object) -> list[Written]:
    """Return the terms of a text, which are joined by "+".

    Raises:
        TypeError, ValueError: it is no text, or not of this form.
    """
    if not isinstance(text, str):
        raise TypeError(f"{setting} must be a text, such as 'batch' or 'pass_at_k(k=4)'; got {type(text).__name__}")
    terms = []
    for part in _PLUS.split(text):
        found = _TERM.fullmatch(part)
        if found is None or not math.isfinite(float(found["factor"] or 1)):
            raise ValueError(f"{setting} must be a name, or terms such as '0.1*ucb_con(b0=1) + batch'; got {text!r}")
        factor, module, name, arguments = found.group("factor", "module", "name", "arguments")
        terms.append(Written(None if factor is None else float(factor), (module or "").strip(), name, arguments or ""))
    return terms


def arguments_of(setting: str, term: Written, function: Callable[..., Any], more: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments that a term gives.

    Args:
        function: its parameters after the first are what the term may give.
        more: further names, with the types of their values.

    Raises:
        ValueError: an argument is unknown or missing, or its value does not fit.
    """
    parameters = {one.name: one for one in [*inspect.signature(function).parameters.values()][1:]}
    kinds = {**more, **{name: one.annotation for name, one in parameters.items()}}
    try:
        call: Any = ast.parse(f"f({term.arguments})", mode="eval").body
        if not isinstance(call, ast.Call) or call.args:
            raise ValueError("arguments are given by name")
        given = {str(keyword.arg): _value(keyword.value) for keyword in call.keywords}
        own = {name: value for name, value in given.items() if name not in more}
        inspect.signature(function).bind(None, **own)
    except (SyntaxError, TypeError, ValueError) as error:
        takes = [_in_words(one) for name, one in parameters.items() if name not in more]
        takes += [f"{name}: {_words(kind)}" for name, kind in more.items()]
        raise ValueError(
            f"{setting} {term.name!r} takes ({', '.join(takes)}); got {term.arguments!r}: {error}"
        ) from error
    for name, value in given.items():
        if not _fits(value, kinds[name]):
            raise ValueError(f"{setting} {term.name!r}: {name} must be {_words(kinds[name])}; got {yaml_text(value)}")
    return given


def _value(node: ast.expr) -> float | bool | str:
    if isinstance(node, ast.Name):
        return {"true": True, "false": False}.get(node.id, node.id)
    value: object = ast.literal_eval(node)
    if isinstance(value, bool | int | float | str):
        return value
    raise ValueError(f"{ast.unparse(node)} is neither a number nor a word")


def _parts(annotation: Any) -> tuple[Any, list[Range]]:
    if get_origin(annotation) is not Annotated:
        return annotation, []
    kind, *others = get_args(annotation)
    return kind, [one for one in others if isinstance(one, Range)]


def _fits(value: object, annotation: Any) -> bool:
    kind, ranges = _parts(annotation)
    if get_origin(kind) is Literal:
        return value in get_args(kind)
    if kind is bool or isinstance(value, bool | str):
        return kind is type(value)
    return isinstance(value, int if kind is int else int | float) and all(one.holds(value) for one in ranges)


def _words(annotation: Any) -> str:
    kind, ranges = _parts(annotation)
    if get_origin(kind) is Literal:
        return " or ".join(get_args(kind))
    said = {int: "an integer", bool: "true or false", str: "a word"}.get(kind, "a number")
    return " ".join([said, *(one.words for one in ranges)])


def _in_words(parameter: inspect.Parameter) -> str:
    """Return a parameter as one writes it, such as "k: int" or "alpha: float = 0.8"."""
    return str(parameter.replace(annotation=_parts(parameter.annotation)[0]))
