"""Advantages of a SkyRL training batch, for a custom trainer.

    class ExploringTrainer(RayPPOTrainer):
        def __init__(self, *args, **kwargs):
            super().__init__(*args, **kwargs)
            self.explorer = Explorer(bonus="batch", coef=0.2)

        def compute_advantages_and_returns(self, data):
            scale = "std" if self.cfg.trainer.algorithm.grpo_norm_by_std else "none"
            scored = assign_advantages(data, self.explorer, self.tokenizer, scale=scale)
            self.all_metrics.update(scored.metrics)
            return data

        async def eval(self, *args, **kwargs):
            return await with_validation(self, super().eval(*args, **kwargs))

SkyRL's `register_advantage_estimator` gives a function rewards and ids, but no responses.
"""

from collections.abc import Awaitable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch

from outcome_rl.exploration.explorer import Explorer
from outcome_rl.exploration.scored import Scored
from outcome_rl.integrations.adapter import (
    Turn,
    answer_mask,
    check_mask_mode,
    means,
    outcome_turn,
    score,
    validation,
)
from outcome_rl.outcomes.answer_mask import Tokenizer, decode_completion
from outcome_rl.outcomes.batch import Batch
from outcome_rl_kernels.advantages.groups import Scale

if TYPE_CHECKING:
    from skyrl.backends.skyrl_train.training_batch import TrainingInputBatch


def assign_advantages(
    data: "TrainingInputBatch",
    explorer: Explorer,
    tokenizer: Tokenizer,
    *,
    golds: Mapping[str, str] | None = None,
    scale: Scale = "std",
) -> Scored:
    """Score and count the N trajectories of a batch, and set its `advantages` and `returns` (B, T).

    All response tokens get `advantages + bonuses`, except answer tokens, which `answer_mask_mode` decides. With
    step-wise trajectories the last step is scored, and the others get its advantage without a mask. Padding rows of the
    batch get 0. A question is SkyRL's uid, the row of its data set: keep the data set while counts are kept.

    Args:
        data: on the CPU, with `sequences`, `response_mask`, `rewards`, and the `uids` in its metadata, as SkyRL's
            trainer passes it.
        explorer: counts, kept over training.
        tokenizer: Hugging Face tokenizer of the policy.
        golds: uid -> gold answer, from `train_dataset.dataframe`, whose rows uids number; None takes `reward > 0` as
            correct. The answer is read from the last tokens in a row that `loss_mask` holds, an outcome from all of
            them.
        scale: as for `Explorer.score`; "none" is SkyRL's `grpo_norm_by_std=false`.

    Returns:
        The scored trajectories, with `metrics`; no gradient.

    Raises:
        ValueError: a uid has no gold, `golds` is None although the rewards hold SkyRL's KL penalty, or
            `answer_mask_mode="all"`: advantages cannot take tokens out of a denominator.
    """
    check_mask_mode(explorer.config.answer_mask_mode, "SkyRL")
    explorer.length_setting = "generator.sampling_params.max_generate_length"
    B = len(data["rewards"]) - data.metadata.get("pad_size", 0)
    is_response_BT = data["response_mask"][:B].bool()
    is_last_B = torch.tensor(data.metadata.get("is_last_step", [True] * B)[:B])
    last_N = is_last_B.nonzero()[:, 0].tolist()
    uids = [data.metadata["uids"][row] for row in last_N]
    if golds is not None and (unknown := sorted(set(uids) - set(golds))):
        raise ValueError(f"golds must have an answer for the uid of every trajectory; {unknown[:3]} have none")
    if golds is None and not explorer.config.is_correct and "avg_kl" in data.metadata.get("metrics", {}):
        raise ValueError(
            "golds must be given with use_kl_in_reward=True: the rewards hold a KL penalty, so a positive one does not "
            "mean a correct response. Pass golds, or use_kl_loss=True in place of the penalty"
        )
    tokens_BT = data["sequences"][:B, -is_response_BT.shape[1] :]
    chosen_N = [(row, is_response_BT[row]) for row in last_N]  # rows, and their response tokens
    turns = [_turn(explorer, tokens_BT[at].tolist(), data["loss_mask"][at].tolist()) for at in chosen_N]
    batch = Batch(
        uids,
        [decode_completion(tokenizer, turn.ids) for turn in turns],
        None if golds is None else [golds[uid] for uid in uids],
        data["rewards"][last_N].sum(dim=1),
        rows=[{"uid": uid} for uid in uids],
    )
    scored = score(explorer, batch, id_source="SkyRL's uids", scale=scale)
    trajectories_B = is_last_B.cumsum(dim=0) - is_last_B.long()
    advantages_BT = torch.zeros_like(data["rewards"], dtype=torch.float32)
    advantages_BT[:B] = (scored.advantages + scored.bonuses).cpu()[trajectories_B, None] * is_response_BT
    mask_NT = answer_mask(scored, tokenizer, turns, is_response_BT.shape[1])
    for at, tokens in zip(chosen_N, scored.token_advantages(mask_NT).cpu(), strict=True):
        advantages_BT[at] = tokens[: int(at[1].sum())]
    data["advantages"], data["returns"] = advantages_BT, advantages_BT.clone()
    return scored


async def with_validation(trainer: Any, evaluation: Awaitable[dict[str, float]]) -> dict[str, float]:
    """Add pass@k, different answers, majority and identical completions to SkyRL's evaluation, without counting them.

    A positive reward is a correct response, as in `assign_advantages` without golds.

    Args:
        trainer: SkyRL's trainer, with `generator`, `tokenizer` and an `explorer`.
        evaluation: `super().eval(...)`, not awaited.

    Returns:
        SkyRL's metrics, and the means of `outcome_rl.metrics.validation_metrics` over the questions.
    """
    recorder = _Recorder(trainer.generator)
    trainer.generator = recorder
    try:
        metrics = await evaluation
    finally:
        trainer.generator = recorder.generator
    uids, ids, masks, rewards = zip(*recorder.rows, strict=True)
    turns = [_turn(trainer.explorer, *pair) for pair in zip(ids, masks, strict=True)]
    responses = [decode_completion(trainer.tokenizer, turn.ids) for turn in turns]
    batch = Batch(uids, responses, correct=[reward > 0 for reward in rewards])
    return metrics | means(validation(trainer.explorer, batch, ids))


def _turn(explorer: Explorer, ids: Sequence[int], loss_mask: Sequence[Any]) -> Turn:
    """Return the tokens that hold the outcome: all of them where a filter of SkyRL has emptied the mask."""
    return outcome_turn(explorer, ids, loss_mask if any(loss_mask) else [1] * len(ids))


class _Recorder:
    """SkyRL's generator, with (uid, token ids, loss mask, reward) of each evaluated sample; of several steps, the last.

    In asynchronous training, samples for the training are generated during an evaluation.
    """

    def __init__(self, generator: Any) -> None:
        self.generator = generator
        self.rows: list[tuple[str, tuple[int, ...], list[int], float]] = []

    async def generate(self, input_batch: Any, *arguments: Any, **keywords: Any) -> Any:
        output = await self.generator.generate(input_batch, *arguments, **keywords)
        if input_batch["batch_metadata"].training_phase == "train":
            return output
        trajectories = output.get("trajectory_ids") or input_batch["trajectory_ids"]
        is_last = output.get("is_last_step") or [True] * len(trajectories)
        columns = (trajectories, output["response_ids"], output["loss_masks"], output["rewards"], is_last)
        for trajectory, ids, mask, reward, last in zip(*columns, strict=True):
            if last:
                total = sum(reward) if isinstance(reward, list) else reward
                self.rows.append((trajectory.instance_id, tuple(ids), mask, float(total)))
        return output

    def __getattr__(self, name: str) -> Any:
        return getattr(self.generator, name)
