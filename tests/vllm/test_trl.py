"""TRL's trainer with the plug-in, whose completions a vLLM engine in its process samples."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("trl", reason="make test-vllm installs TRL beside vLLM")
PROGRAM = Path(__file__).resolve().parents[1] / "helpers" / "trl_vllm.py"
DIFFERENCE = "sampling/sampling_logp_difference/mean"


def run(folder: Path, *options: str) -> tuple[list[dict[str, Any]], str]:
    """Return the rows that the program logs, and its warnings."""
    done = subprocess.run([sys.executable, PROGRAM, folder, *options], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith('{"')], done.stderr


def test_it_explores_what_vllm_samples(tmp_path: Path) -> None:
    (*steps, last), warnings = run(tmp_path)
    assert len(steps) == 4
    assert last["counted"] == [32] * 4  # 8 samples of each of 4 questions in every step
    assert max(row[DIFFERENCE] for row in steps) < 1 / 16  # the engine computes in bfloat16
    assert all(row["exploration/bonus_mean"] < 0 for row in steps)
    assert "Check the synchronisation" not in warnings


def test_an_engine_with_old_weights_is_noticed(tmp_path: Path) -> None:
    (*steps, _), warnings = run(tmp_path, "--stale")
    assert steps[-1][DIFFERENCE] > 1 / 16
    assert "Check the synchronisation of weights with vLLM" in warnings


def test_the_loss_of_truncated_sampling_is_over_the_kept_tokens(tmp_path: Path) -> None:
    """TRL's importance ratios of policy and engine have mean 1 there, and are biased over the whole vocabulary."""
    ratio = "sampling/importance_sampling_ratio/mean"
    (*steps, last), warnings = run(tmp_path, "--truncated")
    assert last["counted"] == [32] * 4
    assert [row[ratio] for row in steps] == pytest.approx([1] * 4, abs=0.02)  # the engine computes in bfloat16
    assert max(row[DIFFERENCE] for row in steps) < 1 / 16
    assert all(row["grad_norm"] > 0 for row in steps)
    assert "the loss is over the whole vocabulary" not in warnings
    whole, _ = run(tmp_path, "--truncated", "--whole")
    assert whole[0][ratio] < 0.95
