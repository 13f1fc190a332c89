"""The benchmark of a training step, without TRL: what it measures, compares and writes."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from outcome_rl.bench import step
from outcome_rl.bench.step import Workload, main, table
from outcome_rl.grpo.config.schema import ModelConfig
from outcome_rl.grpo.model.policy import Policy
from outcome_rl.grpo.types import Rollout
from outcome_rl.outcomes.extraction import extract_answer


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(step, "find_spec", lambda name: None)
    small = Workload(questions=3, n=2, prompt_tokens=8, response_tokens=12, micro_batch_size=2)
    monkeypatch.setitem(step.WORKLOADS, "toy", small)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.mark.usefixtures("small")
def test_our_step_is_measured_and_recorded(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["--models", "toy", "--rounds", "2", "--out", str(tmp_path)])
    shown = capsys.readouterr()
    assert "TRL is left out: pip install" in shown.err
    found = json.loads((tmp_path / "step.json").read_text())
    assert found["config"]["workloads"]["toy"]["questions"] == 3
    (ours,) = found["figures"]["toy"].values()
    assert ours["step"]["rounds"] == ours["rollout"]["rounds"] == 2
    assert 0 < ours["outcomes_share"] < 1
    assert 6 < ours["trained_tokens"] <= 6 * 12
    assert shown.out == table(found["figures"]) + "\n"


def test_a_random_models_responses_are_given_answers() -> None:
    policy = Policy.load(ModelConfig(path="toy", device="cpu"))
    prompts = [[5, 6, 7], [8, 9, 10]]
    responses = [[11] * 9, [12] * 7, [13] * 9, [14]]
    drawn = [Rollout(prompts[row // 2], ids, "") for row, ids in enumerate(responses)]
    answered = step._with_answers(policy, drawn)
    assert [len(rollout.token_ids) for rollout in answered] == [9, 7, 9, 1]
    answers = [extract_answer(rollout.text) for rollout in answered]
    assert [answer and answer.text for answer in answers] == ["0", "1", "2", None]  # one token is no box
