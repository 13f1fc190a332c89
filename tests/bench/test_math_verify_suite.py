"""The run of math-verify's tests, on a folder of three tests."""

import json
from pathlib import Path

import pytest

from bench import math_verify_suite, pages

TESTS = r"""
from math_verify import parse, verify
from math_verify.grader import verify as same

def test_equal():
    assert same is verify and verify(parse("$x+1$"), parse("$1+x$"))

def test_bare_formula():
    assert verify(parse("2x"), parse(r"\boxed{2}"))

def test_imports():
    from tests.test_some import TEXT
"""


def test_both_subjects_and_the_record(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "test_some.py").write_text(f"TEXT = 1\n{TESTS}")
    math_verify_suite.main([str(tmp_path), "--out", str(tmp_path)])
    figures = json.loads((tmp_path / "math-verify-suite.json").read_text())["figures"]
    assert [(row["passed"], row["failed"]) for row in figures.values()] == [
        (3, []),
        (2, ["test_some.py::test_bare_formula"]),
    ]
    assert "| outcome_rl.math_verify | 2 | 1 |" in capfd.readouterr().out


def test_the_committed_record_fails_only_where_a_test_patches_math_verify() -> None:
    figures = pages.read(pages.RESULTS / "math-verify-suite.json")["figures"]
    assert figures["math-verify"]["failed"] == []
    files = {name.partition("::")[0] for name in figures["outcome_rl.math_verify"]["failed"]}
    assert files == {"test_raise_on_error.py", "test_timeout.py"}
