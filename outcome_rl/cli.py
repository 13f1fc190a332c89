"""The `outcome-rl` command line: one function a command, and errors of the user's making on one line.

Commands import what they need when they run, so that `outcome-rl --help` answers at once. Results go to stdout,
progress and errors to stderr.
"""

import json
import sys
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from typer.core import TyperGroup

from outcome_rl.bench import BENCHMARKS
from outcome_rl.version import __version__

if TYPE_CHECKING:
    from outcome_rl.analyze import Report
    from outcome_rl.outcomes.matcher import Progress


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
        with _progress(file.name) as progress:
            reports[str(file)] = analyze_file(
                file, equivalence=equivalence, from_text=from_text, workers=workers, progress=progress
            )
    _print_reports(reports)
    if json_out is not None:
        content = next(iter(reports.values())) if len(reports) == 1 else reports
        json_out.write_text(json.dumps(content, indent=2) + "\n")


@app.command()
def train(
    overrides: Annotated[
        list[str] | None,
        typer.Argument(metavar="KEY=VALUE", help="Settings, such as rollout.n=16 data.train_files=problems.jsonl."),
    ] = None,
    config: Annotated[
        str | None, typer.Option("--config", metavar="FILE|PRESET", help="YAML file, or the preset `embedded`.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the resolved settings and stop.")] = False,
) -> None:
    """Train a policy with outcome-based exploration; continues where an earlier call with the same name stopped.

    `outcome-rl train --config embedded` trains the tiny policy of this package in minutes on a CPU.
    """
    from outcome_rl.driver.config_loading import load_config, to_yaml

    settings = load_config(config, overrides or [])
    if dry_run:
        print(to_yaml(settings), end="")
        return
    from transformers.utils import logging as transformers_logging

    from outcome_rl.driver.guards import Interrupted
    from outcome_rl.driver.trainer import train as run

    transformers_logging.disable_progress_bar()  # one progress bar a run: ours
    try:
        run(settings)
    except Interrupted as interruption:
        print(f"{interruption}; the same command continues it", file=sys.stderr)
        raise typer.Exit(128 + interruption.signum) from interruption


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
) -> None:
    """Re-run the paper in miniature and write a report with a verdict for each of its claims.

    The same command continues what was stopped, and does nothing twice.
    """
    from outcome_rl.reproduce import command

    chosen = [name for name, wanted in (("quick", quick), ("full", full), ("smoke", smoke)) if wanted]
    if len(chosen) > 1:
        raise ValueError(f"choose one of --quick, --full and --smoke; got {' and '.join(map('--{}'.format, chosen))}")
    plan = chosen[0] if chosen else "quick"
    folder = out or Path("runs") / f"reproduce-{plan}"
    if report:
        command.report(folder)
    else:
        command.reproduce(plan, folder, processes)


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


def _print_reports(reports: dict[str, "Report"]) -> None:
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    table = Table(show_lines=True)
    table.add_column("file", ratio=1, overflow="fold")
    for heading in ("k", "pass@k", "best@k", "diff@k"):
        table.add_column(heading, justify="right", no_wrap=True)
    for file, report in reports.items():
        rates = [
            "\n".join(f"{value:.3f}" for value in at_k.values())
            for at_k in (report["pass_at_k"], report["best_at_k"], report["diff_at_k"])
        ]
        table.add_row(escape("\n".join(_facts(file, report))), "\n".join(report["pass_at_k"]), *rates)
    Console().print(table)


def _facts(file: str, report: "Report") -> list[str]:
    facts = [
        Path(file).name,
        f"{report['n_questions']} questions, {report['n_samples']} samples",
        f"{report['solved_fraction']:.1%} of questions solved",
        f"{report['distinct_per_question']:.2f} distinct answers a question",
        f"{report['no_answer_rate']:.1%} of samples without answer",
        f"{report['unresolved']} comparisons unresolved",
    ]
    if report["unscored_questions"]:
        facts.append(f"{len(report['unscored_questions'])} not scored: unusable gold")
    return facts


@contextmanager
def _progress(label: str) -> Iterator["Progress"]:
    """A bar on a terminal; elsewhere plain lines, the first at once and another every ten seconds."""
    if not sys.stderr.isatty():
        yield _plain_progress(label)
        return
    from rich.console import Console
    from rich.progress import Progress as Bar

    with Bar(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(label, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


def _plain_progress(label: str) -> "Progress":
    print(f"{label} ...", file=sys.stderr, flush=True)
    shown_at = time.monotonic()

    def show(done: int, total: int) -> None:
        nonlocal shown_at
        if time.monotonic() - shown_at >= 10:
            shown_at = time.monotonic()
            print(f"{label}: {done} of {total} comparisons", file=sys.stderr, flush=True)

    return show


def _one_line(error: Exception) -> str:
    if isinstance(error, OSError) and error.filename is not None:
        return f"{error.filename}: {error.strerror}"
    return " ".join(str(error).split())


if __name__ == "__main__":
    main()
