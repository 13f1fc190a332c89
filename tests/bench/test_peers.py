"""The suites of other libraries: what their reports say, and the stand-ins that need no library."""

from pathlib import Path

import pytest
from datasets import load_dataset

from bench.peers.__main__ import PEERS, read
from bench.peers.trl import write_data

REPORT = """<testsuites><testsuite>
<testcase name="good"/>
<testcase name="bad"><failure message="ValueError: no&#10;more"/></testcase>
<testcase name="broken"><error message="setup"/></testcase>
<testcase name="left"><skipped message="no GPU"/></testcase>
</testsuite></testsuites>"""


def test_a_report_says_what_came_of_each_test(tmp_path: Path) -> None:
    (tmp_path / "report.xml").write_text(REPORT)
    assert read(tmp_path / "report.xml") == {
        "good": ("passed", ""),
        "bad": ("failed", "ValueError: no"),
        "broken": ("failed", "setup"),
        "left": ("skipped", "no GPU"),
    }


@pytest.mark.parametrize("name", PEERS)
def test_a_peer_runs_a_file_that_it_copies(name: str) -> None:
    assert {*PEERS[name].suites} <= {*PEERS[name].files}


def test_the_data_set_has_the_configurations_of_the_tests(tmp_path: Path) -> None:
    write_data(tmp_path / "zen")
    rows = load_dataset(str(tmp_path / "zen"), "standard_prompt_completion", cache_dir=str(tmp_path / "cache"))
    assert {split: len(some) for split, some in rows.items()} == {"train": 17, "test": 2}
    first = rows["train"][0]
    assert first["prompt"] + first["completion"] == "Beautiful is better than ugly."
