"""Tables and plots of the policy loss benchmark, from its records alone."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict

from outcome_rl.bench.accuracy import Errors
from outcome_rl.bench.measure import Times
from outcome_rl.bench.pages import with_block
from outcome_rl.bench.peers import OURS, PEERS
from outcome_rl.bench.record import IN_CHECKOUT, RESULTS, ROOT

if TYPE_CHECKING:
    from matplotlib.axes import Axes

RECORDS = ("loss-cpu", "loss-cuda")
# Sections of the summary table in docs/losses.md and of the plots.
SUMMARY = (
    "small, float32",
    "small, bfloat16",
    "Llama-3.1-8B, 16k",
    "Qwen2.5-7B, 16k",
    "Qwen2.5-1.5B, 16k",
)
HEADINGS = {"forward_backward": "forward + backward", "forward": "forward", "no_grad": "log-probs, no gradient"}


class Row(TypedDict):
    """One loss in one section."""

    name: str
    carries_coefficients: bool  # False: a plain cross-entropy
    obstacle: str | None  # why it was not timed: not installed, failed, out of memory
    errors: Errors | None
    times: dict[str, Times]  # by the keys of HEADINGS
    peak_mib: float | None


class Section(TypedDict):
    """All losses on one case."""

    case: dict[str, Any]
    floor: str  # what it is made of
    floors: dict[str, Times]
    rows: list[Row]


class Record(TypedDict):
    """A file that `write_result` made of sections."""

    config: dict[str, Any]
    figures: dict[str, dict[str, Section]]
    devices: list[str]
    versions: dict[str, str]
    commit: str
    date: str


def table(section: Section) -> str:
    """Every loss of a section in Markdown; times as medians with the 20th and 80th percentile, and over their floor."""
    modes = [mode for mode in HEADINGS if mode in section["floors"]]
    lines = [
        f"| | {' | '.join(f'{HEADINGS[mode]}, ms | of floor' for mode in modes)} | peak MiB | error of gradients |",
        f"|---|{'---:|---:|' * len(modes)}---:|---:|",
        f"| floor: {section['floor']} | {' | '.join(_times(section['floors'][mode], None) for mode in modes)} | | |",
    ]
    for row in section["rows"]:
        name = row["name"] + ("" if row["carries_coefficients"] else " (plain cross-entropy: carries no coefficients)")
        cells = [_times(row["times"].get(mode), section["floors"][mode]) for mode in modes]
        if row["obstacle"] is not None:
            cells[0] = f"{row['obstacle']} | "
        peak = "" if row["peak_mib"] is None else f"{row['peak_mib']:,.0f}"
        error = "" if row["errors"] is None else f"{max(row['errors']['gradients']):.1e}"
        lines.append(f"| {name} | {' | '.join(cells)} | {peak} | {error} |")
    return "\n".join(lines)


def summary(sections: dict[str, Section]) -> str:
    """Forward and backward over the floor, and peak memory, of the sections that stand for the others."""
    shown = {name: sections[name] for name in SUMMARY if name in sections}
    lines = [f"| | {' | '.join(shown)} |", f"|---|{'---:|' * len(shown)}"]
    floors = [f"{_number(section['floors']['forward_backward']['median_ms'])} ms" for section in shown.values()]
    lines.append(f"| three matrix products | {' | '.join(floors)} |")
    names = dict.fromkeys(row["name"] for section in shown.values() for row in section["rows"])
    for name in names:
        rows = [next((row for row in section["rows"] if row["name"] == name), None) for section in shown.values()]
        if any(row is not None and row["times"] and row["carries_coefficients"] for row in rows):
            cells = [_summary_cell(row, section) for row, section in zip(rows, shown.values(), strict=True)]
            lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def page(text: str, block: str) -> str:
    """The page with `block` between the marks of this benchmark."""
    return with_block(text, "loss", block, "outcome-rl bench loss --from-record")


def read_records(folder: Path) -> dict[str, Record]:
    """The records in a folder by name; none where nothing was measured yet."""
    records: dict[str, Record] = {}
    for name in RECORDS:
        path = folder / f"{name}.json"
        if path.exists():
            records[name] = json.loads(path.read_text())
            if "sections" not in records[name]["figures"]:
                raise ValueError(f"{path} is of another version of this benchmark; run `outcome-rl bench loss` again")
    return records


def blocks(records: dict[str, Record]) -> tuple[str, str]:
    """Return the marked blocks of docs/losses.md and docs/results.md; both are empty without records."""
    short = long = ""
    for name, record in records.items():
        sections = record["figures"]["sections"]
        where = f"{record['devices'][-1]}; PyTorch {record['versions']['torch']}; {record['date']}"
        short += f"\n{_image(f'{name}.png')}\n\n{summary(sections)}\n\nMeasured on {where}.\n"
        long += f"\n{_image(f'{name}.png')}\n\nMeasured on {where}; commit {record['commit']}.\n"
        for title, section in sections.items():
            long += f"\n**{title}**: {_case_text(section['case'])}.\n\n{table(section)}\n"
    return short, long


def plot(record: Record, path: Path) -> None:
    """Time over the floor against peak memory, a panel for each section that stands for the others."""
    from matplotlib.figure import Figure

    sections = {name: record["figures"]["sections"][name] for name in SUMMARY if name in record["figures"]["sections"]}
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


def write_pages() -> None:
    """Rewrite the marked blocks of docs/losses.md and docs/results.md, and the plots, from the committed records."""
    if not IN_CHECKOUT:
        raise ValueError("--from-record writes into docs/ of a checkout; this installation has none")
    records = read_records(RESULTS)
    if not records:
        raise ValueError(f"{RESULTS} has no record of this benchmark yet; run `outcome-rl bench loss` first")
    for name, record in records.items():
        plot(record, ROOT / "docs" / f"{name}.png")
    for path, block in zip((ROOT / "docs" / "losses.md", ROOT / "docs" / "results.md"), blocks(records), strict=True):
        path.write_text(page(path.read_text(), block))
        print(f"wrote {path}")


def _panel(axes: "Axes", name: str, section: Section) -> None:
    from matplotlib.ticker import NullLocator

    floor_ms = section["floors"]["forward_backward"]["median_ms"]
    points = {
        row["name"]: (row["peak_mib"], row["times"]["forward_backward"]["median_ms"] / floor_ms)
        for row in section["rows"]
        if row["peak_mib"] is not None and row["carries_coefficients"]
    }
    axes.axhline(1.0, color="#999999", linewidth=1, linestyle=":", label="three matrix products")
    of_ours = sorted(point for label, point in points.items() if label.startswith(OURS))
    if of_ours:
        axes.plot(*zip(*of_ours, strict=True), "o-", color="#0b6e99", label=f"{OURS}, by workspace")
    # A library keeps its mark in every panel; unfilled, so that two at one place are both seen.
    marks = {peer.name: (f"C{i % 10}", "s^vD<>P*Xp"[i % 10]) for i, peer in enumerate(PEERS[1:], start=1)}
    for label, point in points.items():
        if label in marks:
            colour, marker = marks[label]
            axes.plot(*point, marker, color=colour, fillstyle="none", markersize=8, markeredgewidth=1.6, label=label)
    axes.set_xscale("log", base=2)
    axes.set_yscale("log", base=2)
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter("{x:g}")
        axis.set_minor_locator(NullLocator())
    top = axes.get_ylim()[1]
    axes.set_yticks([tick for tick in (1, 1.2, 1.5, 2, 3, 4, 6, 8, 12, 16, 24, 32) if tick <= top])
    axes.set_xlabel("peak memory beyond the inputs, MiB")
    axes.set_ylabel("time / time of three matrix products")
    axes.set_title(name, loc="left", fontsize=11)
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)


def _times(times: Times | None, floor: Times | None) -> str:
    """Two cells: milliseconds with their spread, and the ratio to the floor."""
    if times is None:
        return " | "
    shown = f"{_number(times['median_ms'])} ({_number(times['p20_ms'])} to {_number(times['p80_ms'])})"
    return f"{shown} | " + ("1" if floor is None else f"{times['median_ms'] / floor['median_ms']:.2f}")


def _number(value: float) -> str:
    """Three digits, or all before the point."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _summary_cell(row: Row | None, section: Section) -> str:
    if row is None:
        return ""
    if "forward_backward" not in row["times"]:
        return row["obstacle"] or ""
    ratio = row["times"]["forward_backward"]["median_ms"] / section["floors"]["forward_backward"]["median_ms"]
    return f"{ratio:.2f} x" + ("" if row["peak_mib"] is None else f", {row['peak_mib']:,.0f} MiB")


def _case_text(case: dict[str, Any]) -> str:
    text = f"H = {case['hidden']:,}, V = {case['vocabulary']:,}, {case['dtype']}, {case['tokens']:,} tokens"
    if case["rows"] != case["tokens"]:
        text += f" padded to {case['rows']:,} rows"
    return text + (f", {case['dead_tokens'] / case['tokens']:.0%} of them dead" if case["dead_tokens"] else "")


def _image(path: str) -> str:
    return f"![Time of each policy loss, over that of three matrix products, against its peak memory]({path})"
