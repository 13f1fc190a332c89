"""Success and diversity of saved generations: read a file of samples, classify the answers, summarise.

`files.samples` reads the formats. Correctness comes from the gold answers; without any from the rewards or labels of
the file; without these only the diversity is reported. With both, the labels of the file are compared with the
correctness found here: an audit of the reward that you have.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple, TypedDict

import numpy as np
from numpy.typing import NDArray

from outcome_rl.files.formats import SHORT
from outcome_rl.files.samples import Fields, Question, read_sample_file
from outcome_rl.files.texts import short
from outcome_rl.isolation.grader import Progress
from outcome_rl.metrics import SampleSummary, ks_up_to, majority, summarise
from outcome_rl.outcomes.batch import Batch
from outcome_rl.outcomes.keys import NO_ANSWER, Tag, canonical_text
from outcome_rl.outcomes.kinds import OutcomeKind, Outcomes
from outcome_rl.outcomes.matcher import OutcomeMatcher, answer_text

SHOWN_DISAGREEMENTS = 10


class Disagreement(TypedDict):
    """An answer whose label in the file differs from the correctness found here."""

    question_id: str
    gold: str
    answer: str | None
    correct: bool  # as found here
    samples: int  # with this answer


class QuestionReport(TypedDict):
    """The samples of one question."""

    question_id: str
    gold: str | None
    samples: int
    correct: int | None  # None: unknown, for every question of the file
    distinct: int  # different answers
    no_answer: int
    majority: str | None  # the most frequent answer, in a tie the first
    majority_samples: int
    majority_correct: float | None  # in a tie, the share of the tied answers that is correct
    class_sizes: list[int]  # samples with each answer


class Report(SampleSummary):
    """`SampleSummary` of the scored questions, with the outcome rule and everything that could not be compared.

    Where correctness is unknown, `pass_at_k` and `best_at_k` are empty, `solved_fraction` and `majority_correct` None.
    """

    correctness: str  # where it comes from, in words; empty: unknown
    questions_at_k: dict[str, int]  # k -> questions with at least k samples, over which `*_at_k` are means
    majority_share: float | None  # mean share of a question's samples that give its most frequent answer
    majority_correct: float | None  # share of questions whose most frequent answer is correct; ties count in part
    remarks: list[str]  # how the file was read
    outcome_rule: str
    labelled: int  # samples of scored questions with a label in the file
    agreeing: int  # labelled samples whose label equals the correctness found here
    disagreements: list[Disagreement]  # the most frequent answers of the other labelled samples
    unresolved: int
    unscored_questions: dict[str, str]
    doubtful_golds: dict[str, str]


class Analysis(NamedTuple):
    """The report of a file, the numbers of each of its scored questions, and the options that had no effect on it."""

    report: Report
    questions: list[QuestionReport]
    unused: set[str]


def analyze_file(
    path: str | Path | Sequence[str | Path],
    matcher: OutcomeKind | None = None,
    *,
    examples: Mapping[str, Mapping[str, Any]] | None = None,
    from_text: bool = False,
    fields: Fields | None = None,
    progress: Progress | None = None,
) -> Analysis:
    """Report pass@k, best@k, diff@k and related metrics of one file of samples.

    Args:
        path: a file or folder that `files.samples.read_sample_file` reads, or several to read as one; "-" is standard
            input.
        matcher: the kind of outcomes; its processes are stopped at the end. None is `OutcomeMatcher()`.
        examples: question id -> data row for an outcome function; None takes the rows of the file.
        from_text: extract every answer from the sample's text, even if the sample has an `answer`.
        fields: names of fields, where they are unusual; a reward that is named must be in every row.
        progress: called as `progress(done, total)` during pairwise comparisons; never if keys decide everything.

    Returns:
        The report, its questions, and the options without effect. `unscored_questions` maps
        questions with an unusable gold answer, or without the gold answer or the rewards that others have, to the
        reason; no other value includes them. `doubtful_golds` maps scored questions to the reason to check their gold
        answer. `labelled`, `agreeing` and `disagreements` compare the file's labels with the correctness found here,
        where there are gold answers.

    Raises:
        FileNotFoundError: the file does not exist.
        ValueError: a row is invalid (the message names file, row and field), or no question can be scored.
    """
    matcher = OutcomeMatcher() if matcher is None else matcher
    paths = [path] if isinstance(path, str | Path) else path
    file = read_sample_file(*paths, fields=fields, **reading_of(matcher, from_text=from_text))
    questions = file.questions
    if examples is not None:
        questions = [replace(question, example=examples[question.question_id]) for question in questions]
    with matcher:
        outcomes, found = classify_samples(matcher, questions, progress)
    missing = float(np.mean(np.concatenate([keys for keys, _ in outcomes]) == NO_ANSWER))
    has_answers = missing <= 0.5 or matcher.reads != "answers" or examples is not None
    labels = [label for question in questions for label in question.labels]
    has_labels = any(label is not None for label in labels)
    judged = not matcher.needs_gold or any(question.gold is not None for question in questions)
    # Free text and samples without an answer cannot be judged by golds: by labels, where there are some.
    golds = {question.question_id: question.gold for question in questions if question.gold}
    free = 2 * sum(canonical_text(gold).startswith((Tag.WORDS, Tag.UNREAD)) for gold in golds.values()) > len(golds)
    judged = judged and (has_answers or (missing < 1 and None in labels and not free))
    unscored = dict(found.bad_golds) if judged else {}
    if matcher.needs_gold if judged else has_labels:
        unscored |= _lacking(questions, by_gold=judged)
    scored = [
        (question, keys, ours if judged else np.array(question.labels, dtype=bool) if has_labels else None)
        for question, (keys, ours) in zip(questions, outcomes, strict=True)
        if question.question_id not in unscored
    ]
    if not scored:
        raise ValueError(
            f"{paths[0]}: no question can be scored; {first_reason(unscored)}. Correct the golds or rewards"
        )
    by_question = [_question_report(*one) for one in scored]
    summary, remarks = _summary(scored), [*file.remarks]
    if not has_answers:
        summary["diff_at_k"] = {}
        unused = "golds, " * (not judged and any(one.gold is not None for one in questions))
        remarks.append(
            f"{missing:.1%} of the samples have no mathematical answer{' and count as wrong' * judged}, so {unused}"
            "diff@k and the majority are left out; --outcome MODULE:FUNCTION reads code, labels or free text"
        )
    doubtful = dict(found.doubtful_golds) if judged else {}
    if 2 * len(doubtful) > len(golds):
        gold = short(golds[next(iter(doubtful))])
        remarks.append(
            f"gold answers that no rule reads or that hold several, such as {gold}: {len(doubtful)} (--gold)"
        )
    labelled, agreeing, disagreements = _audit(scored if judged else [])
    return Analysis(
        Report(
            **summary,
            correctness="the gold answers" if judged else "the rewards or labels of the file" if has_labels else "",
            questions_at_k=_questions_at_k(by_question),
            majority_share=_mean([one["majority_samples"] / one["samples"] for one in by_question if has_answers]),
            majority_correct=_mean([one["majority_correct"] for one in by_question if has_answers]),
            remarks=remarks,
            outcome_rule=matcher.rule,
            labelled=labelled,
            agreeing=agreeing,
            disagreements=disagreements,
            unresolved=found.unresolved,
            unscored_questions=unscored,
            doubtful_golds=doubtful,
        ),
        by_question,
        file.unused,
    )


def _lacking(questions: Sequence[Question], *, by_gold: bool) -> dict[str, str]:
    """Return the questions without what says which samples are correct, each with the reason."""
    if by_gold:
        return {one.question_id: "the file has no gold answer for it" for one in questions if one.gold is None}
    return {one.question_id: "a sample has no reward or label" for one in questions if None in one.labels}


def reading_of(matcher: OutcomeKind, *, from_text: bool = False) -> dict[str, Any]:
    """Return the arguments of `read_sample_file` that give a kind what it reads: final answers, or whole texts."""
    if matcher.reads == "answers":
        return {"from_text": from_text, "extract": answer_text}
    return {"from_text": True, "extract": str}


def first_reason(unscored: Mapping[str, str]) -> str:
    """Return the reason of the first question that is not scored."""
    question_id, reason = next(iter(unscored.items()))
    return f"question {question_id[:SHORT]}: {reason if len(reason) <= 2 * SHORT else reason[: 2 * SHORT] + '...'}"


_Scored = tuple[Question, NDArray[np.int64], NDArray[np.bool_] | None]  # keys, and correctness where it is known


def _summary(scored: Sequence[_Scored]) -> SampleSummary:
    """Return the summary; without correctness, its numbers of correct samples are left out."""
    known = [correct for *_, correct in scored if correct is not None]
    summary = summarise(
        [keys for _, keys, _ in scored], known or [np.zeros(len(keys), dtype=bool) for _, keys, _ in scored]
    )
    return summary if known else SampleSummary(**{**summary, "pass_at_k": {}, "best_at_k": {}, "solved_fraction": None})


def _question_report(question: Question, keys: NDArray[np.int64], correct: NDArray[np.bool_] | None) -> QuestionReport:
    sizes = Counter(key for key in keys.tolist() if key != NO_ANSWER)
    voted, size = majority(sizes)
    first = [int(np.flatnonzero(keys == key)[0]) for key in voted]
    is_right = None if correct is None else fmean(correct[keys == key].mean() for key in voted) if voted else 0.0
    return QuestionReport(
        question_id=question.question_id,
        gold=question.gold,
        samples=len(keys),
        correct=None if correct is None else int(correct.sum()),
        distinct=len(sizes),
        no_answer=int((keys == NO_ANSWER).sum()),
        majority=question.answers[first[0]] if first else None,
        majority_samples=size,
        majority_correct=is_right,
        class_sizes=list(sizes.values()),
    )


def _questions_at_k(questions: Sequence[QuestionReport]) -> dict[str, int]:
    samples = [one["samples"] for one in questions]
    return {str(k): sum(n >= k for n in samples) for k in ks_up_to(max(samples))}


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return fmean(known) if known else None  # rounded once, whatever the order


def _audit(scored: Sequence[_Scored]) -> tuple[int, int, list[Disagreement]]:
    """Return the labelled samples, those that agree with the correctness found here, and the answers of the others."""
    differing = Counter(
        (question.question_id, question.gold or "", answer, bool(ours))
        for question, _, correct in scored
        for answer, ours, theirs in zip(
            question.answers, correct if correct is not None else (), question.labels, strict=True
        )
        if theirs is not None and bool(ours) != theirs
    )
    labelled = sum(label is not None for question, *_ in scored for label in question.labels)
    shown = [
        Disagreement(question_id=id_, gold=gold, answer=answer, correct=ours, samples=samples)
        for (id_, gold, answer, ours), samples in differing.most_common(SHOWN_DISAGREEMENTS)
    ]
    return labelled, labelled - differing.total(), shown


def classify_samples(
    matcher: OutcomeKind, questions: Sequence[Question], progress: Progress | None = None
) -> tuple[list[tuple[NDArray[np.int64], NDArray[np.bool_]]], Outcomes]:
    """Classify the samples of questions.

    Returns:
        Outcome keys and correctness of the samples of each question, and the outcomes of all of them.
    """
    ids = [question.question_id for question in questions for _ in question.answers]
    has_golds = any(question.gold is not None for question in questions)
    golds = [question.gold or "" for question in questions for _ in question.answers] if has_golds else None
    answers = [answer for question in questions for answer in question.answers]
    rows = [question.example for question in questions for _ in question.answers]
    if isinstance(matcher, OutcomeMatcher):
        outcomes = matcher.classify_answers(ids, answers, golds, progress=progress)
    else:
        outcomes = matcher.classify(Batch(ids, [text or "" for text in answers], golds, rows=rows), progress=progress)
    ends = np.cumsum([len(question.answers) for question in questions])[:-1]
    split = zip(np.split(outcomes.keys, ends), np.split(outcomes.correct, ends), strict=True)
    return list(split), outcomes
