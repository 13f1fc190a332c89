"""Success and diversity of saved generations: read a JSONL file of samples, classify the answers, summarise.

Two layouts are read, one JSON object a line, and a question's rows may lie anywhere in the file:

- a question with its samples: `{"question_id": ..., "gold": ..., "samples": [{"text" or "answer": ...}, ...]}`;
- one sample a row: `{"question_id": ..., "gold": ..., "response": ...}`.

A sample's `answer`, where it has that field, is the answer its source extracted (null: none) and is taken as it stands,
since published `text` is often cut short or left out. `from_text=True` extracts from the text instead.
"""

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from outcome_rl.files import read_jsonl
from outcome_rl.metrics import SampleSummary, summarise
from outcome_rl.outcomes.extraction import extract_answer
from outcome_rl.outcomes.matcher import Equivalence, OutcomeMatcher, Progress


class Question(NamedTuple):
    """One question of a file: its reference answer and the answer of each of its samples, in file order."""

    question_id: str
    gold: str
    answers: list[str | None]


class Report(SampleSummary):
    """A `SampleSummary` of the scored questions, how they were judged, and what could not be judged."""

    outcome_rule: str
    unresolved: int
    unscored_questions: dict[str, str]
    doubtful_golds: dict[str, str]


def analyze_file(
    path: str | Path,
    *,
    equivalence: Equivalence = "canonical",
    from_text: bool = False,
    workers: int | None = None,
    progress: Progress | None = None,
) -> Report:
    """Report pass@k, best@k, diff@k and their companions for one file of samples.

    Args:
        path: a JSONL file in one of the layouts of this module.
        equivalence: when two answers are the same, see `OutcomeMatcher`.
        from_text: extract every answer from the sample's text, even where the sample has an `answer`.
        workers: math-verify processes; None chooses.
        progress: called as `progress(done, total)` while answers are compared pairwise; not at all where keys decide.

    Returns:
        The report. `unresolved` counts comparisons that ran out of time or failed: each left its answer in a class of
        its own. `unscored_questions` maps the questions whose gold cannot be judged to the reason; they are in no
        other figure. `doubtful_golds` maps questions that are scored to why their gold should be looked at.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: a row that cannot be read (the message names file, row and field), or no question can be scored.
    """
    questions = read_samples(path, from_text=from_text)
    with OutcomeMatcher(equivalence=equivalence, workers=workers) as matcher:
        outcomes = matcher.classify_answers(
            [question.question_id for question in questions for _ in question.answers],
            [answer for question in questions for answer in question.answers],
            [question.gold for question in questions for _ in question.answers],
            progress=progress,
        )
        bad_golds, doubtful_golds, rule = dict(matcher.bad_golds), dict(matcher.doubtful_golds), matcher.rule
    ends = np.cumsum([len(question.answers) for question in questions])[:-1]
    scored = [
        (keys, correct)
        for question, keys, correct in zip(
            questions, np.split(outcomes.keys, ends), np.split(outcomes.correct, ends), strict=True
        )
        if question.question_id not in bad_golds
    ]
    if not scored:
        raise ValueError(f"{path}: no question has a gold to judge by; e.g. {next(iter(bad_golds.items()))}.")
    return Report(
        **summarise([keys for keys, _ in scored], [correct for _, correct in scored]),
        outcome_rule=rule,
        unresolved=outcomes.unresolved,
        unscored_questions=bad_golds,
        doubtful_golds=doubtful_golds,
    )


def read_samples(path: str | Path, *, from_text: bool = False) -> list[Question]:
    """Read a JSONL file of samples into questions, in the order in which their ids first appear.

    Args:
        path: a JSONL file in one of the layouts of this module, UTF-8; empty lines are skipped.
        from_text: extract every answer from the sample's text, even where the sample has an `answer`.

    Returns:
        The questions, each with at least one sample.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: broken JSON, a missing or mistyped field, no samples, or two golds for one question id. The message
            begins with file and row number.
    """
    questions: dict[str, Question] = {}
    first_row: dict[str, int] = {}
    for number, row in _read_rows(Path(path)):
        where = f"{path}:{number}"
        question_id = _scalar(row, "question_id", where)
        if not question_id:
            raise ValueError(f"{where}: field 'question_id' is empty. Every question needs an id of its own.")
        gold = _scalar(row, "gold", where, null="")
        question = questions.setdefault(question_id, Question(question_id, gold, []))
        if first_row.setdefault(question_id, number) != number and question.gold != gold:
            raise ValueError(
                f"{where}: question_id {question_id!r} has gold {gold!r}, but {question.gold!r} in row "
                f"{first_row[question_id]}. Give different questions different ids."
            )
        question.answers.extend(_read_answers(row, from_text, where))
    if not questions:
        raise ValueError(f"{path}: holds no rows. Expected one JSON object a line.")
    return list(questions.values())


def _read_rows(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    for number, row in read_jsonl(path, lambda number: f"{path}:{number}"):
        if not isinstance(row, dict):
            raise ValueError(f"{path}:{number}: expected a JSON object, got {type(row).__name__}.")
        yield number, row


def _read_answers(row: dict[str, Any], from_text: bool, where: str) -> list[str | None]:
    if ("samples" in row) == ("response" in row):
        found = "has both 'samples' and 'response'" if "samples" in row else "has neither 'samples' nor 'response'"
        raise ValueError(f"{where}: {found}. Expected a list of samples or one response.")
    if "response" in row:
        return [_extract(row, "response", where)]
    samples = row["samples"]
    if not isinstance(samples, list) or not samples:
        raise ValueError(f"{where}: field 'samples' must be a list of at least one sample; got {str(samples)[:80]!r}.")
    return [_read_answer(sample, from_text, f"{where}: samples[{index}]") for index, sample in enumerate(samples)]


def _read_answer(sample: Any, from_text: bool, where: str) -> str | None:
    if not isinstance(sample, dict):
        raise ValueError(f"{where}: expected a JSON object with 'text' or 'answer', got {type(sample).__name__}.")
    if "answer" in sample and not from_text:
        return None if sample["answer"] is None else _scalar(sample, "answer", where)
    if "text" not in sample:
        wanted = "'text', which from_text needs" if from_text else "either 'text' or 'answer'"
        raise ValueError(f"{where}: lacks {wanted}. It has {', '.join(sorted(sample)) or 'no field'}.")
    return _extract(sample, "text", where)


def _extract(row: dict[str, Any], name: str, where: str) -> str | None:
    text = row[name]
    if not isinstance(text, str):
        raise ValueError(f"{where}: field {name!r} must be a string; got {type(text).__name__}.")
    answer = extract_answer(text)
    return None if answer is None else answer.text


def _scalar(row: dict[str, Any], name: str, where: str, null: str | None = None) -> str:
    """The field as text: ids, golds and answers may be JSON numbers; `null` is what a JSON null stands for."""
    if name not in row:
        raise ValueError(f"{where}: lacks the field {name!r}. It has {', '.join(sorted(row)) or 'no field'}.")
    value = row[name]
    if value is None and null is not None:
        return null
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise ValueError(f"{where}: field {name!r} must be a string or a number; got {type(value).__name__}.")
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"{where}: field {name!r} is {value}, which is no answer. Write null where there is none.")
    return str(value).strip()
