"""The command `eval` as a user calls it."""

import json
import shutil
from pathlib import Path

import pytest
from command_line import Result, invoke

from outcome_rl import cli
from outcome_rl.analyze import analyze_file

TWO_SETS = ("--data", "toy:test[:8]", "--data", "toy:validation[:8]", "rollout.val_kwargs.n=8")


def evaluate(*arguments: object) -> Result:
    return invoke(cli.main, "eval", *arguments)


@pytest.fixture(scope="module")
def evaluated(finished: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Result]:
    out = tmp_path_factory.mktemp("evaluated") / "out"
    return out, evaluate(finished / "checkpoints" / "global_step_4", *TWO_SETS, "--out", out)


def test_the_figures_are_those_of_analyze(evaluated: tuple[Path, Result]) -> None:
    out, result = evaluated
    assert result.exit_code == 0, result.output
    reports = json.loads((out / "summary.json").read_text())["reports"]
    assert list(reports) == ["toy-test.jsonl", "toy-validation.jsonl"]
    for name in reports:
        assert reports[name] == analyze_file(out / name).report
        assert (reports[name]["n_questions"], reports[name]["n_samples"]) == (8, 64)
        for figure in ("pass_at_k", "diff_at_k"):
            assert f"{reports[name][figure]['8']:.3f}" in result.stdout
    assert "toy:test ..." in result.stderr


def test_problems_that_no_sample_solves_are_training_data(tmp_path: Path) -> None:
    few = ("--data", "toy:train[:8]", "rollout.val_kwargs.n=4")
    result = evaluate("toy", *few, "--out", tmp_path / "out", "--hard", tmp_path / "hard.jsonl")
    assert result.exit_code == 0, result.output
    hard = [json.loads(line) for line in (tmp_path / "hard.jsonl").read_text().splitlines()]
    questions = analyze_file(tmp_path / "out" / "toy-train.jsonl").questions
    assert [row["id"] for row in hard] == [one["question_id"] for one in questions if one["correct"] == 0]
    assert 0 < len(hard) < 8
    assert set(hard[0]) == {"id", "problem", "answer"}
    assert f"{len(hard)} problems that no sample solves" in result.stdout


def test_the_same_call_again_samples_nothing(
    evaluated: tuple[Path, Result], finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = shutil.copytree(evaluated[0], tmp_path / "out")

    def none(*arguments: object) -> None:
        raise AssertionError("everything has been sampled")

    monkeypatch.setattr("outcome_rl.grpo.rollout.transformers_engine.TransformersEngine.generate", none)
    place = finished / "checkpoints" / "global_step_4"
    result = evaluate(place, *TWO_SETS, "--out", out)
    assert result.exit_code == 0, result.output
    assert (out / "summary.json").read_bytes() == (evaluated[0] / "summary.json").read_bytes()


def test_a_folder_is_claimed_by_samples_alone(tmp_path: Path) -> None:
    """A refused call can be repeated as its error advises."""
    row = {"id": "long", "problem": "1 + " * 40 + "1 =>", "answer": "41"}
    (tmp_path / "long.jsonl").write_text(
        json.dumps(row) + "\n" + json.dumps(row | {"id": "short", "problem": "1 + 1 =>"})
    )
    arguments = ("toy", "--data", tmp_path / "long.jsonl", "--out", tmp_path / "out", "rollout.val_kwargs.n=2")
    refused = evaluate(*arguments)
    assert "set data.overlong_prompts=filter" in refused.stderr
    assert evaluate(*arguments, "data.overlong_prompts=filter").exit_code == 0


def test_the_toy_policy_has_its_own_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    result = evaluate("toy", "--data", "toy:test[:4]", "rollout.val_kwargs.n=4")
    assert result.exit_code == 0, result.output
    assert (tmp_path / "evals" / "toy" / "toy-test.jsonl").is_file()


def test_outcome_functions_get_the_rows_of_the_data(tmp_path: Path) -> None:
    own = "exploration.outcome=outcome_functions:KnowsItsProblem"
    result = evaluate("toy", own, "--data", "toy:test[:4]", "rollout.val_kwargs.n=4", "--out", tmp_path / "out")
    assert result.exit_code == 0, result.output
    ((_, report),) = json.loads((tmp_path / "out" / "summary.json").read_text())["reports"].items()
    assert report["outcome_rule"] == "divisors/1"
    assert report["pass_at_k"]["1"] > 0.9
    assert report["unresolved"] == 0


@pytest.mark.parametrize(
    ("name", "content", "named"),
    [
        ("settings.json", '{"a":' * 5000 + "1" + "}" * 5000, "settings.json is damaged: "),
        ("settings.json", "[]", "settings.json is damaged: it must be a mapping"),
        ("settings.json", '{"model.dtype": 5}', "belongs to another run: "),
        ("toy-test.jsonl", '{"gold": "1"}\n', "toy-test.jsonl, row 1 is damaged: it lacks 'question_id'"),
        (
            "toy-test.jsonl",
            '{"question_id": []}\n',
            "toy-test.jsonl, row 1 is damaged: it.question_id must be a string",
        ),
    ],
)
def test_a_damaged_folder_is_refused(
    name: str, content: str, named: str, evaluated: tuple[Path, Result], finished: Path, tmp_path: Path
) -> None:
    out = shutil.copytree(evaluated[0], tmp_path / "out")
    (out / name).write_text(content)
    result = evaluate(finished / "checkpoints" / "global_step_4", *TWO_SETS, "--out", out)
    assert result.exit_code == 2, result.output
    assert named in result.stderr
