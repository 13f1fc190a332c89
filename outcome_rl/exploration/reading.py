"""From the responses of every rank to columns of numbers: each rank reads its own responses.

A rank sends a row of integers for each response (outcome key, correctness, span), its ids and numbers, and the text of
each outcome that was never sampled before. Responses stay where they are.
"""

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor

from outcome_rl.exploration.columns import numbers_of, verdicts_of
from outcome_rl.exploration.config import ExplorationConfig
from outcome_rl.exploration.ranks import gathered
from outcome_rl.outcomes.batch import Batch
from outcome_rl.outcomes.extraction.answer import Answer
from outcome_rl.outcomes.keys import NO_ANSWER, question_key
from outcome_rl.outcomes.kinds import OutcomeKind, golds_differ


class Reading(NamedTuple):
    """N responses of one rank or of all, in order of rank, and what they add to the facts of the run."""

    question_ids: list[str]
    group_ids: list[Hashable] | None
    questions: Tensor  # (N,) int64 keys of the questions
    keys: Tensor  # (N,) int64 keys of the outcomes
    correct: Tensor  # (N,) bool
    rewards: Tensor | None
    logps: Tensor | None
    spans: Tensor  # (N, 2) int64, first and last character of the answer
    texts: list[tuple[str, int, str]]  # question, key and text of each outcome that is new, key 0 of a new question
    golds: dict[str, str]  # new ones
    judged: bool  # whether correctness is known
    unresolved: int


class Facts(NamedTuple):
    """Facts about the questions sampled so far."""

    texts: dict[str, dict[int, str]]  # question id -> key -> text of each outcome, in the order of their first samples
    golds: dict[str, str]  # question id -> its gold answer, as it was first given


def read_batch(
    batch: Callable[[], Batch],
    kind: OutcomeKind,
    config: ExplorationConfig,
    known: Facts,
    group: dist.ProcessGroup | None,
) -> tuple[Reading, list[Answer | None]]:
    """Read the responses of this rank, which `batch` returns, and return those of all ranks with their answers.

    The answer of a response that another rank has read is the text of its outcome, with its own span.

    Raises:
        TypeError, ValueError: as for `Explorer.score`, on every rank.
    """
    own: list[Answer | None] = []

    def read() -> Reading:
        reading, answers = _read(batch(), kind, config, known)
        own.extend(answers)
        return reading

    parts = gathered(read, group)
    if len(parts) == 1:
        return parts[0], own
    merged = _merged(parts, kind)
    new = {(question_id, key): text for question_id, key, text in merged.texts}
    answers: list[Answer | None] = []
    for rank, part in enumerate(parts):
        if rank == dist.get_rank(group):
            answers += own
            continue
        for question_id, key, span in zip(part.question_ids, part.keys.tolist(), part.spans.tolist(), strict=True):
            text = new.get((question_id, key)) or known.texts.get(question_id, {}).get(key, "")
            answers.append(None if key == NO_ANSWER else Answer(text, span[0], span[1], "function"))
    return merged, answers


def _read(
    batch: Batch, kind: OutcomeKind, config: ExplorationConfig, known: Facts
) -> tuple[Reading, list[Answer | None]]:
    """Read the responses of one rank."""
    N = len(batch)
    rewards = None if batch.rewards is None else numbers_of("rewards", batch.rewards, N)
    given = None if batch.correct is None else verdicts_of(batch.correct, N)
    logps = None if batch.logps is None else numbers_of("logps", batch.logps, N)
    if (batch.outcome_keys is None) == kind.needs_keys:
        raise ValueError(
            "outcome_keys must be given if and only if outcome='given'; got "
            f"{'none' if batch.outcome_keys is None else 'some'} with outcome={config.outcome!r}"
        )
    key_of = {question_id: question_key(question_id) for question_id in dict.fromkeys(batch.question_ids)}
    judged = batch.golds is not None or given is not None or bool(config.is_correct)
    batch, golds = _with_golds(batch, kind, known.golds)
    outcomes = kind.classify(batch, texts=known.texts, limit_s=config.grading_limit_s)
    new: dict[tuple[str, int], str] = {(id_, NO_ANSWER): "" for id_ in key_of if id_ not in known.texts}
    for question_id, key, answer in zip(batch.question_ids, outcomes.keys.tolist(), outcomes.answers, strict=True):
        if key != NO_ANSWER and key not in known.texts.get(question_id, ()):
            text = "" if answer is None else answer.text.strip()
            new[question_id, key] = min(text, new.get((question_id, key), text))  # independent of the order
    for question_id, gold in golds.items():
        if (of_gold := kind.text_of_gold(gold)) and of_gold[0] not in (NO_ANSWER, *known.texts.get(question_id, ())):
            new[question_id, of_gold[0]] = of_gold[1]
    reading = Reading(
        question_ids=list(batch.question_ids),
        group_ids=None if batch.group_ids is None else list(batch.group_ids),
        questions=torch.tensor([key_of[question_id] for question_id in batch.question_ids], dtype=torch.int64),
        keys=torch.from_numpy(outcomes.keys),
        correct=torch.from_numpy(outcomes.correct) if given is None else given,
        rewards=rewards,
        logps=logps,
        spans=torch.tensor([answer[1:3] if answer else (0, 0) for answer in outcomes.answers], dtype=torch.int64).view(
            -1, 2
        ),
        texts=_in_order(new),
        golds=golds,
        judged=judged,
        unresolved=outcomes.unresolved,
    )
    return reading, outcomes.answers


def _in_order(new: Mapping[tuple[str, int], str]) -> list[tuple[str, int, str]]:
    """Return new outcomes sorted by question and text: the order of the responses does not matter."""
    return sorted(((*pair, text) for pair, text in new.items()), key=lambda one: (one[0], one[2], one[1]))


def _with_golds(batch: Batch, kind: OutcomeKind, known: Mapping[str, str]) -> tuple[Batch, dict[str, str]]:
    """Return a batch in which every question has the gold that it first had, and the golds that are new.

    Raises:
        ValueError: a question has two golds.
    """
    new: dict[str, str] = {}
    for question_id, gold in dict.fromkeys(zip(batch.question_ids, batch.golds or (), strict=False)):
        if gold.strip():
            _add_gold(question_id, gold, kind, known, new)
    if batch.golds is None and not any(question_id in known for question_id in batch.question_ids):
        return batch, {}
    golds = [known.get(question_id) or new.get(question_id, "") for question_id in batch.question_ids]
    return replace(batch, golds=golds), new


def _add_gold(question_id: str, gold: str, kind: OutcomeKind, known: Mapping[str, str], new: dict[str, str]) -> None:
    before = known.get(question_id) or new.setdefault(question_id, gold)
    if not kind.same_gold(before, gold):
        raise golds_differ(question_id, before, gold)


def _merged(parts: Sequence[Reading], kind: OutcomeKind) -> Reading:
    """Concatenate the readings of all ranks.

    Raises:
        ValueError: a question has two golds, or one rank has a column that another one lacks.
    """
    for name in ("group_ids", "rewards", "logps"):
        if len({getattr(part, name) is None for part in parts}) > 1:
            raise ValueError(f"{name} must be given on every rank of the process group, or on none")
    new: dict[tuple[str, int], str] = {}
    golds: dict[str, str] = {}
    for part in parts:
        for question_id, key, text in part.texts:
            new[question_id, key] = min(text, new.get((question_id, key), text))
        for question_id, gold in part.golds.items():
            _add_gold(question_id, gold, kind, {}, golds)
    tensors: dict[str, Any] = {
        name: None if getattr(parts[0], name) is None else torch.cat([getattr(part, name).cpu() for part in parts])
        for name in ("questions", "keys", "correct", "rewards", "logps", "spans")
    }
    return parts[0]._replace(
        **tensors,
        question_ids=[question_id for part in parts for question_id in part.question_ids],
        group_ids=None if parts[0].group_ids is None else [id_ for part in parts for id_ in part.group_ids or ()],
        texts=_in_order(new),
        golds=golds,
        judged=all(part.judged for part in parts),
        unresolved=sum(part.unresolved for part in parts),
    )
