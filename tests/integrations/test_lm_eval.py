"""The line of docs/math-verify.md, and lm-evaluation-harness's own scoring of a task that uses math-verify."""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
# A process of its own, because the line replaces a module. lm-eval wants ANTLR 4.11, and Hydra has an older one here.
PROGRAM = """
import importlib.metadata, importlib.util, time
from pathlib import Path

version = importlib.metadata.version
importlib.metadata.version = lambda name: "4.11.0" if name == "antlr4-python3-runtime" else version(name)
folder = Path(importlib.util.find_spec("lm_eval").origin).parent / "tasks" / "minerva_math"
spec = importlib.util.spec_from_file_location("utils", folder / "utils.py")  # as lm-eval loads the functions of a task
utils = importlib.util.module_from_spec(spec)
spec.loader.exec_module(utils)
assert utils.verify is outcome_rl.math_verify.verify, utils.verify

for solution, candidate, expected in [
    (r"so $\\boxed{\\frac{1}{2}}$", r"it is $\\boxed{0.5}$", 1),
    (r"so $\\boxed{\\frac{1}{2}}$", r"it is $\\boxed{0.25}$", 0),
    (r"so $\\boxed{3}$", r"it is $\\boxed{9^{9^{9}}}$", 0),
]:
    doc = {"solution": solution, "answer": "1/2"}
    assert utils.process_results(doc, [candidate])["math_verify"] == expected, candidate
print("scored")
"""


def test_tasks_of_lm_eval_use_the_replacement() -> None:
    page = (ROOT / "docs" / "math-verify.md").read_text()
    (lines,) = (block for block in re.findall(r"```python\n(.*?)```", page, re.DOTALL) if "sys.modules" in block)
    done = subprocess.run([sys.executable, "-c", lines + PROGRAM], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "scored\n"
