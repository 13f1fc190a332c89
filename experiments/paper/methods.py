"""A table of experiments/paper/README.md: advantage estimators and bonuses side by side, after the plan `methods`.

python -m experiments.paper methods
python -m experiments.paper.methods
"""

import argparse
import json
import statistics
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from experiments.lab.comparison import margin
from experiments.lab.verdicts import Case, Verdict, judge
from experiments.paper.measures import BASE, Results, evaluations
from experiments.paper.plan import METHODS_TABLE
from experiments.paper.runs import TEST
from experiments.paper.tables import label, table
from outcome_rl.files.atomic import write_json

RESULTS = Path(__file__).parent / "results"
NAME = "methods"
MEASURES = ("pass@1", "pass@32", "diff@32")
BASELINE = "none"  # GRPO


def main() -> None:
    """Write the record of the plan's runs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=Path, default=Path("runs") / f"paper-{METHODS_TABLE.name}", help="%(default)s")
    print(f"wrote {write_record(parser.parse_args().runs)}")


def write_record(folder: Path, out: Path = RESULTS) -> Path:
    """Write the last evaluations on the test questions, of the rule tables on which all methods have run."""
    records = json.loads((folder / "records.json").read_text())
    path = out / f"{NAME}.json"
    write_json(path, {"config": records["plan"], "figures": last_tests(records), **records["environment"]})
    return path


def last_tests(records: Mapping[str, Any]) -> dict[str, list[dict[str, float]]]:
    """Return method -> one entry of `MEASURES` for each rule table and seed; the base policy first."""
    results = Results(dict(records))
    return {
        method: [
            {
                name: evaluations(run, TEST)[-1][f"{name.partition('@')[0]}_at_k"][name.partition("@")[2]]
                for name in MEASURES
            }
            for cell in results.cells
            for run in results.runs(cell, method)
        ]
        for method in (BASE, *records["plan"]["methods"])
    }


def methods_table(record: Mapping[str, Any]) -> str:
    """Return means over the rule tables, and differences from GRPO with their 95 % t intervals, in Markdown.

    Intervals without zero are bold; the line below tells how many differences Holm's correction leaves.
    """
    figures = record["figures"]
    others = [method for method in figures if method not in (BASE, BASELINE)]
    places = [(method, name) for method in others for name in MEASURES]
    verdicts = dict(zip(places, judge([_case(figures, *place) for place in places]), strict=True))
    rows = []
    for method, found in figures.items():
        cells = []
        for name in MEASURES:
            mean = f"{statistics.mean(row[name] for row in found):.3f}"
            cells += [mean, _difference(verdicts[method, name]) if method in others else ""]
        rows.append([label(method), *cells])
    heading = [part for name in MEASURES for part in (name, "against GRPO")]
    decided = sum(verdict.word in ("seen", "opposite") for verdict in verdicts.values())
    return (
        table(["", *heading], rows)
        + f"\nBold: the interval, which is of this comparison alone, has no zero. After Holm's correction for all "
        f"{len(places)} comparisons {decided} of them are decided.\n"
    )


def _case(figures: Mapping[str, Any], method: str, name: str) -> Case:
    pairs = zip(figures[method], figures[BASELINE], strict=True)
    return Case([left[name] - right[name] for left, right in pairs], 1, margin(name))


def _difference(verdict: Verdict) -> str:
    text = f"{verdict.mean:+.3f} ({verdict.low:+.3f} to {verdict.high:+.3f})"
    return f"**{text}**" if verdict.low > 0 or verdict.high < 0 else text


if __name__ == "__main__":
    main()
