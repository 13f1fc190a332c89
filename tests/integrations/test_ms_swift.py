"""ms-swift's trainer, by a stand-in with the signature and the attributes that were read from ms-swift 4.6.0."""

import ast
import importlib.util
import inspect
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest
import torch
from torch import Tensor

from outcome_rl import Explorer, OutcomeCounts, group_advantages, outcome_key, question_id, question_key
from outcome_rl.integrations.ms_swift import ExplorationMixin


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
        self._metrics["train"]["reward"].append(rewards_per_func.nansum())
        return torch.full((len(rewards_per_func),), 7.0)


class Trainer(ExplorationMixin, GRPOTrainer):
    exploration: ClassVar[dict[str, Any]] = {"bonus": "ucb_con", "coef": 0.2}


def group(question: str, gold: str | None, answers: list[Any], **more: Any) -> list[GRPOSample]:
    """Answers that are no text are token ids, as ms-swift puts them into messages."""
    columns = more if gold is None else {"solution": gold, **more}
    return [
        GRPOSample(
            [
                {"role": "user", "content": question},
                {"role": "assistant", "content": rf"so \boxed{{{one}}}" if isinstance(one, str) else one},
            ],
            columns,
        )
        for one in answers
    ]


def rewards(samples: list[GRPOSample], right: list[bool]) -> Tensor:
    """Return those of two functions; the second has weight .5, and gives every other response none."""
    second = torch.tensor([float("nan") if i % 2 else 1.0 for i in range(len(samples))])
    return torch.stack([torch.tensor(right).float(), second], dim=1)


def test_advantages_are_grpos_with_bonuses() -> None:
    trainer, counts = Trainer(), OutcomeCounts()
    first, second = ["4", "5", "5", "6"], ["7", "1", "2", "1"]
    ids = [question_id([{"role": "user", "content": text}]) for text in ("2+2", "3+4")]  # as in TRL and verl
    for _ in range(3):
        samples = [*group("2+2", "4", first), *group("3+4", "7", second)]
        given = rewards(samples, [True, False, False, False] * 2)
        found = trainer._compute_advantages(samples, given, [])
        expected = group_advantages(
            torch.tensor([[1.5, 0, 0.5, 0]] * 2),
            torch.tensor([question_key(one) for one in ids]),
            torch.tensor([[outcome_key(a) for a in answers] for answers in (first, second)]),
            counts,
            bonus="ucb_con",
            coef=0.2,
        )
        torch.testing.assert_close(found, (expected.advantages + expected.bonuses).flatten())
    logged = trainer._metrics["train"]
    assert len(logged["reward"]) == 3  # by ms-swift
    assert logged["outcomes/correct_rate"] == [0.25] * 3
    assert trainer.explorer.counts.total() == 24


def test_an_evaluation_is_not_counted() -> None:
    trainer = Trainer()
    trainer.model.training = False
    samples = group("2+2", "4", ["4", "5"])
    assert trainer._compute_advantages(samples, rewards(samples, [True, False]), []).tolist() == [7.0, 7.0]
    assert trainer.explorer.counts.total() == 0


def test_ids_token_ids_and_rewards_in_place_of_golds() -> None:
    class WithIds(Trainer):
        id_key = "id"

    trainer = WithIds()
    trainer.explorer = Explorer(bonus="ucb", coef=1.0)
    for question in ("2+2", "2 + 2"):
        samples = group(question, None, [[5, 1], {"token_ids": [6, 1]}], id=3)
        trainer._compute_advantages(samples, rewards(samples, [True, False]), [])
    assert trainer.explorer.seen("3") == [("5", 2), ("6", 2)]
    assert trainer._metrics["train"]["outcomes/correct_rate"] == [0.5, 0.5]  # by rewards 1.5 and 0


def test_questions_of_one_text_about_different_images_are_groups_of_their_own() -> None:
    """As in data sets for counting objects, whose prompts are all the same."""

    class WithIds(Trainer):
        id_key = "id"
        num_generations = 2
        exploration: ClassVar[dict[str, Any]] = {"adv_estimator": "grpo", "bonus": "none"}

    answers = {"a": ["3", "4"], "b": ["5", "5"]}
    samples = [one for name, row in answers.items() for one in group("How many?", "3", row, id=name, images=[name])]
    found = WithIds()._compute_advantages(samples, rewards(samples, [True, False, False, False]), [])
    assert found.tolist() == pytest.approx([2**-0.5, -(2**-0.5)] * 2, abs=1e-4)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"advantage_estimator": "rloo"}, "advantage_estimator=rloo would change"),
        ({"scale_rewards": "gdpo"}, "scale_rewards=gdpo would change"),
        ({"kl_in_reward": True}, "kl_in_reward=true would change"),
        ({"dynamic_num_samples": True}, "several samples of a request"),
        ({"exploration": {"answer_mask_mode": "policy"}}, "answer_mask_mode cannot be set for ms-swift"),
    ],
    ids=str,
)
def test_what_would_change_the_advantages_is_refused(changed: dict[str, Any], message: str) -> None:
    trainer, samples = type("Changed", (Trainer,), changed)(), group("2+2", "4", ["4", "5"])
    with pytest.raises(ValueError, match=message):
        trainer._compute_advantages(samples, rewards(samples, [True, False]), [])


@pytest.mark.parametrize("medium", ["images", "videos", "audios"])
def test_a_question_with_media_needs_an_id(medium: str) -> None:
    samples = group("2+2", "4", ["4", "5"])
    setattr(samples[0], medium, ["file"])
    with pytest.raises(ValueError, match=r"id_key must name a stable id.*with images"):
        Trainer()._compute_advantages(samples, rewards(samples, [True, False]), [])


def test_the_stand_in_has_the_signature_of_ms_swift() -> None:
    """By its source: importing ms-swift needs packages that this environment lacks."""
    spec = importlib.util.find_spec("swift")
    folder = None if spec is None or spec.origin is None else Path(spec.origin).parent
    if folder is None or not (folder / "rlhf_trainers").is_dir():
        pytest.skip("ms-swift is not installed")
    parse = {
        name: ast.parse((folder / name).read_text()) for name in ("rlhf_trainers/grpo_trainer.py", "rl_core/data.py")
    }
    methods = {
        node.name: node
        for node in ast.walk(parse["rlhf_trainers/grpo_trainer.py"])
        if isinstance(node, ast.FunctionDef)
    }
    theirs = [argument.arg for argument in methods["_compute_advantages"].args.args]
    assert theirs == [*inspect.signature(GRPOTrainer._compute_advantages).parameters]
    assert theirs == [*inspect.signature(ExplorationMixin._compute_advantages).parameters]
    fields = {
        ast.unparse(node.target) for node in ast.walk(parse["rl_core/data.py"]) if isinstance(node, ast.AnnAssign)
    }
    assert set(GRPOSample.__dataclass_fields__) <= fields
    attributes = {
        ast.unparse(node)
        for node in ast.walk(parse["rlhf_trainers/grpo_trainer.py"])
        if isinstance(node, ast.Attribute)
    }
    read = (
        "advantage_estimator",
        "scale_rewards",
        "kl_in_reward",
        "dynamic_num_samples",
        "reward_weights",
        "_metrics",
        "num_generations",
    )
    assert {f"self.{name}" for name in read} <= attributes
