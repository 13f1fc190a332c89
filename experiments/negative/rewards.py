"""Rewards of the study: 1 and 0, 1 and -1, and 1 and 0 less a penalty for every word."""

from collections.abc import Mapping
from typing import Any

from outcome_rl import extract_answer

PENALTY = 0.02  # a word; a response of the toy policy has 8 to 14


def plain(response: str, example: Mapping[str, Any]) -> float:
    answer = extract_answer(response)
    return float(answer is not None and answer.text.strip() == example["answer"])


def signed(response: str, example: Mapping[str, Any]) -> float:
    return 2 * plain(response, example) - 1


def shorter(response: str, example: Mapping[str, Any]) -> float:
    """Be below 0 for a wrong response; a group without a correct one still has different rewards."""
    return plain(response, example) - PENALTY * len(response.split())
