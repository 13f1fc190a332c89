"""The documentation agrees with the code."""

import dataclasses
import inspect
import json
import re
import runpy
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from transformers import AutoTokenizer

from experiments.bandits import sweeps
from experiments.paper import exploration
from outcome_rl import group_advantages, linear_policy_loss
from outcome_rl.bench import outcomes
from outcome_rl.grpo.config.schema import ExplorationConfig
from outcome_rl.metrics import SampleSummary
from outcome_rl.toy import policy_dir

DOCS = Path(__file__).resolve().parents[1] / "docs"
BANDITS = DOCS.parent / "experiments" / "bandits"


def test_every_setting_is_in_the_table() -> None:
    script = runpy.run_path(str(DOCS / "settings.py"))
    text = (DOCS / "training.md").read_text()
    assert script["page"](text) == text, "training.md is out of date; run python docs/settings.py"


def test_results_are_those_on_record() -> None:
    figures = json.loads((exploration.RECORD).read_text())["figures"]
    assert exploration.table(figures) in (DOCS / "results.md").read_text()


def test_the_tables_of_outcomes_are_those_on_record() -> None:
    figures = json.loads((DOCS.parent / "bench" / "results" / "outcomes.json").read_text())["figures"]
    text = (DOCS / "outcomes.md").read_text()
    assert outcomes.page(text, figures) == text, "out of date; run outcome-rl bench outcomes --from-record"


def test_the_figures_of_bandits_are_those_on_record() -> None:
    figures = json.loads((BANDITS / "results" / "bandits.json").read_text())["figures"]
    assert sweeps.table(figures) in (BANDITS / "README.md").read_text()


def test_the_example_of_bandits_runs() -> None:
    block = re.findall(r"```python\n(.*?)```", (BANDITS / "README.md").read_text(), re.DOTALL)[0]
    names: dict[str, object] = {}
    exec(block, names)
    assert names["result"].regret.shape == (1000, 3)


def test_every_argument_is_in_the_maths() -> None:
    """Those that change what is computed; `impl`, `rows` and the like only say how."""
    text = (DOCS / "math.md").read_text()
    how = {"impl", "rows", "cu_seqlens", "fp32_logits", "workspace_bytes"}
    names = {name for function in (group_advantages, linear_policy_loss) for name in _arguments(function)} - how
    names |= {f"exploration.{field.name}" for field in dataclasses.fields(ExplorationConfig)}
    names |= {name for name in SampleSummary.__annotations__ if not name.startswith("n_")}
    assert sorted(name for name in names if not re.search(rf"\b{re.escape(name)}\b", text)) == []


def _arguments(function: object) -> list[str]:
    return list(inspect.signature(function).parameters)


def test_the_loop_of_the_readme_runs() -> None:
    blocks = re.findall(r"```python\n(.*?)```", (DOCS.parent / "README.md").read_text(), re.DOTALL)
    assert len(blocks) == 1
    tokenizer = AutoTokenizer.from_pretrained(policy_dir())
    B, n, vocabulary = 2, 3, len(tokenizer)
    texts = [rf"1 + {i} = 7 \boxed{{ {i} }}" for i in range(B * n)]
    completion_ids = torch.tensor(tokenizer(texts, add_special_tokens=False)["input_ids"])
    names = {
        "B": B,
        "n": n,
        "ids": ["a", "b"],
        "ids_of_responses": ["a"] * n + ["b"] * n,
        "responses": texts,
        "golds": ["1"] * n + ["4"] * n,
        "tokenizer": tokenizer,
        "completion_ids": completion_ids,
        "mask": torch.ones_like(completion_ids, dtype=torch.bool),
        "hidden": torch.randn(*completion_ids.shape, 8, requires_grad=True),
        "lm_head": torch.nn.Linear(8, vocabulary, bias=False),
    }
    exec(blocks[0], names)
    names["loss"].backward()
    assert names["hidden"].grad.any()
    assert names["answers"].sum(dim=1).tolist() == [1] * (B * n)
    assert names["rewards"].float().sum() == 2


def test_the_example_of_the_losses_runs() -> None:
    block = re.findall(r"```python\n(.*?)```", (DOCS / "losses.md").read_text(), re.DOTALL)[0]
    input_ids = torch.randint(50, (4, 9))

    def model(ids: torch.Tensor) -> SimpleNamespace:
        return SimpleNamespace(last_hidden_state=torch.randn(*ids.shape, 8))

    names = {
        "torch": torch,
        "model": model,
        "reference": model,
        "input_ids": input_ids,
        "completion_mask": torch.arange(9).expand(4, 9) > 3,
        "lm_head": torch.nn.Linear(8, 50, bias=False),
        "reference_head": torch.nn.Linear(8, 50, bias=False),
        "advantages": torch.tensor([1.0, -1.0, 0.0, 0.5]),
    }
    exec(block, names)
    assert names["output"].metrics["computed_tokens"] == 4 * 5
    assert names["lm_head"].weight.grad.any()


@pytest.mark.parametrize(
    "page",
    [
        "README.md",
        "CONTRIBUTING.md",
        "experiments/bandits/README.md",
        "experiments/paper/README.md",
        "docs/training.md",
        "docs/counts.md",
        "docs/integrate.md",
        "docs/losses.md",
        "docs/math.md",
        "docs/outcomes.md",
        "docs/results.md",
        "examples/verl/README.md",
    ],
)
def test_links_lead_somewhere(page: str) -> None:
    path = DOCS.parent / page
    targets = re.findall(r"\]\(([^)#]+)\)", path.read_text())
    missing = [t for t in targets if "://" not in t and not (path.parent / t).exists()]
    assert missing == []
