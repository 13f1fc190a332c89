"""The one-file example with vLLM: after every update the engine samples with the weights of the policy."""

import re
import subprocess
import sys
from pathlib import Path

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "grpo_vllm.py"


def test_the_engine_has_the_policys_weights() -> None:
    """The toy policy's head is tied to its embedding, which vLLM by itself would not renew on a CPU."""
    options = ["--steps", "3", "--questions", "4", "--lr", "5e-3", "--engine", "vllm"]
    done = subprocess.run([sys.executable, EXAMPLE, *options], capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stderr
    differences = [float(value) for value in re.findall(r"logp_difference ([\d.]+)", done.stdout)]
    assert len(differences) == 3
    assert max(differences) < 1e-3
    assert "warning" not in done.stdout
