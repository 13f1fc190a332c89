"""Run another library's own tests with our class in place of its own, and print what passes.

    python -m bench.peers trl --source trl --out bench/results

`--source` is a checkout of the library: its source archive on the package index holds no tests. Tests that need a GPU,
a server, or a model without a stand-in are left out for all variants alike. Run it where the library is installed, as
in the environment of `make test-integrations`. A new library is a row of `PEERS`, and of `swaps.REPLACED`.
"""

import argparse
import os
import re
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ET
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

from bench.peers import swaps, trl
from bench.result_file import ROOT, add_out, write_result
from outcome_rl.terminal.tables import print_table

OWN = "its own"
HEADS = ("passed", "refused", "failed", "of")
REFUSALS = ("ValueError: ", "NotImplementedError: ")  # of ours, in words; a wrong number is an AssertionError


class Peer(NamedTuple):
    """A library with a suite."""

    files: tuple[str, ...]  # of its checkout
    suites: tuple[str, ...]  # files that are run
    left_out: str  # tests, as pytest's -k has them
    prepare: Callable[[Path, Path], None]  # makes stand-ins in the working folder of the tests, given the copied files
    plugin: str  # a module that replaces the class, by the environment variable SWAP
    variants: tuple[str, ...]  # with `OWN`, tests that the library itself fails do not count


PEERS = {
    "trl": Peer(trl.FILES, (trl.SUITE,), trl.LEFT_OUT, trl.prepare, "bench.peers.trl_swap", (OWN, "none", "default")),
    "liger": Peer(
        ("test/__init__.py", "test/conftest.py", "test/utils.py", "test/chunked_loss/test_grpo_loss.py"),
        ("test/chunked_loss/test_grpo_loss.py",),
        # Of Liger's own functions, not of its class.
        "not selective_chunk and not functional and not reduce_grpo_loss and not triton",
        lambda suite, work: None,
        "bench.peers.swaps",
        ("liger",),
    ),
    "cce": Peer(
        ("tests/test_cce_loss_forward.py", "tests/test_cce_loss_backward.py"),
        ("tests/test_cce_loss_forward.py", "tests/test_cce_loss_backward.py"),
        "torch_compile",  # its other implementations are the same calls of ours
        swaps.on_this_device,
        "bench.peers.swaps",
        ("cce",),
    ),
}


def main() -> None:
    """Run the suite for the library's own class and for each variant of ours, and write what came of each test."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("peer", choices=PEERS)
    parser.add_argument("--source", type=Path, required=True, help="checkout of the library")
    parser.add_argument("--tests", default="", help="pytest's -k, to run a part")
    add_out(parser)
    options = parser.parse_args()
    peer = PEERS[options.peer]
    with tempfile.TemporaryDirectory() as folder:
        for name in peer.files:
            copy = Path(folder, "suite", name)
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_text((options.source / name).read_text())
        work = Path(folder, "work")
        work.mkdir()
        peer.prepare(Path(folder, "suite"), work)
        chosen = f"({peer.left_out}) and ({options.tests})" if options.tests else peer.left_out
        with ThreadPoolExecutor() as pool:  # a process each
            reports = pool.map(lambda variant: run(peer, Path(folder), variant, chosen), peer.variants)
            found = dict(zip(peer.variants, reports, strict=True))
    first = found[peer.variants[0]]
    words = ("passed",) if OWN in found else ("passed", "failed")
    counted = {name for name, (word, _) in first.items() if word in words}
    figures: dict[str, dict[str, Any]] = {}
    for variant, results in found.items():
        lost = ("failed", "did not run")
        each = {name: results.get(name, lost) for name in counted}
        others = {name: text for name, (word, text) in sorted(each.items()) if word != "passed"}
        refusals = Counter(text for text in others.values() if text.startswith(REFUSALS))
        failures = {name: text for name, text in others.items() if text not in refusals}
        numbers = (len(counted) - len(others), refusals.total(), len(failures), len(counted))
        figures[variant] = dict(zip(HEADS, numbers, strict=True)) | {"refusals": refusals, "failures": failures}
    print_table(["class", *HEADS], [[name, *(str(one[head]) for head in HEADS)] for name, one in figures.items()])
    for variant, one in figures.items():
        for text, number in one["refusals"].items():
            print(f"{variant}, refused {number} times: {text}")
        for name, text in one["failures"].items():
            print(f"{variant}, {name}: {text}")
    print(f"wrote {write_result(options.out, f'peers-{options.peer}', {'tests': chosen}, figures)}")


def run(peer: Peer, folder: Path, variant: str, chosen: str) -> dict[str, tuple[str, str]]:
    """Return for each test passed, failed or skipped, and the first line of its error."""
    report = folder / f"{variant}.xml"
    suite = folder / "suite"
    path = os.pathsep.join([str(suite), str(ROOT), str(ROOT / "kernels"), os.environ.get("PYTHONPATH", "")])
    offline = {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "HF_HOME": str(folder / "hub")}
    chosen_tests = ["-k", chosen, *(str(suite / name) for name in peer.suites)]
    plugins = ["-p", "no:cacheprovider", "-p", peer.plugin, "-c", os.devnull, f"--junitxml={report}"]
    subprocess.run(
        [sys.executable, "-m", "pytest", "-q", *plugins, "--rootdir", str(suite), *chosen_tests],
        cwd=folder / "work",
        env={**os.environ, **offline, "OMP_NUM_THREADS": "1", "PYTHONPATH": path, "SWAP": variant},
        check=False,  # failures are what is counted
    )
    return read(report)


def read(report: Path) -> dict[str, tuple[str, str]]:
    """Read a JUnit report: test -> word, first line of its error."""
    found = {}
    for case in ET.parse(report).iter("testcase"):
        problem = next((one for one in case if one.tag in ("failure", "error", "skipped")), None)
        word = "passed" if problem is None else "skipped" if problem.tag == "skipped" else "failed"
        text = "" if problem is None else problem.get("message", "").partition("\n")[0]
        text = re.sub(" at 0x[0-9a-f]+", "", text)
        found[case.get("name", "")] = (word, text)
    return found


if __name__ == "__main__":
    main()
