"""Change between two files of samples, such as before and after training, paired by question."""

import math
from collections.abc import Callable, Sequence
from functools import partial
from statistics import fmean, stdev
from typing import NamedTuple

from outcome_rl.analyze import QuestionReport
from outcome_rl.metrics import diff_at_k, ks_up_to, pass_at_k
from outcome_rl.terminal.tables import counted, print_table

Measure = Callable[[QuestionReport], float]


def _pass_at(k: int, one: QuestionReport) -> float:
    return float(pass_at_k(one["samples"], one["correct"] or 0, k))


def _diff_at(k: int, one: QuestionReport) -> float:
    return diff_at_k(one["class_sizes"], k, n=one["samples"])


def _samples(pair: tuple[QuestionReport, QuestionReport]) -> int:
    return min(one["samples"] for one in pair)


class Change(NamedTuple):
    """A measure of the questions that two files share and that have k samples in both, before and after."""

    measure: str
    before: float
    after: float
    differences: list[float]  # after minus before, one a question


def changes(before: Sequence[QuestionReport], after: Sequence[QuestionReport]) -> list[Change]:
    """Return the measures of two files, such as before and after training, paired by question.

    It is empty where the files share no question.
    """
    later = {one["question_id"]: one for one in after}
    pairs = [(one, later[one["question_id"]]) for one in before if one["question_id"] in later]
    if not pairs:
        return []
    ks = ks_up_to(max(_samples(pair) for pair in pairs))
    measures: dict[str, tuple[int, Measure]] = {}  # with the samples that a question needs
    if all(one["correct"] is not None for pair in pairs for one in pair):
        measures |= {f"pass@{k}": (k, partial(_pass_at, k)) for k in ks}
        measures["majority correct"] = 1, lambda one: float(bool(one["majority_correct"]))
    measures |= {f"diff@{k}": (k, partial(_diff_at, k)) for k in ks[1:]}
    measures["share of the majority answer"] = 1, lambda one: one["majority_samples"] / one["samples"]
    measures["no answer"] = 1, lambda one: one["no_answer"] / one["samples"]
    found = []
    for name, (least, measure) in measures.items():
        values = ((measure(one), measure(two)) for one, two in pairs if _samples((one, two)) >= least)
        first, second = zip(*values, strict=True)
        found.append(Change(name, fmean(first), fmean(second), [b - a for a, b in zip(first, second, strict=True)]))
    return found


def print_changes(changes: Sequence[Change]) -> None:
    """Print means of both files over the questions that they share, and differences with their standard errors."""
    questions = [len(one.differences) for one in changes]
    ragged = len(set(questions)) > 1
    print(f"{counted(max(questions), 'question')} of both files, paired:")
    rows = []
    for number, one in zip(questions, changes, strict=True):
        error = f"{stdev(one.differences) / math.sqrt(number):.3f}" if number > 1 else ""
        row = [one.measure, f"{one.before:.3f}", f"{one.after:.3f}", f"{fmean(one.differences):+.3f}", error]
        rows.append([*row, str(number)] if ragged else row)
    print_table(["", "first", "second", "difference", "standard error", *(["questions"] if ragged else [])], rows)
