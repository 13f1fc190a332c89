"""Samples in a row: text, messages, objects with a text; and the choices of a question."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from outcome_rl.files.formats import SHORT, TEXTS, WORDED, snake
from outcome_rl.files.rows import some_names

_NO_TEXT = ("reasoning", "thinking", "redacted_thinking", "tool_use", "function_call")  # types of parts of a response
_SPEAKER = {"role", "from"}
_LETTER = re.compile(r"\W*([A-Z])\W*")


def is_sample(value: Any) -> bool:
    """Return whether a value is a list of samples, a struct of numbered ones, or one sample; a number is a count."""
    if isinstance(value, Mapping) and value and not is_text(value):
        numbered = all(re.fullmatch(r"[\d.]+", str(name)) for name in value)
        return all(
            isinstance(one, list) or is_text(one) or (numbered and isinstance(one, str)) for one in value.values()
        )
    return value is None or is_text(value) or isinstance(value, str | list)


def text_name(sample: Mapping[str, Any]) -> str | None:
    """Return the field of an object that holds the text of a sample."""
    return next((one for one in TEXTS if one in sample), None) or next(
        (one for one, value in sample.items() if isinstance(value, str) and WORDED["samples"].fullmatch(snake(one))),
        None,
    )


def is_text(value: Any) -> bool:
    return isinstance(value, Mapping) and ("answer" in value or text_name(value) is not None)


def is_conversation(value: Any) -> bool:
    return isinstance(value, list) and any(map(_is_said, value))


def _is_said(message: Any) -> bool:
    return isinstance(message, Mapping) and message.get("role", message.get("from")) in ("assistant", "gpt")


def before_answer(messages: Sequence[Any]) -> list[Any]:
    """Return the messages before the last one of the assistant: the prompt."""
    return list(messages[: max(place for place, one in enumerate(messages) if _is_said(one))])


def is_one(value: Sequence[Any]) -> bool:
    """Return whether a list is one sample: a conversation, or the parts of a response."""
    return bool(value) and all(isinstance(one, Mapping) and {"type", *_SPEAKER} & {*one} for one in value)


def text_of(sample: Any, where: str) -> str:
    """Return the text of a sample: itself, its text field, what the assistant said last, or all of its parts."""
    if isinstance(sample, str | int | float) and not isinstance(sample, bool):
        return str(sample)
    if isinstance(sample, list) and sample and all(_SPEAKER & one.keys() for one in sample if isinstance(one, Mapping)):
        said = [one for one in sample if not isinstance(one, Mapping) or _is_said(one)] or sample
        return text_of(said[-1], where)
    if isinstance(sample, list) and all(isinstance(one, Mapping) for one in sample):
        return "".join(text_of(one, where) for one in sample if one.get("type") not in _NO_TEXT and is_text(one))
    if not isinstance(sample, Mapping):
        raise ValueError(
            f"{where}: expected text, messages, or an object with {TEXTS[0]!r} or 'answer'; got "
            f"{type(sample).__name__}. Write the response as text"
        )
    name = text_name(sample)
    if name is None:
        raise ValueError(
            f"{where}: lacks {' or '.join(map(repr, TEXTS[:4]))} (the text); it has {some_names(sample)}. Name it by a "
            "dot, --samples FIELD.TEXT, or give an 'answer'"
        )
    return "" if sample[name] is None else text_of(sample[name], where)


def short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= SHORT else f"{text[:SHORT]}..."


def choices_of(row: Mapping[str, Any], gold: Any, samples: str) -> list[str]:
    """Return the texts of a question's choices, if the gold answer is one of them, or its number from 0."""
    found = next((row[name] for name in ("choices", "options") if name in row and name != samples), None)
    found = found.get("text", [*found.values()]) if isinstance(found, Mapping) else found
    if not isinstance(found, list) or not all(isinstance(one, str) and not _LETTER.fullmatch(one) for one in found):
        return []
    return found if gold in found or (type(gold) is int and 0 <= gold < len(found)) else []


def is_letter(text: str | None) -> bool:
    return _LETTER.fullmatch(text or "") is not None


def named_choice(text: str, choices: list[str]) -> str:
    """Return the choice that a letter names, and other text as it is."""
    letter = _LETTER.fullmatch(text)
    return next(iter(choices[ord(letter[1]) - ord("A") :]), text) if letter else text
