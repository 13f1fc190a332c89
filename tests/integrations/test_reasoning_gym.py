"""Tasks of reasoning-gym: stable rows, own answers scored as correct, and hostile answers that do nothing."""

import json
import time
from pathlib import Path

import pytest

package = pytest.importorskip("reasoning_gym")

from gym_tasks import GymTask, rows, scored_outcome  # noqa: E402

from outcome_rl import Explorer  # noqa: E402
from outcome_rl.cli import main  # noqa: E402
from outcome_rl.grpo.config.schema import DataConfig  # noqa: E402
from outcome_rl.grpo.data.problems import load_problems  # noqa: E402

NAMES = sorted(set(package.factory.DATASETS) - {"composite"})  # which mixes others
TASKS = Path(__file__).resolve().parents[2] / "examples" / "outcomes" / "gym_tasks.py"
UNSTABLE = {"acre", "list_functions"}
REFUSED = {
    *("binary_matrix", "bitwise_arithmetic", "intermediate_integration", "n_queens", "number_sorting"),
    *("game_of_life_halting", "polynomial_multiplication", "simple_integration", "spiral_matrix", "string_insertion"),
}


@pytest.fixture(scope="module")
def offered() -> dict[str, list[dict[str, str]]]:
    """The rows of every task that is not refused."""
    found = {}
    for task in NAMES:
        if task in REFUSED:
            with pytest.raises(ValueError, match=f"{task}: its scorer (evaluates answers as code|calls '[?]')"):
                rows(f"{task}?size=1")
        elif task in UNSTABLE:
            continue
        else:
            found[task] = rows(f"{task}?size=1&seed=3")
    return found


def answer_of(text: str) -> str:
    return f"I think <answer>{text}</answer>"


def test_rows_are_stable_and_plain(offered: dict[str, list[dict[str, str]]]) -> None:
    assert len(offered) > 90
    assert all(isinstance(value, str) for made in offered.values() for row in made for value in row.values())
    few, many = rows("countdown?size=3&seed=1"), rows("countdown?size=20&seed=1")
    assert many[:3] == few
    assert len({row["id"] for row in many}) == 20
    assert many[0]["id"] == "countdown?seed=1#0"
    assert rows("countdown?size=1&seed=1&max_target=500")[0]["id"] == "countdown?seed=1&max_target=500#0"
    problems = load_problems([f"{TASKS}:rows?countdown?size=3&seed=1"], DataConfig())
    assert [problem.id for problem in problems.problems] == [row["id"] for row in few]
    assert "?" not in problems.name


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("countdwn", "has no task 'countdwn'; it has ab, "),
        ("countdown?siz=3", "countdown[?]siz=3: .*siz"),
        ("countdown?size=abc", "countdown[?]size=abc: .*Correct the settings"),
        ("countdown?size", "settings are name=value, joined by '&'; got 'size'"),
    ],
)
def test_sources_that_cannot_be_read(source: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        rows(source)


@pytest.mark.parametrize("task", sorted(UNSTABLE))
def test_a_task_without_lasting_rows_is_refused(task: str) -> None:
    with pytest.raises(ValueError, match="makes other problems at every call or for every size"):
        rows(task)


def test_own_answers_are_correct(offered: dict[str, list[dict[str, str]]]) -> None:
    made = [row for own in offered.values() for row in own if row["answer"] and row["answer"] != "None"]
    explorer = Explorer(bonus="batch", outcome=GymTask)
    responses = [answer_of(row["answer"]) for row in made]
    ids = [row["id"] for row in made]
    twice = [[one for one in column for _ in "ab"] for column in (ids, responses, made)]
    scored = explorer.score(twice[0], twice[1], rows=twice[2])
    assert not [ids[i] for i, right in enumerate(scored.correct[::2].tolist()) if not right]
    explorer.close()


def test_countdown_counts_expressions_once() -> None:
    row = rows("countdown?size=1&seed=1")[0]
    answer = row["answer"]
    numbers = json.loads(row["metadata"].partition("'numbers': ")[2].partition("]")[0] + "]")
    assert scored_outcome(answer_of(answer), row).value[0] is True
    same = scored_outcome(answer_of(f"({answer.replace('*', '×')}) = 7"), row)
    assert same.value == scored_outcome(rf"so \boxed{{{answer}}}", row).value
    unused = scored_outcome(answer_of(f"{answer} + 0"), row)
    assert unused.value[0] is False
    assert str(sum(numbers)) not in answer


def hostile(marker: Path) -> list[str]:
    command = f"touch {marker}"
    return [
        f"__import__('os').system({command!r})",
        f"[__import__('os').system({command!r})]",
        f"open({str(marker)!r}, 'w')",
        f"[x for x in [__import__('subprocess').run({command.split()!r})]]",
        f"().__class__.__base__.__subclasses__()[-1]; open({str(marker)!r}, 'w')",
        f"lambdify([], '__import__(\"os\").system({command!r})')()",
        f"cos\nsystem\n({command!r}\ntR.",
        f'{{"__reduce__": "os.system({command})"}}',
        "9**9**9",
        "(" * 3000,
        "[" * 100_000,
        "9" * 100_000,
        "-" * 5000 + "1",
        "1e999999999",
        "\u202e\x00١٢٣½",
    ]


def test_hostile_answers_do_nothing(offered: dict[str, list[dict[str, str]]], tmp_path: Path) -> None:
    marker = tmp_path / "executed"
    texts = hostile(marker)
    pairs = [(answer_of(text), row) for own in offered.values() for row in own for text in texts]
    assert len(pairs) > 1000
    start = time.monotonic()
    results = GymTask.outcome.call([response for response, _ in pairs], [row for _, row in pairs])
    GymTask.outcome.close()
    assert not marker.exists()
    assert time.monotonic() - start < 500
    assert not {
        row["task"] for (_, row), one in zip(pairs, results, strict=True) if "[true" in getattr(one, "text", "")
    }


@pytest.mark.parametrize("task", ["countdown", "chain_sum"])
def test_the_toy_policy_trains_on_a_task(task: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    settings = [
        f'data.train_files=["{TASKS}:rows?{task}?size=16&seed=1"]',
        *("data.val_files=[]", "data.test_files=[]", "data.train_batch_size=8", "data.max_prompt_length=512"),
        f"exploration.outcome={TASKS}:GymTask",
        *("trainer.total_training_steps=2", "trainer.test_freq=-1"),
    ]
    main(["train", "--config", "toy", *settings])
    steps = [json.loads(line) for line in Path("runs/toy/metrics.jsonl").read_text().splitlines()]
    assert [step["step"] for step in steps] == [1, 2]
    assert steps[-1]["outcomes/unresolved"] == 0
