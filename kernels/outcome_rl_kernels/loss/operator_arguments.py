"""The loss's per-token inputs and settings as flat arguments of operators.

`torch.library` operators take tensors, numbers and strings only. Both losses register with the same list of them, after
their own: eight columns of `PolicyTokens`, the sequence of each token, and the fields of `LossSettings`.
"""

from collections.abc import Sequence
from dataclasses import astuple, fields
from types import UnionType
from typing import Any, NamedTuple, Self, get_type_hints

import torch
from torch import Tensor

from outcome_rl_kernels.loss.reference import LossSettings, PolicyLossOutput, TokenBatch, TokenSums, metrics
from outcome_rl_kernels.loss.row_kernels import PolicyTokens, RowTerms

_NUM_COLUMNS = 8


class TokenArguments(NamedTuple):
    """What the operators know of N tokens."""

    tokens: PolicyTokens
    sequence_ids_N: Tensor
    num_sequences: int
    settings: LossSettings

    @classmethod
    def of_batch(cls, batch: TokenBatch, weights_N: Tensor, settings: LossSettings) -> Self:
        batch = batch.to(torch.float32)
        tokens = PolicyTokens(
            batch.labels_N,
            batch.advantages_N,
            weights_N.float(),
            batch.bonuses_N,
            batch.answer_mask_N,
            batch.ref_logps_N,
            batch.old_logps_N,
            batch.rollout_weights_N,
        )
        return cls(tokens, batch.sequence_ids_N, batch.num_sequences, settings)

    def flat(self) -> tuple[Any, ...]:
        """The arguments that `SCHEMA` declares."""
        return *self.tokens[:_NUM_COLUMNS], self.sequence_ids_N, self.num_sequences, *astuple(self.settings)

    @classmethod
    def of_flat(cls, arguments: Sequence[Any]) -> Self:
        columns, settings = arguments[:_NUM_COLUMNS], arguments[_NUM_COLUMNS + 2 :]
        names = (field.name for field in fields(LossSettings))
        return cls(
            PolicyTokens(*columns),
            arguments[_NUM_COLUMNS],
            arguments[_NUM_COLUMNS + 1],
            LossSettings(**dict(zip(names, settings, strict=True))),
        )


def _schema_type(hint: Any) -> str:
    if isinstance(hint, UnionType):
        return "float?"
    return "float" if hint is float else "str"


_HINTS = get_type_hints(LossSettings)
SCHEMA = ", ".join(
    (
        "Tensor labels, Tensor advantages, Tensor weights, Tensor? bonuses, Tensor? answer_mask",
        "Tensor? ref_logps, Tensor? old_logps, Tensor? rollout_weights, Tensor sequence_ids, SymInt num_sequences",
        *(f"{_schema_type(_HINTS[field.name])} {field.name}" for field in fields(LossSettings)),
    )
)
NUM_ARGUMENTS = _NUM_COLUMNS + 2 + len(fields(LossSettings))


def loss_output(
    loss: Tensor, sums_7: Tensor, logps_N: Tensor, entropies_N: Tensor, computed_tokens: Tensor
) -> PolicyLossOutput:
    """The result of a loss from what its operator returns: the loss and the sums of `RowTerms`."""
    sums = RowTerms(*sums_7.detach().unbind())
    token_sums = TokenSums(sums.losses, sums.kls, sums.ratios, sums.clipped, sums.is_policy, sums.entropies)
    return PolicyLossOutput(loss, logps_N.detach(), entropies_N.detach(), metrics(token_sums, computed_tokens))
