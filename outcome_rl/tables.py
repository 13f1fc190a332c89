"""Results of a command in tables, on stdout."""

import json
import shutil
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from outcome_rl.files import write_json
from outcome_rl.terminal import printable

if TYPE_CHECKING:
    from outcome_rl.analyze import Report


def print_table(header: Sequence[str], rows: Iterable[Sequence[str]], *, numbers: bool = False) -> None:
    """Print rows of cells in columns, aligned to the right for `numbers`, and an empty line after them."""
    table = [[printable(cell) for cell in row] for row in (header, *rows)]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    for row in table:
        cells = (cell.rjust(width) if numbers else cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        print("  ".join(cells).rstrip())
    print()


def print_reports(reports: Mapping[str, "Report"]) -> None:
    """Print the metrics of each file of samples: facts within the terminal's width, and a table over k."""
    columns = shutil.get_terminal_size().columns
    for file, report in reports.items():
        for remark in report.get("remarks", []):  # an average over data sets has none
            print(textwrap.fill(printable(f"{remark[0].upper()}{remark[1:]}."), columns))
        print(textwrap.fill("; ".join(_facts(file, report)), columns))
        curves = {"pass@k": report["pass_at_k"], "best@k": report["best_at_k"], "diff@k": report["diff_at_k"]}
        known = {name: curve for name, curve in curves.items() if curve}  # without correctness only diff@k
        counts = report.get("questions_at_k", {})
        ragged = len(set(counts.values())) > 1
        rows = [
            [k, *(f"{curve[k]:.3f}" for curve in known.values()), *([str(counts[k])] if ragged else [])]
            for k in report["diff_at_k"]
        ]
        print_table(["k", *known, *(["questions"] if ragged else [])], rows, numbers=True)
        for kind, samples in report["disagreements_by_kind"].items():
            shown = [one for one in report["disagreements"] if one["kind"] == kind]
            name = kind if kind == "no answer" else f"gold: {kind}"
            rest = samples - sum(one["samples"] for one in shown)
            more = f", {rest} of them not shown" if rest else ""
            print(f"The labels of {counted(samples, 'sample')} differ; {name}{more}:")
            for one in shown:
                ours, theirs = ("correct", "wrong") if one["correct"] else ("wrong", "correct")
                answer = "no answer" if one["answer"] is None else f"answer {one['answer']}"
                times = f", {one['samples']} times" if one["samples"] > 1 else ""
                text = f"question {one['question_id']}, {answer}{times}: {theirs} by the file, {ours} here"
                print(printable(f"  {' '.join(text.split())} (gold {' '.join(one['gold'].split())})"))
            print()


def counted(number: int, noun: str) -> str:
    """Return a number with its noun, such as "1 question" and "2 questions"."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _facts(file: str, report: "Report") -> list[str]:
    facts = [
        f"{printable(Path(file).name)}: {counted(report['n_questions'], 'question')}, "
        f"{counted(report['n_samples'], 'sample')}",
        f"correctness by {report['correctness']}" if report["correctness"] else "correctness unknown: no gold answers",
        *([f"{report['solved_fraction']:.1%} of questions solved"] if report["correctness"] else []),
        f"{report['distinct_per_question']:.2f} distinct answers per question",
        f"{report['majority_share']:.1%} of samples give the most frequent answer"
        + (f", right for {report['majority_correct']:.1%} of questions" if report["correctness"] else ""),
        f"{report['no_answer_rate']:.1%} of samples without answer",
        f"{counted(report['unresolved'], 'comparison')} unresolved",
    ]
    if report["labelled"]:
        share = report["agreeing"] / report["labelled"]
        labels = counted(report["labelled"], "label")
        facts.append(f"agrees with {share:.1%} of the file's {labels}")
    if report["unscored_questions"]:
        facts.append(f"{len(report['unscored_questions'])} not scored: unusable gold")
    return facts


def checked_output(option: str, out: Path | None) -> Path | None:
    """Return the absolute path of a file to write; refuse one that could not be written at the end."""
    if out is None or out == Path("-"):
        return out
    if not out.absolute().parent.is_dir():
        raise FileNotFoundError(f"{option} {out}: the folder {out.parent} does not exist.")
    if out.is_dir():
        raise IsADirectoryError(f"{option} {out} is a folder; give a file")
    return out.absolute()


def print_result(result: Any, json_out: Path | None, print_tables: Callable[[], None]) -> None:
    """Print the tables of a result and write it as JSON, or print the JSON alone for `--json -`."""
    if json_out == Path("-"):
        print(json.dumps(result, indent=2))
        return
    print_tables()
    if json_out is not None:
        write_json(json_out, result)
