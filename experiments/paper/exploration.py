"""Quality of the toy policy under each bonus: pass@k and diff@k after training, several seeds, against the base.

    python -m experiments.paper.exploration --methods none ucb_con@0.2 batch@1 --seeds 0 1

A method is a value of exploration.bonus with its coefficient. Every run is `outcome-rl train --config toy` with
another bonus and seed and nothing else changed, so plain GRPO (`none`) is trained with the same answer mask. The test
split is evaluated once before and once after training; no checkpoint is chosen. Runs lie in runs/exploration/COMMIT/
and are continued or reused by the next call at the same commit.
"""

import argparse
import json
import os
import statistics
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from experiments.paper.plan import METHODS
from experiments.paper.runs import train_in_a_process
from outcome_rl.bench.record import commit, write_result
from outcome_rl.files import read_rows

RUNS = Path("runs") / "exploration"
RECORD = Path(__file__).parent / "results" / "exploration.json"
TEST = "toy:test"
COLOURS = ["#d1495b", "#0b6e99", "#e9a03b", "#4f9d69", "#7b5ea7", "#555555"]


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        prog="python -m experiments.paper.exploration",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--methods", nargs="+", default=["none", "ucb_con@0.2", "batch@0.2"], help="bonus@coefficient")
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--set", nargs="*", default=[], metavar="KEY=VALUE", help="settings of every run")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1, help="runs at a time, one thread each")
    parser.add_argument("--plot", type=Path, default=Path("docs/exploration.png"))
    parser.add_argument("--from-record", action="store_true", help="plot and table of the last record; trains nothing")
    arguments = parser.parse_args(argv)
    if not arguments.from_record:
        measure(arguments)
    figures = json.loads(RECORD.read_text())["figures"]
    plot(figures, arguments.plot)
    print(f"wrote {arguments.plot}\n\n{table(figures)}")


def measure(arguments: argparse.Namespace) -> None:
    """Train every method with every seed and record the evaluations."""
    runs = [(method, seed) for method in arguments.methods for seed in arguments.seeds]
    with ThreadPoolExecutor(arguments.processes) as pool:
        rows = dict(zip(runs, pool.map(lambda run: train(run[0], run[1], arguments.set), runs), strict=True))
    figures = {
        method: [{"seed": seed, **rows[method, seed]} for seed in arguments.seeds] for method in arguments.methods
    }
    config = {"preset": "toy", "settings": arguments.set, "seeds": arguments.seeds}
    print(f"wrote {write_result(RECORD.parent, RECORD.stem, config, figures)}")


def train(method: str, seed: int, settings: Sequence[str]) -> dict[str, Any]:
    """Run one training to its end and return its first and last evaluation on the test split."""
    bonus, _, coef = method.partition("@")
    name = f"{method}-seed{seed}"
    runs = RUNS / commit()[:12]  # a run is reused only by the code that made it
    train_in_a_process(
        [
            *(f"exploration.bonus={bonus}", f"trainer.seed={seed}", "trainer.num_threads=1"),
            *([f"exploration.coef={coef}"] if coef else []),
            *(f"trainer.default_local_dir={runs}", f"trainer.experiment_name={name}"),
            *settings,
        ],
        runs / f"{name}.log",
        Event(),
    )
    print(f"{name}: done", flush=True)
    tests = [row for row in read_rows(runs / name / "evaluations.jsonl") if row["dataset"] == TEST]
    *_, last = read_rows(runs / name / "metrics.jsonl")
    return {"base": tests[0], "trained": tests[-1], "last_step": last}


def name_of(method: str) -> str:
    bonus, _, coef = method.partition("@")
    return (METHODS[bonus].label if bonus in METHODS else bonus) + (f", c = {coef}" if coef else "")


def plot(figures: dict[str, list[dict[str, Any]]], path: Path) -> None:
    """pass@k and diff@k: mean over seeds, the band from the lowest to the highest seed."""
    figure = Figure(figsize=(9.5, 3.9), layout="constrained")
    base = next(iter(figures.values()))
    for axes, metric, title in zip(
        figure.subplots(1, 2),
        ("pass_at_k", "diff_at_k"),
        ("pass@k", "diff@k: distinct answers in k samples"),
        strict=True,
    ):
        _curve(axes, [run["base"][metric] for run in base], "base policy", "#999999", "o--")
        for colour, (method, runs) in zip(COLOURS, figures.items(), strict=False):
            _curve(axes, [run["trained"][metric] for run in runs], name_of(method), colour, "o-")
        axes.set_xscale("log", base=2)
        ks = [int(k) for k in base[0]["base"][metric]]
        axes.set_xticks(ks, [str(k) for k in ks])
        axes.set_xlabel("k samples")
        axes.set_title(title, loc="left", fontsize=11)
        axes.grid(alpha=0.25)
        axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, fontsize=9)
    first = base[0]["trained"]
    figure.suptitle(
        f"Toy task, {first['n_questions']} test questions, {first['step']} steps, {len(base)} seeds", fontsize=11
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=140)


def _curve(axes: Axes, curves: Sequence[dict[str, float]], label: str, colour: str, style: str) -> None:
    ks = [int(k) for k in curves[0]]
    columns = [[curve[str(k)] for curve in curves] for k in ks]
    axes.plot(ks, [statistics.mean(column) for column in columns], style, color=colour, label=label, markersize=4)
    axes.fill_between(ks, list(map(min, columns)), list(map(max, columns)), color=colour, alpha=0.15, linewidth=0)


def table(figures: dict[str, list[dict[str, Any]]]) -> str:
    """Mean and range over seeds, in Markdown."""
    rows = {"base policy": [{"test": run["base"]} for run in next(iter(figures.values()))]}
    for method, runs in figures.items():
        rows[name_of(method)] = [
            {"test": run["trained"], "solved": run["last_step"]["exploration/solved_fraction"]} for run in runs
        ]
    lines = ["| | pass@1 | pass@8 | pass@32 | diff@32 | training questions solved |", "|---|---|---|---|---|---|"]
    for label, runs in rows.items():
        cells = [_range([run["test"]["pass_at_k"][k] for run in runs], 3) for k in ("1", "8", "32")]
        cells.append(_range([run["test"]["diff_at_k"]["32"] for run in runs], 2))
        cells.append(_range([run["solved"] for run in runs], 3) if "solved" in runs[0] else "")
        lines.append(f"| {label} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _range(values: Sequence[float], digits: int) -> str:
    mean, low, high = statistics.mean(values), min(values), max(values)
    return f"{mean:.{digits}f} ({low:.{digits}f} to {high:.{digits}f})"


if __name__ == "__main__":
    main()
