"""Tables of the report, in Markdown: means over seeds, and their standard deviation in brackets."""

import math
import statistics
from collections.abc import Callable, Iterable, Sequence

from experiments.lab.verdicts import Estimate
from experiments.paper.measures import (
    BASE,
    BASE16,
    Measure,
    Results,
    best,
    distinct,
    distinct_on,
    final,
    late,
    of,
    solved,
)
from experiments.paper.plan import ABLATION_POLICY, ABLATION_SPLIT, ALL, Cell

TEST_COLUMNS: dict[str, Measure] = {
    "best, pass@1": best(1),
    "best, pass@32": best(32),
    "last, pass@1": final(1),
    "last, pass@32": final(32),
}
OVERVIEW: dict[str, Measure] = {
    **TEST_COLUMNS,
    "training questions solved": solved,
    "entropy, incorrect": late("entropy_incorrect"),
    "answers per group, all wrong": late("group_unsolved"),
}
LAST_QUARTER: dict[str, Measure] = {
    "entropy, correct": late("entropy_correct"),
    "entropy, incorrect": late("entropy_incorrect"),
    "entropy, all": late("entropy_all"),
    "answers per group, one right": late("group_solved"),
    "answers per group, all wrong": late("group_unsolved"),
    "answers per group, all": late("group_all"),
    "no answer": late("no_answer"),
}


def label(method: str) -> str:
    return {BASE: "base policy", BASE16: "base policy, n = 16"}.get(method) or ALL[method].label


def overview_table(results: Results, split: str) -> str:
    """Return the difference of every method from GRPO, run by run, and its standard error over the cells of a split."""
    rows = []
    for method in results.records["plan"]["methods"]:
        if method == "none":
            continue
        found = [results.difference(method, "none", of(measure), split) for measure in OVERVIEW.values()]
        rows.append([label(method), *map(_signed, found)])
    return table(["difference from GRPO", *OVERVIEW], rows)


def _signed(found: Estimate) -> str:
    if not found.units:
        return "none"
    return f"{found.mean:+.3f}" + ("" if math.isnan(found.error) else f" ± {found.error:.3f}")


def number(count: int, noun: str) -> str:
    return f"{count} {noun}" + "s" * (count != 1)


def sampling_table(results: Results, cell: Cell) -> str:
    """Return coverage at the end of training, for the methods and the base policy at equal samples."""
    methods = [BASE, *results.records["plan"]["methods"]]
    common = common_unsolved(results, cell, methods)
    columns: dict[str, Measure] = {"training questions solved": solved, "answers per question": distinct}
    if any(common):
        columns[f"answers per question, on the {sum(common)} that none solved"] = lambda run: distinct_on(run, common)
    return _measures(results, cell, methods, columns)


def common_unsolved(results: Results, cell: Cell, methods: Iterable[str]) -> list[bool]:
    """Mark the training questions of a cell that no run of any of the methods solved."""
    runs = [run["questions_solved"] for method in methods for run in results.runs(cell, method)]
    return [not any(verdicts) for verdicts in zip(*runs, strict=True)]


def test_table(results: Results, cell: Cell) -> str:
    """Return test pass@1 and pass@32 of the checkpoint that validation selected for that k, and of the last one."""
    base = {column: final(int(column.rsplit("@")[-1])) for column in TEST_COLUMNS}
    methods = results.records["plan"]["methods"]
    lines = _rows(results, [cell], [BASE], base) + _rows(results, [cell], methods, TEST_COLUMNS)
    return table(["", *TEST_COLUMNS], lines)


def late_table(results: Results, cell: Cell) -> str:
    """Return entropy and answers of the training batches in the last quarter of the steps."""
    return _measures(results, cell, results.records["plan"]["methods"], LAST_QUARTER)


def ablation_table(results: Results) -> str:
    """Return the metrics of the ablations and of the methods; empty for a plan without ablations."""
    plan = results.records["plan"]
    if not plan["ablations"]:
        return ""
    columns = {**TEST_COLUMNS, "training questions solved": solved, "no answer": late("no_answer")}
    cells = [cell for cell in results.cells if results.runs(cell, plan["ablations"][0])]
    tables = ", ".join(str(cell.instance) for cell in cells)
    lines = _rows(results, cells, [*plan["methods"], *plan["ablations"]], columns)
    return (
        f"{ABLATION_SPLIT.capitalize()} questions, {ABLATION_POLICY} base policy; mean over rule tables ({tables}) and "
        f"seeds.\n\n{table(['', *columns], lines)}"
    )


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"


def _measures(results: Results, cell: Cell, methods: Iterable[str], columns: dict[str, Measure]) -> str:
    return table(["", *columns], _rows(results, [cell], methods, columns))


def _rows(
    results: Results, cells: Sequence[Cell], methods: Iterable[str], columns: dict[str, Measure]
) -> list[list[str]]:
    rows = []
    for method in methods:
        runs = [run for cell in cells for run in results.runs(cell, method)]
        if runs:
            rows.append([label(method), *(_spread([measure(run) for run in runs]) for measure in columns.values())])
    return rows


def _spread(values: Sequence[float]) -> str:
    """Format mean (standard deviation) of the runs that have a value; some may lack an unsolved question, say."""
    known = [value for value in values if not math.isnan(value)]
    if not known:
        return "none"
    deviation = f" ({statistics.stdev(known):.3f})" if len(known) > 1 else ""
    return f"{statistics.mean(known):.3f}{deviation}"


Section = Callable[[Results, Cell], str]
CELL_SECTIONS: dict[str, Section] = {
    "RL as sampling, at the end of training": sampling_table,
    "Test questions": test_table,
    "Training batches, last quarter of the steps": late_table,
}
