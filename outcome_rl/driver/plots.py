"""Plots of a finished run, drawn from its records alone."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

BASE, TRAINED, OTHER = "#8c8c8c", "#0b6e99", "#d1495b"


def plot_training(metrics: Sequence[Mapping[str, Any]], path: Path) -> None:
    """Reward, solved questions, distinct answers and entropy over the steps, as PNG."""
    figure = Figure(figsize=(10, 6.5), layout="constrained")
    (reward, solved), (distinct, entropy) = figure.subplots(2, 2)
    _curve(reward, metrics, "reward/mean", TRAINED, "mean reward of the batch")
    _curve(solved, metrics, "train/solved_fraction", TRAINED, "training questions solved so far")
    _curve(distinct, metrics, "train/distinct_answers", TRAINED, "all questions seen")
    _curve(distinct, metrics, "train/distinct_answers_unsolved", OTHER, "not yet solved")
    _curve(entropy, metrics, "entropy/correct", TRAINED, "correct completions")
    _curve(entropy, metrics, "entropy/incorrect", OTHER, "incorrect completions")
    for axes, title in (
        (reward, "Reward"),
        (solved, "Fraction of training questions solved"),
        (distinct, "Distinct answers a question so far"),
        (entropy, "Token entropy (nats)"),
    ):
        axes.set_title(title, fontsize=11, loc="left")
        axes.set_xlabel("step")
        axes.xaxis.get_major_locator().set_params(integer=True)
        axes.grid(alpha=0.25)
        axes.spines[["top", "right"]].set_visible(False)
    for axes in (distinct, entropy):
        if axes.lines:
            axes.legend(frameon=False, fontsize=9)
    figure.savefig(path, dpi=130)


def plot_comparison(base: Mapping[str, Any], trained: Mapping[str, Any], path: Path) -> None:
    """pass@k and diff@k of the base and the trained policy on one dataset, as PNG."""
    figure = Figure(figsize=(9, 3.8), layout="constrained")
    for axes, metric, title in zip(
        figure.subplots(1, 2),
        ("pass_at_k", "diff_at_k"),
        ("pass@k", "diff@k: distinct answers in k samples"),
        strict=True,
    ):
        for row, label, colour in ((base, "base", BASE), (trained, f"trained, step {trained['step']}", TRAINED)):
            axes.plot([int(k) for k in row[metric]], list(row[metric].values()), "o-", color=colour, label=label)
        axes.set_xscale("log", base=2)
        axes.set_xticks([int(k) for k in trained[metric]], [str(k) for k in trained[metric]])
        axes.set_xlabel("k samples")
        axes.set_title(title, fontsize=11, loc="left")
        axes.grid(alpha=0.25)
        axes.spines[["top", "right"]].set_visible(False)
        axes.legend(frameon=False, fontsize=9)
    figure.suptitle(f"{trained['dataset']}, {trained['n_questions']} questions", fontsize=11)
    figure.savefig(path, dpi=130)


def _curve(axes: Axes, rows: Sequence[Mapping[str, Any]], name: str, colour: str, label: str) -> None:
    points = [(row["step"], row[name]) for row in rows if name in row]
    if points:
        marker = "o" if len(points) == 1 else ""  # a line of one point would not show
        axes.plot(*zip(*points, strict=True), color=colour, linewidth=1.5, marker=marker, label=label)
