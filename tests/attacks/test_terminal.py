"""Control characters of completions, data and file names never reach the terminal: ESC could set its title or links."""

import io
import json
import logging
import sys
from pathlib import Path
from unicodedata import category

import pytest
from command_line import invoke
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from outcome_rl import cli
from outcome_rl.grpo.run.display import Display
from outcome_rl.terminal.progress import show_progress
from outcome_rl.terminal.tables import print_table
from outcome_rl.terminal.text import printable
from outcome_rl.tools.tables import print_samples

TITLE = "\x1b]0;owned\x07"  # sets the title of the window
ESCAPES = [TITLE, "\x1b[2J", "\x9b31m", "\x1b]8;;http://evil\x07click", "\x1bc", "\x08\x08\r", "\x00", "\x7f", "\ud800"]
DIRECTIONS = "\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"


def harmful(text: str) -> list[str]:
    return sorted({hex(ord(c)) for c in text if (ord(c) < 32 and c != "\n") or 0x7F <= ord(c) < 0xA0})


@given(st.text())
def test_only_control_characters_are_replaced(text: str) -> None:
    shown = printable(text)
    assert len(shown) == len(text)
    assert harmful(shown) == []
    shown.encode()
    assert all(a == b for a, b in zip(text, shown, strict=True) if a.isprintable() or a == "\n")


@pytest.mark.parametrize("terminal", [False, True])
def test_a_completion(terminal: bool, capsys: pytest.CaptureFixture[str]) -> None:
    display = Display()
    display.console = Console(file=io.StringIO(), force_terminal=terminal, color_system=None, width=100)
    hostile = "".join(ESCAPES)
    numbers = {"reward": 1.0, "count": 1, "bonus": 0.1, "advantage": 0.1}
    texts = dict.fromkeys(("question", "completion", "gold", "outcome"), hostile)
    print_samples([{"step": 1} | texts | numbers])
    display.say(hostile)
    output = display.console.file
    assert isinstance(output, io.StringIO)
    assert harmful(capsys.readouterr().out) == []
    assert harmful(output.getvalue().replace("\x1b[2m", "").replace("\x1b[1m", "").replace("\x1b[0m", "")) == []
    assert "owned" in output.getvalue()  # the text is there


def test_file_names_and_data(tmp_path: Path) -> None:
    escape = "".join(ESCAPES[:5])
    result = invoke(cli.main, "analyze", tmp_path / f"no{escape.replace('/', '')}such.jsonl")
    assert result.exit_code == 2
    assert harmful(result.output) == []
    path = tmp_path / f"s{escape.replace('/', '')}.jsonl"
    rows = [
        {"question_id": f"q{escape}", "gold": f"\\sum_{{k=1}}^3 k{escape}", "response": r"\boxed{6}"},
        {"question_id": f"r{escape}", "gold": " ", "response": "1"},
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    result = invoke(cli.main, "analyze", path)
    assert result.exit_code == 0, result.output
    assert harmful(result.output) == []


def test_logged_warnings() -> None:
    invoke(cli.main, "env")
    record = logging.LogRecord("outcome_rl", logging.WARNING, "", 0, "%s holds records", (TITLE,), None)
    assert harmful(logging.lastResort.format(record)) == []


FORMATS = "".join(c for c in map(chr, range(0x110000)) if category(c) in ("Cf", "Zl", "Zp"))


def test_controls_of_direction_do_not_reach_a_terminal() -> None:
    assert set(DIRECTIONS) <= set(FORMATS)
    assert set(printable(FORMATS)) == {"\ufffd"}
    assert printable(f"4{DIRECTIONS}2") == f"4{len(DIRECTIONS) * chr(0xFFFD)}2"
    assert printable("\u05d0\u05d1 \u0663") == "\u05d0\u05d1 \u0663"  # letters and digits of other scripts stay


def test_the_traceback_of_a_users_function(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "excepthook", None)
    invoke(cli.main, "env")
    error = ValueError(TITLE + "x\x1b[2J")
    sys.excepthook(type(error), error, None)
    shown = capsys.readouterr().err
    assert "owned" in shown
    assert harmful(shown) == []


def test_a_terminal_without_unicode_ends_no_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "samples.jsonl"
    path.write_text(
        json.dumps({"question_id": "é", "gold": r"\sum_{k=1}^3 k", "response": "5", "correct": True}) + "\n"
    )
    output = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(output, encoding="ascii", write_through=True))
    cli.main(["analyze", str(path)])
    assert rb"question \xe9" in output.getvalue()


def test_a_name_makes_no_line_of_its_own(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(["run"], [["mine\nerror: forged"]])
    with show_progress("mine\nerror: forged", "questions"):
        pass
    shown = capsys.readouterr()
    assert not any(line.startswith("error") for line in (shown.out + shown.err).splitlines())
