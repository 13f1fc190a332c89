"""Run math-verify's own tests, unmodified, against math-verify and against `outcome_rl.math_verify`.

    pip download --no-deps --no-binary :all: math-verify==0.9.0 && tar xf math_verify-0.9.0.tar.gz
    python -m bench.math_verify_suite math_verify-0.9.0/tests

Each run is a process of its own. In the second, our `parse` and `verify` replace those of math-verify before the tests
are imported.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from bench.result_file import add_out, write_result

SUBJECTS = ("math-verify", "outcome_rl.math_verify")


class Tally:
    """Plug-in of pytest that collects the outcomes of the tests."""

    def __init__(self) -> None:
        self.passed = 0
        self.failed: list[str] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.failed.append(report.nodeid.rpartition("/")[2])
        elif report.when == "call":
            self.passed += 1


def main(argv: Sequence[str] | None = None) -> None:
    """Run the tests against both, print the table and write the record."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tests", type=Path, help="folder of math-verify's tests")
    parser.add_argument("--subject", choices=SUBJECTS, help=argparse.SUPPRESS)
    add_out(parser)
    options = parser.parse_args(argv)
    if options.subject:
        (options.out / "tally.json").write_text(json.dumps(run(options.tests.resolve(), options.subject)))
        return
    figures = {}
    for subject in SUBJECTS:
        with tempfile.TemporaryDirectory() as folder:
            command = [sys.executable, "-m", "bench.math_verify_suite", str(options.tests), "--subject", subject]
            plain = os.environ | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}  # so that no plug-in that is installed decides
            subprocess.run([*command, "--out", folder], check=True, env=plain)
            figures[subject] = json.loads((Path(folder) / "tally.json").read_text())
    print(table(figures))
    config = {"math-verify": version("math-verify")}
    print(f"wrote {write_result(options.out, 'math-verify-suite', config, figures)}")


def run(tests: Path, subject: str) -> dict[str, Any]:
    """Run the tests of a folder in this process."""
    import math_verify.grader
    import math_verify.parser

    if subject != SUBJECTS[0]:
        from outcome_rl import math_verify as drop_in

        math_verify.parse = math_verify.parser.parse = drop_in.parse
        math_verify.verify = math_verify.grader.verify = drop_in.verify
    package = ModuleType("tests")  # they import one another as `tests.test_all`
    package.__path__ = [str(tests)]
    sys.modules["tests"] = package
    tally = Tally()
    began = time.perf_counter()
    pytest.main([str(tests), "-q", "-c", "/dev/null", "--rootdir", str(tests), "-p", "no:cacheprovider"], [tally])
    return {"passed": tally.passed, "failed": tally.failed, "seconds": time.perf_counter() - began}


def table(figures: dict[str, Any]) -> str:
    """Return the table of a record."""
    lines = ["| tests of math-verify, against | passed | failed |", "|---|---|---|"]
    lines += [f"| {name} | {row['passed']} | {len(row['failed'])} |" for name, row in figures.items()]
    failed = [f"`{name}`" for name in figures[SUBJECTS[1]]["failed"]]
    return "\n".join(lines) + f"\n\nFailed: {', '.join(failed) or 'none'}.\n"


if __name__ == "__main__":
    main()
