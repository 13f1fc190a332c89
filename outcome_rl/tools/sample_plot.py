"""Picture of files of samples: pass@k and diff@k over k, a line for each file."""

from collections.abc import Mapping
from pathlib import Path

from outcome_rl.analyze import Report
from outcome_rl.tools.charts import PALETTE, STYLES, Line, Panel, png
from outcome_rl.tools.sample_report import short_names

TITLES = {"pass_at_k": "pass@k", "diff_at_k": "diff@k: different answers in k samples"}


def plot_reports(reports: Mapping[str, Report], path: Path) -> None:
    """Draw pass@k, where correctness is known, and diff@k of each file as PNG."""
    panels = []
    labels = short_names([*reports])
    for metric, title in TITLES.items():
        curves = {
            name: [(int(k), value) for k, value in report[metric].items()]  # type: ignore[literal-required]
            for name, report in reports.items()
        }
        if any(curves.values()):
            lines = [
                Line(points, index, STYLES[index // len(PALETTE) % len(STYLES)], labels[index])
                for index, points in enumerate(curves.values())
            ]
            panels.append(Panel(title, "k samples", lines, rate=metric == "pass_at_k", over_k=True))
    png(panels, path)
