"""The report says what the records say, from them alone, and its HTML needs no other file."""

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from command_line import invoke
from reproduce_records import PLAN, records

from experiments.claims import CLAIMS
from experiments.lab.verdicts import estimate
from experiments.paper import runs
from experiments.paper.__main__ import main
from experiments.paper.figures import COLOURS
from experiments.paper.measures import BASE, Results, final
from experiments.paper.plan import PLANS
from experiments.paper.report import compose
from experiments.paper.tables import common_unsolved


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("report")
    (folder / "records.json").write_text(json.dumps(records()))
    result = invoke(main, "quick", "--report", "--out", folder)
    assert result.exit_code == 0, result.stderr
    return folder


def test_every_method_of_a_plan_has_a_colour() -> None:
    """A study ended without its report, for want of one."""
    assert {method for plan in PLANS.values() for method in (*plan.methods, *plan.ablations)} <= COLOURS.keys()


def test_every_claim_has_a_row_with_a_verdict(folder: Path) -> None:
    page = (folder / "report.md").read_text().split("## Methods compared")[0]
    for claim in CLAIMS:
        (row,) = [line for line in page.splitlines() if line.startswith(f"| {claim.statement} |")]
        assert re.search(r"\| (\*\*(seen|opposite|no difference|undecided)\*\*|no value) \|", row)
    assert "0 of " in page  # two seeds of one rule table decide nothing


def test_tables_show_the_records(folder: Path) -> None:
    page = (folder / "report.md").read_text()
    results = Results(json.loads((folder / "records.json").read_text()))
    cell = results.cells[0]
    first, second = map(final(1), results.runs(cell, "batch"))
    (row,) = [
        line
        for line in page.split("\n## Medium")[1].split("\n## Hard")[0].splitlines()
        if line.startswith("| Batch |") and line.count("|") == 6
    ]
    assert f"{(first + second) / 2:.3f} ({abs(first - second) / 2**0.5:.3f})" in row
    common = common_unsolved(results, cell, [BASE, *PLAN.methods])
    assert sum(common) < len(common)
    assert "UCB-Con, c = 1" in page.split("## Ablations")[1]


STORED = Path(runs.__file__).parent / "results"


@pytest.mark.parametrize("record", sorted(STORED.glob("*/report.md")), ids=lambda path: path.parent.name)
def test_stored_reports_are_those_of_their_records(record: Path) -> None:
    results = Results(json.loads((record.parent / "records.json").read_text()))
    written = compose(results, {cell.name: {} for cell in results.cells})
    assert [line for line in written.splitlines() if line not in record.read_text().splitlines()] == []


def page_of(results: Results) -> str:
    return compose(results, {cell.name: {} for cell in results.cells})


def test_methods_are_set_beside_grpo_over_all_questions_and_by_split() -> None:
    results = Results(records(plan=replace(PLAN, seeds=(0, 1, 2))))
    page = page_of(results).split("## Methods compared with GRPO")[1].split("\n## ")[0]
    for split in PLAN.splits:
        section = page.split(f"### {split.capitalize()} questions")[1].split("###")[0]
        assert "| GRPO |" not in section
        pairs = [
            final(32)(batch) - final(32)(none)
            for cell in results.cells
            if cell.split == split
            for batch, none in zip(results.runs(cell, "batch"), results.runs(cell, "none"), strict=True)
        ]
        found = estimate(pairs)
        (row,) = [line for line in section.splitlines() if line.startswith("| Batch |")]
        assert row.split(" | ")[4] == f"{found.mean:+.3f} ± {found.error:.3f}"


def test_one_seed_has_no_spread_and_says_so() -> None:
    page = page_of(Results(records(plan=replace(PLAN, seeds=(0,), splits=("hard",)))))
    assert "`python -m experiments.paper quick --seeds 1`" in page
    assert "12 training questions, 1 seed." in page
    (row, *_) = [line for line in page.split("### Test questions")[1].splitlines() if line.startswith("| Batch |")]
    assert "(" not in row
    assert "nan" not in page


def test_the_html_is_whole(folder: Path) -> None:
    html = (folder / "report.html").read_text()
    sources = re.findall(r'src="([^"]*)"', html)
    assert len(sources) == 3 * len(PLAN.cells())
    assert all(source.startswith("data:image/png;base64,") for source in sources)
    assert "http" not in re.sub(r"<style>.*?</style>", "", html, flags=re.S)
    page = (folder / "report.md").read_text()
    assert html.count("<table>") == len(re.findall(r"^\|(?: ?---:? ?\|)+$", page, re.MULTILINE))


def test_figures_stand_beside_the_markdown(folder: Path) -> None:
    for name in re.findall(r"\]\(([^)]*\.png)\)", (folder / "report.md").read_text()):
        assert (folder / name).read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("solved", [0.0, 1.0])
def test_where_no_question_is_left_unsolved_the_column_is_left_out(solved: float) -> None:
    page = page_of(Results(records(lambda method, name, chance: solved)))
    assert ("that none solved" in page) == (solved == 0.0)


def test_without_records_the_error_names_the_file(tmp_path: Path) -> None:
    result = invoke(main, "quick", "--report", "--out", tmp_path)
    assert result.exit_code == 2
    assert "records.json" in result.stderr
