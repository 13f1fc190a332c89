"""slime's functions, called as slime's source calls them: it is not installed here."""

import sys
from dataclasses import dataclass, field
from enum import Enum
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch
from transformers import AutoTokenizer

from outcome_rl import Explorer, OutcomeCounts, group_advantages, outcome_key, question_id, question_key
from outcome_rl.integrations.slime import ExplorationRewards, mask_answers
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


ARGS = SimpleNamespace(advantage_estimator="grpo", normalize_advantages=False, grpo_std_normalization=True)


def group(index: int, prompt: str, label: str, answers: list[str], **changes: Any) -> list[Sample]:
    return [Sample(index, prompt, rf"so \boxed{{{a}}}", label, float(a == label), **changes) for a in answers]


def test_slime_gets_raw_rewards_and_advantages_with_bonuses() -> None:
    post_process = ExplorationRewards(bonus="ucb_con", coef=0.2)
    counts = OutcomeCounts()
    for step in range(3):
        first, second = ["4", "5", "5"], ["7", "1", "2"]
        samples = [*group(2 * step, "2+2", "4", first), *group(2 * step + 1, "3+4", "7", second)]
        raw, advantages = post_process(ARGS, samples)
        assert raw == [1, 0, 0, 1, 0, 0]
        expected = group_advantages(
            torch.tensor(raw).view(2, 3),
            torch.tensor([question_key(question_id("2+2")), question_key(question_id("3+4"))]),
            torch.tensor([[outcome_key(a) for a in answers] for answers in (first, second)]),
            counts,
            bonus="ucb_con",
            coef=0.2,
        )
        assert advantages == pytest.approx((expected.advantages + expected.bonuses).flatten().tolist())


def test_slime_leaves_out_the_division_if_the_arguments_say_so() -> None:
    samples = group(0, "2+2", "4", ["4", "5", "5", "5"])
    _, advantages = ExplorationRewards(bonus="none")(
        SimpleNamespace(**vars(ARGS) | {"grpo_std_normalization": False}), samples
    )
    assert advantages == pytest.approx([0.75, -0.25, -0.25, -0.25])


def test_slime_questions_may_have_ids() -> None:
    post_process = ExplorationRewards(bonus="ucb", coef=1.0, id_key="id")
    post_process(ARGS, group(0, "2+2", "4", ["5", "5"], metadata={"id": 3}))
    _, advantages = post_process(ARGS, group(1, "2 + 2", "4", ["5", "6"], metadata={"id": 3}))
    assert advantages == pytest.approx([2**-0.5, 1.0])
    with pytest.raises(ValueError, match="id_key must name a stable id in the metadata of every sample"):
        post_process(ARGS, group(2, "2+2", "4", ["5", "5"]))
    with pytest.raises(ValueError, match=r"id_key must name a stable id in the metadata.*with images"):
        ExplorationRewards()(ARGS, group(0, "2+2", "4", ["4"], multimodal_inputs={"images": [1]}))


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"advantage_estimator": "ppo"}, "--advantage-estimator must be one of grpo, gspo, cispo"),
        ({"normalize_advantages": True}, "without --normalize-advantages"),
        ({"rewards_normalization": False}, "--disable-rewards-normalization makes rewards the advantages"),
        ({"advantage_estimator": "gspo"}, "gspo spreads the gradient"),
    ],
    ids=str,
)
def test_slime_settings_that_change_the_bonus_or_undo_the_mask_are_refused(
    changed: dict[str, Any], message: str
) -> None:
    args = SimpleNamespace(**vars(ARGS) | changed)
    with pytest.raises(ValueError, match=message):
        mask_answers(args, {})
    if changed != {"advantage_estimator": "gspo"}:
        with pytest.raises(ValueError, match=message):
            ExplorationRewards()(args, group(0, "2+2", "4", ["4", "5"]))


def test_slime_takes_no_mask() -> None:
    with pytest.raises(ValueError, match="answer_mask_mode cannot be set for slime"):
        ExplorationRewards(answer_mask_mode="policy")


def test_slime_samples_without_a_reward_were_aborted() -> None:
    samples = [*group(0, "2+2", "4", ["4", "5"], metadata=None), Sample(0, "2+2", "", "4", None, None)]
    with pytest.raises(ValueError, match=r"must have a reward; one of the prompt '2\+2' has None"):
        ExplorationRewards()(ARGS, samples)
    samples[-1].status = Status.ABORTED
    raw, advantages = ExplorationRewards(bonus="none")(ARGS, samples)
    assert raw == [1.0, 0.0, 0.0]
    assert advantages == pytest.approx([0.707, -0.707, 0.0], abs=1e-3)


def test_slime_without_labels_takes_positive_rewards() -> None:
    samples = [Sample(0, "2+2", response, None, reward) for response, reward in (("4", 1.0), ("5", 0.0))]
    post_process = ExplorationRewards()
    post_process(ARGS, samples)
    assert post_process.metrics["outcomes/correct_rate"] == 0.5


def test_slime_functions_read_metadata_and_labels_of_any_type() -> None:
    samples = [Sample(0, "2+2", "one two", {"number": 4}, 0.0, {"id": 7})]
    post_process = ExplorationRewards(
        outcome="outcome_functions:episode", is_correct=lambda value, row: value[1] == row["label"]["number"] / 2
    )
    post_process(ARGS, samples)
    assert post_process.metrics["outcomes/correct_rate"] == 1.0
    assert post_process.explorer.seen(question_id("2+2")) == [("('7', 2)", 1)]


def test_slime_scores_a_rollout_once() -> None:
    post_process, same = ExplorationRewards(bonus="batch"), ExplorationRewards(bonus="batch")
    parts = group(0, "2+2", "4", ["1", "2", "5"], rollout_id=7)  # three segments of one rollout
    raw, found = post_process(ARGS, [*parts, *group(0, "2+2", "4", ["4"], rollout_id=8)])
    assert raw == [0, 0, 0, 1]
    _, (wrong, right) = same(ARGS, group(0, "2+2", "4", ["5", "4"]))
    assert found == pytest.approx([wrong] * 3 + [right])
    assert post_process.explorer.counts.total() == 2
    assert post_process.metrics["exploration/reward_disagrees"] == 0


def test_slime_leaves_out_what_does_not_train() -> None:
    post_process = ExplorationRewards(bonus="none")
    aborted = group(0, "2+2", "4", ["5"], status=Status.ABORTED)
    removed = group(0, "2+2", "4", ["6"], remove_sample=True)
    _, found = post_process(ARGS, [*aborted, *group(0, "2+2", "4", ["4", "4"]), *removed])
    assert found == [0.0] * 4
    assert post_process.explorer.counts.total() == 2
    assert post_process(ARGS, [*aborted, *removed]) == ([0.0, 0.0], [0.0, 0.0])


def rollout_of(tokenizer: Any, texts: list[str], rewards: list[float], tools: dict[int, str]) -> dict[str, Any]:
    """Make the data that slime 0.3.1 passes (`slime/backends/megatron_utils/loss.py`); tools wrote before some rows."""
    prompt, columns = (
        tokenizer("D12 39 ^ 9 =>").input_ids,
        ("tokens", "response_lengths", "total_lengths", "loss_masks"),
    )
    data: dict[str, Any] = {name: [] for name in (*columns, "kl")} | {"rewards": rewards}
    for row, text in enumerate(texts):
        tool, own = (tokenizer(part, add_special_tokens=False).input_ids for part in (tools.get(row, ""), text))
        response = [*tool, *own, tokenizer.eos_token_id]
        values = torch.tensor([*prompt, *response]), len(response), len(prompt) + len(response)
        mask = torch.tensor([0] * len(tool) + [1] * (len(own) + 1), dtype=torch.int)
        for name, value in zip((*columns, "kl"), (*values, mask, torch.zeros(len(response))), strict=True):
            data[name].append(value)
    return data


def test_slime_answers_are_masked_by_the_advantage_function() -> None:
    """As by the explorer's own mask in mode "policy"; a tool's text holds no answer of the policy."""
    tokenizer = AutoTokenizer.from_pretrained(policy_dir())
    texts, tools = ["9 9 \\boxed{ 1 }", "39 39", "\\boxed{ 3 }"], {2: "\\boxed{ 5 } 9"}
    data = rollout_of(tokenizer, texts, [0.5, -1.0, 2.0], tools)
    args = SimpleNamespace(**vars(ARGS), hf_checkpoint=str(policy_dir()))
    mask_answers(args, data)
    scored = Explorer(answer_mask_mode="policy").score(["q"] * 3, texts, ["3"] * 3)
    own = [tokenizer(text, add_special_tokens=False).input_ids for text in texts]
    is_answer = scored.answer_mask(tokenizer, own)
    assert is_answer.sum(dim=1).tolist() == [1, 0, 1]
    for row, reward in enumerate(data["rewards"]):
        found = data["advantages"][row]
        expected = torch.full((data["response_lengths"][row],), reward)
        before = len(expected) - 1 - len(own[row])  # of the tool; behind is the end token
        expected[before : before + len(own[row])] *= ~is_answer[row, : len(own[row])]
        assert found.dtype == torch.float32
        assert torch.equal(found, expected)
        assert torch.equal(data["returns"][row], expected)


def test_slime_parts_of_a_response_get_their_part_of_the_advantages(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of several context-parallel ranks has some tokens, and a function of slime selects them."""
    tokenizer = AutoTokenizer.from_pretrained(policy_dir())
    data = rollout_of(tokenizer, ["9 9 \\boxed{ 1 }"], [0.5], {})
    length = data["response_lengths"][0]
    data["kl"] = [torch.zeros(2)]
    utilities = SimpleNamespace(slice_log_prob_with_cp=lambda values, total, response: values[-2:])
    for name in ("slime", "slime.backends", "slime.backends.megatron_utils"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    monkeypatch.setitem(sys.modules, "slime.backends.megatron_utils.cp_utils", utilities)
    mask_answers(SimpleNamespace(**vars(ARGS), hf_checkpoint=str(policy_dir())), data)
    assert length > 2
    assert data["advantages"][0].tolist() == [0.5, 0.5]
