"""Tables at 80 columns, names of files, and the change between two files."""

import pytest

from outcome_rl.tools.tables import print_samples, short_names

SAMPLE = {
    "step": 6,
    "question": r"What is [bold]\frac{1}{2}[/bold] + [x]?" + " very" * 60 + " long",
    "completion": "thinking " * 60 + r"so \boxed{[/]}",
    "gold": "1/2",
    "outcome": "[/]",
    "reward": 0.0,
    "count": 3,
    "bonus": 0.05,
    "advantage": -1.25,
}


@pytest.mark.parametrize("width", [80, 120])
def test_samples_fit_and_show_text_as_it_is(
    width: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    print_samples([SAMPLE, {**SAMPLE, "outcome": None, "gold": "12345678901234567890"}])
    text = capsys.readouterr().out
    assert max(map(len, text.splitlines())) <= width
    for shown in ("[/]", "none", "+0.05", "-1.25", r"\boxed{[/]}"):  # the end of a completion holds its answer
        assert shown in text


def test_labels_are_the_ends_that_tell_files_apart() -> None:
    assert short_names(["data/before.jsonl", "data/after.jsonl"]) == ["before.jsonl", "after.jsonl"]
    assert short_names(["runs/grpo/test.jsonl", "runs/pkpo/test.jsonl"]) == ["grpo/test.jsonl", "pkpo/test.jsonl"]
    assert short_names(["runs/grpo/test.jsonl"]) == ["test.jsonl"]
    assert short_names(["-", "a/test.jsonl"]) == ["-", "test.jsonl"]
