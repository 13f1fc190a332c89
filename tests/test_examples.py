"""The examples run as they stand in the repository."""

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest

from outcome_rl import Explorer

ROOT = Path(__file__).resolve().parents[1]

# Written from the README alone: train, save, load, and continue with equal counts.
SCRIPT = r"""
import torch
from outcome_rl import Explorer, linear_policy_loss
torch.manual_seed(0)
ids, golds = ["a"] * 8 + ["b"] * 8, ["3"] * 8 + ["7"] * 8
hidden, head = torch.eye(2).repeat_interleave(8, dim=0)[:, None], torch.nn.Linear(2, 10, bias=False)  # ten answers
optimizer, explorers = torch.optim.Adam(head.parameters(), lr=0.3), [Explorer(bonus="ucb_con", coef=0.2)]
for step in range(40):
    if step == 20:
        explorers[0].save("checkpoint/exploration")
        explorers.append(Explorer.load("checkpoint/exploration"))
    answers = torch.distributions.Categorical(logits=head(hidden)).sample()
    scored = [e.score(ids, [rf"\boxed{{{a}}}" for a in answers.flatten().tolist()], golds) for e in explorers][-1]
    output = linear_policy_loss(hidden, head.weight, answers, scored.advantages, answers >= 0, bonuses=scored.bonuses)
    optimizer.zero_grad(), output.loss.backward(), optimizer.step()
print(scored.metrics["outcomes/correct_rate"], *[e.seen("a") + e.seen("b") for e in explorers], sep="\n")
"""


def test_script_written_from_the_readme(tmp_path: Path) -> None:
    assert len(SCRIPT.split("\n")) - 2 <= 15
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, timeout=300, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    correct_rate, uninterrupted, continued = done.stdout.splitlines()
    assert float(correct_rate) > 0.5  # 0.1 before training
    assert continued == uninterrupted
    assert sum(count for _, count in ast.literal_eval(continued)) == 40 * 16


@pytest.mark.slow
def test_bare_loop() -> None:
    command = [sys.executable, ROOT / "examples" / "bare_loop.py", "--steps", "2"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert [line.split(":")[0] for line in done.stdout.splitlines()] == ["step 1", "step 2"]


@pytest.mark.slow
def test_grpo_in_one_file(tmp_path: Path) -> None:
    """Here with `generate`; tests/vllm run it with vLLM."""
    path = ROOT / "examples" / "grpo_vllm.py"
    assert len(path.read_text().splitlines()) <= 300
    many = ["--steps", "1", "--questions", "600", "--engine", "transformers"]
    refused = subprocess.run([sys.executable, path, *many], capture_output=True, text=True, timeout=60)
    assert "the toy task holds 512 problems, fewer than --questions 600" in refused.stderr
    options = ["--steps", "2", "--questions", "4", "--engine", "transformers", "--out", tmp_path / "out"]
    done = subprocess.run([sys.executable, path, *options], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert [line.split(":")[0] for line in done.stdout.splitlines()[:2]] == ["step 1", "step 2"]
    assert int(Explorer.load(tmp_path / "out" / "exploration").counts.items().counts.sum()) == 2 * 4 * 8


@pytest.mark.parametrize(
    ("name", "output"),
    [
        ("multiple_choice", ["correct [True, True, False, False]", "seen [('B', 2), (None, 1), ('C', 1)]"]),
        ("labels", ["correct [True, False, True]", "(\"('food',)\", 1), (\"('service',)\", 1), ('()', 1)"]),
        (
            "programs",
            ["correct [True, False, False, False, False]", "('(timeout)', 1)", "('(crash)', 1)", "failed 2.0"],
        ),
        ("tool_calls", ["correct [True, True, False, False]", "(None, 1)"]),
        ("agent", ["correct [True, True, False, False]", """('{"x":1,"y":1}', 2)"""]),
    ],
)
def test_outcomes(name: str, output: list[str]) -> None:
    command = [sys.executable, ROOT / "examples" / "outcomes" / f"{name}.py"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert [expected for expected in output if expected not in done.stdout] == []


@pytest.mark.slow
def test_notebook(capsys: pytest.CaptureFixture[str]) -> None:
    cells = json.loads((ROOT / "examples" / "diversity.ipynb").read_text(encoding="utf-8"))["cells"]
    names: dict[str, object] = {}
    for cell in cells:
        if cell["cell_type"] == "code":
            assert cell["outputs"] == []
            exec("".join(cell["source"]), names)
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines[:4]] == ["before", "after", "before", "after"]
    before, after = (float(line.split("diff@16 ")[1].split()[0]) for line in lines[:2])
    assert before > after  # sharpening costs diversity
    assert "bonus=" in lines[4]
