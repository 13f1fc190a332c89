"""ms-swift's trainer, by a stand-in with the signature and the attributes that were read from ms-swift 4.6.0."""

import importlib
import sys
from collections import defaultdict
from dataclasses import dataclass, field
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from outcome_rl import Explorer, question_id


@dataclass
class GRPOSample:
    """The fields of `swift.rl_core.data.GRPOSample` that matter here."""

    messages: list[dict[str, Any]]
    extra: dict[str, Any] = field(default_factory=dict)
    images: list[Any] = field(default_factory=list)
    videos: list[Any] = field(default_factory=list)
    audios: list[Any] = field(default_factory=list)


class GRPOTrainer:
    advantage_estimator = "grpo"
    scale_rewards = "group"
    kl_in_reward = dynamic_num_samples = False
    num_generations = 4
    reward_weights = torch.tensor([1.0, 0.5])

    def __init__(self) -> None:
        self.model = SimpleNamespace(training=True)
        self.processing_class = SimpleNamespace(decode=lambda ids, skip_special_tokens: f"\\boxed{{{ids[0]}}}")
        self._metrics: dict[str, Any] = {"train": defaultdict(list), "eval": defaultdict(list)}

    def _compute_advantages(self, samples: Any, rewards_per_func: Tensor, batch_encoded_inputs: Any) -> Tensor:
        return torch.full((len(rewards_per_func),), 7.0)


@pytest.fixture(scope="module")
def example() -> Any:
    swift, trainers, factory = (ModuleType(name) for name in ("swift", "swift.rlhf_trainers", "swift.trainers"))
    trainers.GRPOTrainer, factory.TrainerFactory = GRPOTrainer, SimpleNamespace(TRAINER_MAPPING={})
    with pytest.MonkeyPatch.context() as patch:
        for module in (swift, trainers, factory):
            patch.setitem(sys.modules, module.__name__, module)
        found = importlib.import_module("ms_swift_trainer")
    assert factory.TrainerFactory.TRAINER_MAPPING == {"grpo": "ms_swift_trainer.ExploringTrainer"}
    return found


def group(question: str, gold: str, answers: list[Any]) -> list[GRPOSample]:
    """Answers that are no text are token ids, as ms-swift puts them into messages."""
    user = {"role": "user", "content": question}
    said = [rf"so \boxed{{{one}}}" if isinstance(one, str) else one for one in answers]
    return [
        GRPOSample([user, {"role": "assistant", "content": content}], {"solution": gold, "id": question})
        for content in said
    ]


def rewards(right: list[int]) -> Tensor:
    """Return those of two functions; the second has weight .5, and gives every other response none."""
    return torch.tensor([[float(one), float("nan") if i % 2 else 1.0] for i, one in enumerate(right)])


def test_advantages_are_the_explorers(example: Any) -> None:
    trainer, same = example.ExploringTrainer(), Explorer(**example.EXPLORATION)
    ids = [question_id([{"role": "user", "content": text}]) for text in ("2+2", "3+4")]  # as in TRL and verl
    for _ in range(2):  # the second batch meets the counts of the first
        samples = [*group("2+2", "4", ["4", "5", [5], {"token_ids": [6]}]), *group("3+4", "7", ["7", "1", "2", "1"])]
        found = trainer._compute_advantages(samples, rewards([1, 0, 0, 0] * 2), [])
        scored = same.score(
            [question for question in ids for _ in range(4)],
            [rf"\boxed{{{answer}}}" for answer in "45567121"],
            ["4"] * 4 + ["7"] * 4,
            [1.5, 0, 0.5, 0] * 2,
        )
        torch.testing.assert_close(found, scored.advantages + scored.bonuses)
    assert trainer._metrics["train"]["outcomes/correct_rate"] == [0.25] * 2
    trainer.model.training = False
    assert trainer._compute_advantages(samples, rewards([1, 0] * 4), []).tolist() == [7.0] * 8
    assert trainer.explorer.counts.total() == 16


@pytest.mark.parametrize(
    "changed",
    [{"advantage_estimator": "rloo"}, {"scale_rewards": "gdpo"}, {"kl_in_reward": True}, {"dynamic_num_samples": True}],
    ids=str,
)
def test_what_would_change_the_advantages_is_refused(example: Any, changed: dict[str, Any]) -> None:
    trainer = type("Changed", (example.ExploringTrainer,), changed)()
    with pytest.raises(ValueError, match="would change"):
        trainer._compute_advantages(group("2+2", "4", ["4"] * 4), rewards([1] * 4), [])


def test_a_question_with_media_needs_an_id(example: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    samples = group("How many?", "4", ["4"] * 4)
    samples[0].videos = ["file"]
    with pytest.raises(ValueError, match="id_key must name"):
        example.ExploringTrainer()._compute_advantages(samples, rewards([1] * 4), [])
    monkeypatch.setattr(example, "ID_KEY", "id")
    trainer = example.ExploringTrainer()
    trainer._compute_advantages(samples, rewards([1] * 4), [])
    assert trainer.explorer.seen("How many?") == [("4", 4)]
