"""Result types of the policy loss benchmark, and the table of a section."""

from typing import Any, NamedTuple, NotRequired, TypedDict

from bench.accuracy import Errors
from bench.baselines import OURS
from outcome_rl.bench.measure import Times, layouts_text, ratio_text

HEADINGS = {"forward_backward": "forward + backward", "forward": "forward", "no_grad": "log-probs, no gradient"}


class Model(NamedTuple):
    """Parameters used per token, in millions: SmolLM2-135M and Llama-3.1-8B."""

    name: str
    body: float
    head: float

    def step(self, share: float) -> float:
        """Return the cost of a step whose loss takes `share` times the three products of the head.

        By arithmetic: one product with every weight to sample a token, three to learn from it. Attention and everything
        that is slower than a product are left out, so that the loss counts for more than in any real step.
        """
        return self.body + self.head + 3 * (self.body + share * self.head)


MODELS = (Model("0.1B", 106, 28), Model("8B", 6_980, 525))


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
    layouts: NotRequired[dict[str, dict[str, float]]]  # milliseconds of each product; absent: one layout was timed
    rows: list[Row]
    clocks: dict[str, Any] | None  # least, median and most of clocks, power and temperature while it was timed


class Record(TypedDict):
    """A file that `write_result` made of sections."""

    config: dict[str, Any]
    figures: dict[str, dict[str, Section]]
    devices: list[str]
    versions: dict[str, str]
    commit: str
    date: str


def table(section: Section) -> str:
    """Every loss of a section in Markdown: times as medians with the 20th and 80th percentile, and over their floor.

    A ratio is the median over rounds with an interval that holds the true median with 95 % confidence; in records
    from before such intervals, it is that of the medians.

    Where every token meets the whole head, also the cost of a whole step with the loss, over a step with ours.
    """
    modes = [mode for mode in HEADINGS if mode in section["floors"]]
    models = MODELS if _computes_all(section) else ()
    steps = "".join(f" {model.name} step |" for model in models)
    timed = " | ".join(f"{HEADINGS[mode]}, ms | of floor" for mode in modes)
    lines = [
        f"| | {timed} |{steps} peak MiB | error of gradients |",
        f"|---|{'---:|---:|' * len(modes)}{'---:|' * len(models)}---:|---:|",
        f"| floor: {section['floor']} | {' | '.join(_times(section['floors'][mode], None) for mode in modes)} |"
        f"{' |' * len(models)} | |",
    ]
    ours = of_floor(row_of(section, OURS), section)
    for row in section["rows"]:
        name = row["name"] + ("" if row["carries_coefficients"] else " (plain cross-entropy: carries no coefficients)")
        cells = [_times(row["times"].get(mode), section["floors"][mode]) for mode in modes]
        if row["obstacle"] is not None:
            cells[0] = f"{row['obstacle']} | "
        own = of_floor(row, section) if row["carries_coefficients"] else None
        cells += [f"{model.step(own) / model.step(ours):.2f}" if own and ours else "" for model in models]
        cells.append("" if row["peak_mib"] is None else f"{row['peak_mib']:,.0f}")
        cells.append("" if row["errors"] is None else f"{max(row['errors']['gradients']):.1e}")
        lines.append(f"| {name} | {' | '.join(cells)} |")
    if layouts := section.get("layouts"):
        lines += ["", f"The floor is the fastest layout of each product: {layouts_text(layouts)}."]
    return "\n".join(lines)


def _computes_all(section: Section) -> bool:
    """Return whether every token has a gradient and meets the whole head."""
    case = section["case"]
    return section["floor"] == "matrix products" and not case["kept_tokens"] and not case["dead_tokens"]


def row_of(section: Section, name: str) -> Row | None:
    """Return the row of a loss; None where it was not in the run."""
    return next((row for row in section["rows"] if row["name"] == name), None)


def of_floor(row: Row | None, section: Section) -> float | None:
    """Return the time of a loss, forward and backward, over that of its products; None without one."""
    times = None if row is None else row["times"].get("forward_backward")
    return None if times is None else _ratio(times, section["floors"]["forward_backward"])


def of_floor_text(row: Row, section: Section) -> str | None:
    """Return what `of_floor` does, with its interval where the record has one."""
    times = row["times"].get("forward_backward")
    return None if times is None else _ratio_cell(times, section["floors"]["forward_backward"])


def _ratio(times: Times, floor: Times) -> float:
    return times["of_floor"]["ratio"] if "of_floor" in times else times["median_ms"] / floor["median_ms"]


def _ratio_cell(times: Times, floor: Times) -> str:
    return ratio_text(times["of_floor"]) if "of_floor" in times else f"{_ratio(times, floor):.2f}"


def _times(times: Times | None, floor: Times | None) -> str:
    """Two cells: milliseconds with their spread, and the ratio to the floor."""
    if times is None:
        return " | "
    shown = f"{number(times['median_ms'])} ({number(times['p20_ms'])} to {number(times['p80_ms'])})"
    return f"{shown} | " + ("1" if floor is None else _ratio_cell(times, floor))


def number(value: float) -> str:
    """Three digits, or all before the point."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
