"""A dry run prints settings and steps, and refuses what the run refuses."""

import json
import shutil
from operator import itemgetter
from pathlib import Path

import pytest
from grpo_runs import MakeOverrides, as_rank, invoke
from tables import rows

from outcome_rl import Explorer
from outcome_rl.files.jsonl import write_rows
from outcome_rl.grpo.config.load import load_config
from outcome_rl.tools.dry_run import describe
from outcome_rl.toy import policy_dir


def test_steps_are_those_of_the_prompts_that_fit(tmp_path: Path) -> None:
    path = tmp_path / "problems.jsonl"
    write_rows(path, [{"id": i, "problem": "D01 " * (1 if i % 2 else 9), "answer": "1"} for i in range(30)])
    settings = ["data.train_batch_size=4", "data.max_prompt_length=8", "data.overlong_prompts=filter"]
    run = f"trainer.default_local_dir={tmp_path}"
    assert describe(load_config("toy", [f"data.train_files={path}", *settings, run])) == [
        "Steps: 3 per epoch, 150 in all"
    ]


def test_dry_run_prints_settings_that_can_be_read(tmp_path: Path, small: MakeOverrides) -> None:
    result = invoke("--config", "toy", "--dry-run", *small(tmp_path, "rollout.n=5"))
    assert result.exit_code == 0, result.output
    (tmp_path / "printed.yaml").write_text(result.stdout)
    assert load_config(tmp_path / "printed.yaml").rollout.n == 5
    assert "# Steps: 2 per epoch, 6 in all" in result.stdout
    assert not (tmp_path / "run").exists()


def test_only_rank_zero_prints(tmp_path: Path, small: MakeOverrides) -> None:
    lines = []
    for rank in range(2):
        with as_rank(rank, 2):
            lines.append(invoke("--config", "toy", "--dry-run", *small(tmp_path, "actor.strategy=fsdp2")).stdout)
    assert "# Steps: 2 per epoch" in lines[0]
    assert lines[1] == ""


@pytest.mark.parametrize("row", rows(__file__, "refused"), ids=itemgetter(1))
def test_a_dry_run_refuses_what_the_run_refuses(
    row: list[str], tmp_path: Path, small: MakeOverrides, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, reason, *settings = row
    monkeypatch.setattr("outcome_rl.grpo.run.tracking.find_spec", lambda module: None)
    monkeypatch.setattr("outcome_rl.grpo.rollout.vllm_engine.find_spec", lambda module: None)
    assert_refused_alike(small(tmp_path, *settings), reason)


def assert_refused_alike(settings: list[str], reason: str) -> None:
    arguments = ["--config", "toy", *settings]
    dry, run = invoke(*arguments, "--dry-run"), invoke(*arguments)
    assert dry.exit_code == run.exit_code == 2
    assert reason in dry.stderr
    assert reason in run.stderr
    assert run.stderr.startswith("error: ")
    assert dry.stderr.startswith("error: the run would not start here: ")
    assert dry.stderr.count("\n") == run.stderr.count("\n") == 1
    assert "trainer:" in dry.stdout


def test_a_dry_run_refuses_a_shorter_run(finished: Path, tmp_path: Path, small: MakeOverrides) -> None:
    shutil.copytree(finished, tmp_path / "run")
    assert_refused_alike(small(tmp_path, "trainer.total_training_steps=3"), "has done 6")


def test_a_dry_run_refuses_a_model_that_cannot_be_trained(tmp_path: Path, small: MakeOverrides) -> None:
    shutil.copytree(policy_dir(), tmp_path / "model")
    path = f"model.path={tmp_path / 'model'}"
    lora = small(tmp_path, path, "model.lora_rank=2", "model.target_modules=[lm_head]")
    assert_refused_alike(lora, "on the lm_head")
    file = tmp_path / "model" / "config.json"
    shape = file.read_text()
    file.write_text(json.dumps(json.loads(shape) | {"num_hidden_layers": 10**9}))
    assert_refused_alike(small(tmp_path, path), "has 1000000000 layers, and its files hold")
    file.write_text(shape)
    weights = tmp_path / "model" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-100])
    dry = invoke("--config", "toy", "--dry-run", *small(tmp_path, path))
    assert (dry.exit_code, dry.stderr.count("cannot be trained: ")) == (2, 1)
    weights.unlink()
    assert_refused_alike(small(tmp_path, path), "holds no weights")


def test_a_dry_run_refuses_two_sources_of_one_name(tmp_path: Path, small: MakeOverrides) -> None:
    sources = []
    for kind, answer in (("val", "1"), ("test", "2")):
        write_rows(path := tmp_path / kind / "problems.jsonl", [{"id": 1, "problem": "D01 2 @ 1 =>", "answer": answer}])
        sources.append(f"data.{kind}_files={path}")
    assert_refused_alike(small(tmp_path, *sources), "two different sources named 'problems'")


def test_a_dry_run_refuses_counts_of_other_questions(tmp_path: Path, small: MakeOverrides) -> None:
    with Explorer() as explorer:
        explorer.score(["gsm8k:7"], [r"\boxed{1}"], ["1"])
        explorer.save(tmp_path / "other")
    setting = f"trainer.initial_exploration={tmp_path / 'other'}"
    assert_refused_alike(small(tmp_path, setting), "have ids such as 'gsm8k:7', and this run's like 'dialect0")


def test_a_dry_run_says_where_a_run_continues(finished: Path, tmp_path: Path, small: MakeOverrides) -> None:
    shutil.copytree(finished, tmp_path / "run")
    result = invoke("--config", "toy", "--dry-run", *small(tmp_path, "trainer.total_training_steps=9"))
    assert "# Continues after step 6: " in result.stdout
