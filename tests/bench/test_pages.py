"""The pages of the documentation show the committed records."""

import re
from pathlib import Path
from typing import Any

import pytest

from bench import loss_page, pages

BEGIN, END = "<!-- some: written by make pages -->", "<!-- end of some -->"


def test_text_around_a_block_stays() -> None:
    text = f"before\n{BEGIN}\nold\n{END}\nafter\n"
    once = pages.with_block(text, "some", "new\n")
    assert once == f"before\n{BEGIN}\nnew\n{END}\nafter\n"
    assert pages.with_block(once, "some", "new\n") == once
    with pytest.raises(ValueError, match="lacks the marks"):
        pages.with_block("no marks", "some", "new\n")


def test_pages_show_the_records() -> None:
    for path, text in pages.pages().items():
        assert path.read_text() == text, f"{path.name} is out of date; run make pages"


def test_every_page_and_plot_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = {path.relative_to(pages.ROOT): text for path, text in pages.pages().items()}
    for path, text in wanted.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(re.sub(r"(?<=make pages -->\n).*?(?=<!-- end of)", "old\n", text, flags=re.DOTALL))
    monkeypatch.setattr(pages, "ROOT", tmp_path)
    pages.main()
    assert {path: (tmp_path / path).read_text() for path in wanted} == wanted
    for name in loss_page.read_records(pages.RESULTS):
        assert (tmp_path / "docs" / f"{name}.png").read_bytes().startswith(b"\x89PNG")


def test_the_block_of_a_step_names_device_and_commit() -> None:
    times = {"median_ms": 500.0}
    ours: dict[str, Any] = {
        "step": times,
        "rollout": times,
        "trained_tokens": 1000,
        "sampled_tokens": 2000,
        "peak_mib": 12.4,
        "outcomes_share": 0.004,
    }
    trl = {**ours, "step": {"median_ms": 1000.0}, "peak_mib": None}
    del trl["outcomes_share"]
    block = pages.step_block(
        {
            "figures": {"toy": {"outcome_rl": ours, "TRL": trl}},
            "devices": ["cpu: some"],
            "versions": {"torch": "2.13.0"},
            "date": "2026-01-01",
            "commit": "abc",
        }
    )
    assert "| toy | outcome_rl | 2000 | 4000 | 12 | 0.40% |" in block
    assert "| toy | TRL | 1000 | 4000 |  |  |" in block
    assert "Measured on cpu: some; PyTorch 2.13.0; 2026-01-01; commit abc." in block
