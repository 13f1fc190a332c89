"""The paper's figures and tables from runs of any training stack.

Song, Kempe and Munos (2025, arXiv:2509.06941): figure 1 (pass@k at an early and at the last checkpoint), 2 (RL as
sampling, with the base policy), 3 and 5 (training), 4 and 6 (test), table 1 (entropies), 2 (different answers in a
group), and the appendix's tables of the best and the last checkpoint. Curves and cells are means over the runs of a
method, which differ by their seeds. A measure that no run has is named in `missing` and left out.
"""

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from outcome_rl.exploration.config import ExplorationConfig
from outcome_rl.files import write_json, write_text
from outcome_rl.tools.base_samples import BaseSamples
from outcome_rl.tools.histories import History, read_histories
from outcome_rl.tools.paper_figures import BASE, Drawing, Line, Panel, draw

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


class Cell(NamedTuple):
    """Mean over runs and its standard deviation, None for one run."""

    mean: float
    sd: float | None
    runs: int


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


def write_paper(words: Sequence[str], base: Sequence[Path], n: int | None, out: Path) -> Path:
    """Write the page `paper.md` with its pictures, and the numbers behind them as `paper.json`, into a folder.

    Args:
        words, n: as for `read_histories`.
        base: files of samples that the base policy drew for the training questions.
        out: the folder; files of an earlier call are replaced.

    Returns:
        The page.

    Raises:
        FileNotFoundError, ValueError: a path holds no run or no samples, see `read_histories`.
    """
    histories, settings = read_histories(words, n)
    exploration = ExplorationConfig(**settings["exploration"]) if settings else ExplorationConfig()
    paper = measure(histories, BaseSamples.read(base, exploration) if base else None)
    out.mkdir(parents=True, exist_ok=True)
    colours = [BASE, *paper.methods]
    for drawing in paper.drawings:
        draw(drawing, colours, out / f"{drawing.name}.png")
    numbers = {
        "methods": paper.methods,
        "figures": {
            one.name: [panel._asdict() | {"lines": _lines(panel)} for panel in one.panels] for one in paper.drawings
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


def _lines(panel: Panel) -> list[dict[str, Any]]:
    return [line._asdict() for line in panel.lines]


def measure(histories: Sequence[History], base: BaseSamples | None = None) -> Paper:
    """Measure the figures and tables of runs of one model on one data set."""
    groups: dict[str, list[History]] = {}
    for one in histories:
        groups.setdefault(one.method, []).append(one)
    missing: list[str] = []
    drawings = [
        _checkpoints(groups, missing),
        _sampling(groups, base, missing),
        _training(groups, missing),
        _test(groups, missing),
    ]
    tables = [
        _late_table(
            "table-1", "Table 1: entropy per token (nats), by correctness of the response", TABLE_1, groups, missing
        ),
        _late_table(
            "table-2",
            "Table 2: different answers in a group of responses, by the history of the question",
            TABLE_2,
            groups,
            missing,
        ),
        *_checkpoint_tables(groups, missing),
    ]
    if base is None:
        missing.append("Figure 2: the base policy; give samples of it on the training questions (--base)")
    verls = [one.name for one in histories if one.with_replacement and one.pass_at_k]
    if verls:
        missing.append(
            f"pass@k of {len(verls)} runs of verl: their best@k, drawn with replacement and biased low, stands for it; "
            "do not compare it with pass@k of other stacks"
        )
    shown = [drawing._replace(panels=[panel for panel in drawing.panels if panel.lines]) for drawing in drawings]
    return Paper(
        {method: [one.name for one in group] for method, group in groups.items()},
        [drawing for drawing in shown if drawing.panels],
        [table for table in tables if table.rows],
        list(dict.fromkeys(missing)),
    )


Groups = Mapping[str, Sequence[History]]
Curve = Mapping[int, float]


def _line(method: str, curves: Sequence[Curve], *, dashed: bool = False) -> Line | None:
    """Average the curves of runs where all have a point; None where they have none in common."""
    shared = sorted(set.intersection(*(set(curve) for curve in curves)))
    columns = {x: [curve[x] for curve in curves] for x in shared}
    points = [(float(x), statistics.fmean(column), min(column), max(column)) for x, column in columns.items()]
    return Line(method, points, len(curves), dashed) if points else None


def _lines_of(
    groups: Groups, curve: Callable[[History], Curve], measure_name: str, missing: list[str], *, dashed: bool = False
) -> list[Line]:
    """Draw a measure for each method that has it, and name those that have not."""
    lines = {method: _line(method, [curve(one) for one in group], dashed=dashed) for method, group in groups.items()}
    _note(measure_name, [method for method, line in lines.items() if line is None], groups, missing)
    return [line for line in lines.values() if line is not None]


def _note(measure_name: str, absent: Sequence[str], groups: Groups, missing: list[str]) -> None:
    if absent:
        whose = "any run" if len(absent) == len(groups) else ", ".join(absent)
        missing.append(f"{measure_name}: not in the records of {whose}")


def _checkpoints(groups: Groups, missing: list[str]) -> Drawing:
    """Figure 1: pass@k for all k at the evaluation nearest to a seventh of the run, and at the last one."""
    panels = []
    base = [one.pass_at_k[0] for group in groups.values() for one in group if 0 in one.pass_at_k]
    steps = _shared_steps(groups)
    chosen = dict.fromkeys([min(steps, key=lambda step: abs(step - EARLY * steps[-1])), steps[-1]]) if steps else {}
    if not steps:
        missing.append("Figure 1: no step after 0 at which every run was evaluated")
    for step in chosen:
        lines = _lines_of(groups, partial(History.over_k, step=step), "Figure 1, pass@k", missing)
        before = _line(BASE, base) if base else None
        panels.append(Panel(f"pass@k at step {step}", "k samples", [*([before] if before else []), *lines], log2=True))
    return Drawing("figure-1", "Figure 1: pass@k at an early checkpoint and at the last one.", panels)


def _shared_steps(groups: Groups) -> list[int]:
    """Return the steps after 0 at which every run was evaluated, of those that were evaluated at all."""
    steps = [{step for step in one.pass_at_k if step} for group in groups.values() for one in group if one.pass_at_k]
    return sorted(set.intersection(*steps)) if steps else []


def _sampling(groups: Groups, base: BaseSamples | None, missing: list[str]) -> Drawing:
    """Figure 2: solved fraction and distinct answers against the samples drawn, for training and for the base."""
    measures: tuple[tuple[str, str, str, bool], ...] = (
        ("Training questions solved so far", SOLVED, "solved", False),
        ("Different answers per question so far", DISTINCT, "distinct", False),
        ("Different answers per question so far", UNSOLVED, "distinct_unsolved", True),
    )
    ks = {k for group in groups.values() for one in group for k in one.by_samples(DISTINCT)}
    panels: dict[str, list[Line]] = {}
    for title, name, of_base, dashed in measures:
        lines = panels.setdefault(title, [])
        if base is not None:
            drawn = sorted(
                k for k in ks | {1 << power for power in range(base.largest_k.bit_length())} if k <= base.largest_k
            )
            curve = {k: value for k in drawn if math.isfinite(value := getattr(base, of_base)(k))}
            if found := _line(BASE, [curve], dashed=dashed):
                lines.append(found)
        label = f"Figure 2, {name} after each epoch"
        lines += _lines_of(groups, partial(History.by_samples, name=name), label, missing, dashed=dashed)
    caption = (
        "Figure 2: RL as sampling. Both samplers at equal numbers of samples per training question; dashed: over the "
        "questions that the sampler itself has not solved yet."
    )
    return Drawing(
        "figure-2", caption, [Panel(title, "samples per question", lines) for title, lines in panels.items()]
    )


def _training(groups: Groups, missing: list[str]) -> Drawing:
    panels = [
        Panel(
            title,
            "step",
            _lines_of(groups, partial(History.by_step, name=name), f"Figures 3 and 5, {name}", missing),
        )
        for title, name in (
            ("Training questions solved so far", SOLVED),
            ("Different answers so far, unsolved questions", UNSOLVED),
            ("Different answers so far, all questions", DISTINCT),
        )
    ]
    return Drawing("figure-3-5", "Figures 3 and 5: training, for every method given.", panels)


def _test(groups: Groups, missing: list[str]) -> Drawing:
    ks = sorted({k for group in groups.values() for one in group for curve in one.pass_at_k.values() for k in curve})
    if not ks:
        missing.append("Figures 4 and 6: no run holds pass@k")
    panels = [
        Panel(
            f"pass@{k}",
            "step",
            _lines_of(groups, partial(History.over_steps, k=k), "Figures 4 and 6, pass@k", missing),
        )
        for k in ks
    ]
    return Drawing("figure-4-6", "Figures 4 and 6: pass@k over training, for every method given.", panels)


def _late_table(name: str, caption: str, columns: Mapping[str, str], groups: Groups, missing: list[str]) -> Table:
    """Average metrics over the last steps of each run, then over runs."""
    rows: dict[str, dict[str, Cell]] = {}
    for column, metric in columns.items():
        absent = []
        for method, group in groups.items():
            values = [value for one in group if (value := _late_mean(one, metric)) is not None]
            if values:
                rows.setdefault(method, {})[column] = _cell(values)
            else:
                absent.append(method)
        _note(f"{name.replace('-', ' ').capitalize()}, {metric}", absent, groups, missing)
    return Table(name, f"{caption}; mean over the last {LAST:.0%} of the steps", list(columns), rows)


def _late_mean(one: History, metric: str) -> float | None:
    first = max(one.metrics, default=0) * (1 - LAST)
    late = [value for step, value in one.by_step(metric).items() if step > first]
    return statistics.fmean(late) if late else None


def _checkpoint_tables(groups: Groups, missing: list[str]) -> list[Table]:
    """Pass@1 and pass@k of the largest k, at the best evaluation of each and at the last."""
    best: dict[str, dict[str, Cell]] = {}
    last: dict[str, dict[str, Cell]] = {}
    ks = {k for group in groups.values() for one in group for curve in one.pass_at_k.values() for k in curve}
    columns = {f"pass@{k}": k for k in (min(ks, default=1), max(ks, default=1))}
    for method, group in groups.items():
        for column, k in columns.items():
            curves = [list(trained.values()) for one in group if (trained := _trained(one.over_steps(k)))]
            if curves:
                best.setdefault(method, {})[column] = _cell([max(curve) for curve in curves])
                last.setdefault(method, {})[column] = _cell([curve[-1] for curve in curves])
    _note("Tables of checkpoints", [method for method in groups if method not in last], groups, missing)
    caption = "Best checkpoint of each run, chosen for each column on the data that it is measured on"
    return [
        Table("table-best", caption, list(columns), best, best=True),
        Table("table-last", "Last checkpoint of each run", list(columns), last, best=True),
    ]


def _trained(curve: Curve) -> dict[float, float]:
    """Leave out step 0, the base policy."""
    return {step: curve[step] for step in sorted(curve) if step}


def _cell(values: Sequence[float]) -> Cell:
    return Cell(statistics.fmean(values), statistics.stdev(values) if len(values) > 1 else None, len(values))


def page(paper: Paper) -> str:
    """Return the page as Markdown; the pictures are files next to it."""
    lines = ["# Outcome-based exploration: figures and tables of these runs", "", "| method | runs |", "|---|---|"]
    lines += [f"| {_text(method)} | {len(runs)}: {_text(', '.join(runs))} |" for method, runs in paper.methods.items()]
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
            shown = [_shown(cells.get(column), highest.get(column) if table.best else None) for column in table.columns]
            runs = max(cell.runs for cell in cells.values())
            lines += [f"| {_text(method)} | {runs} | {' | '.join(shown)} |"]
    if paper.missing:
        lines += ["", "## Missing", "", *(f"- {_text(line)}" for line in paper.missing)]
    return "\n".join(lines) + "\n"


def _shown(cell: Cell | None, highest: float | None) -> str:
    if cell is None:
        return ""
    mean = f"**{cell.mean:.3f}**" if cell.mean == highest else f"{cell.mean:.3f}"
    return mean if cell.sd is None else f"{mean} ({cell.sd:.3f})"


def _text(words: str) -> str:
    """Escape what Markdown would read as structure of a table."""
    return words.replace("\\", "\\\\").replace("|", "\\|").replace("\n", " ")
