"""The one-file example with vLLM: after every update the engine samples with the weights of the policy."""

import re
import subprocess
import sys
from pathlib import Path

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "grpo_vllm.py"

SAMPLE = f"""
import runpy, sys
sys.argv = ["grpo_vllm.py", "--engine", "vllm", "--n", "8"]
example = runpy.run_path({str(EXAMPLE)!r})
options = example["parse"]()
model = example["AutoModelForCausalLM"].from_pretrained(options.model)
tokenizer = example["AutoTokenizer"].from_pretrained(options.model)
generate = example["vllm_engine"](model, tokenizer, model.dtype, options)
prompt = example["encode"](tokenizer, "D12 39 ^ 9 =>", options)
for prompts in ([prompt, prompt], [prompt]):
    print("tokens", *("-".join(map(str, one.token_ids)) for one in generate(prompts)))
"""


def test_the_engine_has_the_policys_weights() -> None:
    """The toy policy's head is tied to its embedding, which vLLM by itself would not renew on a CPU."""
    options = ["--steps", "3", "--questions", "4", "--lr", "5e-3", "--engine", "vllm"]
    shown = run(EXAMPLE, *options)
    differences = [float(value) for value in re.findall(r"logp_difference ([\d.]+)", shown)]
    assert len(differences) == 3
    assert max(differences) < 1e-3
    assert "warning" not in shown


def test_samples_of_a_prompt_are_independent_within_a_step_and_between_steps() -> None:
    both, later = (line.split()[1:] for line in run("-c", SAMPLE).splitlines() if line.startswith("tokens"))
    first, second = both[:8], both[8:]
    assert len(later) == 8
    assert len(set(first)) > 4
    assert first != second
    assert first[1:] != later[:-1]  # vLLM numbers a request's samples from its seed


def run(*command: str | Path) -> str:
    done = subprocess.run([sys.executable, *command], capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stderr
    return done.stdout
