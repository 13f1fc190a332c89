"""The benchmark of a whole step: baselines that do the same work, and figures that follow from the measurements."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from grpo_runs import Sample, columns

from bench import step, step_baselines
from bench.step import compare, main, measure, table, with_answers
from bench.step_baselines import PARTS, PlainLoop, pad
from outcome_rl.grpo.config.load import load_config
from outcome_rl.grpo.config.schema import ModelConfig
from outcome_rl.grpo.model.policy import Policy
from outcome_rl.grpo.parts import open_parts
from outcome_rl.grpo.plan import plan
from outcome_rl.grpo.trainer import Trainer
from outcome_rl.grpo.types import Rollout
from outcome_rl.outcomes.extraction.response import extract_answer

SMALL = ["data.train_batch_size=4", "data.train_files=toy:train[:8]", "data.val_files=toy:validation[:2]"]
SMALL += ["data.test_files=toy:test[:2]", "rollout.n=4"]
CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def without_trl(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Leave TRL out (tests/integrations has its test), and keep PyTorch's threads."""
    monkeypatch.setattr(step_baselines, "find_spec", lambda name: None)
    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)


@pytest.fixture
def trainer(tmp_path: Path) -> Iterator[Trainer]:
    settings = [*SMALL, "actor.optim.lr=1e-12", f"trainer.default_local_dir={tmp_path}"]
    trainer = Trainer(open_parts(plan(load_config("toy", settings))))
    yield trainer
    trainer.parts.close()


def sample(prompt: list[int], response: list[int], answer_span: tuple[int, int] = (0, 0)) -> Sample:
    return Sample(Rollout(prompt, response, ""), True, 1.5, 0.5, answer_span)


def test_small_steps_are_compared_timed_and_recorded(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["--models", "toy", "--rounds", "2", "--threads", "1", "--out", str(tmp_path), "--set", *SMALL])
    shown = capsys.readouterr()
    assert "TRL is left out: pip install" in shown.err
    assert "plain loop: loss and gradient norm differ by" in shown.err
    found = json.loads((tmp_path / "step-cpu-toy.json").read_text())
    assert set(SMALL) <= set(found["config"]["settings"])
    assert list(found["figures"]["toy"]) == ["outcome_rl", "plain loop"]
    for figures in found["figures"]["toy"].values():
        assert figures["step"]["rounds"] == 2
        assert set(figures["parts_ms"]) == set(PARTS)
        assert sum(figures["parts_ms"].values()) <= 1.5 * figures["step"]["p80_ms"]
        assert 4 * 4 < figures["tokens"] <= 4 * 4 * 16
    assert 0 < found["figures"]["toy"]["outcome_rl"]["outcomes_share"] < 1
    limit = found["figures"]["toy"]["outcome_rl"]["limit_ms"]
    assert 0 < limit["reference"] <= limit["rollout"]
    assert limit["update"] == 3 * limit["reference"]
    assert shown.out == table(found["figures"]) + "\n"


def test_a_loop_that_does_something_else_is_not_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    own = PlainLoop.loss
    monkeypatch.setattr(PlainLoop, "loss", lambda *arguments: 1.01 * own(*arguments))
    monkeypatch.setattr(step, "interleaved_times", lambda *_, **__: pytest.fail("timed before the comparison"))
    with pytest.raises(ArithmeticError, match=r"loss and gradient norm of plain loop are .* not timed"):
        measure("toy", [*SMALL], [PlainLoop], rounds=1)


def test_the_reference_enters_the_comparison(trainer: Trainer, monkeypatch: pytest.MonkeyPatch) -> None:
    samples = trainer.train_step()[0].batch
    plain = PlainLoop(trainer)
    compare(trainer, [plain], samples)
    monkeypatch.setattr(plain, "reference_logps", lambda part: torch.zeros_like(part.advantages))
    with pytest.raises(ArithmeticError):
        compare(trainer, [plain], samples)


def test_padding_keeps_tokens_and_leaves_out_answers() -> None:
    padded = pad(columns([sample([5, 6, 7], [1, 2], (1, 2)), sample([8], [3, 4, 9])]), 0, CPU)
    assert padded.ids.tolist() == [[5, 6, 7, 1, 2, 0], [0, 0, 8, 3, 4, 9]]
    assert padded.mask.tolist() == [[1, 1, 1, 1, 1, 0], [0, 0, 1, 1, 1, 1]]
    assert padded.advantages.tolist() == [[2.0, 0.0, 2.0], [2.0, 2.0, 2.0]]
    first, second = padded.split(1)
    assert first.completion_ids.tolist() == [[1, 2, 0]]
    assert second.prompt_mask.tolist() == [[False, False, True]]


def test_a_random_models_responses_are_given_answers() -> None:
    policy = Policy.load(ModelConfig(path="toy", device="cpu", dtype="float32"))
    drawn = [sample([5, 6, 7], response) for response in ([11] * 9, [12] * 7, [13] * 9, [14])]
    answered = with_answers(policy, columns(drawn))
    assert [len(rollout.token_ids) for rollout in answered] == [9, 7, 9, 1]
    answers = [extract_answer(rollout.text) for rollout in answered]
    assert [answer and answer.text for answer in answers] == ["0", "1", "2", None]  # one token is no box
