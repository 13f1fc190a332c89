"""Records of the policy loss benchmark, and the table of a section."""

from typing import Any, TypedDict

from outcome_rl.bench.accuracy import Errors
from outcome_rl.bench.measure import Times

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


def _times(times: Times | None, floor: Times | None) -> str:
    """Two cells: milliseconds with their spread, and the ratio to the floor."""
    if times is None:
        return " | "
    shown = f"{number(times['median_ms'])} ({number(times['p20_ms'])} to {number(times['p80_ms'])})"
    return f"{shown} | " + ("1" if floor is None else f"{times['median_ms'] / floor['median_ms']:.2f}")


def number(value: float) -> str:
    """Three digits, or all before the point."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
