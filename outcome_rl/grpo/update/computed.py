"""Tokens of a batch that the loss computes, known on the host before anything is packed or copied to a device.

A token without a gradient reaches no matrix product with the lm_head, and a response without any other tokens is left
out of the model's passes. `outcome_rl_kernels` has the rule; here it is applied to a whole batch.
"""

from collections.abc import Sequence
from typing import NamedTuple, Self

import torch
from torch import Tensor

from outcome_rl.grpo.config.schema import TrainConfig
from outcome_rl.grpo.types import Sample
from outcome_rl_kernels.loss.inputs import LossInputs
from outcome_rl_kernels.loss.token_loss import contributing_tokens
from outcome_rl_kernels.loss.token_losses import token_loss_of


class ComputedTokens(NamedTuple):
    """Two masks (T,) for each response of a batch; T differs between them."""

    computed: list[Tensor]  # the tokens that the loss computes
    answer: list[Tensor]  # the tokens of the answer

    @classmethod
    def of(cls, batch: Sequence[Sample], config: TrainConfig, *, every: bool) -> Self:
        """Find the tokens of trained responses whose loss can have a gradient.

        Where the loss of a token depends on the length of its response (GSPO, "seq-mean-token-mean"), all tokens of a
        response are computed as soon as one is.

        Args:
            every: compute all trained tokens, such as for their entropies.
        """
        lengths = [len(sample.rollout.token_ids) for sample in batch]
        lengths_S, spans = torch.tensor(lengths), torch.tensor([sample.answer_span for sample in batch])
        bounds = torch.nn.functional.pad(lengths_S.cumsum(dim=0), (1, 0))
        positions_M = torch.arange(sum(lengths)) - bounds[:-1].repeat_interleave(lengths_S)
        first_M, stop_M = spans.repeat_interleave(lengths_S, dim=0).T
        answer_M = (positions_M >= first_M) & (positions_M < stop_M)
        advantages_S = torch.tensor([sample.advantage for sample in batch])
        inputs = LossInputs.of(
            advantages_S,
            torch.zeros_like(positions_M),
            advantages_S,
            torch.tensor([sample.trained for sample in batch]).repeat_interleave(lengths_S),
            bonuses=torch.tensor([sample.bonus for sample in batch]),
            answer_mask=answer_M,
            ref_logps=torch.zeros(len(positions_M)) if config.actor.kl_loss_coef else None,
            cu_seqlens=bounds,
            normalizer=1.0,
            **config.loss_settings,
        )
        active_M, computed_M = inputs.active, contributing_tokens(inputs)
        assert active_M is not None
        assert computed_M is not None
        if every:
            computed_M = active_M
        computed, active = (list(mask_M.split_with_sizes(lengths)) for mask_M in (computed_M, active_M))
        settings = inputs.settings
        if token_loss_of(settings.token_loss).needs_sequences or settings.loss_agg == "seq-mean-token-mean":
            computed = [whole if some.any() else some for some, whole in zip(computed, active, strict=True)]
        return cls(computed, list(answer_M.split_with_sizes(lengths)))

    def fractions(self, batch: Sequence[Sample]) -> dict[str, float]:
        """Return the share of the batch that passes through the lm_head, and through the model.

        - `perf/lm_head_token_fraction`: tokens that the loss computes / tokens of all responses;
        - `perf/model_token_fraction`: tokens of responses with such a token, prompts included / tokens of all.
        """
        in_loss = [int(mask.sum()) for mask in self.computed]
        whole = [len(sample.rollout.prompt_ids) + len(sample.rollout.token_ids) for sample in batch]
        passed = sum(size for size, number in zip(whole, in_loss, strict=True) if number)
        responses = sum(map(len, self.computed))
        return {
            "perf/lm_head_token_fraction": sum(in_loss) / max(responses, 1),
            "perf/model_token_fraction": passed / max(sum(whole), 1),
        }
