"""Command line of the paper in miniature: `python -m experiments.paper`."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from experiments.paper import command
from outcome_rl.grpo.run.run_lock import Interrupted


def reproduce(
    quick: Annotated[bool, typer.Option("--quick", help="Minutes on two cores (the default).")] = False,
    full: Annotated[bool, typer.Option("--full", help="A night on a CPU, and every ablation.")] = False,
    smoke: Annotated[bool, typer.Option("--smoke", help="A test of the machinery, not of the claims.")] = False,
    report: Annotated[bool, typer.Option("--report", help="Only write the report of the folder's records.")] = False,
    out: Annotated[
        Path | None, typer.Option(help="Folder of runs, records and report.", show_default="runs/reproduce-PLAN")
    ] = None,
    processes: Annotated[
        int | None, typer.Option(min=1, help="Trainings at a time, one thread each.", show_default="one a core")
    ] = None,
    seeds: Annotated[
        int | None,
        typer.Option(min=1, help="Only so many of the plan's seeds; a later call can add more.", show_default="all"),
    ] = None,
) -> None:
    """Re-run the paper in miniature and write a report with a verdict for each of its claims.

    The same command continues what was stopped, and does nothing twice.
    """

    chosen = [name for name, wanted in (("quick", quick), ("full", full), ("smoke", smoke)) if wanted]
    if len(chosen) > 1:
        raise ValueError(f"choose one of --quick, --full and --smoke; got {' and '.join(map('--{}'.format, chosen))}")
    plan = chosen[0] if chosen else "quick"
    folder = out or Path("runs") / f"reproduce-{plan}"
    if report:
        command.report(folder)
        return
    try:
        command.reproduce(plan, folder, processes, seeds)
    except Interrupted as interruption:
        print(f"{interruption}; the same command continues it", file=sys.stderr)
        raise typer.Exit(128 + interruption.signum) from interruption


if __name__ == "__main__":
    typer.run(reproduce)
