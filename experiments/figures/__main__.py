"""Draw the paper's figures and tables from runs, finished or not, of one model on one data set.

DIR/paper.md shows pass@k at an early and at the last checkpoint, RL as sampling, training, pass@k over training,
entropies, different answers in a group, and the best and the last checkpoint: mean and spread over the runs of a
method. DIR/paper.json holds the numbers. A measure that no run has is left out, and named on the page.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

from experiments.figures.paper import write_paper
from outcome_rl.terminal.text import errors_on_one_line, printable


def main(argv: Sequence[str] | None = None) -> None:
    """Parse the command line, draw, and print where the page is."""
    parser = argparse.ArgumentParser(
        prog="python -m experiments.figures",
        description=__doc__,
        epilog="example:\n  python -m experiments.figures grpo=logs/grpo.jsonl runs/ucb_con-seed0 --out paper",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "runs",
        nargs="+",
        metavar="[METHOD=]RUN",
        help="folder of a run; or a log of TRL (trainer_state.json, or its folder) or verl (file or console logger) "
        "with its METHOD",
    )
    parser.add_argument(
        "--base",
        type=Path,
        action="append",
        default=[],
        metavar="FILE",
        help="samples of the training questions that `outcome-rl eval` drew from the base policy; repeatable",
    )
    parser.add_argument(
        "--out", type=Path, default=Path("paper"), metavar="DIR", help="folder of the page (default: %(default)s)"
    )
    options = parser.parse_args(argv)
    with errors_on_one_line():
        print(printable(str(write_paper(options.runs, options.base, options.out))))


if __name__ == "__main__":
    main()
