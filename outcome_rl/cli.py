"""The `outcome-rl` command line: one function a command, and errors of the user's making on one line.

Commands import what they need when they run, so that `outcome-rl --help` answers at once. Results go to stdout,
progress and errors to stderr.
"""

import json
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from typer.core import TyperGroup

from outcome_rl.bench import BENCHMARKS
from outcome_rl.grpo import commands
from outcome_rl.terminal import print_reports, show_progress
from outcome_rl.version import __version__


class _Commands(TyperGroup):
    """Print the user's errors on one line, unless `--debug` is given."""

    def invoke(self, ctx: Any) -> Any:
        with errors_on_one_line(debug=ctx.params["debug"]):
            return super().invoke(ctx)


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


@contextmanager
def errors_on_one_line(*, debug: bool = False) -> Iterator[None]:
    """Print errors in files, options and data as `error: ...` and exit with status 2; `debug` lets them through."""
    try:
        yield
    except (ValueError, OSError, FloatingPointError) as error:
        if debug:
            raise
        print(f"error: {_one_line(error)}", file=sys.stderr)
        raise SystemExit(2) from error


def _one_line(error: Exception) -> str:
    if isinstance(error, OSError) and error.filename is not None:
        return f"{error.filename}: {error.strerror}"
    return " ".join(str(error).split())


if __name__ == "__main__":
    main()
