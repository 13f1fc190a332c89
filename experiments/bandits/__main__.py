"""Command line of the bandits: `python -m experiments.bandits`."""

from typing import Annotated

import typer

from experiments.bandits import command


def bandits(
    check: Annotated[
        bool, typer.Option("--check", help="Test the statements of the theory instead; exit status 1 if one fails.")
    ] = False,
    seeds: Annotated[
        int | None, typer.Option(min=2, help="Runs of each simulation.", show_default="200; 2000 with --check")
    ] = None,
) -> None:
    """Simulate the paper's bandits: regret against T, K, m and rho beside the bounds, as tables, PNG and JSON."""

    if not check:
        command.run(seeds or 200)
    elif not command.check(seeds or 2000):
        raise typer.Exit(1)


if __name__ == "__main__":
    typer.run(bandits)
