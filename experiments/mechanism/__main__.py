"""Command line of the mechanism study: `python -m experiments.mechanism`."""

import json
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from experiments.mechanism.calibration import calibrate
from experiments.mechanism.hacking import run_hacking
from experiments.mechanism.matched import write_result
from experiments.mechanism.report import write_report
from experiments.mechanism.study import (
    COEF,
    OTHER_RATES,
    RATES,
    Plan,
    Progress,
    judge_claims,
    levels,
    points,
    run_claims,
    run_points,
)

RESULTS = Path(__file__).parent / "results"


def study(plan: Plan, progress: Progress) -> dict[str, Any]:
    """Run everything, and return the record from which the report is written."""
    start = time.process_time()
    runs = run_claims(plan, RATES, progress)
    judged = judge_claims(runs, plan)
    seconds = time.process_time() - start
    progress(f"claims judged in {seconds:.0f} s of processor time")
    others = []
    for rates in OTHER_RATES:
        words = [row["word"] for row in judge_claims(run_claims(plan, rates, progress), plan)]
        others.append({"rates": rates, "words": words})
    return {
        "plan": asdict(plan),
        "coef": COEF,
        "rates": RATES,
        "seconds_of_claims": round(seconds),
        "claims": judged,
        "other_rates": others,
        "levels": levels(runs),
        "points": run_points(plan, points(), progress),
        "hacking": run_hacking(plan),
    }


def mechanism(
    calibration: Annotated[
        bool, typer.Option("--calibrate", help="Fit the learning rates to GRPO's curves instead, and print the best.")
    ] = False,
    matched: Annotated[
        bool, typer.Option("--matched", help="Only fit and run the model at the settings of the language-model study.")
    ] = False,
    report: Annotated[bool, typer.Option("--report", help="Only write the report of the folder's record.")] = False,
    out: Annotated[Path, typer.Option(help="Folder of the record, the report and the figure.")] = RESULTS,
) -> None:
    """Judge the paper's claims in a tabular model of the toy task, and write a report."""
    if calibration:
        for fit in calibrate()[:10]:
            deviations = ", ".join(f"{name} {value:.2f}" for name, value in fit.by_measure.items())
            print(f"error {fit.error:.3f} ({deviations}): {fit.rates}")
        return
    if matched:
        print(f"wrote {write_result(out / 'matched.json')}")
        return
    record = out / "mechanism.json"
    if not report:
        out.mkdir(parents=True, exist_ok=True)
        found = study(Plan(), lambda text: print(text, file=sys.stderr, flush=True))
        record.write_text(json.dumps(found, separators=(",", ":"), allow_nan=False) + "\n")
    print(f"wrote {write_report(json.loads(record.read_text()), out)}")


if __name__ == "__main__":
    typer.run(mechanism)
