"""Scored responses as the mini-batches of optimizer steps, each a list of packed micro-batches."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import chain, compress
from typing import NamedTuple

import torch
from torch import Tensor

from outcome_rl.grpo import distributed
from outcome_rl.grpo.config.schema import ActorConfig, TrainConfig
from outcome_rl.grpo.model.packing import Layout, PackedBatch, PackingPlan, pack
from outcome_rl.grpo.model.policy import Policy
from outcome_rl.grpo.types import Rollout, Sample
from outcome_rl.grpo.update.computed import ComputedTokens
from outcome_rl_kernels import Support, loss_normalizer
from outcome_rl_kernels.loss.settings import AnswerMaskMode


class MicroBatch(NamedTuple):
    """S responses that pass through the model together, with M response tokens that the loss computes."""

    packed: PackedBatch
    advantages_S: Tensor
    bonuses_S: Tensor
    answer_mask_M: Tensor
    correct_M: Tensor  # bool, the tokens of correct responses
    policy_tokens: Tensor  # number of tokens that have a policy term
    normalizer: Tensor  # of the loss of the mini-batch, over all its micro-batches and processes
    support_M: Support | None  # the tokens that top-k and top-p kept
    engine_logps_M: Tensor | None  # by the engine that sampled, if its arithmetic is its own
    ref_logps_M: Tensor | None = None  # without them there is no KL term
    old_logps_M: Tensor | None = None  # before the first of several updates; without them the ratio is 1


def mini_batches(
    batch: Sequence[Sample], tokens: ComputedTokens, config: TrainConfig, policy: Policy
) -> Iterator[list[MicroBatch]]:
    """Cut a batch, whole questions at a time, into the mini-batches of the optimizer steps, on the host.

    Each process yields the micro-batches of its own questions, with the normalizer of all processes. Under FSDP all
    processes yield equally many, because every forward pass is collective: this call is collective, too. If no token of
    a mini-batch is computed, its gradient is zero, by a micro-batch without response tokens.

    Args:
        batch: with the `rollout.n` responses to a question side by side.
        tokens: of the batch; responses without a computed token are left out.
        config: the run's settings.
        policy: it says how it takes packed rows.
    """
    questions = config.actor.ppo_mini_batch_size
    size = len(batch) if questions is None else questions * config.rollout.n
    mode, layout = config.exploration.answer_mask_mode, policy.attention_layout
    share_prefixes = config.actor.use_prefix_grouper and policy.packs
    plan = PackingPlan.of([sample.rollout for sample in batch], share_prefixes=share_prefixes)
    for start in range(0, len(batch), size):
        trained = [row for row in range(len(batch))[start : start + size] if batch[row].trained]
        normalizer = _normalizer([batch[row] for row in trained], config)
        rows = [row for row in trained if tokens.computed[row].any()]
        micro_batches = [
            _micro_batch(batch, chosen, tokens, pack(plan, chosen, layout), normalizer, mode)
            for chosen in split_rows(plan, rows, config.actor)
        ]
        missing = int(bool(trained) and not rows)
        if distributed.shards_policy(config):
            missing = max(missing, distributed.all_reduce_max(len(micro_batches)) - len(micro_batches))
        if missing:
            micro_batches += [_dummy(batch[0], normalizer, mode, layout)] * missing
        yield micro_batches


def split_rows(plan: PackingPlan, rows: Sequence[int], actor: ActorConfig) -> Iterator[list[int]]:
    """Group the responses of an optimizer step that this process computes into micro-batches.

    A micro-batch has `ppo_micro_batch_size_per_gpu` responses, or with `use_dynamic_bsz` at most
    `ppo_max_token_len_per_gpu` tokens, in which the prompt of a group counts once.

    Questions are taken in order of their longest response, the longest first, so that lengths within a micro-batch are
    similar (attention may pad to the longest) and a batch that does not fit in memory fails on its first pass; the
    processes take turns. The responses to a question stay together in packing order; those without tokens are left out.

    Args:
        plan: of the batch.
        rows: the responses of one optimizer step.

    Yields:
        Each response that has tokens, once, in one of the processes.
    """
    longest: dict[int, int] = {}
    for row in rows:
        group = plan.groups[row]
        longest[group] = max(plan.prompts[row] + plan.responses[row], longest.get(group, 0))
    with_tokens = [row for row in rows if plan.responses[row]]
    ordered = sorted(with_tokens, key=lambda row: (-longest[plan.groups[row]], plan.ranks[row]))
    own = set(distributed.strided_shard(list(dict.fromkeys(plan.groups[row] for row in ordered))))
    room = actor.ppo_max_token_len_per_gpu if actor.use_dynamic_bsz else actor.ppo_micro_batch_size_per_gpu
    chosen: list[int] = []
    used = 0
    for row in ordered:
        if plan.groups[row] not in own:
            continue
        shares = bool(chosen) and plan.groups[chosen[-1]] == plan.groups[row]
        prompt, response = plan.prompts[row], plan.responses[row]
        size = response + (0 if shares else prompt) if actor.use_dynamic_bsz else 1
        if chosen and used + size > room:
            yield chosen
            chosen, used = [], 0
            size = response + prompt if actor.use_dynamic_bsz else 1
        chosen.append(row)
        used += size
    if chosen:
        yield chosen


def _normalizer(samples: Sequence[Sample], config: TrainConfig) -> Tensor:
    """Return the denominator of the loss over a whole mini-batch."""
    lengths = torch.tensor([len(sample.rollout.token_ids) for sample in samples], dtype=torch.int64)
    first, stop = torch.tensor([sample.answer_span for sample in samples], dtype=torch.int64).view(-1, 2).T
    positions_T = torch.arange(int(lengths.max()) if samples else 0)
    return loss_normalizer(
        positions_T < lengths[:, None],
        (positions_T >= first[:, None]) & (positions_T < stop[:, None]),
        answer_mask_mode=config.exploration.answer_mask_mode,
        loss_agg=config.actor.loss_agg_mode,
        horizon=config.data.max_response_length,
    )


def _micro_batch(
    batch: Sequence[Sample],
    rows: Sequence[int],
    tokens: ComputedTokens,
    packed: PackedBatch,
    normalizer: Tensor,
    answer_mask_mode: AnswerMaskMode,
) -> MicroBatch:
    samples = [batch[row] for row in rows]
    rollouts = [sample.rollout for sample in samples]
    computed_T = torch.cat([tokens.computed[row] for row in rows])  # of all their tokens
    packed = packed.predicting(computed_T)
    answer_mask_M = torch.cat([tokens.answer[row] for row in rows])[computed_T]
    in_policy_term_M = ~answer_mask_M if answer_mask_mode in ("policy", "all") else torch.ones_like(answer_mask_M)
    logps = None
    if rollouts[0].logps is not None:
        every = [*chain.from_iterable(rollout.logps or () for rollout in rollouts)]
        logps = torch.tensor(every, dtype=torch.float32)[computed_T]
    return MicroBatch(
        packed=packed,
        advantages_S=torch.tensor([sample.advantage for sample in samples]),
        bonuses_S=torch.tensor([sample.bonus for sample in samples]),
        answer_mask_M=answer_mask_M,
        correct_M=torch.tensor([sample.correct for sample in samples]).repeat_interleave(packed.response_bounds.diff()),
        policy_tokens=in_policy_term_M.sum(),
        normalizer=normalizer,
        support_M=_support(rollouts, computed_T),
        engine_logps_M=logps,
    )


def _support(rollouts: Sequence[Rollout], computed_T: Tensor) -> Support | None:
    """Return the kept tokens of those response tokens that the loss computes."""
    if rollouts[0].kept is None:
        return None
    every = chain.from_iterable(rollout.kept or () for rollout in rollouts)
    kept = [*compress(every, computed_T.tolist())]
    offsets = torch.tensor([0, *map(len, kept)]).cumsum(dim=0)
    return Support(offsets, torch.tensor([*chain.from_iterable(kept)], dtype=torch.int64))


def _dummy(sample: Sample, normalizer: Tensor, answer_mask_mode: AnswerMaskMode, layout: Layout) -> MicroBatch:
    """Make a micro-batch without response tokens, for a process that has fewer than another."""
    rollout = sample.rollout._replace(
        prompt_ids=sample.rollout.prompt_ids[-1:],
        token_ids=[],
        logps=None if sample.rollout.logps is None else [],
        kept=None if sample.rollout.kept is None else [],
    )
    packed = pack(PackingPlan.of([rollout], share_prefixes=False), [0], layout)
    nothing = [torch.zeros(0, dtype=torch.bool)]
    tokens = ComputedTokens(nothing, nothing)
    return _micro_batch([replace(sample, rollout=rollout)], [0], tokens, packed, normalizer, answer_mask_mode)
