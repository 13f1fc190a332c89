"""Success and diversity of saved generations: read a JSONL file of samples, classify the answers, summarise.

Files have one JSON object per line, in one of two layouts; rows of a question may be anywhere in the file:

- a question with its samples: `{"question_id": ..., "gold": ..., "samples": [{"text" or "answer": ...}, ...]}`;
- one sample per row: `{"question_id": ..., "gold": ..., "response": ...}`.

The field `answer` of a sample is the answer that its source extracted (null: none). It is used unchanged, because
published `text` is often cut short or left out. `from_text=True` extracts the answer from the text instead.
"""

import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from outcome_rl.files import read_jsonl
from outcome_rl.metrics import SampleSummary, summarise
from outcome_rl.outcomes.extraction import extract_answer
from outcome_rl.outcomes.matcher import Equivalence, OutcomeMatcher, Progress


class Question(NamedTuple):
    """One question of a file: its gold answer and the answers of its samples, in file order."""

    question_id: str
    gold: str
    answers: list[str | None]


class Report(SampleSummary):
    """`SampleSummary` of the scored questions, with the outcome rule and everything that could not be compared."""

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
    """Report pass@k, best@k, diff@k and related metrics of one file of samples.

    Args:
        path: a JSONL file in one of the layouts of this module.
        equivalence: rule that decides whether two answers are the same, see `OutcomeMatcher`.
        from_text: extract every answer from the sample's text, even if the sample has an `answer`.
        workers: number of math-verify processes, by default one per CPU.
        progress: called as `progress(done, total)` during pairwise comparisons; never if keys decide everything.

    Returns:
        The report. `unresolved` counts comparisons that timed out or failed: each left its answer in a class of its
        own. `unscored_questions` maps questions with an unusable gold answer to the reason; no other value includes
        them. `doubtful_golds` maps scored questions to the reason to check their gold answer.

    Raises:
        FileNotFoundError: the file does not exist.
        ValueError: a row is invalid (the message names file, row and field), or no question can be scored.
    """
    questions = read_samples(path, from_text=from_text)
    with OutcomeMatcher(equivalence=equivalence, workers=workers) as matcher:
        outcomes, unresolved = classify_samples(matcher, questions, progress)
        bad_golds, doubtful_golds, rule = dict(matcher.bad_golds), dict(matcher.doubtful_golds), matcher.rule
    scored = [
        outcome for question, outcome in zip(questions, outcomes, strict=True) if question.question_id not in bad_golds
    ]
    if not scored:
        raise ValueError(
            f"{path}: no question has a usable gold answer; e.g. {next(iter(bad_golds.items()))}. Fix the field 'gold'."
        )
    return Report(
        **summarise([keys for keys, _ in scored], [correct for _, correct in scored]),
        outcome_rule=rule,
        unresolved=unresolved,
        unscored_questions=bad_golds,
        doubtful_golds=doubtful_golds,
    )


def classify_samples(
    matcher: OutcomeMatcher, questions: Sequence[Question], progress: Progress | None = None
) -> tuple[list[tuple[NDArray[np.int64], NDArray[np.bool_]]], int]:
    """Classify the samples of questions.

    Returns:
        Outcome keys and correctness of the samples of each question, and the number of comparisons that timed out or
        failed.
    """
    outcomes = matcher.classify_answers(
        [question.question_id for question in questions for _ in question.answers],
        [answer for question in questions for answer in question.answers],
        [question.gold for question in questions for _ in question.answers],
        progress=progress,
    )
    ends = np.cumsum([len(question.answers) for question in questions])[:-1]
    split = zip(np.split(outcomes.keys, ends), np.split(outcomes.correct, ends), strict=True)
    return list(split), outcomes.unresolved


def read_samples(path: str | Path, *, from_text: bool = False) -> list[Question]:
    """Read a JSONL file of samples into questions, in the order in which their ids first appear.

    Args:
        path: a JSONL file in one of the layouts of this module, UTF-8; empty lines are skipped.
        from_text: extract every answer from the sample's text, even if the sample has an `answer`.

    Returns:
        The questions, each with at least one sample.

    Raises:
        FileNotFoundError: the file does not exist.
        ValueError: invalid JSON, a field that is missing or has the wrong type, no samples, or two gold answers for one
            question id. The message starts with file and row number.
    """
    questions: dict[str, Question] = {}
    first_row: dict[str, int] = {}
    for number, row in _read_rows(Path(path)):
        where = f"{path}:{number}"
        question_id = _scalar(row, "question_id", where)
        if not question_id:
            raise ValueError(f"{where}: field 'question_id' is empty. Give every question its own id.")
        gold = _scalar(row, "gold", where, null="")
        question = questions.setdefault(question_id, Question(question_id, gold, []))
        if first_row.setdefault(question_id, number) != number and question.gold != gold:
            raise ValueError(
                f"{where}: field 'gold' of question_id {question_id!r} must be {question.gold!r}, as in row "
                f"{first_row[question_id]}; got {gold!r}. Give different questions different ids."
            )
        question.answers.extend(_read_answers(row, from_text, where))
    if not questions:
        raise ValueError(f"{path}: has no rows. Expected one JSON object per line.")
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
        wanted = "the field 'text' (from_text=True requires it)" if from_text else "one of the fields 'text', 'answer'"
        raise ValueError(f"{where}: expected {wanted}; got {', '.join(sorted(sample)) or 'no field'}.")
    return _extract(sample, "text", where)


def _extract(row: dict[str, Any], name: str, where: str) -> str | None:
    text = row[name]
    if not isinstance(text, str):
        raise ValueError(f"{where}: field {name!r} must be a string; got {type(text).__name__}.")
    answer = extract_answer(text)
    return None if answer is None else answer.text


def _scalar(row: dict[str, Any], name: str, where: str, null: str | None = None) -> str:
    """Return a field as text: ids, golds and answers may be JSON numbers; `null` replaces a JSON null."""
    if name not in row:
        raise ValueError(f"{where}: field {name!r} is missing; got {', '.join(sorted(row)) or 'no field'}.")
    value = row[name]
    if value is None and null is not None:
        return null
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise ValueError(f"{where}: field {name!r} must be a string or a number; got {type(value).__name__}.")
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"{where}: field {name!r} must be finite; got {value}. Write null if there is no answer.")
    return str(value).strip()
