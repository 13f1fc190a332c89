"""The pages of the documentation show the committed records."""

import re
from pathlib import Path

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


@pytest.fixture(scope="module")
def shown() -> dict[Path, str]:
    return pages.pages()


def test_pages_show_the_records(shown: dict[Path, str]) -> None:
    for path, text in shown.items():
        assert path.read_text() == text, f"{path.name} is out of date; run make pages"


def test_every_page_and_plot_is_written(
    shown: dict[Path, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = {path.relative_to(pages.ROOT): text for path, text in shown.items()}
    for path, text in wanted.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(re.sub(r"(?<=make pages -->\n).*?(?=<!-- end of)", "old\n", text, flags=re.DOTALL))
    monkeypatch.setattr(pages, "ROOT", tmp_path)
    pages.main()
    assert {path: (tmp_path / path).read_text() for path in wanted} == wanted
    plots = [*loss_page.read_records(pages.RESULTS), "exploration", "methods", "agreement", "predictions"]
    for name in [*plots, "smollm2", "smollm2-hard"]:
        assert (tmp_path / "docs" / f"{name}.png").read_bytes().startswith(b"\x89PNG")


def test_the_readme_says_not_measured_where_nothing_was() -> None:
    table = loss_page.readme_table(loss_page.read_records(pages.RESULTS))
    (line,) = [line for line in table.splitlines() if "torch.compile" in line]
    assert line.strip("| ").split(" | ")[2] == "not measured"
