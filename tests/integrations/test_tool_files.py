"""Files that TRL and verl write themselves, read by `outcome-rl analyze` with no option."""

from pathlib import Path
from typing import Any

import pytest
from trl import GRPOTrainer
from trl_runs import make_trainer

from outcome_rl import question_id
from outcome_rl.analyze import analyze_file
from outcome_rl.files.samples import SampleFile, read_sample_file
from outcome_rl.outcomes.matcher import answer_text


def read(path: Path) -> SampleFile:
    analyze_file(path)
    return read_sample_file(path, extract=answer_text)


@pytest.mark.parametrize("with_plugin", [True, False], ids=["plug-in", "plain"])
def test_the_completions_of_trl(policy: Path, tmp_path: Path, with_plugin: bool) -> None:
    from outcome_rl.integrations.trl import OutcomeGRPOTrainer

    kind = OutcomeGRPOTrainer if with_plugin else GRPOTrainer
    trainer = make_trainer(policy, tmp_path, trainer_class=kind, log_completions=True, max_steps=1)
    logged: dict[str, Any] = {}
    log = trainer.log

    def keeping(*args: Any, **kwargs: Any) -> None:
        logged.update({name: list(trainer._logs[name]) for name in ("prompt", "completion")})
        log(*args, **kwargs)

    trainer.log = keeping
    trainer.train()
    file = read(tmp_path / "completions" / "completions_00001.parquet")
    found = {one.question_id: one for one in file.questions}
    prompts = dict.fromkeys(logged["prompt"])
    assert found.keys() == {question_id(prompt) for prompt in prompts}
    for prompt in prompts:
        texts = [text for asked, text in zip(logged["prompt"], logged["completion"], strict=True) if asked == prompt]
        one = found[question_id(prompt)]
        assert one.answers == [answer_text(text) for text in texts]
        assert all(isinstance(label, bool) for label in one.labels)  # of the plug-in, or of the reward `is_right`


def test_the_rollouts_of_verl(tmp_path: Path) -> None:
    from verl.trainer.ppo.v1.trainer_base import PPOTrainer

    outputs = [r"\boxed{4}", r"\boxed{5}", "no idea"]
    PPOTrainer._write_generations(
        ["2 + 2?", "2 + 2?", "3?"], outputs, ["4", "4", "3"], [1.0, 0.0, 0.0], {"acc": [1, 0, 0]}, str(tmp_path), 7
    )
    file = read(tmp_path / "7.jsonl")
    assert file.remarks[0].startswith("read as rows of samples (")
    found = [(one.gold, one.answers, one.labels) for one in file.questions]
    assert found == [("4", ["4", "5"], [True, False]), ("3", [None], [False])]
