"""States of older outcome rules: their outcomes are read again, from their texts."""

import logging
import re

import torch

from outcome_rl.outcomes.keys import NO_ANSWER, OUTCOME_RULE, outcome_key
from outcome_rl.outcomes.kinds import OutcomeKind
from outcome_rl.questions import question_key
from outcome_rl_kernels.counts.snapshot import sort_entries
from outcome_rl_kernels.counts.table import CountEntries

logger = logging.getLogger(__name__)

Texts = dict[str, dict[int, str]]


def reads(kind: OutcomeKind, rule: str) -> bool:
    """Return whether counts made under a rule belong to a kind, or are answers that it can read again."""
    return rule == kind.rule or (kind.rule == OUTCOME_RULE and re.fullmatch(r"canonical/\d+", rule) is not None)


def read_again(kind: OutcomeKind, rule: str, entries: CountEntries, texts: Texts) -> tuple[CountEntries, Texts]:
    """Return counts and texts under the rule of a kind, and say how many outcomes have another key.

    Args:
        kind: of which `reads` is true.
        rule: the rule that the counts were made under.
        entries: the counts.
        texts: the text of every outcome.
    """
    moved: dict[tuple[int, int], int] = {}
    read: Texts = {}
    for question_id, text_of in texts.items():
        key_of = {key: outcome_key(text) for key, text in text_of.items()}
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
