"""The documentation agrees with the code."""

import json
import re
import runpy
from pathlib import Path

import pytest

from outcome_rl.driver.config import TrainConfig

DOCS = Path(__file__).resolve().parents[1] / "docs"


def test_every_setting_is_in_the_table() -> None:
    script = runpy.run_path(str(DOCS / "settings.py"))
    text = (DOCS / "driver.md").read_text()
    assert script["page"](text) == text, "driver.md is out of date; run python docs/settings.py"


def test_every_setting_is_explained() -> None:
    script = runpy.run_path(str(DOCS / "settings.py"))
    assert [key for key, _, meaning in script["rows"](TrainConfig()) if not meaning] == []


def test_results_are_those_on_record(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = DOCS.parent / "bench"
    monkeypatch.syspath_prepend(str(bench))
    table = runpy.run_path(str(bench / "exploration.py"))["table"]
    figures = json.loads((bench / "results" / "exploration.json").read_text())["figures"]
    assert table(figures) in (DOCS / "results.md").read_text()


@pytest.mark.parametrize(
    "page", ["README.md", "CONTRIBUTING.md", "docs/driver.md", "docs/math.md", "docs/outcomes.md", "docs/results.md"]
)
def test_links_lead_somewhere(page: str) -> None:
    path = DOCS.parent / page
    targets = re.findall(r"\]\(([^)#]+)\)", path.read_text())
    missing = [t for t in targets if "://" not in t and not (path.parent / t).exists()]
    assert missing == []
