"""Predict, then confirm: the plan `grid`. A model with three rates predicted its differences before the first training.

python -m experiments.paper.grid predict   # results/grid/predictions.json: before the trainings, once
python -m experiments.paper grid           # the trainings; --tables N stops after the first N rule tables
python -m experiments.paper.grid collect   # results/grid/tables/: a file for each rule table whose trainings are done

The model is `experiments/mechanism/matched.py`, fitted to the GRPO runs of `confirm`. A row is a method minus GRPO, or
an estimator with a bonus minus the estimator. The direction of its claim is the sign of the prediction, so "seen" means
that the trainings confirm it. Rows are judged together, by Holm's method, once all rule tables of the plan are done.
"""

import argparse
import json
import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

from experiments import claims
from experiments.judged import interval, power, short
from experiments.lab.verdicts import LEVEL, Case, Verdict, estimate, judge, t_quantile
from experiments.mechanism import matched
from experiments.mechanism.policy import Rates
from experiments.mechanism.study import Runs, run_methods
from experiments.mechanism.training import Method
from experiments.paper.claims import MEASURES, PLANNED
from experiments.paper.measures import Measure, Results
from experiments.paper.plan import ALL, CONFIRM, GRID, METHODS_TABLE, SUMS
from experiments.paper.tables import label, table
from outcome_rl.files.atomic import write_json

RESULTS = Path(__file__).parent / "results" / GRID.name
PREDICTIONS, TABLES = RESULTS / "predictions.json", RESULTS / "tables"
GRPO = "none"
MEASURED = ("final pass@1", "final pass@32", "solved", "answers")
FRESH = tuple(range(100, 130))  # rule tables with a prediction; the plan's are the first of them
SEEDS = (0, 1, 2, 3)  # of the model, averaged
DOSES = (0.2, 1.0)  # coefficients among which the model chooses those of `SUMS`
BONUSES = ("ucb", "ucb_mean", "ucb_con", "batch", "batch_positive")  # of `confirm`, with c = .2
DECIDED = ("seen", "opposite")


class Row(NamedTuple):
    """One comparison."""

    left: str
    right: str
    measure: str


ROWS = tuple(
    Row(left, right, measure)
    for left, right in (
        *((method, GRPO) for method in GRID.methods if method != GRPO),
        *((method, method.partition("+")[0]) for method in SUMS),
    )
    for measure in MEASURED
)


def model_method(name: str, rates: Rates, coef: float | None = None) -> Method:
    """Make the method of a plan for the model."""
    method = ALL[name]
    settings = dict(setting.split("=", 1) for setting in method.settings)
    estimator = settings.get("exploration.adv_estimator", "grpo")
    return matched.matched_method(method.bonus, "medium", rates, method.coef if coef is None else coef, estimator)


def predict() -> dict[str, Any]:
    """Return predictions for the fresh rule tables, with intervals, choices of coefficients and power."""
    rates = Rates(**json.loads(matched.RESULT.read_text())["rates"])
    known = matched.PLAN
    doses = {
        f"{name}, c = {coef:g}": model_method(name, rates, coef) for name, coef in product(("batch", *SUMS), DOSES)
    }
    tuned = _means(run_instances(known.instances, doses))
    fresh = run_instances(FRESH, {name: model_method(name, rates) for name in GRID.methods})
    errors = model_errors(rates)
    rows = [_predicted(row, fresh, errors) for row in ROWS]
    return {
        "plan": asdict(GRID),
        "rates": rates._asdict(),
        "model": {"rule_tables": FRESH, "seeds": SEEDS, "beta": matched.BETA},
        "doses": tuned,
        "errors": errors,
        "rows": rows,
    }


def model_errors(rates: Rates) -> dict[str, dict[str, float]]:
    """Return how far the model was off in trainings that are known, for each measure.

    `floor`: root mean square, over the bonuses of `confirm`, of the error of the mean difference from GRPO. `relative`:
    the same over three estimators in the table of docs/methods.md, in units of the prediction; that of pass@32 serves
    for the measures that this table lacks. `noise`: standard deviation over rule tables of the error with one seed.
    `spread`: that of the difference itself.
    """
    names = (GRPO, *BONUSES)
    runs = run_instances(matched.PLAN.instances, {name: model_method(name, rates) for name in names})
    results = Results(json.loads(matched.CONFIRM_RECORDS.read_text()))
    found, relative = {}, _relative_errors(rates)
    for measure in MEASURED:
        offsets, noises, spreads = [], [], []
        for name in BONUSES:
            model = model_differences(runs, Row(name, GRPO, measure), matched.PLAN.instances)
            by_seed = [_differences(results, Row(name, GRPO, measure), seed, PLANNED) for seed in CONFIRM.seeds]
            errors = [[lm - m for lm, m in zip(one, model, strict=True)] for one in by_seed]
            offsets.append(statistics.fmean(error for one in errors for error in one))
            noises += [statistics.variance(one) for one in errors]
            spreads += [statistics.variance(one) for one in by_seed]
        found[measure] = {
            "floor": short(_rms(offsets)),
            "relative": short(relative.get(measure, relative["final pass@32"])),
            "noise": short(math.sqrt(statistics.fmean(noises))),
            "spread": short(math.sqrt(statistics.fmean(spreads))),
        }
    return found


def _relative_errors(rates: Rates) -> dict[str, float]:
    """Compare the model with the three estimators of the plan `methods`, at its settings."""
    plan = METHODS_TABLE
    estimators = ("maxrl", "pass_at_k", "pkpo")
    own = replace(
        matched.PLAN,
        instances=plan.instances,
        seeds=SEEDS,
        questions=plan.train_questions,
        samples=(("medium", plan.steps * plan.batch * plan.n // plan.train_questions),),
        evaluations=1,
        validation_questions=plan.validation_questions,
        test_questions=plan.test_questions,
    )
    runs: Runs = {}
    for instance in plan.instances:
        runs |= run_methods(own, instance, "medium", {name: model_method(name, rates) for name in (GRPO, *estimators)})
    figures = json.loads((RESULTS.parent / "methods.json").read_text())["figures"]
    relative = {}
    for k in ("pass@1", "pass@32"):
        predicted, off = [], []
        for name in estimators:
            mean = statistics.fmean(model_differences(runs, Row(name, GRPO, f"final {k}"), plan.instances))
            pairs = zip(figures[name], figures[GRPO], strict=True)
            predicted.append(mean)
            off.append(statistics.fmean(left[k] - right[k] for left, right in pairs) - mean)
        relative[f"final {k}"] = _rms(off) / _rms(predicted)
    return relative


def _predicted(row: Row, runs: Runs, errors: Mapping[str, Mapping[str, float]]) -> dict[str, Any]:
    by_table = model_differences(runs, row, FRESH)
    units = len(GRID.instances)
    mean = statistics.fmean(by_table[:units])
    off = errors[row.measure]
    deviation = math.sqrt(off["floor"] ** 2 + (off["relative"] * mean) ** 2 + off["noise"] ** 2 / units)
    half = t_quantile(1 - LEVEL, units - 1) * deviation
    spread = max(off["spread"], statistics.stdev(by_table))
    return {
        **row._asdict(),
        "mean": short(mean),
        "low": short(mean - half),
        "high": short(mean + half),
        "power": short(power(mean, spread, units, len(ROWS))),
        "by_table": [short(value) for value in by_table],
    }


def run_instances(instances: Sequence[int], methods: Mapping[str, Method]) -> Runs:
    plan = replace(matched.PLAN, seeds=SEEDS, final_evaluations=GRID.final_evaluations)
    runs: Runs = {}
    for instance in instances:
        runs |= run_methods(plan, instance, "medium", methods)
    return runs


def _means(runs: Runs) -> dict[str, dict[str, float]]:
    names = dict.fromkeys(name for *_, name in runs)
    return {
        name: {
            measure: short(statistics.fmean(run.measures[measure] for key, run in runs.items() if key[-1] == name))
            for measure in MEASURED
        }
        for name in names
    }


def model_differences(runs: Runs, row: Row, instances: Sequence[int]) -> list[float]:
    return [
        statistics.fmean(
            runs[instance, seed, "medium", row.left].measures[row.measure]
            - runs[instance, seed, "medium", row.right].measures[row.measure]
            for seed in SEEDS
        )
        for instance in instances
    ]


def _differences(results: Results, row: Row, seed: int, measures: Mapping[str, Measure]) -> list[float]:
    """Return left minus right, one entry a rule table, of the trainings with a seed."""
    measure = measures[row.measure]

    def values(method: str) -> Iterator[float]:
        for cell in results.cells:
            yield from (measure(run) for run in results.runs(cell, method) if run["seed"] == seed)

    return [left - right for left, right in zip(values(row.left), values(row.right), strict=True)]


def collect(folder: Path, out: Path = TABLES) -> list[Path]:
    """Write a result file for each rule table of `folder` whose trainings are done; return those that are new."""
    records = json.loads((folder / "records.json").read_text())
    written = []
    for cell in records["cells"]:
        path = out / f"{cell['instance']}.json"
        if path.exists():
            continue
        runs = [run for run in records["runs"] if run["instance"] == cell["instance"]]
        path.parent.mkdir(parents=True, exist_ok=True)
        content = {"environment": records["environment"], "cell": cell, "runs": runs}
        path.write_text(json.dumps(content, separators=(",", ":")) + "\n")
        written.append(path)
    return written


def results() -> Results:
    """Read the result files of the rule tables that are done."""
    files = [json.loads(path.read_text()) for path in sorted(TABLES.glob("*.json"))]
    return Results(
        {
            "plan": asdict(GRID),
            "cells": [file["cell"] for file in files],
            "runs": [run for file in files for run in file["runs"]],
        }
    )


def measured(row: Row, found: Results, measures: Mapping[str, Measure] = MEASURES) -> list[float]:
    """Return the measured differences of a row, one a rule table."""
    (seed,) = GRID.seeds
    return _differences(found, row, seed, measures)


def verdicts_of(
    predictions: Mapping[str, Any], found: Results, measures: Mapping[str, Measure] = MEASURES
) -> list[Verdict] | None:
    """Judge the rows; None before all rule tables of the plan are done."""
    if {cell.instance for cell in found.cells} != set(GRID.instances):
        return None
    rows = predictions["rows"]
    return judge(
        [
            Case(
                measured(row, found, measures), 1 if predicted["mean"] > 0 else -1, claims.MEASURES[row.measure].margin
            )
            for row, predicted in zip(ROWS, rows, strict=True)
        ]
    )


def grid_table(predictions: Mapping[str, Any], found: Results) -> str:
    """Return predicted and measured differences, with intervals and verdicts, in Markdown.

    The last column has what the plan had fixed, the mean of the last three evaluations, where that is another measure.
    """
    judged, planned = verdicts_of(predictions, found), verdicts_of(predictions, found, PLANNED)
    lines = []
    for i, (row, predicted) in enumerate(zip(ROWS, predictions["rows"], strict=True)):
        values = measured(row, found)
        lines.append(
            [
                label(row.left),
                label(row.right),
                row.measure,
                f"{predicted['mean']:+.3f} [{predicted['low']:+.3f}, {predicted['high']:+.3f}]",
                f"{predicted['power']:.2f}",
                interval(values),
                judged[i].word if judged else "",
                f"{planned[i].mean:+.4f}, {planned[i].word}" if planned and row.measure.startswith("final") else "",
            ]
        )
    heading = ["method", "against", "measure", "predicted", "power", "measured", "verdict", "mean of the last three"]
    picture = "\n![Measured against predicted differences, by measure](../../docs/predictions.png)\n"
    return (
        agreement(predictions, found)
        + table(heading, lines)
        + "\n"
        + _state(len(found.cells))
        + (picture if found.cells else "")
    )


def methods_table(predictions: Mapping[str, Any], found: Results) -> str:
    """Return the measured differences from GRPO, a line a method, decided ones in bold, in Markdown."""
    decided = {
        row
        for row, verdict in zip(ROWS, verdicts_of(predictions, found) or (), strict=False)
        if verdict.word in DECIDED
    }

    def cell(row: Row) -> str:
        text = interval(measured(row, found))
        return f"**{text}**" if row in decided else text

    names = dict.fromkeys(row.left for row in ROWS)
    lines = [[label(name), *(cell(Row(name, GRPO, measure)) for measure in MEASURED)] for name in names]
    return table(["against GRPO", *MEASURED], lines)


def agreement(predictions: Mapping[str, Any], found: Results) -> str:
    """Return how well the predictions hold: signs of the decided rows, intervals, and correlations, in a sentence."""
    judged = verdicts_of(predictions, found)
    if judged is None:
        return ""
    rows = predictions["rows"]
    means = [estimate(measured(row, found)).mean for row in ROWS]
    decided, planned = (
        [verdict.word for verdict in verdicts if verdict.word in DECIDED]
        for verdicts in (judged, verdicts_of(predictions, found, PLANNED) or ())
    )
    inside = sum(row["low"] <= mean <= row["high"] for row, mean in zip(rows, means, strict=True))
    correlations = []
    for measure in MEASURED:
        pairs = [(row["mean"], mean) for row, mean in zip(rows, means, strict=True) if row["measure"] == measure]
        correlations.append(f"{statistics.correlation(*zip(*pairs, strict=True)):.2f} ({measure})")
    return (
        f"**The model has the sign of {decided.count('seen')} of the {len(decided)} differences that are decided.** "
        f"{inside} of {len(ROWS)} measured means lie inside the predicted interval. Correlations over rows: "
        f"{', '.join(correlations)}. By the mean of the last three evaluations, which is what was predicted, the model "
        f"has the sign of {planned.count('seen')} of {len(planned)}.\n\n"
    )


def _state(done: int) -> str:
    units = len(GRID.instances)
    if done == units:
        return (
            f"{done} rule tables, one seed each; intervals of 95 %, verdicts by Holm's method over {len(ROWS)} rows.\n"
        )
    return f"**{done} of {units} rule tables are done.** Verdicts come with the last; until then nothing is decided.\n"


def draw(predictions: Mapping[str, Any], found: Results, path: Path) -> None:
    """Draw measured against predicted differences, a panel for each measure."""
    from matplotlib.figure import Figure

    from experiments.paper.figures import finish_axes, save_small

    figure = Figure(figsize=(11, 3.2), layout="constrained")
    pairs = list(zip(ROWS, predictions["rows"], strict=True))
    for axes, measure in zip(figure.subplots(1, len(MEASURED)), MEASURED, strict=True):
        for row, predicted in (pair for pair in pairs if pair[0].measure == measure):
            at = estimate(measured(row, found))
            bounds = None if math.isnan(at.low) else [[at.mean - at.low], [at.high - at.mean]]
            xerr = [[predicted["mean"] - predicted["low"]], [predicted["high"] - predicted["mean"]]]
            axes.errorbar(
                [predicted["mean"]], [at.mean], yerr=bounds, xerr=xerr, fmt="o", ms=3, lw=0.7, color="#0b6e99"
            )
        axes.axline((0, 0), slope=1, color="#8c8c8c", lw=0.8)
        finish_axes(axes, measure, "predicted difference", legend=False)
    figure.axes[0].set_ylabel("measured difference")
    save_small(figure, path, dpi=120)


def _rms(values: Sequence[float]) -> float:
    return math.sqrt(statistics.fmean(value**2 for value in values))


def main() -> None:
    """Write the predictions, or the result files of finished trainings."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("stage", choices=("predict", "collect"))
    parser.add_argument("--runs", type=Path, default=Path("runs") / f"paper-{GRID.name}", help="%(default)s")
    options = parser.parse_args()
    if options.stage == "collect":
        for path in collect(options.runs):
            print(f"wrote {path}")
        return
    if any(TABLES.glob("*.json")):
        raise SystemExit(f"{TABLES} holds results; predictions are made before them")
    RESULTS.mkdir(parents=True, exist_ok=True)
    write_json(PREDICTIONS, predict())
    print(f"wrote {PREDICTIONS}")


if __name__ == "__main__":
    main()
