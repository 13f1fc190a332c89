"""Ids of questions, and their keys in the counts."""

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

from outcome_rl.outcomes.keys import digest, hash_key


def question_key(question_id: str | int) -> int:
    """Return the signed 64-bit key of a question id: never 0, and the same for `7` and `"7"`.

    Args:
        question_id: stable id of the question in its data set.

    Raises:
        TypeError: if the id is neither a string nor an int.
        ValueError: if it is blank, because all blank ids would share their counts.
    """
    if isinstance(question_id, bool) or not isinstance(question_id, str | int):
        raise TypeError(f"question_id must be a str or an int; got {type(question_id).__name__} {question_id!r}.")
    text = str(question_id)
    if not text.strip():
        raise ValueError(f"question_id must not be blank; got {text!r}. Give every question a stable id.")
    return hash_key(text)


def question_id(prompt: Any) -> str:
    """Return a stable id for a question that has none: the hash of its prompt, the same in every training stack.

    `blake2b` of the prompt as JSON with sorted keys. Fields of a message that are None are left out, since some data
    formats add them to every row.

    Args:
        prompt: text, or a list of messages such as `{"role": "user", "content": "..."}`, in any alphabet.

    Returns:
        32 hexadecimal digits.

    Raises:
        TypeError: there is no prompt, or it holds something other than text, such as an image.
    """
    if prompt is None or (isinstance(prompt, float) and math.isnan(prompt)):
        raise TypeError(f"prompt must be text or a list of messages; got {prompt}: all such rows would be one question")
    return digest(json.dumps(_as_json(prompt), sort_keys=True, ensure_ascii=False))


def _as_json(value: Any) -> Any:
    value = value.tolist() if hasattr(value, "tolist") else value  # NumPy's, as Parquet files give them
    if value is None or isinstance(value, str | int | float):
        return value
    if isinstance(value, Mapping):
        return {str(key): _as_json(item) for key, item in value.items() if item is not None}
    if isinstance(value, Sequence) and not isinstance(value, bytes | bytearray):
        return [_as_json(item) for item in value]
    raise TypeError(
        f"prompt must be text or a list of messages of text; got a {type(value).__name__} in it. Give such data a "
        "column of stable ids"
    )
