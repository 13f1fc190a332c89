"""Tables and plots of the policy loss benchmark, from its records alone."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator

from bench.baselines import BASELINES, OURS
from bench.loss_report import Record, Row, Section, number, of_floor, of_floor_text, table
from bench.result_file import measured_on

RECORDS = ("loss-cuda", "loss-cpu")
# Sections of the two summary tables in docs/losses.md; the first are plotted.
MAIN = (
    "small, float32",
    "small, bfloat16",
    "SmolLM2-135M, responses at temperature 1",
    "Llama-3.1-8B, 16k",
    "Llama-3.1-8B, RL packed, 45% dead",
    "Qwen2.5-7B, 16k",
    "Qwen2.5-1.5B, 16k",
)
SUPPORTS = (
    "SmolLM2-135M, support of 16, bfloat16",
    "SmolLM2-135M, support of top-p 0.95",
    "Llama-3.1-8B, support of 16, 16k",
)


def read_records(folder: Path) -> dict[str, Record]:
    """Return the records in a folder by name; none where nothing was measured yet."""
    records: dict[str, Record] = {}
    for name in RECORDS:
        path = folder / f"{name}.json"
        if path.exists():
            records[name] = json.loads(path.read_text())
            if "sections" not in records[name]["figures"]:
                raise ValueError(f"{path} is of another version of this benchmark; run `python -m bench.loss` again")
    return records


def blocks(records: dict[str, Record]) -> tuple[str, str]:
    """Return the marked blocks of docs/losses.md and bench/results/README.md; both are empty without records."""
    short = long = ""
    for name, record in records.items():
        sections = record["figures"]["sections"]
        where = f"{record['devices'][-1]}; PyTorch {record['versions']['torch']}; {record['date']}"
        image = _image(f"{name}.png")
        tables = "\n\n".join(filter(None, (summary(sections, names) for names in (MAIN, SUPPORTS))))
        short += f"\n{image}\n\n{tables}\n\nMeasured on {where}.\n"
        long += f"\n{measured_on(record)}\n"
        for title, section in sections.items():
            long += f"\n**{title}**: {_case_text(section['case'])}.\n\n{table(section)}\n"
    return short, long


def summary(sections: dict[str, Section], names: Sequence[str]) -> str:
    """Forward and backward over the floor, and peak memory, of those of the named sections that were measured."""
    shown = {name: sections[name] for name in names if name in sections}
    if not shown:
        return ""
    lines = [f"| | {' | '.join(shown)} |", f"|---|{'---:|' * len(shown)}"]
    floors = [f"{number(section['floors']['forward_backward']['median_ms'])} ms" for section in shown.values()]
    lines.append(f"| three matrix products | {' | '.join(floors)} |")
    for name in dict.fromkeys(row["name"] for section in shown.values() for row in section["rows"]):
        rows = [next((row for row in section["rows"] if row["name"] == name), None) for section in shown.values()]
        if any(row is not None and row["times"] and row["carries_coefficients"] for row in rows):
            cells = [_summary_cell(row, section) for row, section in zip(rows, shown.values(), strict=True)]
            lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def plot(record: Record, path: Path) -> None:
    """Time over the floor against peak memory, a panel for each section that stands for the others."""
    sections = {name: record["figures"]["sections"][name] for name in MAIN if name in record["figures"]["sections"]}
    figure = Figure(figsize=(max(8, 5 * len(sections)), 5), layout="constrained")
    panels = figure.subplots(1, len(sections), squeeze=False)[0]
    for axes, (name, section) in zip(panels, sections.items(), strict=True):
        _panel(axes, name, section)
    handles = {
        label: handle for axes in panels for handle, label in zip(*axes.get_legend_handles_labels(), strict=True)
    }
    figure.legend(handles.values(), handles, loc="outside lower center", ncols=4, frameon=False, fontsize=9)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)


def _panel(axes: Axes, name: str, section: Section) -> None:
    points = {
        row["name"]: (row["peak_mib"], ratio)
        for row in section["rows"]
        if row["peak_mib"] is not None and row["carries_coefficients"] and (ratio := of_floor(row, section)) is not None
    }
    axes.axhline(1.0, color="#999999", linewidth=1, linestyle=":", label="three matrix products")
    of_ours = sorted(point for label, point in points.items() if label.startswith(OURS))
    if of_ours:
        axes.plot(*zip(*of_ours, strict=True), "o-", color="#0b6e99", label=f"{OURS}, by workspace")
    # A library keeps its mark in every panel; unfilled, so that two at one place are both seen.
    marks = {baseline.name: (f"C{i % 10}", "s^vD<>P*Xp"[i % 10]) for i, baseline in enumerate(BASELINES[1:], start=1)}
    for label, point in points.items():
        if label in marks:
            colour, marker = marks[label]
            axes.plot(*point, marker, color=colour, fillstyle="none", markersize=8, markeredgewidth=1.6, label=label)
    axes.set_xscale("log", base=2)
    axes.set_yscale("log", base=2)
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter("{x:g}")
        axis.set_minor_locator(NullLocator())
    bottom, top = axes.get_ylim()
    axes.set_yticks([tick for tick in (0.5, 0.7, 1, 1.2, 1.5, 2, 3, 4, 6, 8, 12, 16, 24, 32) if bottom <= tick <= top])
    axes.set_xlabel("peak memory beyond the inputs, MiB")
    axes.set_ylabel("time / time of three matrix products")
    axes.set_title(name, loc="left", fontsize=11)
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)


def _summary_cell(row: Row | None, section: Section) -> str:
    if row is None:
        return ""
    ratio = of_floor_text(row, section)
    if ratio is None:
        return row["obstacle"] or ""
    return f"{ratio} x" + ("" if row["peak_mib"] is None else f", {row['peak_mib']:,.0f} MiB")


def _case_text(case: dict[str, Any]) -> str:
    text = f"H = {case['hidden']:,}, V = {case['vocabulary']:,}, {case['dtype']}, {case['tokens']:,} tokens"
    if case["rows"] != case["tokens"]:
        text += f" padded to {case['rows']:,} rows"
    if case["dead_tokens"]:
        text += f", {case['dead_tokens'] / case['tokens']:.0%} of them dead"
    if case["median_kept_tokens"]:
        text += (
            f"; supports of {case['kept_tokens']:.0f} tokens in the mean, {case['median_kept_tokens']} in the median, "
            f"{case['single_kept_tokens']:.0%} of them a single token"
        )
    return text + f"; mean entropy {case['entropy']:.2f} nats"


def _image(path: str) -> str:
    return f"![Time of each policy loss, over that of three matrix products, against its peak memory]({path})"
