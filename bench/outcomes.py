"""Compare outcome keys with other graders: accuracy, agreement with published verdicts, throughput, time of a step.

    python -m bench.outcomes --data FOLDER
    python -m bench.outcomes --data FOLDER --rules        # what each rule decides (`bench.rules`)
    python -m bench.outcomes --data FOLDER --reports 3    # reported answers by class

The data are labelled pairs of answers (pairs/pairs_tests.jsonl) and model generations (generations/*.jsonl). Throughput
is that of one process; all graders take the same rows in turns, and start every round with empty caches.
"""

import argparse
import logging
import re
import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from sympy.core.cache import clear_cache

from bench import rules
from bench.graders import BASELINES
from bench.result_file import add_out, write_result
from outcome_rl import OutcomeMatcher, equivalent
from outcome_rl.files.rows import read_objects
from outcome_rl.outcomes import keys
from outcome_rl.outcomes.canonical.units import UNIT_WORDS
from outcome_rl.outcomes.extraction.response import extract_answer

OURS, STRICT, KEYS = "outcome_rl", "outcome_rl, `gold_tolerance=False`", "outcome_rl, keys only"
STEP = 2048
# The reason of a difference between our verdict and math-verify's: the first rule whose sign is in one of the texts.
RULES = {
    "currency": r"\\\$|€",
    "percent": r"%",
    "time of day": r"[0-9]:[0-9]{2}",
    "base": r"_\{?[0-9]",
    "`pi` without a backslash": r"(?<!\\)pi",
    "lost braces": r"\\(?:begin|end|mbox)[a-z]|\*sqrt",
    "fractions without braces": r"\\frac[0-9]{3}",
    "rounded decimals": r"[0-9]\.[0-9]{4}",
    "equations": r"=",
    "units": rf"[0-9}}] ?(?:{UNIT_WORDS})",
    "several quantities": r"[0-9][^0-9|]*(?:\band\b|,|\\quad)[^0-9|]*[0-9][^|]*\|",
    "letter case": r"^\(?[A-Za-z]\)? \| \(?[A-Za-z]\)?$",
}


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        prog="python -m bench.outcomes", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--data", type=Path, required=True, metavar="FOLDER", help="pairs/pairs_tests.jsonl and generations/*.jsonl"
    )
    parser.add_argument("--rows", type=int, default=600, help="rows of each file that are timed (%(default)s)")
    parser.add_argument("--rounds", type=int, default=3, help="rounds of each measurement (%(default)s)")
    parser.add_argument("--rules", action="store_true", help="switch each rule off in turn, and nothing else")
    parser.add_argument(
        "--reports", type=int, const=0, nargs="?", metavar="N", help="reported answers by class, and N that are wrong"
    )
    add_out(parser)
    options = parser.parse_args(argv)
    logging.disable(logging.WARNING)  # golds that need a look, and comparisons that are in the figures
    if options.reports is not None:
        print(rules.report_table(options.data, options.reports))
        return
    if options.rules:
        found = rules.measure(options.data)
        print(f"{rules.table(found)}\nwrote {write_result(options.out, 'outcome-rules', {}, found)}")
        return
    figures = {
        "pairs": measure_pairs(options.data / "pairs" / "pairs_tests.jsonl"),
        "generations": {path.stem: measure_file(path) for path in sorted((options.data / "generations").iterdir())},
        "throughput": {
            name: measure_throughput(options.data / "generations" / f"{name}.jsonl", options.rows, options.rounds)
            for name in ("gsm8k_14runs", "math500_3models")
        },
        "step": measure_step(options.data / "generations", 3 * options.rounds),
    }
    for table in tables(figures).values():
        print(f"{table}\n")
    config = {"rows": options.rows, "rounds": options.rounds, "step": STEP}
    print(f"wrote {write_result(options.out, 'outcomes', config, figures)}")


def measure_pairs(path: Path) -> dict[str, dict[str, float]]:
    """Measure agreement with the labels of all rows that are neither suspect nor a matter of convention."""
    rows = [row for _, row in read_objects(path) if not row.get("suspect") and not row.get("convention")]
    golds, predictions = ([stated(row[side]) for row in rows] for side in ("gold", "pred"))
    expected = np.array([row["expected"] for row in rows])
    verdicts = {}
    for name, tolerance in ((OURS, True), (STRICT, False)):
        with OutcomeMatcher(tolerant=tolerance) as matcher:
            ids = [str(i) for i in range(len(rows))]
            verdicts[name] = matcher.classify_answers(ids, predictions, golds).correct
    verdicts[KEYS] = np.array([equivalent(a, b) for a, b in zip(golds, predictions, strict=True)])
    verdicts["math-verify, as published with the pairs"] = np.array([bool(row["math_verify_0_9_0"]) for row in rows])
    for name, grade in BASELINES.items():
        verdicts[name] = np.array([grade(a, b) for a, b in zip(golds, predictions, strict=True)])
    return {
        name: {
            "rows": len(rows),
            "agreement": float(np.mean(verdict == expected)),
            "false_positives": int(np.sum(verdict & ~expected)),
            "false_negatives": int(np.sum(~verdict & expected)),
        }
        for name, verdict in verdicts.items()
    }


def stated(text: str) -> str:
    """Return the answer that a text states, without the signs around it; else the text, so that all graders get one."""
    answer = extract_answer(text)
    return text if answer is None else answer.text


def forget() -> None:
    """Empty all caches of answers; those of tables of the rules have no bound."""
    modules = [module for name, module in sys.modules.items() if name.startswith("outcome_rl.outcomes.")]
    for cached in {one for module in modules for one in vars(module).values() if hasattr(one, "cache_parameters")}:
        if cached.cache_parameters()["maxsize"] is not None:
            cached.cache_clear()


def samples(path: Path) -> Iterator[tuple[str, str | None, str, dict[str, Any]]]:
    """Yield (question id, answer, gold, sample) of every sample."""
    for _, question in read_objects(path):
        for sample in question["samples"]:
            answer = sample["answer"]
            yield question["question_id"], None if answer is None else str(answer), str(question["gold"]), sample


def measure_file(path: Path) -> dict[str, Any]:
    """Compare our verdicts with those of a file of generations, and count the comparisons by math-verify."""
    ids, answers, golds, raw = zip(*samples(path), strict=True)
    asked = [0]
    start = time.perf_counter()
    with OutcomeMatcher() as matcher:
        outcomes = matcher.classify_answers(
            ids, answers, golds, progress=lambda done, total: asked.__setitem__(0, total)
        )
    seconds = time.perf_counter() - start
    differ = [
        f"{answer} | {gold}"
        for answer, gold, sample, correct in zip(answers, golds, raw, outcomes.correct, strict=True)
        if sample["math_verify"] is not None and bool(sample["math_verify"]) != correct
    ]
    reasons = [next((rule for rule, sign in RULES.items() if re.search(sign, texts)), "none") for texts in differ]
    given = [answer for answer in answers if answer is not None]
    return {
        "samples": len(ids),
        "read_by_no_rule": sum(keys.is_open(keys.canonical_text(answer)) for answer in given) / len(given),
        "verdicts": sum(sample["math_verify"] is not None for sample in raw),
        "differ": {reason: reasons.count(reason) for reason in sorted(set(reasons))},
        "unexplained": [texts[:200] for texts, reason in zip(differ, reasons, strict=True) if reason == "none"],
        "asked": asked[0],
        "unresolved": outcomes.unresolved,
        "seconds": seconds,
    }


def measure_throughput(path: Path, rows: int, rounds: int) -> dict[str, dict[str, float]]:
    """Measure answers per second; ours with every cache empty, and again on answers it has seen."""
    timed = [row for row in samples(path) if row[1] is not None][:rows]
    ids, answers, golds, _ = zip(*timed, strict=True)
    rates: dict[str, list[float]] = {OURS: [], f"{OURS}, answers seen before": [], **{name: [] for name in BASELINES}}
    with OutcomeMatcher() as matcher:
        matcher.classify_answers(ids, answers, golds)  # loads modules, and the workers that these rows need
        for round_number in range(rounds):
            forget()
            matcher.pool._cache.clear()
            for name in (OURS, f"{OURS}, answers seen before"):
                start = time.perf_counter()
                matcher.classify_answers([f"{round_number} {name} {i}" for i in ids], answers, golds)
                rates[name].append(len(timed) / (time.perf_counter() - start))
            for name, grade in BASELINES.items():
                clear_cache()
                start = time.perf_counter()
                for answer, gold in zip(answers, golds, strict=True):
                    grade(gold, answer)
                rates[name].append(len(timed) / (time.perf_counter() - start))
    base = statistics.median(rates["math-verify"])
    return {
        name: {"answers_per_s": statistics.median(rate), "of_math_verify": statistics.median(rate) / base}
        for name, rate in rates.items()
    }


def measure_step(folder: Path, rounds: int) -> dict[str, dict[str, float]]:
    """Measure CPU milliseconds from 2,048 responses to keys and verdicts, at first sight of every answer and again.

    Responses that only math-verify can judge are left out: their number and its time are in the other tables.
    """
    result = {}
    for name in ("gsm8k_14runs", "math500_3models", "qwen25math_math100x8"):
        rows = [(i, sample["text"], gold) for i, _, gold, sample in samples(folder / f"{name}.jsonl")]
        rows = [row for row in rows if not any(keys.is_open(keys.canonical_text(stated(text))) for text in row[1:])]
        ids, texts, golds = zip(*(rows * (STEP // len(rows) + 1))[:STEP], strict=True)
        times: dict[str, list[float]] = {"first": [], "again": []}
        for _ in range(rounds):
            forget()
            for when in times:
                with OutcomeMatcher() as matcher:
                    start = time.process_time()
                    matcher.classify(ids, texts, golds)
                    times[when].append(1e3 * (time.process_time() - start))
        result[name] = {"distinct_answers": len({stated(text) for text in texts})} | {
            f"{when}_ms": statistics.median(measured) for when, measured in times.items()
        }
    return result


def tables(figures: dict[str, Any]) -> dict[str, str]:
    """Return the tables in Markdown, by the name of their marks in bench/results/outcomes.md."""
    pairs = ["| grader | agreement | called equal, are not | called different, are equal |", "|---|---|---|---|"]
    for name, row in sorted(figures["pairs"].items(), key=lambda item: -item[1]["agreement"]):
        pairs.append(f"| {name} | {row['agreement']:.1%} | {row['false_positives']} | {row['false_negatives']} |")
    files = [
        "| generations | samples | read by no rule | verdicts | the same | differ by a rule | by none | asked | time |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for name, row in figures["generations"].items():
        total, none = sum(row["differ"].values()), row["differ"].get("none", 0)
        rules = ", ".join(f"{count} {rule}" for rule, count in row["differ"].items() if rule != "none") or "-"
        files.append(
            f"| {name} | {row['samples']} | {row['read_by_no_rule']:.1%} | {row['verdicts']} "
            f"| {1 - total / row['verdicts']:.1%} | {rules} | {none} | {row['asked']} | {row['seconds']:.1f} s |"
        )
    speed = ["| grader | " + " | ".join(figures["throughput"]) + " |", "|---|" + "---|" * len(figures["throughput"])]
    for name in next(iter(figures["throughput"].values())):
        cells = [figures["throughput"][file][name] for file in figures["throughput"]]
        shown = [f"{cell['answers_per_s']:,.0f}/s, {cell['of_math_verify']:.3g} x" for cell in cells]
        speed.append(f"| {name} | " + " | ".join(shown) + " |")
    step = ["| 2,048 responses of | distinct answers | first sight | again |", "|---|---|---|---|"]
    for name, row in figures["step"].items():
        step.append(f"| {name} | {row['distinct_answers']} | {row['first_ms']:.0f} ms | {row['again_ms']:.0f} ms |")
    columns = {"pairs": pairs, "generations": files, "throughput": speed, "step": step}
    return {name: "\n".join(rows) for name, rows in columns.items()}


if __name__ == "__main__":
    main()
