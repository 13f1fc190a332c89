"""The functions for slime, called as slime's source calls them: it is not installed here."""

from dataclasses import dataclass, field
from enum import Enum
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from slime_rewards import ExplorationRewards, mask_answers, post_process
from transformers import AutoTokenizer

from outcome_rl import Explorer, question_id
from outcome_rl.toy import policy_dir

Status = Enum("Status", ["COMPLETED", "ABORTED"])


@dataclass
class Sample:
    """The fields of slime 0.3.1's `slime.utils.types.Sample` that matter here."""

    group_index: int
    prompt: str
    response: str
    label: str | None
    reward: float | None
    metadata: dict[str, Any] | None = field(default_factory=dict)
    rollout_id: int | None = None
    remove_sample: bool = False
    multimodal_inputs: Any = None
    status: Enum = Status.COMPLETED

    def get_reward_value(self, args: Any) -> float:
        assert self.reward is not None  # slime would raise a TypeError
        return self.reward


ARGS = SimpleNamespace(
    advantage_estimator="grpo", normalize_advantages=False, grpo_std_normalization=True, hf_checkpoint=str(policy_dir())
)


def group(index: int, prompt: str, label: str, answers: list[str], **changes: Any) -> list[Sample]:
    return [Sample(index, prompt, rf"so \boxed{{{a}}}", label, float(a == label), **changes) for a in answers]


def test_slime_gets_raw_rewards_and_the_explorers_advantages() -> None:
    """Three segments of one rollout are scored once, and aborted samples not at all."""
    same = Explorer(post_process.explorer.config)
    for step in range(2):  # the second batch meets the counts of the first
        first = [*group(2 * step, "2+2", "4", ["1", "2", "5"], rollout_id=7), *group(2 * step, "2+2", "4", ["4"])]
        aborted = Sample(2 * step, "2+2", "", "4", None, None, status=Status.ABORTED)
        raw, found = post_process(ARGS, [*first, *group(2 * step + 1, "3+4", "7", ["7", "1", "7"]), aborted])
        ids = [question_id("2+2")] * 2 + [question_id("3+4")] * 3
        scored = same.score(ids, [rf"\boxed{{{a}}}" for a in "54717"], ["4"] * 2 + ["7"] * 3)
        segment, *others = (scored.advantages + scored.bonuses).tolist()
        assert raw == [0, 0, 0, 1, 1, 0, 1, 0]
        assert found == pytest.approx([*[segment] * 3, *others, 0])
        assert post_process.metrics.items() >= scored.metrics.items()


@pytest.mark.parametrize(
    "changed",
    [{"advantage_estimator": "ppo"}, {"normalize_advantages": True}, {"rewards_normalization": False}],
    ids=str,
)
def test_slime_settings_that_change_the_bonus_are_refused(changed: dict[str, Any]) -> None:
    args = SimpleNamespace(**vars(ARGS) | changed)
    with pytest.raises(ValueError, match="--"):
        mask_answers(args, {})
    with pytest.raises(ValueError, match="--"):
        ExplorationRewards()(args, group(0, "2+2", "4", ["4", "5"]))


def test_slime_answers_are_masked_by_the_advantage_function() -> None:
    """As by the explorer's own mask in mode "policy"; a tool's text holds no answer of the policy."""
    tokenizer = AutoTokenizer.from_pretrained(policy_dir())
    rows = [("", "9 9 \\boxed{ 1 }", 0.5), ("", "39 39", -1.0), ("\\boxed{ 5 } 9", "\\boxed{ 3 }", 2.0)]
    prompt, data = tokenizer("D12 39 ^ 9 =>").input_ids, {"rewards": [reward for _, _, reward in rows]}
    tools, own = ([tokenizer(row[i], add_special_tokens=False).input_ids for row in rows] for i in (0, 1))
    data |= {name: [] for name in ("tokens", "response_lengths", "total_lengths", "loss_masks", "kl")}
    for tool, text in zip(tools, own, strict=True):  # as slime 0.3.1 passes them
        response = [*tool, *text, tokenizer.eos_token_id]
        data["tokens"].append(torch.tensor([*prompt, *response]))
        data["response_lengths"].append(len(response))
        data["total_lengths"].append(len(prompt) + len(response))
        data["loss_masks"].append(torch.tensor([0] * len(tool) + [1] * (len(text) + 1)))
        data["kl"].append(torch.zeros(len(response)))
    mask_answers(ARGS, data)
    scored = Explorer().score(["q"] * 3, [text for _, text, _ in rows], ["3"] * 3)
    is_answer = scored.answer_mask(tokenizer, own)
    assert is_answer.sum(dim=1).tolist() == [1, 0, 1]
    for row, (tool, text, (_, _, reward)) in enumerate(zip(tools, own, rows, strict=True)):
        expected = torch.full((len(tool) + len(text) + 1,), reward)
        expected[len(tool) : -1] *= ~is_answer[row, : len(text)]
        assert torch.equal(data["advantages"][row], expected)
        assert torch.equal(data["returns"][row], expected)
