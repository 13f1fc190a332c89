"""Reports of files of samples, on the terminal."""

import shutil
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path

from outcome_rl.analyze import Report, first_reason
from outcome_rl.terminal.tables import counted, print_table
from outcome_rl.terminal.text import on_one_line, printable


def print_reports(reports: Mapping[str, Report]) -> None:
    """Print the metrics of each file of samples: facts within the terminal's width, and a table over k."""
    columns = shutil.get_terminal_size().columns
    for file, report in zip(short_names([*reports]), reports.values(), strict=True):
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
                print(f"  {on_one_line(text)} (gold {on_one_line(one['gold'])})")
            print()


def short_names(paths: Sequence[str]) -> list[str]:
    """Return the ends of paths, as many folders of each as tell them apart."""
    parts = [Path(path).parts for path in paths]
    longest = max(map(len, parts))
    kept = next((k for k in range(1, longest) if len({one[-k:] for one in parts}) == len(parts)), longest)
    return ["/".join(one[-kept:]) for one in parts]


def _facts(file: str, report: Report) -> list[str]:
    facts = [
        f"{printable(file)}: {counted(report['n_questions'], 'question')}, {counted(report['n_samples'], 'sample')}",
        f"correctness by {report['correctness']}"
        if report["correctness"]
        else "correctness unknown: no gold answers or rewards (--gold, --reward)",
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
        number, reason = len(report["unscored_questions"]), first_reason(report["unscored_questions"])
        facts.append(f"{number} not scored, such as {on_one_line(reason)}")
    return facts
