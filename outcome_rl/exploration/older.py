"""States of older versions and of older outcome rules: their outcomes are read again, from their texts."""

import logging
from collections.abc import Mapping
from typing import Any

import torch

from outcome_rl.outcomes.keys import NO_ANSWER
from outcome_rl.outcomes.kinds import OutcomeKind
from outcome_rl.questions import question_key
from outcome_rl_kernels.counts.snapshot import sort_entries
from outcome_rl_kernels.counts.table import CountEntries

logger = logging.getLogger(__name__)

Texts = dict[str, dict[int, str]]


def upgraded(state: Mapping[str, Any]) -> dict[str, Any]:
    """Return a state of version 0.2 or 0.3 in today's form: texts and golds in place of classes and solved questions.

    A class that math-verify has joined is counted as one outcome: that of the text that it began with.

    Raises:
        AttributeError, IndexError, KeyError, TypeError, ValueError: it is damaged.
    """
    texts: dict[str, list[int | str]] = {question_id: [] for question_id in state["solved"]}
    golds: dict[str, str] = {}
    for question_id, question in state["outcomes"]["questions"].items():
        if isinstance(question, dict):  # of mathematics: key, canonical text, text and a flag of each class
            flat = question["founders"]
            if flat and isinstance(flat[0], list):  # version 0.2; later ones are flat
                flat = [value for row in flat for value in row]
            pairs, gold = list(zip(flat[::4], flat[2::4], strict=True)), question["gold"][1]
        else:  # of an outcome function
            gold, _, pairs = question
        texts[question_id] = [value for pair in pairs for value in pair]
        if gold:
            golds[question_id] = gold
    return {**state, "texts": texts, "golds": golds}


def read_again(kind: OutcomeKind, rule: str, entries: CountEntries, texts: Texts) -> tuple[CountEntries, Texts]:
    """Return counts and texts under the rule of a kind, and say how many outcomes have another key.

    Args:
        kind: whose `reads(rule)` is true.
        rule: the rule that the counts were made under.
        entries: the counts.
        texts: the text of every outcome.
    """
    moved: dict[tuple[int, int], int] = {}
    read: Texts = {}
    for question_id, text_of in texts.items():
        key_of = {key: kind.key_of(key, text) for key, text in text_of.items()}
        read[question_id] = {}
        for key, text in text_of.items():
            read[question_id].setdefault(key_of[key], text)
            if key_of[key] != key:
                moved[question_key(question_id), key] = key_of[key]
        read[question_id].pop(NO_ANSWER, None)
    pairs = zip(entries.question_keys.tolist(), entries.outcome_keys.tolist(), strict=True)
    keys = torch.tensor([moved.get(pair, pair[1]) for pair in pairs], dtype=torch.int64, device="cpu")
    number = int((keys != entries.outcome_keys).sum())
    if not number:
        return entries, read
    columns = torch.stack([entries.question_keys, keys])
    columns, index = torch.unique(columns, dim=1, return_inverse=True)
    sums = torch.zeros_like(columns).index_add_(1, index, torch.stack([entries.counts, entries.successes]))
    logger.warning(
        "the counts of outcome rule %r were read again under %r: %d of %d outcomes have another key, and %d were added "
        "to another outcome of their question.",
        rule,
        kind.rule,
        number,
        len(keys),
        len(keys) - columns.shape[1],
    )
    return sort_entries(CountEntries(*columns, *sums)), read
