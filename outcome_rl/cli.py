"""The `outcome-rl` command line: one function a command, and errors of the user's making on one line.

Commands import what they need when they run, so that `outcome-rl --help` answers at once. Results go to stdout,
progress and errors to stderr.
"""

import json
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from typer.core import TyperGroup

from outcome_rl.bench import BENCHMARKS
from outcome_rl.driver import commands
from outcome_rl.terminal import print_reports, show_progress
from outcome_rl.version import __version__


class _Commands(TyperGroup):
    """Prints errors in files, options and data as `error: ...` with exit status 2; `--debug` lets them through."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except (ValueError, OSError, FloatingPointError) as error:
            if ctx.params["debug"]:
                raise
            print(f"error: {_one_line(error)}", file=sys.stderr)
            raise typer.Exit(2) from error


app = typer.Typer(cls=_Commands, no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False)
benchmarks = typer.Typer(no_args_is_help=True, help="Measure a part of the library on this machine.")
app.add_typer(benchmarks, name="bench")


def main() -> None:
    """The console entry point `outcome-rl`."""
    warnings.formatwarning = lambda message, *_, **__: f"warning: {message}\n"
    app(prog_name="outcome-rl")


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"outcome-rl {__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
) -> None:
    """Outcome-based exploration for RL on reasoning models."""


@app.command()
def analyze(
    files: Annotated[list[Path], typer.Argument(metavar="FILE", help="JSONL files of samples.", show_default=False)],
    json_out: Annotated[
        Path | None,
        typer.Option("--json", metavar="OUT", help="Write the report (several files: file -> report)."),
    ] = None,
    equivalence: Annotated[
        Literal["canonical", "math_verify"],
        typer.Option(help="How answers are compared: keys first, or math-verify for every pair."),
    ] = "canonical",
    from_text: Annotated[
        bool, typer.Option("--from-text", help="Extract answers from the text even where a sample has an `answer`.")
    ] = False,
    workers: Annotated[
        int | None, typer.Option(min=1, help="math-verify processes.", show_default="one a core")
    ] = None,
) -> None:
    """Report pass@k, best@k, diff@k and their companions for files of samples.

    Rows are {question_id, gold, samples: [{text | answer}, ...]} or {question_id, gold, response}.
    """
    from outcome_rl.analyze import analyze_file

    if json_out is not None and not json_out.absolute().parent.is_dir():
        raise FileNotFoundError(f"--json {json_out}: the folder {json_out.parent} does not exist.")
    reports = {}
    for file in files:
        with show_progress(file.name, "comparisons") as progress:
            reports[str(file)] = analyze_file(
                file, equivalence=equivalence, from_text=from_text, workers=workers, progress=progress
            )
    print_reports(reports)
    if json_out is not None:
        content = next(iter(reports.values())) if len(reports) == 1 else reports
        json_out.write_text(json.dumps(content, indent=2) + "\n")


_DRIVER: dict[str, Callable[..., None]] = {
    "train": commands.train,
    "eval": commands.evaluate,
    "export": commands.export,
    "report": commands.report,
    "hard-set": commands.hard_set,
}
for _name, _command in _DRIVER.items():
    app.command(_name)(_command)


@app.command()
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
    from outcome_rl.driver.guards import Interrupted
    from outcome_rl.reproduce import command

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


@app.command()
def env(as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False) -> None:
    """Show versions, devices, and for each operation which implementation runs and why."""
    from outcome_rl.environment import describe_environment

    environment = describe_environment()
    if as_json:
        print(json.dumps(environment, indent=2))
        return
    from rich.console import Console
    from rich.table import Table

    versions = Table("package", "version")
    for name, version in environment["versions"].items():
        versions.add_row(name, version)
    operations = Table("operation", "implementation", "why")
    for name, choice in environment["operations"].items():
        operations.add_row(name, choice["implementation"], choice["reason"])
    console = Console()
    console.print(versions, operations, *environment["devices"], sep="\n", markup=False, highlight=False)


@app.command()
def bandits(
    check: Annotated[
        bool, typer.Option("--check", help="Test the statements of the theory instead; exit status 1 if one fails.")
    ] = False,
    seeds: Annotated[
        int | None, typer.Option(min=2, help="Runs of each simulation.", show_default="200; 2000 with --check")
    ] = None,
) -> None:
    """Simulate the paper's bandits: regret against T, K, m and rho beside the bounds, as tables, PNG and JSON."""
    from outcome_rl.bandits import command

    if not check:
        command.run(seeds or 200)
    elif not command.check(seeds or 2000):
        raise typer.Exit(1)


def bench(context: typer.Context) -> None:
    """Run the benchmark that the command is named after; its options are its own."""
    from importlib import import_module

    import_module(f"outcome_rl.bench.{context.info_name}").main(context.args)


for _name, _what in BENCHMARKS.items():
    benchmarks.command(
        _name,
        help=_what,
        add_help_option=False,
        context_settings={"allow_extra_args": True, "ignore_unknown_options": True},
    )(bench)


def _one_line(error: Exception) -> str:
    if isinstance(error, OSError) and error.filename is not None:
        return f"{error.filename}: {error.strerror}"
    return " ".join(str(error).split())


if __name__ == "__main__":
    main()
