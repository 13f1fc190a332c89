"""The `outcome-rl` command line.

The parser is argparse, so that the commands of the core need no package besides the core's. A command imports its
modules when it runs: `outcome-rl --help` answers at once. Results go to stdout, progress and errors to stderr.
"""

import argparse
import json
import logging
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from outcome_rl.commands import add_commands
from outcome_rl.progress import show_progress
from outcome_rl.tables import print_reports, print_table
from outcome_rl.terminal import at_least_one, errors_on_one_line, printable
from outcome_rl.version import __version__


def main(argv: Sequence[str] | None = None) -> None:
    """Run one command.

    Args:
        argv: words of the command line; None takes the process's.

    Raises:
        SystemExit: the command failed; status 2 for errors of the user.
    """
    warnings.formatwarning = lambda message, *_, **__: f"warning: {printable(str(message))}\n"
    if logging.lastResort is not None:
        logging.lastResort.setFormatter(_PrintableLines())
    parser = _parser()
    options, rest = parser.parse_known_args(argv)
    arguments = vars(options)
    # argparse takes positional arguments from one side of an option only; the others are left over.
    if "overrides" in arguments and not any(word.startswith("-") for word in rest):
        arguments["overrides"] += rest
    elif "argv" in arguments:
        arguments["argv"] = rest
    elif rest:
        hint = "; settings have no dashes, as in rollout.n=16" if "overrides" in arguments else ""
        parser.error(f"unrecognized arguments: {' '.join(rest)}{hint}")
    debug, run = arguments.pop("debug"), arguments.pop("run")
    with errors_on_one_line(debug=debug):
        run(**arguments)


class _PrintableLines(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        return printable(super().format(record))


def analyze(files: Sequence[Path], json_out: Path | None, from_text: bool, against: str, **settings: Any) -> None:
    """Print and write the reports of files of samples."""
    from outcome_rl.analyze import analyze_file
    from outcome_rl.exploration.config import ExplorationConfig

    config = ExplorationConfig(**settings)
    if json_out is not None and not json_out.absolute().parent.is_dir():
        raise FileNotFoundError(f"--json {json_out}: the folder {json_out.parent} does not exist.")
    reports = {}
    for file in files:
        with show_progress(file.name, "comparisons") as progress:
            reports[str(file)] = analyze_file(
                file, config.matcher(), from_text=from_text, against=against, progress=progress
            )
    print_reports(reports)
    if json_out is not None:
        content = next(iter(reports.values())) if len(reports) == 1 else reports
        json_out.write_text(json.dumps(content, indent=2) + "\n")


def env(as_json: bool) -> None:
    """Print versions, devices and implementations."""
    from outcome_rl.environment import describe_environment

    environment = describe_environment()
    if as_json:
        print(json.dumps(environment, indent=2))
        return
    print_table(["package", "version"], environment["versions"].items())
    rows = [(name, chosen["implementation"], chosen["reason"]) for name, chosen in environment["operations"].items()]
    print_table(["operation", "implementation", "reason"], rows)
    print(*environment["devices"], sep="\n")


def bench_loss(argv: Sequence[str]) -> None:
    """Measure the policy loss; the options belong to the benchmark."""
    from outcome_rl.bench import loss

    loss.main(argv)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="outcome-rl", description="Outcome-based exploration for RL on reasoning models.", allow_abbrev=False
    )
    parser.add_argument("--version", action="version", version=f"%(prog)s {__version__}")
    parser.add_argument("--debug", action="store_true", help="show the traceback of an error")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    add_commands(commands)
    _add_analyze(commands)
    _add_bench(commands)
    reporter = commands.add_parser("env", help="show versions, devices, and the implementation of each operation")
    reporter.add_argument("--json", dest="as_json", action="store_true", help="print JSON")
    reporter.set_defaults(run=env)
    return parser


def _add_analyze(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = commands.add_parser(
        "analyze",
        help="report pass@k, best@k and diff@k of files of samples",
        description="Report pass@k, best@k, diff@k and related metrics of files of samples. Rows are "
        "{id, gold, samples: [text | {text | answer, correct}, ...]} or {id, gold, response, correct}; `correct` is "
        "optional, and is compared with our verdicts. Other usual names work too: question_id, unique_id; answer; "
        "completions, responses; completion, text.",
    )
    parser.add_argument(
        "files",
        nargs="+",
        type=Path,
        metavar="FILE",
        help="JSON lines, a JSON array (either also gzipped) or parquet; - is standard input",
    )
    parser.add_argument(
        "--json", dest="json_out", type=Path, metavar="OUT", help="write the report; of several files, file -> report"
    )
    parser.add_argument(
        "--against",
        default="correct",
        metavar="FIELD",
        help="the file's own labels, to audit: a reward, say, where above 0 is correct (default: %(default)s)",
    )
    parser.add_argument(
        "--equivalence",
        choices=["canonical", "math_verify"],
        default="canonical",
        help="comparison of answers: by keys first (default), or every pair by math-verify",
    )
    parser.add_argument(
        "--outcome",
        default="math",
        metavar="MODULE:FUNCTION",
        help="outcome function (response, row) -> value (default: math, the final answer)",
    )
    parser.add_argument(
        "--is-correct",
        default="",
        metavar="MODULE:FUNCTION",
        help="function (value, row) -> bool (default: the outcome of the gold answer)",
    )
    parser.add_argument(
        "--from-text", action="store_true", help="extract answers from the text, also of samples with an `answer`"
    )
    parser.add_argument("--workers", type=at_least_one, help="math-verify processes (default: one per core)")
    parser.set_defaults(run=analyze)


def _add_bench(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = commands.add_parser("bench", help="measure a part of the library on this machine")
    benchmarks = parser.add_subparsers(required=True, metavar="NAME")
    loss = benchmarks.add_parser(
        "loss",
        help="time, memory and error of the policy loss, compared with other libraries and with its matrix products",
        add_help=False,
    )
    loss.set_defaults(run=bench_loss, argv=[])


if __name__ == "__main__":
    main()
