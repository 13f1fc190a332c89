"""Success and diversity of saved generations: read a file of samples, classify the answers, summarise.

`rows.py` reads JSON lines, JSON arrays and parquet. A row has the question's id (`id`, `question_id`, `unique_id`; else
the hash of its `problem`, `question` or `prompt`), its gold answer (`gold`, `answer`) and its samples; rows of a
question may be anywhere in the file:

- several samples: `samples`, `completions` or `responses` is a list, of texts or of objects with `text`, `response`,
  `completion` or `answer`;
- one sample: `response` or `completion` is its text.

Sample files of lm-evaluation-harness (`--log_samples`) and of lighteval (details in parquet) are read as they are; of
several filters that lm-evaluation-harness applied to the same samples, the first is taken.

The field `answer` of a sample is the answer that its source extracted (null: none). It is used unchanged, because
published `text` is often cut short or left out. `from_text=True` extracts the answer from the text instead, and an
outcome function gets the text and the question's first row. The field
`correct` of a sample, or of a row with one sample, is the correctness label of its source; the report compares it with
the correctness found here. `against` names another field, such as a reward, whose positive values mean correct.
"""

import difflib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypedDict

import numpy as np
from numpy.typing import NDArray

from outcome_rl.metrics import SampleSummary, summarise
from outcome_rl.outcomes.comparisons import Progress
from outcome_rl.outcomes.extraction.response import final_answer
from outcome_rl.outcomes.keys import Tag, canonical_text
from outcome_rl.outcomes.keys import question_id as question_id_of
from outcome_rl.outcomes.kinds import OutcomeKind
from outcome_rl.outcomes.matcher import OutcomeMatcher
from outcome_rl.rows import (
    ANSWER_COLUMNS,
    ID_COLUMNS,
    PROMPT_COLUMNS,
    as_text,
    field_names,
    find,
    first_field,
    id_of_row,
    in_usual_fields,
    read_objects,
)

GOLD_COLUMNS = ("gold", *ANSWER_COLUMNS)  # if a row has both, `answer` may belong to its sample
SEVERAL = ("samples", "completions", "responses")
ONE = ("response", "completion")
TEXT = ("text", *ONE)
LABEL = "correct"
SHOWN_DISAGREEMENTS = 5  # of each kind
# Kinds of gold answers by the tags of canonical texts; other tags are expressions.
KINDS = {
    Tag.RATIONAL: "number",
    Tag.WORDS: "words",
    Tag.COLLECTION: "set or list",
    Tag.UNREAD: "text that no rule reads",
    Tag.UNIQUE: "text that no rule reads",
}
_LAYOUT = (
    f"Expected a list of samples in {' or '.join(map(repr, SEVERAL))}, or one response in "
    f"{' or '.join(map(repr, ONE))}: rename a field"
)


@dataclass(frozen=True)
class Question:
    """One question of a file: its gold answer, and answers and labels of its samples, in file order."""

    question_id: str
    gold: str
    answers: list[str | None]  # or texts, for an outcome function
    labels: list[bool | None]  # correctness by the file's source; None if it has none
    example: Mapping[str, Any] = field(default_factory=dict, compare=False, repr=False)  # its first row


class Disagreement(TypedDict):
    """An answer whose label in the file differs from the correctness found here."""

    question_id: str
    gold: str
    answer: str | None
    correct: bool  # as found here
    kind: str  # "no answer", or that of the gold answer: a value of `KINDS`, or "expression"
    samples: int  # with this answer


class Report(SampleSummary):
    """`SampleSummary` of the scored questions, with the outcome rule and everything that could not be compared."""

    outcome_rule: str
    labelled: int  # samples of scored questions with a label in the file
    agreeing: int  # labelled samples whose label equals the correctness found here
    disagreements_by_kind: dict[str, int]  # kind -> the other labelled samples, the most frequent kind first
    disagreements: list[Disagreement]  # the most frequent answers of each kind
    unresolved: int
    unscored_questions: dict[str, str]
    doubtful_golds: dict[str, str]


def analyze_file(
    path: str | Path,
    matcher: OutcomeKind | None = None,
    *,
    examples: Mapping[str, Mapping[str, Any]] | None = None,
    from_text: bool = False,
    against: str = LABEL,
    progress: Progress | None = None,
) -> Report:
    """Report pass@k, best@k, diff@k and related metrics of one file of samples.

    Args:
        path: a file in one of the layouts of this module; "-" is standard input.
        matcher: it has seen no question yet, and its processes are stopped at the end; None is `OutcomeMatcher()`.
        examples: question id -> data row for a `FunctionMatcher`; None takes the rows of the file.
        from_text: extract every answer from the sample's text, even if the sample has an `answer`.
        against: the field with the file's labels, of samples or of rows; after a dot, of a struct. A positive
            number means correct. If it is not `correct`, every sample must have it.
        progress: called as `progress(done, total)` during pairwise comparisons; never if keys decide everything.

    Returns:
        The report. `unresolved` counts comparisons that timed out or failed: each left its answer in a separate
        class. `unscored_questions` maps questions with an unusable gold answer to the reason; no other value includes
        them. `doubtful_golds` maps scored questions to the reason to check their gold answer. `labelled`, `agreeing`
        and `disagreements` compare the file's labels with the correctness found here.

    Raises:
        FileNotFoundError: the file does not exist.
        ValueError: a row is invalid (the message names file, row and field), or no question can be scored.
    """
    matcher = OutcomeMatcher() if matcher is None else matcher
    read_text = from_text or not matcher.reads_answers
    questions = read_samples(path, from_text=read_text, against=against, extract=matcher.extract)
    if examples is not None:
        questions = [replace(question, example=examples[question.question_id]) for question in questions]
    with closing(matcher):
        outcomes, unresolved = classify_samples(matcher, questions, progress)
        bad_golds, doubtful_golds, rule = dict(matcher.bad_golds), dict(matcher.doubtful_golds), matcher.rule
    scored = [
        (question, keys, correct)
        for question, (keys, correct) in zip(questions, outcomes, strict=True)
        if question.question_id not in bad_golds
    ]
    if not scored:
        raise ValueError(
            f"{path}: no question has a usable gold answer; e.g. {next(iter(bad_golds.items()))}. Fix the field 'gold'."
        )
    labelled = [
        (question, answer, bool(ours), theirs)
        for question, _, correct in scored
        for answer, ours, theirs in zip(question.answers, correct, question.labels, strict=True)
        if theirs is not None
    ]
    differing = Counter(
        (question.question_id, question.gold, answer, ours)
        for question, answer, ours, theirs in labelled
        if ours != theirs
    )
    disagreements = [
        Disagreement(question_id=id, gold=gold, answer=answer, correct=ours, kind=_kind(gold, answer), samples=samples)
        for (id, gold, answer, ours), samples in differing.most_common()
    ]
    by_kind: Counter[str] = Counter()
    for one in disagreements:
        by_kind[one["kind"]] += one["samples"]
    return Report(
        **summarise([keys for _, keys, _ in scored], [correct for _, _, correct in scored]),
        outcome_rule=rule,
        labelled=len(labelled),
        agreeing=len(labelled) - by_kind.total(),
        disagreements_by_kind=dict(by_kind.most_common()),
        disagreements=[
            one
            for kind, _ in by_kind.most_common()
            for one in [one for one in disagreements if one["kind"] == kind][:SHOWN_DISAGREEMENTS]
        ],
        unresolved=unresolved,
        unscored_questions=bad_golds,
        doubtful_golds=doubtful_golds,
    )


def _kind(gold: str, answer: str | None) -> str:
    if answer is None:
        return "no answer"
    text = canonical_text(final_answer(gold))
    return next((kind for tag, kind in KINDS.items() if text.startswith(tag)), "expression")


def classify_samples(
    matcher: OutcomeKind, questions: Sequence[Question], progress: Progress | None = None
) -> tuple[list[tuple[NDArray[np.int64], NDArray[np.bool_]]], int]:
    """Classify the samples of questions.

    Returns:
        Outcome keys and correctness of the samples of each question, and the number of comparisons that timed out or
        failed.
    """
    ids = [question.question_id for question in questions for _ in question.answers]
    golds = [question.gold for question in questions for _ in question.answers]
    answers = [answer for question in questions for answer in question.answers]
    rows = [question.example for question in questions for _ in question.answers]
    outcomes = matcher.classify_answers(ids, answers, golds, rows, progress=progress)
    ends = np.cumsum([len(question.answers) for question in questions])[:-1]
    split = zip(np.split(outcomes.keys, ends), np.split(outcomes.correct, ends), strict=True)
    return list(split), outcomes.unresolved


def read_samples(
    path: str | Path,
    *,
    from_text: bool = False,
    against: str = LABEL,
    extract: Callable[[str], str | None] | None = None,
) -> list[Question]:
    """Read a file of samples into questions, in the order in which their ids first appear.

    Args:
        path, from_text, against: as for `analyze_file`.
        extract: from text to answer; None takes the final answer.

    Returns:
        The questions, each with at least one sample.

    Raises:
        FileNotFoundError: the file does not exist.
        ValueError: invalid JSON, a field that is missing or has the wrong type, no samples, or two gold answers for one
            question id. The message starts with file and row number.
    """
    extract = extract or OutcomeMatcher.extract
    questions: dict[str, Question] = {}
    first_seen: dict[str, str] = {}
    filters: set[Any] = set()
    for where, read in read_objects(path):
        filters.update([read["filter"]] if "resps" in read and "filter" in read and not filters else [])
        if "resps" in read and filters and read.get("filter") not in filters:
            continue  # the same samples again
        row = in_usual_fields(read, where)
        question_id = _id(row, where)
        gold_name, value = first_field(row, GOLD_COLUMNS, "gold answer", where, "Rename a field", nullable=True)
        gold = "" if value is None else as_text(value, gold_name, "gold answer", where)
        question = questions.setdefault(question_id, Question(question_id, gold, [], [], row))
        if question.gold != gold:
            raise ValueError(
                f"{where}: field {gold_name!r} of id {question_id!r} must be {question.gold!r}, as in "
                f"{first_seen[question_id]}; got {gold!r}. Give different questions different ids"
            )
        first_seen.setdefault(question_id, where)
        for answer, label in _samples(row, from_text, against, extract, where):
            question.answers.append(answer)
            question.labels.append(label)
    if not questions:
        raise ValueError(f"{path}: has no rows. Write one JSON object per line, or one JSON array of objects")
    return list(questions.values())


def _id(row: Mapping[str, Any], where: str) -> str:
    """Return the id of a row, or the hash of its prompt as the trainers take it."""
    prompts = [find(row, name) for name in PROMPT_COLUMNS]
    prompt = next((prompt for prompt in prompts if prompt), None)
    if prompt is not None and not any(find(row, name) is not None for name in ID_COLUMNS):
        return question_id_of(prompt)
    return id_of_row(row, ID_COLUMNS, where, "Give every question its own id, or its prompt")[0]


def _samples(
    row: dict[str, Any], from_text: bool, against: str, extract: Callable[[str], str | None], where: str
) -> list[tuple[str | None, bool | None]]:
    """Read the answers and labels of a row's samples."""
    present = [name for name in (*SEVERAL, *ONE) if name in row]
    if len(present) != 1:
        has = f"has {' and '.join(map(repr, present or row))}"
        raise ValueError(f"{where}: {has}. {_LAYOUT}")
    (name,) = present
    if name in ONE:
        return [(extract(_text(row, name, where)), _label(row, against, where, row))]
    samples = row[name]
    if not isinstance(samples, list) or not samples:
        raise ValueError(
            f"{where}: field {name!r} must be a list of at least one sample; got {str(samples)[:80]!r}. {_LAYOUT}"
        )
    labels = find(row, against)
    if labels is not None and (not isinstance(labels, list) or len(labels) != len(samples)):
        raise ValueError(
            f"{where}: field {against!r} must be a list of {len(samples)} labels, one per sample; got "
            f"{str(labels)[:80]!r}. Leave it out, or put it into the samples"
        )
    found = []
    for index, sample in enumerate(samples):
        place = f"{where}: {name}[{index}]"
        fields = {"text": sample} if isinstance(sample, str) else sample
        answer = _answer(fields, from_text, extract, place)
        labelled = fields if labels is None else {against: labels[index]}
        found.append((answer, _label(labelled, against, place, row)))
    return found


def _answer(sample: Any, from_text: bool, extract: Callable[[str], str | None], where: str) -> str | None:
    if not isinstance(sample, dict):
        raise ValueError(
            f"{where}: expected text, or a JSON object with 'text' or 'answer'; got {type(sample).__name__}. Write the "
            "response as text"
        )
    if "answer" in sample and not from_text:
        value = sample["answer"]
        return None if value is None else as_text(value, "answer", "answer of a sample", where)
    role, fix = ("text, which from_text=True requires", "") if from_text else ("text", ", or give an 'answer'")
    name, _ = first_field(sample, TEXT, role, where, f"Rename a field{fix}", nullable=True)
    return extract(_text(sample, name, where))


def _text(row: dict[str, Any], name: str, where: str) -> str:
    text = row[name]
    if not isinstance(text, str):
        kind = "null" if text is None else type(text).__name__
        raise ValueError(f'{where}: field {name!r} must be text; got {kind}. Write an empty response as ""')
    return text


def _label(fields: Mapping[str, Any], against: str, where: str, row: Mapping[str, Any]) -> bool | None:
    """Return a label of the file: `correct` is a boolean, 0 or 1, another field any number; None without one."""
    value = find(fields, against)
    if value is None:
        if against != LABEL:
            if against in field_names(fields):
                raise ValueError(f"{where}: field {against!r} must be a number or a boolean; got null. Drop the row")
            near = difflib.get_close_matches(against, {*field_names(fields), *field_names(row)}, n=3, cutoff=0)
            raise ValueError(f"{where}: has no field {against!r}; the nearest are {', '.join(map(repr, near))}")
        return None
    if not isinstance(value, bool | int | float) or (against == LABEL and value not in (0, 1)) or value != value:
        expected = "true, false or null" if against == LABEL else "a number or a boolean"
        raise ValueError(
            f"{where}: field {against!r} must be {expected}; got {str(value)[:80]!r}. Leave it out, or correct it"
        )
    return value > 0
