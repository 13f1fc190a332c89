"""The paper's figures and tables from runs of any training stack.

Song, Kempe and Munos (2025, arXiv:2509.06941): figure 1 (pass@k at an early and at the last checkpoint), 2 (RL as
sampling, with the base policy), 3 and 5 (training), 4 and 6 (test), table 1 (entropies), 2 (different answers in a
group), and the appendix's tables of the best and the last checkpoint. Curves and cells are means over the runs of a
method, which differ by their seeds. A measure that no run has is named in `missing` and left out.
"""

import math
import re
import statistics
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from experiments.figures.base_samples import BaseSamples
from experiments.figures.histories import History, read_histories
from outcome_rl.exploration.config import ExplorationConfig
from outcome_rl.files.atomic import write_json, write_text
from outcome_rl.metrics import ks_up_to
from outcome_rl.terminal.tables import counted
from outcome_rl.terminal.text import printable
from outcome_rl.tools import plot
from outcome_rl_kernels.settings import needing_user, settings_of

SOLVED, DISTINCT = "exploration/solved_fraction", "exploration/distinct_answers"
UNSOLVED = "exploration/distinct_answers_unsolved"
EARLY = 1 / 7  # of the run: the paper's step 100 of 700
LAST = 0.1  # share of the steps that tables 1 and 2 average, up to the last
TABLE_1 = {"correct": "entropy/correct", "incorrect": "entropy/incorrect", "all": "entropy/all"}
TABLE_2 = {
    "solved questions": "outcomes/distinct_in_group_once_solved",
    "unsolved questions": "outcomes/distinct_in_group_never_solved",
    "all": "outcomes/distinct_in_group",
}
BASE = "base policy"
Curve = Mapping[Any, float]  # step, k or samples -> value


class Line(NamedTuple):
    """Mean and range of a measure over runs: points (x, mean, lowest, highest)."""

    method: str
    points: list[tuple[float, float, float, float]]
    runs: int
    dashed: bool = False

    def drawn(self, methods: Sequence[str]) -> plot.Line:
        """Return the line as a chart takes it: a method has one colour in all figures, and the base policy is grey."""
        grey = len(plot.PALETTE) - 1
        colour = grey if self.method == BASE else methods.index(self.method) % grey
        runs = "" if self.method == BASE else f" ({counted(self.runs, 'run')})"
        label = f"{self.method}{runs}{', unsolved' if self.dashed else ''}"
        return plot.Line(self.points, colour, "--" if self.dashed else "-", label)


class Panel(NamedTuple):
    """Axes with lines."""

    title: str
    xlabel: str
    lines: list[Line]
    log2: bool = False


class Drawing(NamedTuple):
    """A figure of the paper."""

    name: str
    caption: str
    panels: list[Panel]

    def write(self, methods: Sequence[str], path: Path) -> None:
        """Write the picture; `methods` are all of them, in the order of their colours."""
        panels = [
            plot.Panel(one.title, one.xlabel, [line.drawn(methods) for line in one.lines], over_k=one.log2)
            for one in self.panels
        ]
        plot.png(panels, path)


class Cell(NamedTuple):
    """Mean over runs and its standard deviation, None for one run."""

    mean: float
    sd: float | None
    runs: int

    @classmethod
    def of(cls, values: Sequence[float]) -> "Cell":
        return cls(statistics.fmean(values), statistics.stdev(values) if len(values) > 1 else None, len(values))


class Table(NamedTuple):
    """A table of the paper: method -> column -> cell."""

    name: str
    caption: str
    columns: list[str]
    rows: dict[str, dict[str, Cell]]
    best: bool = False  # whether the highest mean of a column is printed in bold


class Paper(NamedTuple):
    """Measures of the runs, and the names of missing ones."""

    methods: dict[str, list[str]]  # method -> its runs
    drawings: list[Drawing]
    tables: list[Table]
    missing: list[str]


def write_paper(words: Sequence[str], base: Sequence[Path], out: Path) -> Path:
    """Write the page `paper.md` with its pictures, and the numbers behind them as `paper.json`, into a folder.

    Args:
        words: as for `read_histories`.
        base: files of samples that the base policy drew for the training questions.
        out: the folder; files of an earlier call are replaced.

    Returns:
        The page.

    Raises:
        FileNotFoundError, ValueError: a path holds no run or no samples, see `read_histories`.
    """
    histories, settings = read_histories(words)
    known = {one.name for one in settings_of(ExplorationConfig)} - {"bonus", "adv_estimator"}
    exploration = settings["exploration"] if settings and base else {}
    exploration = {name: value for name, value in exploration.items() if name in known}
    if asked := needing_user(ExplorationConfig, exploration):
        raise ValueError(
            f"{words[0]}: its settings name {', '.join(f'{name}={value}' for name, value in asked.items())}, and a "
            "folder gives data, never code, so --base cannot be read by them; leave out --base"
        )
    paper = measure(histories, BaseSamples.read(base, ExplorationConfig(**exploration)) if base else None)
    out.mkdir(parents=True, exist_ok=True)
    for drawing in paper.drawings:
        drawing.write(list(paper.methods), out / f"{drawing.name}.png")
    numbers = {
        "methods": paper.methods,
        "figures": {
            one.name: [panel._asdict() | {"lines": [line._asdict() for line in panel.lines]} for panel in one.panels]
            for one in paper.drawings
        },
        "tables": {
            one.name: {
                row: {column: cell._asdict() for column, cell in cells.items()} for row, cells in one.rows.items()
            }
            for one in paper.tables
        },
        "missing": paper.missing,
    }
    write_json(out / "paper.json", numbers)
    write_text(out / "paper.md", page(paper))
    return out / "paper.md"


def measure(histories: Sequence[History], base: BaseSamples | None = None) -> Paper:
    """Measure the figures and tables of runs of one model on one data set."""
    study = _Study(histories)
    drawings = [study.checkpoints(), study.sampling(base), study.training(), study.test()]
    tables = [
        study.late_table("table-1", "entropy per token (nats), by correctness of the response", TABLE_1),
        study.late_table(
            "table-2", "different answers in a group of responses, by the history of the question", TABLE_2
        ),
        *study.checkpoint_tables(),
    ]
    if base is None:
        study.missing.append("Figure 2: the base policy; give samples of it on the training questions (--base)")
    verls = [one.name for one in histories if one.with_replacement and one.pass_at_k]
    if verls:
        study.missing.append(
            f"pass@k of {len(verls)} runs of verl: their best@k, drawn with replacement and biased low, stands for it; "
            "do not compare it with pass@k of other stacks"
        )
    shown = [drawing._replace(panels=[panel for panel in drawing.panels if panel.lines]) for drawing in drawings]
    return Paper(
        {method: [one.name for one in group] for method, group in study.groups.items()},
        [drawing for drawing in shown if drawing.panels],
        [table for table in tables if table.rows],
        list(dict.fromkeys(study.missing)),
    )


def _line(method: str, curves: Sequence[Curve], *, dashed: bool = False) -> list[Line]:
    """Average the curves of runs where all have a point; no line where they have none in common."""
    shared = sorted(set.intersection(*(set(curve) for curve in curves))) if curves else []
    columns = {x: [curve[x] for curve in curves] for x in shared}
    points = [(float(x), statistics.fmean(column), min(column), max(column)) for x, column in columns.items()]
    return [Line(method, points, len(curves), dashed)] if points else []


class _Study:
    """Runs by method, and the measures that some of them lack."""

    def __init__(self, histories: Sequence[History]) -> None:
        self.histories = histories
        self.groups: dict[str, list[History]] = {}
        for one in histories:
            self.groups.setdefault(one.method, []).append(one)
        self.missing: list[str] = []

    def note(self, measure_name: str, absent: Sequence[str]) -> None:
        """Name the methods that lack a measure."""
        if absent:
            whose = "any run" if len(absent) == len(self.groups) else ", ".join(absent)
            self.missing.append(f"{measure_name}: not in the records of {whose}")

    def lines(self, measure_name: str, curve: Callable[[History], Curve], *, dashed: bool = False) -> list[Line]:
        """Draw a measure for each method that has it."""
        lines = {
            method: _line(method, [curve(one) for one in group], dashed=dashed) for method, group in self.groups.items()
        }
        self.note(measure_name, [method for method, found in lines.items() if not found])
        return [line for found in lines.values() for line in found]

    def checkpoints(self) -> Drawing:
        """Figure 1: pass@k for all k at the evaluation nearest to a seventh of the run, and at the last one."""
        evaluated = [{step for step in one.pass_at_k if step} for one in self.histories if one.pass_at_k]
        steps = sorted(set.intersection(*evaluated)) if evaluated else []
        chosen = dict.fromkeys([min(steps, key=lambda step: abs(step - EARLY * steps[-1])), steps[-1]]) if steps else {}
        if not steps:
            self.missing.append("Figure 1: no step after 0 at which every run was evaluated")
        base = _line(BASE, [one.pass_at_k[0] for one in self.histories if 0 in one.pass_at_k])
        panels = [
            Panel(
                f"pass@k at step {step}",
                "k samples",
                [*base, *self.lines("Figure 1, pass@k", partial(History.over_k, step=step))],
                log2=True,
            )
            for step in chosen
        ]
        return Drawing("figure-1", "Figure 1: pass@k at an early checkpoint and at the last one.", panels)

    def sampling(self, base: BaseSamples | None) -> Drawing:
        """Figure 2: solved fraction and distinct answers against the samples drawn, for training and for the base."""
        questions = max(one.questions for one in self.histories) if base is None else len(base.samples_Q)
        drawn = [] if base is None else sorted({*ks_up_to(base.largest_k), base.largest_k})
        panels: dict[str, list[Line]] = {}
        for title, name, of_base, dashed in (
            ("Training questions solved so far", SOLVED, "solved", False),
            ("Different answers per question so far", DISTINCT, "distinct", False),
            ("Different answers per question so far", UNSOLVED, "distinct_unsolved", True),
        ):
            values = {k: getattr(base, of_base)(k) for k in drawn}
            curve = {k: value for k, value in values.items() if math.isfinite(value)}
            label = f"Figure 2, {name} over samples"
            panels.setdefault(title, []).extend(_line(BASE, [curve], dashed=dashed))
            over_samples = partial(History.by_samples, name=name, questions=questions)
            panels[title] += self.lines(label, over_samples, dashed=dashed)
        caption = (
            "Figure 2: RL as sampling. Both samplers at equal numbers of samples per training question; dashed: over "
            "the questions that the sampler itself has not solved yet."
        )
        return Drawing(
            "figure-2", caption, [Panel(title, "samples per question", found) for title, found in panels.items()]
        )

    def training(self) -> Drawing:
        panels = [
            Panel(title, "step", self.lines(f"Figures 3 and 5, {name}", partial(History.by_step, name=name)))
            for title, name in (
                ("Training questions solved so far", SOLVED),
                ("Different answers so far, unsolved questions", UNSOLVED),
                ("Different answers so far, all questions", DISTINCT),
            )
        ]
        return Drawing("figure-3-5", "Figures 3 and 5: training, for every method given.", panels)

    def _ks(self) -> list[int]:
        return sorted({k for one in self.histories for curve in one.pass_at_k.values() for k in curve})

    def test(self) -> Drawing:
        if not self._ks():
            self.missing.append("Figures 4 and 6: no run holds pass@k")
        panels = [
            Panel(f"pass@{k}", "step", self.lines("Figures 4 and 6, pass@k", partial(History.over_steps, k=k)))
            for k in self._ks()
        ]
        return Drawing("figure-4-6", "Figures 4 and 6: pass@k over training, for every method given.", panels)

    def late_table(self, name: str, caption: str, columns: Mapping[str, str]) -> Table:
        """Average metrics over the last steps of each run, then over runs."""
        rows: dict[str, dict[str, Cell]] = {}
        title = name.replace("-", " ").capitalize()
        for column, metric in columns.items():
            absent = []
            for method, group in self.groups.items():
                if values := [value for one in group if (value := _late_mean(one, metric)) is not None]:
                    rows.setdefault(method, {})[column] = Cell.of(values)
                else:
                    absent.append(method)
            self.note(f"{title}, {metric}", absent)
        return Table(name, f"{title}: {caption}; mean over the last {LAST:.0%} of the steps", list(columns), rows)

    def checkpoint_tables(self) -> list[Table]:
        """Pass@1 and pass@k of the largest k, at the best evaluation of each and at the last."""
        best: dict[str, dict[str, Cell]] = {}
        last: dict[str, dict[str, Cell]] = {}
        ks = self._ks() or [1]
        columns = {f"pass@{k}": k for k in (ks[0], ks[-1])}
        for method, group in self.groups.items():
            for column, k in columns.items():
                # Without step 0, the base policy.
                trained = [[value for step, value in sorted(one.over_steps(k).items()) if step] for one in group]
                if curves := [curve for curve in trained if curve]:
                    best.setdefault(method, {})[column] = Cell.of([max(curve) for curve in curves])
                    last.setdefault(method, {})[column] = Cell.of([curve[-1] for curve in curves])
        self.note("Tables of checkpoints", [method for method in self.groups if method not in last])
        ends = {one.name: max(one.pass_at_k) for one in self.histories if one.pass_at_k}
        if len({*ends.values()}) > 1:
            listed = ", ".join(f"{name} at step {step}" for name, step in ends.items())
            self.missing.append(f"Last checkpoint: an equal step of all runs; they end with {listed}")
        caption = "Best checkpoint of each run, chosen for each column on the data that it is measured on"
        return [
            Table("table-best", caption, list(columns), best, best=True),
            Table("table-last", "Last checkpoint of each run", list(columns), last, best=True),
        ]


def _late_mean(one: History, metric: str) -> float | None:
    first = max(one.metrics, default=0) * (1 - LAST)
    late = [value for step, value in one.by_step(metric).items() if step > first]
    return statistics.fmean(late) if late else None


def page(paper: Paper) -> str:
    """Return the page as Markdown; the pictures are files next to it."""
    lines = ["# Outcome-based exploration: figures and tables of these runs", "", "| method | runs |", "|---|---|"]
    lines += [
        f"| {cell_text(method)} | {len(runs)}: {cell_text(', '.join(runs))} |" for method, runs in paper.methods.items()
    ]
    lines += [
        "",
        "Lines are means over the runs of a method, bands reach from the lowest to the highest run, points are where "
        "every run of the method has one. Cells are means, with the standard deviation over runs in parentheses.",
    ]
    for drawing in paper.drawings:
        lines += ["", f"## {drawing.caption}", "", f"![{drawing.caption}]({drawing.name}.png)"]
    for table in paper.tables:
        lines += ["", f"## {table.caption}", "", f"| method | runs | {' | '.join(table.columns)} |"]
        lines += ["|---" * (len(table.columns) + 2) + "|"]
        highest = {
            column: max(cells[column].mean for cells in table.rows.values() if column in cells)
            for column in table.columns
            if any(column in cells for cells in table.rows.values())
        }
        for method, cells in table.rows.items():
            runs = max(cell.runs for cell in cells.values())
            shown = [
                _shown(cells.get(column), highest.get(column) if table.best else None, runs) for column in table.columns
            ]
            lines += [f"| {cell_text(method)} | {runs} | {' | '.join(shown)} |"]
    if paper.missing:
        lines += ["", "## Missing", "", *(f"- {cell_text(line)}" for line in paper.missing)]
    return "\n".join(lines) + "\n"


def _shown(cell: Cell | None, highest: float | None, runs: int) -> str:
    """Return a cell, with its number of runs if the row has more."""
    if cell is None:
        return ""
    mean = f"**{cell.mean:.3f}**" if cell.mean == highest else f"{cell.mean:.3f}"
    more = [] if cell.sd is None else [f"{cell.sd:.3f}"]
    more += [f"of {cell.runs}"] if cell.runs < runs else []
    return f"{mean} ({', '.join(more)})" if more else mean


# An underscore inside a word is text: ucb_con.
_MARKUP = re.compile(r"[\\`*\[\]<>|!&~#$]|(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])")


def cell_text(words: str) -> str:
    """Escape what Markdown or HTML would read as more than text: names of folders and methods may hold anything."""
    escaped = _MARKUP.sub(r"\\\g<0>", printable(words).replace("\n", " "))
    return escaped.replace("://", ":\\//").replace("www.", "www\\.")  # which some readers make links of
