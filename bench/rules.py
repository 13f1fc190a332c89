"""Rules of outcomes, each switched off in turn, and the reported answers by class.

    python -m bench.outcomes --data FOLDER --rules
    python -m bench.outcomes --data FOLDER --reports

`--rules` counts, for each rule, the answers of generations (FOLDER/generations) whose key or correctness changes, and
the labelled pairs (FOLDER/pairs) and reported answers (FOLDER/answers) that it wins and loses. A rule that wins none
and changes none decides nothing. `--reports` prints how many answers of each class of reports are right.
"""

import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

import numpy as np

from outcome_rl import OutcomeMatcher, extract_answer, outcome_key
from outcome_rl.files.rows import read_objects
from outcome_rl.isolation.grader import MathVerifyPool
from outcome_rl.outcomes.canonical.spellings import SPELLINGS

Change = tuple[Any, Any]
"""A function or table of the library, and what replaces it in every module that imports it."""


class Case(NamedTuple):
    """An answer, or a response that holds one, the gold answer, and whether they are equal, if that is known."""

    answer: str | None
    gold: str
    expected: bool | None = None


def never(*_: Any) -> bool:
    return False


def always(*_: Any) -> bool:
    return True


def same(text: str) -> str:
    return text


def rules() -> dict[str, Sequence[Change]]:
    """Return the rules that can be switched off, by name."""
    from outcome_rl.outcomes import refutation, tolerance
    from outcome_rl.outcomes.canonical import labels, notations, spellings

    def nothing(*_: Any) -> None:
        return None

    def nothings(*_: Any) -> frozenset[str]:
        return frozenset()

    found: dict[str, Sequence[Change]] = {
        "all of tolerance": [(tolerance.within_tolerance, never), (tolerance.contradicts, never)],
        "rounding": [(tolerance._rounds_to, never)],
        "labels of one side": [(tolerance._readings, nothings)],
        "units of one side": [(tolerance._without_unit, nothings)],
        "units of both sides": [(tolerance.sizes, nothings)],
        "one function": [(tolerance._same_function, never)],
        "vote of math-verify counts always": [(refutation.refuted, never)],
        "vote of math-verify counts never": [(refutation.refuted, always)],
        "spellings, all": [(spellings.respelled, same)],
        "signs of one character": [(spellings._ascii, same)],
        "notations": [(notations.in_notation, nothing)],
        "letter case of words": [(notations.folded, lambda words: words.replace(" ", ""))],
        "labels": [(labels.label_of, nothing)],
    }
    for row in spellings.SPELLINGS:
        others = tuple(one for one in spellings.SPELLINGS if one != row)
        found[f"`{row.example[0]}`"] = [(spellings.SPELLINGS, others)]
    return found


def library() -> Iterator[Any]:
    """Return the loaded modules of the library."""
    return (module for name, module in list(sys.modules.items()) if name.startswith("outcome_rl."))


def forget() -> None:
    """Empty the caches of all functions of the library."""
    for module in library():
        for value in list(vars(module).values()):
            if hasattr(value, "cache_clear"):
                value.cache_clear()


@contextmanager
def switched_off(changes: Iterable[Change]) -> Iterator[None]:
    """Replace functions in every module that holds them, with empty caches before and after."""
    patches = [
        patch.object(module, name, replacement)
        for function, replacement in changes
        for module in library()
        for name, value in list(vars(module).items())
        if value is function
    ]
    for one in patches:
        one.start()
    forget()
    try:
        yield
    finally:
        for one in patches:
            one.stop()
        forget()


@contextmanager
def remembered_votes() -> Iterator[None]:
    """Ask math-verify about a pair once, however many rules are switched off."""
    votes: dict[tuple[str, str], Any] = {}
    vote = MathVerifyPool.vote

    def remembering(pool: MathVerifyPool, pairs: Sequence[tuple[str, str]], *arguments: Any, **named: Any) -> Any:
        pairs = list(pairs)
        if new := [pair for pair in dict.fromkeys(pairs) if pair not in votes]:
            votes.update(zip(new, vote(pool, new, *arguments, **named), strict=True))
        return [votes[pair] for pair in pairs]

    with patch.object(MathVerifyPool, "vote", remembering):
        yield


def generated(folder: Path) -> list[Case]:
    """Return the distinct (question, answer, gold) of all generations; of two integers no rule changes anything."""
    rows = {
        (path.stem, str(question["question_id"]), str(sample["answer"]), str(question["gold"]))
        for path in sorted((folder / "generations").glob("*.jsonl"))
        for _, question in read_objects(path)
        for sample in question["samples"]
        if sample["answer"] is not None and not (_is_integer(sample["answer"]) and _is_integer(question["gold"]))
    }
    return [Case(answer, gold) for _, _, answer, gold in sorted(rows)]


def _is_integer(text: Any) -> bool:
    return str(text).isascii() and str(text).isdigit()


def labelled(folder: Path) -> list[Case]:
    """Return the labelled pairs that are neither suspect nor a matter of convention."""
    return [
        Case(answer_in(row["pred"]), answer_in(row["gold"]), bool(row["expected"]))
        for path in sorted((folder / "pairs").glob("*.jsonl"))
        for _, row in read_objects(path)
        if "gold" in row and not row.get("suspect") and not row.get("convention")
    ]


def reported(folder: Path) -> list[dict[str, Any]]:
    """Return the reported responses of all files; those that a report files under a class come with it."""
    return [row for path in sorted((folder / "answers").glob("*.jsonl")) for _, row in read_objects(path)]


def answer_in(text: str) -> str:
    """Return the answer that a text marks, or else the text."""
    answer = extract_answer(text)
    return text if answer is None else answer.text


def verdicts(cases: Sequence[Case]) -> tuple[Any, Any]:
    """Return keys and correctness of answers, each to a question of its own."""
    with OutcomeMatcher() as matcher:
        outcomes = matcher.classify_answers(
            [str(i) for i in range(len(cases))], [case.answer for case in cases], [case.gold for case in cases]
        )
    return outcomes.keys.copy(), outcomes.correct.copy()


def responses_of(reports: Sequence[Mapping[str, Any]]) -> list[Case]:
    found = [extract_answer(row["response"]) for row in reports]
    return [
        Case(None if answer is None else answer.text, row["gold"], bool(row["should_be_equal"]))
        for answer, row in zip(found, reports, strict=True)
    ]


def measure(folder: Path) -> dict[str, Any]:
    """Return what each rule decides, and the state with all rules."""
    reports = reported(folder)
    sources: dict[str, Callable[[], list[Case]]] = {
        "generations": lambda: generated(folder),
        "pairs": lambda: labelled(folder),
        "reports": lambda: responses_of(reports),
    }

    def run() -> dict[str, tuple[list[Case], Any, Any]]:
        return {name: (cases := source(), *verdicts(cases)) for name, source in sources.items()}

    with remembered_votes():
        base = run()
        figures: dict[str, Any] = {"all": {name: agreement(*found) for name, found in base.items()}, "rules": {}}
        for name, changes in rules().items():
            with switched_off(changes):
                off = run()
            figures["rules"][name] = {source: difference(base[source], off[source]) for source in sources}
            print(row_of(name, figures["rules"][name]), flush=True)
    return figures


def agreement(cases: Sequence[Case], _: Any, correct: Any) -> dict[str, int]:
    known = [(case.expected, bool(verdict)) for case, verdict in zip(cases, correct, strict=True)]
    return {
        "rows": len(cases),
        "right": sum(expected == verdict for expected, verdict in known if expected is not None),
        "wrong_equal": sum(verdict and expected is False for expected, verdict in known),
    }


def difference(base: tuple[list[Case], Any, Any], off: tuple[list[Case], Any, Any]) -> dict[str, Any]:
    """Return how many keys and verdicts a rule changes; of labelled rows, how many it wins and loses."""
    cases, keys, correct = base
    changed = np.nonzero(correct != off[2])[0]
    return {
        "keys": int(np.sum(keys != off[1])),
        "correct": len(changed),
        "won": sum(cases[i].expected is bool(correct[i]) for i in changed),
        "lost": sum(cases[i].expected is bool(off[2][i]) for i in changed),
        "rows": [[cases[i].answer, cases[i].gold] for i in changed[:4]],
    }


def without_texts(figures: dict[str, Any]) -> dict[str, Any]:
    """Return the figures without examples, whose licences keep them out of result files."""
    kept = {
        name: {source: {k: v for k, v in row.items() if k != "rows"} for source, row in rows.items()}
        for name, rows in figures["rules"].items()
    }
    return figures | {"rules": kept}


HEADER = "| without | real keys | real correct | pairs won | lost | reports won | lost |\n|---|" + "---:|" * 6


def row_of(name: str, row: Mapping[str, Any]) -> str:
    """Return the row of a rule."""
    real, pairs, reports = row["generations"], row["pairs"], row["reports"]
    cells = (real["keys"], real["correct"], pairs["won"], pairs["lost"], reports["won"], reports["lost"])
    return f"| {name} | " + " | ".join(map(str, cells)) + " |"


def table(figures: Mapping[str, Any]) -> str:
    """Return the table of rules in Markdown."""
    base = figures["all"]
    return "\n".join(
        [
            HEADER,
            *(row_of(name, row) for name, row in figures["rules"].items()),
            "",
            f"{base['generations']['rows']:,} distinct real answers; of {base['pairs']['rows']} labelled pairs "
            f"{base['pairs']['right']} are right and {base['pairs']['wrong_equal']} wrongly equal; of "
            f"{base['reports']['rows']} reported answers {base['reports']['right']} and "
            f"{base['reports']['wrong_equal']}.",
        ]
    )


def report_table(folder: Path, examples: int = 0) -> str:
    """Return how many reported answers of each class are right, with some of the others.

    A response is right if its correctness is; where the report names the answer, its key has to be that answer's too.
    """
    return table_of_reports(reported(folder), examples)


def table_of_reports(reports: Sequence[Mapping[str, Any]], examples: int = 0) -> str:
    """Return the table of reported answers by class."""
    cases = responses_of(reports)
    _, correct = verdicts(cases)
    total, right, wrong = Counter[str](), Counter[str](), Counter[str]()
    others: dict[str, list[str]] = {}
    for row, case, verdict in zip(reports, cases, correct, strict=True):
        kind = row["class"]
        expected = row.get("should_extract", row.get("key_of"))
        alike = expected is None or (case.answer is not None and outcome_key(case.answer) == outcome_key(expected))
        total[kind] += 1
        right[kind] += bool(verdict) == case.expected and alike
        wrong[kind] += bool(verdict) and not case.expected
        if bool(verdict) != case.expected or not alike:
            others.setdefault(kind, []).append(f"    {row['response'][-70:]!r} -> {case.answer!r} | {row['gold']!r}")
    lines = ["| class | cases | right | wrongly equal |", "|---|---:|---:|---:|"]
    for kind in sorted(total):
        lines.append(f"| {kind} | {total[kind]} | {right[kind]} | {wrong[kind]} |")
        lines += others.get(kind, [])[:examples]
    return "\n".join(
        [*lines, f"| all | {sum(total.values())} | {sum(right.values())} | {sum(wrong.values())} |"],
    )


def spelling_table() -> str:
    """Return the table of spellings in Markdown."""
    lines = ["| text | is read as | stays |", "|---|---|---|"]
    for row in SPELLINGS:
        cells = (f"`{text.replace('|', chr(92) + '|')}`" for text in (*row.example, row.counter))
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)
