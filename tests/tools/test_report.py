"""Report of a run: its numbers, no external resources, and hostile text shown as text."""

import json
import re
import shutil
import xml.etree.ElementTree as ET
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from command_line import invoke
from grpo_runs import rows

from outcome_rl import cli
from outcome_rl.files.jsonl import write_rows
from outcome_rl.tools.report import write_report
from outcome_rl.tools.runs import Comparison, Run, read_run

NO_CHECKPOINTS = shutil.ignore_patterns("checkpoints")  # which count the rows
VOID = {"meta", "br", "link", "img", "path", "use"}


class Page(HTMLParser):
    """Parse a page: check that tags are balanced, and collect attributes and text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag not in VOID:
            assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def test_a_finished_run_has_its_page(finished: Path, tmp_path: Path) -> None:
    page = write_report([finished], tmp_path / "report.html").read_text()
    parsed = Page(page)
    assert parsed.open == []
    text = " ".join(parsed.text.split())
    base, trained = (row for row in rows(finished, "evaluations") if row["dataset"] == "toy:test")
    for row in (base, trained):
        assert f"{row['pass_at_k']['1']:.3f}" in text
        assert f"{row['diff_at_k']['4']:.2f}" in text
    for shown in ("pass@k", "KL to the base policy", "Response length", "Time of a step", "Token entropy"):
        assert shown in text
    assert "train_batch_size: 8" in text
    assert rows(finished, "samples")[-1]["question"] in text
    (chart,) = re.findall(r"<svg.*?</svg>", page, re.DOTALL)
    ET.fromstring(chart)
    assert "KL to the base policy" in chart
    # It loads nothing.
    assert not {"script", "link", "img", "iframe", "image"} & set(parsed.tags)
    links = [value for name, value in parsed.attributes if name in ("href", "xlink:href", "src") and value]
    assert all(link.startswith("#") for link in links)
    assert not re.search(r"url\((?!#)|@import", page)


HOSTILE = "<script>alert(1)</script> & \"'</pre> \u2028 $x$ {{ 7*7 }}"


def test_hostile_text_is_text_and_small_and_large_numbers_are_not_rounded_to_zero(
    finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("outcome_rl.tools.report.panels_of", lambda runs: [])
    run = shutil.copytree(finished, tmp_path / "<b>run</b>", ignore=NO_CHECKPOINTS)
    sample = rows(finished, "samples")[-1] | dict.fromkeys(("question", "completion", "outcome"), HOSTILE)
    write_rows(run / "samples.jsonl", [sample | {"bonus": 1e-9, "advantage": -1e6}])
    text = (run / "config.yaml").read_text()
    (run / "config.yaml").write_text(text.replace("'{problem}'", json.dumps("{problem} <i>")))
    parsed = Page(write_report([run], tmp_path / "page.html").read_text())
    assert "script" not in parsed.tags
    assert parsed.text.count(HOSTILE.replace("\u2028", "\ufffd")) == 3
    for shown in ("{problem} <i>", "+1e-09", "-1e+06"):
        assert shown in parsed.text


def test_runs_share_the_charts(finished: Path, tmp_path: Path) -> None:
    runs = [
        shutil.copytree(finished, tmp_path / name / "run", ignore=NO_CHECKPOINTS) for name in ("one", "two", "three")
    ]
    base = rows(finished, "evaluations")
    for factor, run in enumerate(runs, start=1):
        changed = [{**row, "pass_at_k": {k: v / 2**factor for k, v in row["pass_at_k"].items()}} for row in base]
        write_rows(run / "evaluations.jsonl", changed)
    out = tmp_path / "page.html"
    result = invoke(cli.main, "report", *runs, "--out", out)
    assert (result.exit_code, result.stdout.strip()) == (0, str(out)), result.output
    page = out.read_text()
    text = " ".join(Page(page).text.split())
    trained = [row for row in base if row["dataset"] == "toy:test"][-1]["pass_at_k"]
    for factor, run in enumerate(runs, start=1):
        assert f"toy:test, {run}" in text  # all are called run
        assert all(f"{value / 2**factor:.3f}" in text for value in trained.values())
    assert {"#1f8bb8", "#d9576a", "#d9942f"} <= set(re.findall(r"stroke: (#\w{6})", page))


@pytest.mark.parametrize("stream", ["metrics", "evaluations"])
def test_a_run_in_progress_has_a_page(stream: str, finished: Path, tmp_path: Path) -> None:
    """After a step, and before the first."""
    shutil.copy(finished / "config.yaml", tmp_path)
    lines = (finished / f"{stream}.jsonl").read_text().splitlines(keepends=True)
    (tmp_path / f"{stream}.jsonl").write_text(lines[0] + lines[1][:50])  # a row is being written
    assert len(getattr(read_run(tmp_path), stream)) == 1
    assert Page(write_report([tmp_path], tmp_path / "report.html").read_text()).open == []


@pytest.mark.parametrize("files", [[], ["config.yaml"]])
def test_a_folder_without_a_run_is_refused(files: list[str], finished: Path, tmp_path: Path) -> None:
    for name in files:
        shutil.copy(finished / name, tmp_path)
    result = invoke(cli.main, "report", tmp_path)
    assert result.exit_code == 2
    assert f"{tmp_path} holds no run: config.yaml and" in result.stderr


def evaluation(dataset: str, step: int) -> dict[str, Any]:
    return {"dataset": dataset, "step": step}


def test_test_data_are_compared_and_validation_data_where_there_are_none() -> None:
    kept = [evaluation(name, step) for step in (0, 5, 9) for name in ("v", "a", "b")]

    def compare(evaluations: list[dict[str, Any]], test: list[str], validation: list[str]) -> list[Comparison]:
        data = {"test_files": test, "val_files": validation}
        return Run("run", "", {"data": data}, metrics=[], evaluations=evaluations, samples=[]).comparisons

    pairs = [(one.dataset, one.base["step"], one.trained["step"]) for one in compare(kept, ["a.jsonl", "b"], ["v"])]
    assert pairs == [("a", 0, 9), ("b", 0, 9)]
    assert [one.dataset for one in compare(kept, [], ["v.jsonl"])] == ["v"]
    assert compare(kept[:3], ["a"], []) == []  # the base alone


def test_a_page_replaces_no_file_by_a_link_in_a_folder(finished: Path, tmp_path: Path) -> None:
    """A stranger's folder with `report.html -> ~/.bashrc` would replace that file."""
    run = shutil.copytree(finished, tmp_path / "run")
    (run / "report.html").unlink(missing_ok=True)
    (run / "report.html").symlink_to(tmp_path / "mine")
    (tmp_path / "mine").write_text("content")
    result = invoke(cli.main, "report", run)
    assert result.exit_code == 2
    assert "report.html is a link" in result.stderr
    assert "--out" in result.stderr
    assert (tmp_path / "mine").read_text() == "content"
