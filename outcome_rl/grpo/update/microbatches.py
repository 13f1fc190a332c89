"""A scored batch as the mini-batches of its optimizer steps, and these as packed micro-batches."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from outcome_rl.grpo import distributed
from outcome_rl.grpo.config.schema import ActorConfig, TrainConfig
from outcome_rl.grpo.model.packing import Lengths, PackedBatch, pack
from outcome_rl.grpo.rollout.engine import Rollouts, join_padded
from outcome_rl_kernels import loss_normalizer
from outcome_rl_kernels.loss.reference import AnswerMaskMode


class ScoredRollouts(NamedTuple):
    """Rollouts with what the loss needs to know of them, on the policy's device."""

    rollouts: Rollouts  # N responses
    advantages: Tensor  # (N,) reward part
    bonuses: Tensor  # (N,) exploration part
    answer_mask: Tensor  # (N, T) bool
    correct: Tensor  # (N,) bool
    trained: Tensor  # (N,) bool, on the CPU: whether the loss is of this response

    @classmethod
    def join(cls, parts: Sequence["ScoredRollouts"]) -> "ScoredRollouts":
        """Several batches as one."""
        if len(parts) == 1:
            return parts[0]
        rollouts, advantages, bonuses, answer_mask, correct, trained = zip(*parts, strict=True)
        return cls(
            Rollouts.join(rollouts),
            torch.cat(advantages),
            torch.cat(bonuses),
            join_padded(answer_mask),
            torch.cat(correct),
            torch.cat(trained),
        )

    def groups(self, chosen: Sequence[int], n: int) -> "ScoredRollouts":
        """The n responses to each of some questions, which are given by their places."""
        rows = [group * n + sample for group in chosen for sample in range(n)]
        return ScoredRollouts(self.rollouts.take(rows), *(tensor[rows] for tensor in self[1:]))


class MicroBatch(NamedTuple):
    """S responses that go through the model together, with M response tokens."""

    packed: PackedBatch
    labels_M: Tensor
    advantages_S: Tensor
    bonuses_S: Tensor
    answer_mask_M: Tensor
    counted_M: Tensor  # bool, the tokens that the loss and its statistics count
    policy_tokens: Tensor  # how many of them have a policy term
    correct_M: Tensor  # bool, the tokens of correct responses
    engine_logps_M: Tensor | None  # of the engine that sampled, where its arithmetic is its own
    ref_logps_M: Tensor | None = None  # without them there is no KL term
    old_logps_M: Tensor | None = None  # before the first of several updates; without them the ratio is 1


# Of a response that there is nothing to learn from: the last token of its prompt alone.
NOTHING = Lengths(prompts=[1], responses=[0], groups=[0], ranks=[0], common=[0])


class MiniBatch(NamedTuple):
    """What one optimizer step learns from."""

    micro_batches: list[MicroBatch]
    normalizer: Tensor  # of the loss of all of them


def mini_batches(
    batch: ScoredRollouts, config: TrainConfig, *, share_prefixes: bool, padded: bool
) -> Iterator[MiniBatch]:
    """Cut a batch, whole questions at a time, into what each optimizer step learns from.

    Of several processes, each gets the micro-batches of its own questions, and the normalizer of all of them. Where
    they share the weights out, each gets as many, for all must enter every pass.

    Args:
        batch: with the `rollout.n` responses to a question side by side.
        share_prefixes, padded: how the policy takes packed rows, see `Lengths.of` and `pack`.
    """
    total = len(batch.advantages)
    questions = config.actor.ppo_mini_batch_size
    size = total if questions is None else questions * config.rollout.n
    lengths = Lengths.of(batch.rollouts, share_prefixes=share_prefixes)
    answer_mask_mode = config.exploration.answer_mask_mode
    trained = batch.trained.tolist()
    for start in range(0, total, size):
        rows = [row for row in range(total)[start : start + size] if trained[row]]
        normalizer = loss_normalizer(
            batch.rollouts.completion_mask[rows],
            batch.answer_mask[rows],
            answer_mask_mode=answer_mask_mode,
            loss_agg=config.actor.loss_agg_mode,
            horizon=config.data.max_response_length,
        )
        packs = [
            pack(batch.rollouts, lengths, chosen, padded=padded)
            for chosen in split_rows(lengths, _own_rows(lengths, rows), config.actor)
        ]
        if distributed.shards_policy(config):
            missing = distributed.all_reduce_max(len(packs)) - len(packs)
            packs += [pack(batch.rollouts, NOTHING, [0], padded=padded)] * missing
        yield MiniBatch([_micro_batch(batch, packed, answer_mask_mode) for packed in packs], normalizer)


def split_rows(lengths: Lengths, rows: Sequence[int], actor: ActorConfig) -> Iterator[list[int]]:
    """Which responses go through the model together: `ppo_micro_batch_size_per_gpu` of them, or with `use_dynamic_bsz`
    at most `ppo_max_token_len_per_gpu` tokens, in which a shared prompt counts once.

    Questions are taken in order of their longest response, the longest first, so that those of a micro-batch are alike
    (attention may pad to the longest) and a batch that does not fit in memory fails on its first pass. The responses to
    a question stand side by side, those that begin alike next to each other; those without a token of the loss are left
    out.

    Args:
        lengths: of the batch.
        rows: the responses of one optimizer step.

    Returns:
        Each response that has tokens, once.
    """
    room = actor.ppo_max_token_len_per_gpu if actor.use_dynamic_bsz else actor.ppo_micro_batch_size_per_gpu
    chosen: list[int] = []
    used = 0
    for row in _longest_first(lengths, [row for row in rows if lengths.responses[row]]):
        shares = bool(chosen) and lengths.groups[chosen[-1]] == lengths.groups[row]
        prompt, response = lengths.prompts[row], lengths.responses[row]
        size = response + (0 if shares else prompt) if actor.use_dynamic_bsz else 1
        if chosen and used + size > room:
            yield chosen
            chosen, used = [], 0
            size = response + prompt if actor.use_dynamic_bsz else 1
        chosen.append(row)
        used += size
    if chosen:
        yield chosen


def _own_rows(lengths: Lengths, rows: Sequence[int]) -> list[int]:
    """What this process computes of the responses of an optimizer step."""
    groups = dict.fromkeys(lengths.groups[row] for row in _longest_first(lengths, rows))
    own = set(distributed.strided_shard(list(groups)))
    return [row for row in rows if lengths.groups[row] in own]


def _longest_first(lengths: Lengths, rows: Sequence[int]) -> list[int]:
    total = {row: lengths.prompts[row] + lengths.responses[row] for row in rows}
    longest: dict[int, int] = {}
    for row in rows:
        group = lengths.groups[row]
        longest[group] = max(total[row], longest.get(group, 0))
    return sorted(rows, key=lambda row: (-longest[lengths.groups[row]], lengths.ranks[row]))


def _micro_batch(batch: ScoredRollouts, packed: PackedBatch, answer_mask_mode: AnswerMaskMode) -> MicroBatch:
    rollouts = batch.rollouts
    answer_mask_M = packed.of_tokens(batch.answer_mask)
    everywhere_M, elsewhere_M = torch.ones_like(answer_mask_M), ~answer_mask_M
    return MicroBatch(
        packed=packed,
        labels_M=packed.of_tokens(rollouts.completion_ids),
        advantages_S=batch.advantages[packed.rows_S],
        bonuses_S=batch.bonuses[packed.rows_S],
        answer_mask_M=answer_mask_M,
        counted_M=elsewhere_M if answer_mask_mode == "all" else everywhere_M,
        policy_tokens=(elsewhere_M if answer_mask_mode in ("policy", "all") else everywhere_M).sum(),
        correct_M=packed.of_tokens(batch.correct[:, None].expand(rollouts.completion_ids.shape)),
        engine_logps_M=None if rollouts.logps is None else packed.of_tokens(rollouts.logps),
    )
