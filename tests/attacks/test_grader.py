"""Attacks on the processes of math-verify: by the working directory, for secrets, and by texts that never end."""

import json
import logging
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from outcome_rl import Explorer
from outcome_rl.isolation.grader import MathVerifyPool
from outcome_rl.isolation.worker_pool import WorkerPool
from outcome_rl.outcomes.keys import outcome_key
from outcome_rl.outcomes.matcher import OutcomeMatcher


def test_no_module_of_the_working_directory_is_imported(tmp_path: Path) -> None:
    for name in ("resource", "json", "select", "sympy", "outcome_rl"):
        (tmp_path / f"{name}.py").write_text(f"open({str(tmp_path / 'imported')!r}, 'w'); raise SystemExit")
    code = (
        "import sys; sys.path[:] = [place for place in sys.path if place]\n"
        "from outcome_rl.isolation.grader import MathVerifyPool\n"
        "with MathVerifyPool(1) as pool: print(pool.vote([('1/2', '0.5')]))"
    )
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONSAFEPATH"}
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, env=environment)
    assert done.stdout == "['equal']\n", done.stderr
    assert not (tmp_path / "imported").exists()


def test_a_command_imports_nothing_but_named_functions_from_the_working_directory(tmp_path: Path) -> None:
    """Worker processes of the function included, for which the folder stays on the path."""
    for name in ("queue", "random", "json", "select", "sympy", "torch", "numpy", "outcome_rl", "argparse", "types"):
        (tmp_path / f"{name}.py").write_text(f"open({str(tmp_path / 'imported')!r}, 'w'); raise SystemExit")
    (tmp_path / "mine.py").write_text("def letter(response, row):\n    return response[-1]\n")
    (tmp_path / "s.jsonl").write_text(json.dumps({"id": "q", "gold": "A", "response": "the answer is A"}))
    command = [sys.executable, "-P", "-m", "outcome_rl.cli", "analyze", "s.jsonl", "--outcome", "mine:letter"]
    done = subprocess.run([*command, "--json", "out.json"], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert json.loads((tmp_path / "out.json").read_text())["pass_at_k"]["1"] == 1
    assert not (tmp_path / "imported").exists()


@pytest.mark.parametrize(
    ("loader", "argument"), [("isolation.grader:load_judge", "2048"), ("outcomes.isolated:load_isolated", "json:dumps")]
)
def test_a_worker_whose_caller_was_killed_ends_without_a_word(loader: str, argument: str) -> None:
    limits, loader = ["2048", "10"], f"outcome_rl.{loader}"
    command = [sys.executable, "-P", "-m", "outcome_rl.isolation.worker_process", *limits, loader, argument]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    pipes: dict[str, Any] = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    with subprocess.Popen(command, env=environment, text=True, **pipes) as worker:
        worker.stdout.close()
        worker.stdout = None
        assert worker.communicate(timeout=120)[1] == ""


@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="reads the environment of a process from /proc")
def test_workers_inherit_no_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HF_TOKEN", "WANDB_API_KEY", "AWS_SECRET_ACCESS_KEY", "OPENAI_API_KEY", "DATABASE_URL"):
        monkeypatch.setenv(name, "sekret")
    load = ("outcome_rl.outcomes.isolated:load_isolated", "posixpath:join")
    with WorkerPool(load, workers=1, timeout_s=1, memory_mib=2048) as pool:
        pool.ask(["no task of it"])
        environment = Path(f"/proc/{pool.running[0].process.pid}/environ").read_bytes()
    assert b"PATH=" in environment
    assert b"sekret" not in environment


# Texts that no rule reads, equal if they have the same upper limit; of two families, one hangs.
TEXTS = [rf"\int_0^{{{limit}}} x^{{{power}}} dx" for limit in range(3) for power in range(4)]
ENDLESS = [text for text in TEXTS if "x^{3}" in text]


@settings(deadline=None)
@given(st.lists(st.sampled_from(TEXTS), min_size=1, max_size=14), st.integers(0, 14), st.sampled_from([*TEXTS, "5"]))
def test_no_text_hangs_twice_and_others_do_not_suffer(answers: list[str], cut: int, gold: str) -> None:
    hung: list[tuple[str, str]] = []

    def hanging(pool: MathVerifyPool, pairs: Sequence[tuple[str, str]], *_: Any) -> Iterator[tuple[int, Any]]:
        hung.extend(pair for pair in pairs if {*pair} & {*ENDLESS})
        for i, (a, b) in enumerate(pairs):
            if {a, b} & {*ENDLESS}:
                yield i, {"verdict": "timeout", "reason": "killed"}
            else:
                yield i, {"verdict": "equal" if a[:10] == b[:10] else "different"}

    matcher, correct = OutcomeMatcher(), dict[str, bool]()
    with patch.object(MathVerifyPool, "_answer", hanging):
        for part in (answers[:cut], answers[cut:], answers):
            outcomes = matcher.classify_answers(["q"] * len(part), part, [gold] * len(part))
            assert outcomes.keys.tolist() == [outcome_key(answer) for answer in part]
            correct |= dict(zip(part, outcomes.correct.tolist(), strict=True))
    assert len(hung) == len({*hung}) <= len({*answers, gold} & {*ENDLESS})
    for answer in {*answers} - {*ENDLESS}:
        assert correct[answer] == (answer[:10] == gold[:10] and (gold not in ENDLESS or answer == gold))


def test_the_time_of_a_step_is_bounded(caplog: pytest.LogCaptureFixture) -> None:
    class Quick(OutcomeMatcher):
        def __init__(self) -> None:
            super().__init__(workers=1, timeout_s=1)

    with Explorer(outcome=Quick, grading_limit_s=0.75) as explorer, caplog.at_level(logging.WARNING):
        start = time.monotonic()
        endless = [rf"\boxed{{\sum_{{j=1}}^{{{10**6 + i}}} 9^{{9^{{9}}}}}}" for i in range(8)]
        scored = explorer.score(["q"] * 8, endless, ["1"] * 8)
        assert time.monotonic() - start < 60  # and not 8 starts of a worker and time limits
    assert scored.metrics["outcomes/unresolved"] == 8  # none begins, or one hangs if a worker starts in time
    assert any("had not begun after 0.75 s or" in message for message in caplog.messages)
    assert not scored.correct.any()
