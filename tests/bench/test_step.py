"""The benchmark of a training step, without TRL: what it measures, compares and writes."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from outcome_rl.bench import record, step
from outcome_rl.bench.step import Workload, check_agreement, main, table
from outcome_rl.grpo.config.schema import ModelConfig
from outcome_rl.grpo.model.policy import Policy
from outcome_rl.grpo.rollout.engine import Rollouts
from outcome_rl.outcomes.extraction import extract_answer


@pytest.fixture
def results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setattr(record, "RESULTS", tmp_path)
    monkeypatch.setattr(step, "RESULTS", tmp_path)
    monkeypatch.setattr(step, "find_spec", lambda name: None)
    small = Workload(questions=3, n=2, prompt_tokens=8, response_tokens=12, micro_batch_size=2)
    monkeypatch.setitem(step.WORKLOADS, "toy", small)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield tmp_path
    torch.set_num_threads(threads)


def test_our_step_is_measured_and_recorded(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["--models", "toy", "--rounds", "2"])
    shown = capsys.readouterr()
    assert "TRL is left out: pip install" in shown.err
    found = json.loads((results / "step.json").read_text())
    assert found["config"]["workloads"]["toy"]["questions"] == 3
    (ours,) = found["figures"]["toy"].values()
    assert ours["step"]["rounds"] == ours["rollout"]["rounds"] == 2
    assert 0 < ours["outcomes_share"] < 1
    assert 6 < ours["trained_tokens"] <= 6 * 12
    assert shown.out == table(found["figures"]) + "\n"


def test_the_record_goes_into_the_page(results: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(step, "IN_CHECKOUT", True)
    monkeypatch.setattr(step, "ROOT", tmp_path)
    with pytest.raises(ValueError, match=r"step\.json does not exist; run `outcome-rl bench step`"):
        main(["--from-record"])
    times = {"median_ms": 500.0}
    ours: dict[str, Any] = {
        "step": times,
        "rollout": times,
        "trained_tokens": 1000,
        "sampled_tokens": 2000,
        "peak_mib": 12.4,
        "outcomes_share": 0.004,
    }
    trl = {**ours, "step": {"median_ms": 1000.0}, "peak_mib": None}
    del trl["outcomes_share"]
    record.write_result("step", {}, {"toy": {"outcome_rl": ours, "TRL": trl}})
    (tmp_path / "docs").mkdir()
    page = tmp_path / "docs" / "results.md"
    marks = "<!-- step: written by outcome-rl bench step --from-record -->", "<!-- end of step -->"
    page.write_text(f"before\n{marks[0]}\nold\n{marks[1]}\nafter\n")
    main(["--from-record"])
    text = page.read_text()
    assert "| toy | outcome_rl | 2000 | 4000 | 12 | 0.40% |" in text
    assert "| toy | TRL | 1000 | 4000 |  |  |" in text
    assert "old" not in text
    assert text.startswith("before")
    assert text.endswith("after\n")


def test_the_page_of_the_checkout_has_its_place() -> None:
    page = (record.ROOT / "docs" / "results.md").read_text()
    assert "<!-- step: written by outcome-rl bench step --from-record -->" in page
    assert "<!-- end of step -->" in page


@pytest.mark.parametrize(("theirs", "what"), [((1.1, 5.0), "loss"), ((1.0, 5.1), "norm of the gradient")])
def test_what_does_not_agree_is_not_timed(theirs: tuple[float, float], what: str) -> None:
    check_agreement((1.0, 5.0), (1.0 + 1e-5, 5.0 - 1e-5))
    with pytest.raises(ValueError, match=rf"the {what} of outcome_rl is .* nothing is timed"):
        check_agreement((1.0, 5.0), theirs)


def test_a_random_models_responses_are_given_answers() -> None:
    policy = Policy.load(ModelConfig(path="toy", device="cpu"))
    prompts = [[5, 6, 7], [8, 9, 10]]
    drawn = Rollouts.assemble(policy, [prompts[0]] * 2 + [prompts[1]] * 2, [[11] * 9, [12] * 7, [13] * 9, [14]])
    answered = step._with_answers(policy, prompts, drawn)
    assert torch.equal(answered.completion_mask, drawn.completion_mask)
    answers = [extract_answer(text) for text in answered.texts]
    assert [answer and answer.text for answer in answers] == ["0", "1", "2", None]  # one token is no box
