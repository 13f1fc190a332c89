"""Advantages of TRL's generation batch, with a bonus for outcomes that were rarely seen.

Shapes: N completions of this rank, T tokens. A group may span ranks: TRL concatenates the completions of rank 0,
rank 1, and so on, and every n consecutive ones are a group.

    every rank   its N completions -> text of the last turn, or of all turns for an outcome function -> outcomes
    all-gather   ids, rewards and outcome keys, in `Explorer.score`
    every rank   counts and bonuses of all completions, the same everywhere
    every rank   its N bonuses, added to the advantages of TRL or of `adv_estimator`, with answer tokens masked
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch

from outcome_rl.exploration.explorer import Explorer
from outcome_rl.exploration.scored import Scored
from outcome_rl.integrations.adapter import Turn, answer_mask, outcome_turn
from outcome_rl.outcomes.answer_mask import decode_completion
from outcome_rl.outcomes.batch import Batch
from outcome_rl.sampler.stale import warn_of_identical
from outcome_rl_kernels.advantages.groups import Scale


def exploration_advantages(
    output: dict[str, Any],
    question_ids: Sequence[str],
    golds: Sequence[str] | None,
    *,
    explorer: Explorer,
    tokenizer: Any,
    num_generations: int,
    correct: Sequence[bool] | None = None,
    rewards: Sequence[float] | Sequence[Sequence[float]] | None = None,
    reward_weights: Sequence[float] | None = None,
    scores: Sequence[Sequence[float]] | None = None,
    examples: Sequence[Mapping[str, Any]] | None = None,
    written: Sequence[Sequence[int]] | None = None,
    scale: Scale = "std",
) -> Scored:
    """Count the outcomes of a generation batch and add the exploration bonus to its advantages, in place.

    `advantages = A + bonus`, and 0 on answer tokens for `answer_mask_mode="policy"`. A is TRL's, unless `adv_estimator`
    differs from `grpo`. All ranks must call this together, once per generation and only in training.

    Args:
        output: result of `GRPOTrainer._generate_and_score_completions`, with `advantages` (N,). They become (N, T)
            where answer tokens are masked; `answer_mask_mode="all"` changes `tool_mask` and `num_items_in_batch`
            instead. With tools, the answer is taken from the last turn of the policy; an outcome function gets the text
            of all turns, tool outputs included.
        question_ids: N stable ids of this rank's completions.
        golds: N reference answers, or texts that end in one, such as a solution; None where there are none.
        explorer: counts so far; with several ranks its `process_group` must contain all of them.
        tokenizer: tokenizer of the policy, with its padding token.
        num_generations: n samples per question.
        correct: N booleans that replace the comparison with the golds, such as `rewards == 1`.
        rewards: N rewards, for any `adv_estimator` except `grpo`, and for your own bonus if it reads them; None is 0.
            N rows, one number per reward function, are each normalised by themselves, as `Explorer.score` does.
        reward_weights: factors of the rewards of such a row.
        scores: N rows, with a number of each reward function; a single one of 0 and 1 says which responses are correct
            where there are neither `golds` nor `correct`. None takes the rewards.
        examples: N data rows for an outcome function; None passes empty ones.
        written: N lists, with 1 for each token that the policy wrote and 0 for one of a tool, without padding; None
            takes `tool_mask`, and leaves trailing padding out. `mask_truncated_completions` empties the mask of a
            response that was cut off, so with tools pass what `_generate` returned.
        scale: "none" where TRL's `scale_rewards` is, for estimators built on `grpo`.

    Returns:
        The `Scored` of the completions of all ranks, in TRL's order, the same on each; its advantages are 0 if A is
        TRL's.

    Raises:
        ValueError: lengths differ, a group holds two questions, a question has another gold than before, correctness
            is unknown although the bonus depends on it, `adv_estimator` lacks rewards, or with several processes the
            explorer lacks its `process_group`.
    """
    from accelerate import PartialState  # comes with TRL

    num_local = len(output["completion_ids"])
    if PartialState().num_processes > 1 and explorer.process_group is None:
        raise ValueError(
            "explorer must have a process_group with several processes, or each would count by its own judgement; "
            "got None. Construct it with Explorer(..., process_group=torch.distributed.group.WORLD)"
        )
    config = explorer.config
    if rewards is None and config.adv_estimator != "grpo" and "rewards" in config.needs:
        raise ValueError(f"rewards must be given for adv_estimator={config.adv_estimator!r}; got None")
    written = _written(output, tokenizer) if written is None else written
    rows_of_ids = zip(output["completion_ids"].tolist(), written, strict=True)
    turns = [outcome_turn(explorer, ids[: len(mask)], mask) for ids, mask in rows_of_ids]
    first = PartialState().process_index * num_local
    groups = [i // num_generations for i in range(first, first + num_local)]
    batch = Batch(
        question_ids,
        [decode_completion(tokenizer, turn.ids) for turn in turns],
        golds,
        torch.tensor([0.0] * num_local if rewards is None else rewards),
        reward_weights=reward_weights,
        group_ids=groups,
        correct=None if correct is None else [*map(bool, correct)],
        rows=examples,
        scores=[math.nan] * num_local if rewards is None and scores is None else scores,  # rewards of 0 say nothing
    )
    warn_of_identical(groups, batch.responses)
    scored = explorer.score(batch, scale=scale)
    if config.adv_estimator == "grpo":
        scored = replace(scored, advantages=torch.zeros_like(scored.advantages))
    local_scored = scored.select(range(first, first + num_local))
    if config.adv_estimator != "grpo":
        output["advantages"] = local_scored.advantages.to(output["advantages"])
    elif local_scored.gated is not None:
        gated = local_scored.gated.to(output["advantages"].device)
        output["advantages"] = output["advantages"].masked_fill(gated, 0.0)
    if config.explores:
        _add(output, local_scored, turns, tokenizer)
    return scored


def _add(output: dict[str, Any], scored: Scored, turns: list[Turn], tokenizer: Any) -> None:
    """Add bonuses to the advantages, and mask the answer's tokens as `answer_mask_mode` says."""
    from accelerate.utils import gather

    mode, device = scored.answer_mask_mode, output["advantages"].device
    if mode in ("none", "all"):
        output["advantages"] = output["advantages"] + scored.bonuses.to(device)
    if mode == "none":
        return
    answer_NT = answer_mask(scored, tokenizer, turns, output["completion_ids"].shape[1]).to(device)
    if mode == "all":
        # TRL's tool_mask: tokens that the policy sees, but that neither the loss nor its denominators contain.
        written_NT = output.get("tool_mask", torch.ones_like(output["completion_mask"]))
        output["tool_mask"] = written_NT.masked_fill(answer_NT, 0)
        ratios = output.get("importance_sampling_ratio")
        if ratios is not None and ratios.shape == answer_NT.shape:  # vespo multiplies the ratios of masked tokens too
            output["importance_sampling_ratio"] = ratios.masked_fill(answer_NT, 1.0)
        output["num_items_in_batch"] = gather((output["completion_mask"] * output["tool_mask"]).sum()).sum()
    else:
        output["advantages"] = replace(scored, advantages=output["advantages"]).token_advantages(answer_NT)


def _written(output: dict[str, Any], tokenizer: Any) -> list[list[int]]:
    """Return for each token that is no padding whether the policy wrote it, and no tool or environment."""
    masks, rows = output["tool_mask"].tolist() if "tool_mask" in output else None, []
    for row, ids in enumerate(output["completion_ids"].tolist()):
        end = len(ids)
        # Not by completion_mask, which is empty for the rows that mask_truncated_completions drops.
        while end and ids[end - 1] == tokenizer.pad_token_id:
            end -= 1
        if end < len(ids) and tokenizer.pad_token_id == tokenizer.eos_token_id:
            end += 1  # the first is the policy's
        rows.append([1] * end if masks is None else masks[row][:end])
    return rows
