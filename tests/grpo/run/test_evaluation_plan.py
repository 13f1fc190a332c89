"""Evaluation schedule, choice of the best checkpoint, and averages."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from outcome_rl.grpo.config.schema import TrainConfig
from outcome_rl.grpo.model.policy import Policy
from outcome_rl.grpo.run.evaluation_plan import EvaluationPlan

Plan = Callable[..., EvaluationPlan]


@pytest.fixture
def plan(small_config: Callable[..., TrainConfig], shared_policy: Policy, tmp_path: Path) -> Plan:
    """Make a plan over files of one problem each, given by their names."""
    for name in "abc":
        (tmp_path / f"{name}.jsonl").write_text(f'{{"id": "{name}", "problem": "D01 1 @ 1 =>", "answer": "2"}}\n')

    def of(validation: str, test: str, freq: int = 2) -> EvaluationPlan:
        files = [
            f"data.{key}=[{','.join(f'{tmp_path}/{name}.jsonl' for name in names)}]"
            for key, names in (
                ("val_files", validation),
                ("test_files", test),
            )
        ]
        return EvaluationPlan(small_config(tmp_path, *files, f"trainer.test_freq={freq}"), shared_policy.tokenizer)

    return of


def names(plan: EvaluationPlan, step: int, *, is_last: bool = False) -> list[str]:
    return [dataset.name for dataset in plan.sets_at(step, is_last=is_last)]


def test_all_before_and_after_and_validation_on_the_way(plan: Plan) -> None:
    both = plan("ab", "bc")
    assert names(both, 0) == names(both, 5, is_last=True) == ["a", "b", "c"]  # what is in both, once
    assert names(both, 1) == names(both, 3) == []
    assert names(both, 2) == names(both, 4) == ["a", "b"]
    assert names(plan("a", "b", freq=-1), 2) == []
    assert names(plan("", "b"), 2) == []


def row(dataset: str, figure: float) -> dict[str, Any]:
    at_k = {"1": figure}
    return {
        "dataset": dataset,
        "step": 3,
        "n_questions": 1,
        "n_samples": 4,
        "pass_at_k": at_k,
        "best_at_k": at_k,
        "diff_at_k": at_k,
        "no_answer_rate": 0.0,
        "distinct_per_question": figure,
        "solved_fraction": figure,
    }


def test_averages_are_of_all_sets_and_once(plan: Plan) -> None:
    both = plan("ab", "bc")
    assert both.averages([row("a", 0.2)]) == {}
    averages = both.averages([row("a", 0.2), row("b", 0.4)])
    assert list(averages) == ["macro:validation"]
    assert averages["macro:validation"]["pass_at_k"]["1"] == pytest.approx(0.3)
    done = [row("a", 0.2), row("b", 0.4), row("c", 0.6)]
    assert list(both.averages(done)) == ["macro:validation", "macro:test"]
    assert list(both.averages([*done, row("macro:validation", 0.3)])) == ["macro:test"]
    assert plan("a", "b").averages(done) == {}
