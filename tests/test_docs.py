"""The documentation agrees with the code."""

import inspect
import math
import re
import runpy
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

import outcome_rl
from outcome_rl import Explorer, GroupRule, OutcomeMatcher, group_advantages, linear_policy_loss
from outcome_rl.exploration.config import ExplorationConfig
from outcome_rl.grpo.config.schema import RewardConfig
from outcome_rl.grpo.data.reward import RewardFunction
from outcome_rl.grpo.types import Problem
from outcome_rl.metrics import SampleSummary
from outcome_rl_kernels.advantages.bonuses import BONUSES
from outcome_rl_kernels.advantages.estimators import ADV_ESTIMATORS
from outcome_rl_kernels.loss.api import LossOptions
from outcome_rl_kernels.settings import settings_of

DOCS = Path(__file__).resolve().parents[1] / "docs"
README = DOCS.parent / "README.md"


def test_every_setting_is_in_the_table() -> None:
    script = runpy.run_path(str(DOCS / "settings.py"))
    assert script["page"]() == (DOCS / "settings.md").read_text(), "settings.md is out of date; run docs/settings.py"


def test_every_argument_is_in_the_maths() -> None:
    """Those that change what is computed; `impl`, `rows` and the like only say how."""
    text = (DOCS / "math.md").read_text()
    how = {"impl", "rule", "settings", "rows", "cu_seqlens", "fp32_logits", "workspace_bytes", "vocab_group"}
    names = {name for function in (group_advantages, GroupRule, linear_policy_loss) for name in _arguments(function)}
    names -= how
    names |= {one.name for one in settings_of(ExplorationConfig, "exploration.") if one.affects_results}
    names |= {name for name in SampleSummary.__annotations__ if not name.startswith("n_")}
    assert sorted(name for name in names if not re.search(rf"\b{re.escape(name)}\b", text)) == []


def _arguments(function: object) -> list[str]:
    names = [*inspect.signature(function).parameters]
    return [*names[:-1], *LossOptions.__annotations__] if names[-1] == "options" else names


def test_the_loop_of_the_quickstart_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    *_, loop = python_of("docs/quickstart.md")
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    exec(loop, names)
    explorer = names["explorer"]
    assert len(explorer.solved) == 20
    assert sum(count for _, count in explorer.seen(names["problem"]["id"])) == 8
    assert Explorer.load("checkpoint/exploration").solved == explorer.solved


def test_the_pages_on_outcomes_run() -> None:
    names: dict[str, Any] = {"__name__": "my_module"}
    for page in ("answers.md", "outcomes.md", "outcome-functions.md"):
        for block in python_of(f"docs/{page}"):
            exec(block, names)
    assert names["outcomes"].correct.tolist() == [True, True, False]
    assert names["scored"].correct.tolist() == [True, False]
    assert names["counted"].correct.tolist() == [False, True]
    assert names["explorer"].matcher.rule == "function/my_module:verdict/1"


def test_the_twenty_examples_of_answers_hold() -> None:
    tables = re.findall(r"(?:^\|.*\n)+", (DOCS / "answers.md").read_text(), re.MULTILINE)
    read, equal = ([row.strip("| ").split(" | ") for row in table.splitlines()[2:]] for table in tables)
    assert len(read) == len(equal) == 10
    with OutcomeMatcher() as matcher:
        for response, shown in read:
            (answer,) = matcher.classify(["q"], [response.strip("`")]).answers
            assert shown == (f"`{answer.value}`" if answer else "none")
        for place, (gold, given, *shown) in enumerate(equal):
            texts = [rf"\boxed{{{text.strip('`')}}}" for text in (gold, given)]
            found = matcher.classify([f"q{place}"] * 2, texts, [gold.strip("`")] * 2)
            assert shown == ["yes" if one else "no" for one in (found.keys[0] == found.keys[1], found.correct[1])]


def test_the_example_of_the_losses_runs() -> None:
    block = python_of("docs/losses.md")[0]
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


PAGES = sorted(
    path.relative_to(DOCS.parent).as_posix()
    for pattern in (
        "*.md", "docs/**/*.md", "docs/llms.txt", "experiments/*.md", "experiments/*/*.md", "examples/*/*.md",
        "bench/*/*.md",
    )
    for path in DOCS.parent.glob(pattern)
)  # fmt: skip


def python_of(page: str) -> list[str]:
    return re.findall(r"```python\n(.*?)```", (DOCS.parent / page).read_text(), re.DOTALL)


@pytest.mark.parametrize("page", PAGES)
def test_snippets_are_python(page: str) -> None:
    for block in python_of(page):
        compile(block, page, "exec")


# Page, number of its snippet, and what holds once it has run.
SNIPPETS = [
    ("experiments/bandits/README.md", 0, "result.regret.shape == (1000, 3)"),
    ("docs/integrate.md", 0, "scored.correct.tolist() == [True, False, False]"),
    ("docs/losses.md", 1, "hidden.grad.any() and weight.grad.any()"),
    (
        "docs/kept-and-sampled.md",
        0,
        "logps.shape == entropies.shape == (1, 3) and not logps[0, 1] and weight.grad.any()",
    ),
    (
        "docs/quickstart.md",
        0,
        "repr(explorer.seen('q1')) in block and all(scored.correct[:2] > scored.correct[2:])",
    ),
]


@pytest.mark.parametrize(("page", "number", "holds"), SNIPPETS)
def test_a_snippet_does_what_its_page_says(page: str, number: int, holds: str) -> None:
    block = python_of(page)[number]
    names: dict[str, Any] = {"block": block}
    exec(block, names)
    assert eval(holds, names)


def test_the_step_of_the_distillation_page_teaches_the_student_only() -> None:
    names: dict[str, Any] = {}
    exec(python_of("docs/distillation.md")[0], names)
    models = []
    for width in (8, 12):
        states, head = torch.nn.Embedding(20, width), torch.nn.Linear(width, 20, bias=False)
        body = lambda ids, states=states: SimpleNamespace(last_hidden_state=states(ids))  # noqa: E731
        models.append(SimpleNamespace(model=body, lm_head=head, states=states))
    mask = torch.ones(2, 6, dtype=torch.bool)
    answers = mask & (torch.arange(6) > 3)
    assert names["distil"](*models, torch.arange(12).view(2, 6), mask, answers, torch.zeros(2)) > 0
    student, teacher = models
    assert student.lm_head.weight.grad.any()
    assert student.states.weight.grad[:3].any()
    assert not student.states.weight.grad[3:6].any()  # which predict answer tokens
    assert teacher.lm_head.weight.grad is None


def test_a_bonus_and_an_estimator_of_ones_own_run_as_the_page_shows() -> None:
    (block,) = python_of("CONTRIBUTING.md")
    names: dict[str, Any] = {"__name__": "own_methods"}
    try:
        exec(block, names)
        batch = (["q"] * 4, [rf"\boxed{{{answer}}}" for answer in (1, 1, 2, 3)], ["1"] * 4)
        scored = names["explorer"].score(*batch)
        plain, hard = Explorer(bonus="none"), Explorer(adv_estimator="hard_first", bonus="none")
        for weight in (1, 1 / 2):  # by history: no sample before the batch, then two of four correct
            assert hard.score(*batch).advantages.tolist() == (plain.score(*batch).advantages * weight).tolist()
    finally:
        ADV_ESTIMATORS.pop("rare_first", None)
        ADV_ESTIMATORS.pop("hard_first", None)
        BONUSES.pop("inverse_count", None)
    assert scored.advantages[0] == scored.advantages[1] > 0 > scored.advantages[2] == scored.advantages[3]
    assert scored.advantages[0].item() == pytest.approx(math.sqrt(3) / 2 / math.sqrt(2), rel=1e-4)
    assert scored.bonuses.tolist() == pytest.approx([0.1 - 0.25, 0.1 - 0.25, 0.1, 0.1])


def test_the_snippets_of_the_methods_run() -> None:
    several, variations, curriculum, halving = python_of("docs/methods.md")
    before, names = dict(BONUSES), dict[str, Any]()
    batch = (["q", "q", "r", "r"], [rf"\boxed{{{answer}}}" for answer in (1, 2, 2, 2)], ["1"] * 4)
    try:
        exec(variations + curriculum + several, names)
        assert names["scored"].advantages[0] > 0 > names["scored"].advantages[1]
        own = sorted(BONUSES.keys() - before.keys())
        assert len(own) == 6
        assert Explorer(bonus="+".join(own), coef=1.0).score(*batch).bonuses.isfinite().all()
        never = Explorer(bonus="never_solved", coef=1.0)
        found = [never.score(*batch).bonuses.tolist() for _ in range(2)]
        assert found == [
            [0.5] * 4,
            [0, 0, *[pytest.approx(2**-0.5 - 0.5)] * 2],
        ]  # "q" is solved before the second batch
    finally:
        BONUSES.clear()
        BONUSES.update(before)
    names["explorer"] = explorer = Explorer(bonus="ucb")
    for _ in range(2):
        explorer.score(*batch)
    explorer.batches = 100
    exec(halving, names)
    assert explorer.seen("q") == [("1", 1), ("2", 1)]
    assert explorer.seen("r") == [("2", 2)]
    loaded = Explorer(bonus="ucb")
    loaded.load_state_dict(explorer.state_dict())
    assert explorer.score(*batch).metrics == loaded.score(*batch).metrics  # the sums over the counts are halved, too


def test_the_settings_of_the_paper_are_accepted() -> None:
    rows = re.findall(r"^\| .* \| `(bonus=.*)` \|$", (DOCS / "methods.md").read_text(), re.MULTILINE)
    assert len([eval(f"ExplorationConfig({row})") for row in rows]) == 6


def test_the_table_of_methods_is_that_of_the_registries() -> None:
    rows = re.findall(r'^\| `(bonus|adv_estimator)="(\w+)(.*)"` \|', (DOCS / "methods.md").read_text(), re.MULTILINE)
    listed: dict[str, list[str]] = {setting: [] for setting in built_in()}
    for setting, name, numbers in rows:
        listed[setting].append(name)
        ExplorationConfig(**{setting: name + numbers})
    assert listed == built_in()


def built_in() -> dict[str, list[str]]:
    """Setting -> the names that the library registers; other tests may have registered functions too."""
    registries: dict[str, dict[str, Any]] = {"bonus": BONUSES, "adv_estimator": ADV_ESTIMATORS}
    found = {
        setting: [name for name, one in registry.items() if one.function.__module__.startswith("outcome_rl_kernels")]
        for setting, registry in registries.items()
    }
    return found | {"bonus": ["none", *found["bonus"]]}


def test_help_and_errors_list_the_registries() -> None:
    helps = {one.name: one.help for one in settings_of(ExplorationConfig)}
    for setting, names in built_in().items():
        with pytest.raises(ValueError, match=setting) as error:
            ExplorationConfig(**{setting: "unheard_of"})
        assert f"{', '.join(names)}," in helps[setting]
        assert ", ".join(map(repr, names)) in str(error.value)


def test_the_reward_function_of_the_training_page_runs(tmp_path: Path) -> None:
    (block,) = re.findall(r"```python\n((?:(?!```).)*?def reward.*?)```", (DOCS / "data.md").read_text(), re.DOTALL)
    (tmp_path / "rewards_of_the_page.py").write_text(block)
    problem = Problem("q", "?", "4", example={"answer": "4"})
    reward = RewardFunction(RewardConfig(f"{tmp_path}/rewards_of_the_page.py:reward"))
    assert reward(["it is 4", "none", "4" * 3000], [problem] * 3) == [1.0, 0.0, 0.5]


def test_nothing_is_installed_under_our_name_from_an_index() -> None:
    """The package is on none, and whoever takes the name there could run code at every reader's."""
    sources = [*PAGES, *(str(path) for path in (DOCS.parent / "outcome_rl").rglob("*.py"))]
    lines = [
        line for name in sources for line in (DOCS.parent / name).read_text().splitlines() if "pip install" in line
    ]
    assert len(lines) > 10
    assert [line for line in lines if re.search(r"pip install[^`]*[ '\"]outcome[-_]rl", line)] == []


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_somewhere(page: str) -> None:
    path = DOCS.parent / page
    targets = re.findall(r"\]\(([^)#]+)\)", path.read_text())
    missing = [t for t in targets if "://" not in t and not (path.parent / t).exists()]
    assert missing == []


def test_every_page_is_in_the_menu_of_the_site() -> None:
    menu = (DOCS.parent / "mkdocs.yml").read_text().partition("\nnav:")[2]
    missing = [page for page in PAGES if page.startswith("docs/") and page.removeprefix("docs/") not in menu]
    assert missing == ["docs/llms.txt"]


def test_every_public_name_is_in_the_reference() -> None:
    listed = "\n".join(path.read_text() for path in (DOCS / "reference").glob("*.md"))
    values = {"NO_ANSWER", "OUTCOME_RULE", "__version__"}
    missing = [name for name in outcome_rl.__all__ if name not in values and not re.search(rf"\.{name}\n", listed)]
    assert missing == []


def test_one_version() -> None:
    root = DOCS.parent
    assert f"\nversion: {outcome_rl.__version__}\n" in (root / "CITATION.cff").read_text()
    section = "Unreleased" if "dev" in outcome_rl.__version__ else outcome_rl.__version__
    assert re.search(rf"^## {re.escape(section)}", (root / "CHANGELOG.md").read_text(), re.MULTILINE)
