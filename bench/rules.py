"""Answers that each rule of outcomes decides, and the reported answers by class.

    python -m bench.outcomes --data FOLDER --rules
    python -m bench.outcomes --data FOLDER --reports

`--rules` switches each condition of the rules off in turn (`bench.probes`), on the generations (FOLDER/generations),
the golds of problems (FOLDER/problems), public answers (FOLDER/public, by `bench.public_answers`), labelled pairs
(FOLDER/pairs) and reported answers (FOLDER/answers). `--reports` prints how many answers of each class are right.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.probes import SPELLING, Case, Decided, decided
from outcome_rl import OutcomeMatcher, extract_answer, outcome_key
from outcome_rl.files.rows import read_objects
from outcome_rl.isolation.grader import MathVerifyPool
from outcome_rl.outcomes.canonical.spellings import SPELLINGS
from outcome_rl.outcomes.extraction.response import final_answer

LABELLED = ("pairs", "reports")


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
        Case(final_answer(row["pred"]), final_answer(row["gold"]), bool(row["expected"]))
        for path in sorted((folder / "pairs").glob("*.jsonl"))
        for _, row in read_objects(path)
        if "gold" in row and not row.get("suspect") and not row.get("convention")
    ]


def reported(folder: Path) -> list[dict[str, Any]]:
    """Return the reported responses of all files; those that a report files under a class come with it."""
    return [row for path in sorted((folder / "answers").glob("*.jsonl")) for _, row in read_objects(path)]


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


class Votes:
    """Votes on labelled pairs, each asked once, however many conditions are switched off; on others there is none."""

    def __init__(self, cases: Iterable[Case], pool: MathVerifyPool) -> None:
        self.labelled = {(case.gold, case.answer) for case in cases if case.expected is not None}
        self.pool, self.votes = pool, dict[tuple[str, str], str]()

    def vote(self, pairs: Sequence[tuple[str, str]], *_: Any, **__: Any) -> list[str]:
        for pair in pairs:
            if pair not in self.votes:
                self.votes[pair] = self.pool.vote([pair])[0] if pair in self.labelled else "vote"
        return [self.votes[pair] for pair in pairs]


def all_cases(folder: Path) -> list[Case]:
    """Return the distinct answers of all sources; of two integers no rule changes anything."""
    public = ((path.stem, row) for path in sorted((folder / "public").glob("*.jsonl")) for _, row in read_objects(path))
    problems = (row for path in sorted((folder / "problems").glob("*.jsonl")) for _, row in read_objects(path))
    golds = [final_answer(str(row.get("answer") or row.get("solution") or "")) for row in problems]
    found = [
        *(case._replace(source="pairs") for case in labelled(folder)),
        *(case._replace(source="reports") for case in responses_of(reported(folder))),
        *(case._replace(source="generations") for case in generated(folder)),
        *(Case(gold, gold, None, "problems") for gold in golds),
        *(Case(row["answer"], row["gold"], None, source) for source, row in public),
    ]
    return list(dict.fromkeys(case for case in found if not (_is_integer(case.answer) and _is_integer(case.gold))))


def measure(folder: Path) -> dict[str, Any]:
    """Return what each condition decides, and the number of answers of each source."""
    cases = all_cases(folder)
    with MathVerifyPool(1) as pool:
        found = decided(cases, Votes(cases, pool))
    return {
        "answers": dict(Counter(case.source for case in cases)),
        "modules": by_module(found),
        "spellings": by_row(found),
    }


def by_module(found: Iterable[Decided]) -> dict[str, dict[str, int]]:
    """Return, for each module, how many conditions decide real answers, only others, or none."""
    modules: dict[str, Counter[str]] = {}
    for one in found:
        real = sum(number for source, number in one.changed.items() if source not in LABELLED)
        kind = "real" if real else "labelled" if one.changed else "none" if one.held else "never"
        modules.setdefault(one.probe.module, Counter()).update((kind, "all"))
        if not one.changed:
            print(f"{kind}: {one.probe.module}:{one.probe.line}: {one.probe.text}")
    return {name: dict(counts) for name, counts in sorted(modules.items())}


def by_row(found: Iterable[Decided]) -> list[dict[str, Any]]:
    """Return, for each spelling, the real, labelled and reported answers that have it."""
    return [
        {"text": one.probe.text, "real": sum(n for source, n in one.held.items() if source not in LABELLED)}
        | {source: one.held[source] for source in LABELLED}
        for one in found
        if one.probe.module == SPELLING
    ]


def table(figures: Mapping[str, Any]) -> str:
    """Return the tables of conditions and spellings in Markdown."""
    kinds = ("all", "real", "labelled", "none", "never")
    lines = ["| module | conditions | decide real answers | only labelled ones | hold, decide none | never hold |"]
    lines.append("|---|" + "---:|" * 5)
    for name, row in figures["modules"].items():
        lines.append(f"| {name} | " + " | ".join(str(row.get(kind, 0)) for kind in kinds) + " |")
    lines += ["", "| spelling | real answers | labelled pairs | reports |", "|---|" + "---:|" * 3]
    for row in figures["spellings"]:
        lines.append(f"| {code(row['text'])} | {row['real']} | {row['pairs']} | {row['reports']} |")
    answers = ", ".join(f"{number:,} of {name}" for name, number in figures["answers"].items())
    return "\n".join([*lines, "", f"Answers: {answers}."])


def code(text: str) -> str:
    """Return a text as code in a cell of a table."""
    return f"`{text.replace('|', chr(92) + '|')}`"


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
        lines.append(f"| {' | '.join(map(code, (*row.example, row.counter)))} |")
    return "\n".join(lines)
