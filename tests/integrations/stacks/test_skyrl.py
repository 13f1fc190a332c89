"""Advantages on SkyRL's own batches, in a subclass of SkyRL's own trainer."""

import asyncio
import inspect
import sys
import typing
from typing import Any

import pytest
import torch
import typing_extensions
from transformers import AutoTokenizer

from outcome_rl import Explorer
from outcome_rl.toy import policy_dir

with pytest.MonkeyPatch.context() as patch:
    if sys.version_info < (3, 12):  # pydantic refuses SkyRL's TypedDicts there, so its trainer cannot be imported
        patch.setattr(typing, "TypedDict", typing_extensions.TypedDict)
    from skyrl.backends.skyrl_train.training_batch import TrainingInputBatch, pad_training_input_batch
    from skyrl.train.config import SkyRLTrainConfig
    from skyrl.train.dataset.preprocess import convert_prompts_responses_to_batch_tensors
    from skyrl.train.trainer import RayPPOTrainer
    from skyrl_trainer import ExploringTrainer, assign_advantages

TOKENIZER = AutoTokenizer.from_pretrained(policy_dir())
PROMPT = TOKENIZER("D12 39 ^ 9 =>").input_ids
GOLDS = {"0": "27", "7": "3"}
TEXTS = {
    "0": ["\\boxed{ 27 }", "9 \\boxed{ 5 }", "\\boxed{ 5 }", "39"],
    "7": ["9 9 \\boxed{ 1 }", "39 39", "\\boxed{ 3 }", "\\boxed{ 3 }"],
}


def batch_of(rows: list[tuple[str, str, float]], pad: int = 0, is_last: list[bool] | None = None) -> Any:
    """SkyRL's batch of (uid, text, reward) rows, laid out and padded by its own functions."""
    responses = [[*TOKENIZER(text, add_special_tokens=False).input_ids, TOKENIZER.eos_token_id] for _, text, _ in rows]
    rewards = [[0.0] * (len(ids) - 1) + [reward] for ids, (_, _, reward) in zip(responses, rows, strict=True)]
    masks = [[1] * len(ids) for ids in responses]
    takes_id = "pad_token_id" in inspect.signature(convert_prompts_responses_to_batch_tensors).parameters  # SkyRL 0.4
    first = TOKENIZER.pad_token_id if takes_id else TOKENIZER
    tensors = convert_prompts_responses_to_batch_tensors(first, [PROMPT] * len(rows), responses, rewards, masks)
    names = ("sequences", "attention_mask", "response_mask", "rewards", "loss_mask")
    batch = TrainingInputBatch(dict(zip(names, tensors[:5], strict=True)) | {"values": None})
    batch.metadata = {"uids": [uid for uid, _, _ in rows], "avg_response_length": 1.0}
    if is_last is not None:
        batch.metadata["is_last_step"] = is_last
    return pad_training_input_batch(batch, pad)


def step_rows() -> list[tuple[str, str, float]]:
    return [(uid, text, float(f"{{ {GOLDS[uid]} }}" in text)) for uid, texts in TEXTS.items() for text in texts]


@pytest.mark.parametrize(("golds", "mode"), [(GOLDS, "policy"), (None, "bonus")])
def test_tokens_get_the_explorers_advantages(golds: dict[str, str] | None, mode: str) -> None:
    rows = step_rows()
    explorer, same = (Explorer(bonus="ucb_con", coef=0.3, answer_mask_mode=mode) for _ in range(2))
    for _ in range(2):  # the second batch meets the counts of the first
        data = batch_of(rows, pad=3)
        assign_advantages(data, explorer, TOKENIZER, golds=golds)
        uids, texts = ([row[column] for row in rows] for column in (0, 1))
        expected = same.score(uids, texts, [GOLDS[uid] for uid in uids])
        ids = [[*TOKENIZER(text, add_special_tokens=False).input_ids, TOKENIZER.eos_token_id] for text in texts]
        tokens = expected.token_advantages(expected.answer_mask(TOKENIZER, ids))
        for i, row in enumerate(ids):
            assert torch.equal(data["advantages"][i, -len(row) :], tokens[i, : len(row)])
            assert not data["advantages"][i, : -len(row)].any()
        assert not data["advantages"][len(rows) :].any()
        assert torch.equal(data["returns"], data["advantages"])
    assert explorer.seen("7") == same.seen("7")


def test_steps_of_a_trajectory_share_the_advantage_of_the_last() -> None:
    rows = step_rows()
    plain = batch_of(rows)
    assign_advantages(plain, Explorer(), TOKENIZER, golds=GOLDS)
    steps = [one for uid, text, reward in rows for one in ((uid, "39 9", 0.0), (uid, text, reward))]
    data = batch_of(steps, pad=1, is_last=[False, True] * len(rows))
    scored = assign_advantages(data, Explorer(), TOKENIZER, golds=GOLDS)
    assert torch.equal(data["advantages"][1:-1:2], plain["advantages"])
    is_token = data["response_mask"][:-1:2].bool()
    assert torch.equal(data["advantages"][:-1:2], (scored.advantages + scored.bonuses)[:, None] * is_token)


def trainer_of(kind: Any, **parts: Any) -> Any:
    """A trainer of SkyRL without its workers."""
    trainer = object.__new__(kind)
    trainer.cfg, trainer.tokenizer, trainer.all_metrics = SkyRLTrainConfig(), TOKENIZER, {}
    trainer.__dict__ |= parts
    return trainer


def test_skyrls_trainer_takes_them() -> None:
    """Without a bonus they are SkyRL's own."""
    theirs, ours = (batch_of(step_rows()) for _ in "ab")
    trainer_of(RayPPOTrainer).compute_advantages_and_returns(theirs)
    explorer = Explorer(adv_estimator="grpo", bonus="none", answer_mask_mode="none")
    trainer = trainer_of(ExploringTrainer, explorer=explorer)
    trainer.compute_advantages_and_returns(ours)
    torch.testing.assert_close(ours["advantages"], theirs["advantages"], rtol=1e-4, atol=1e-6)
    assert "exploration/distinct_answers" in trainer.all_metrics


def test_a_penalty_in_the_reward_says_nothing_of_correctness() -> None:
    data = batch_of([(uid, text, reward - 0.1) for uid, text, reward in step_rows()])
    with pytest.warns(UserWarning, match="it is unknown which responses are correct"):
        assert not assign_advantages(data, Explorer(adv_estimator="grpo"), TOKENIZER).judged
    assert assign_advantages(data, Explorer(adv_estimator="grpo"), TOKENIZER, golds=GOLDS).judged


def test_errors_name_the_fix() -> None:
    with pytest.raises(ValueError, match="golds must have an answer for the uid of every trajectory"):
        assign_advantages(batch_of(step_rows()), Explorer(), TOKENIZER, golds={"0": "27"})


class Sampler:
    """A generator of SkyRL's interface that says the texts of `TEXTS`."""

    async def generate(self, input_batch: Any) -> Any:
        ids = [one.instance_id for one in input_batch["trajectory_ids"]]
        texts = [TEXTS[one.instance_id][one.repetition_id] for one in input_batch["trajectory_ids"]]
        tokens = [[*TOKENIZER(text, add_special_tokens=False).input_ids, TOKENIZER.eos_token_id] for text in texts]
        return {
            "prompt_token_ids": [PROMPT] * len(texts),
            "response_ids": tokens,
            "rewards": [float(f"{{ {GOLDS[uid]} }}" in text) for uid, text in zip(ids, texts, strict=True)],
            "loss_masks": [[1] * len(row) for row in tokens],
            "stop_reasons": ["stop"] * len(texts),
            "rollout_metrics": {},
            "rollout_logprobs": None,
        }


def test_evaluation_has_pass_at_k_and_diversity() -> None:
    """SkyRL's own evaluation, with two questions of four samples in two batches."""
    batches = [[{"prompt": PROMPT, "env_class": "dialect", "env_extras": {}, "uid": uid}] for uid in TEXTS]
    parts = {"generator": Sampler(), "eval_dataloader": batches, "global_step": 1}
    trainer = trainer_of(ExploringTrainer, explorer=Explorer(), trajectory_logger=None, tracker=None, **parts)
    trainer.cfg.generator.eval_n_samples_per_prompt, trainer.cfg.trainer.dump_eval_results = 4, False
    found = asyncio.run(trainer.eval())
    expected = {"pass_at_k/1": 0.375, "pass_at_k/4": 1, "diff_at_k/4": 2.5, "identical_rate": 0.25}
    assert {name: found[f"validation/{name}"] for name in expected} == pytest.approx(expected)
    assert found["eval/all/avg_score"] == 0.375
    assert len(trainer.explorer.counts) == 0
