"""What the row passes of the policy loss take and give, and which of them serves a device.

Shapes: R rows (tokens), V vocabulary. Two modules offer the same three functions, `policy_rows_native` (C++, on the
CPU) and `policy_rows_triton` (on a GPU):

    policy_rows(logits_RV, tokens, settings, grad_RV)     terms of the loss, and its gradient by the logits
    logprob_rows(logits_RV, labels_R, temperature)        log-probabilities and entropies
    logprob_rows_backward(logits_RV, labels_R, temperature, logp_grads_R, entropy_grads_R, grad_RV)

Gradients are written to `grad_RV`, which may be the logits themselves.
"""

from collections.abc import Callable
from importlib import import_module
from types import ModuleType
from typing import NamedTuple

import torch
from torch import Tensor

LOGIT_DTYPES = {"cpu": (torch.float32, torch.bfloat16), "cuda": (torch.float32, torch.bfloat16, torch.float16)}


class PolicyTokens(NamedTuple):
    """Per-token inputs of the loss, (R,) each; None means that the term is absent."""

    labels_R: Tensor  # int64
    advantages_R: Tensor  # float32, reward part
    weights_R: Tensor  # float32, what the token's loss is multiplied by
    bonuses_R: Tensor | None = None  # float32, exploration part
    answer_mask_R: Tensor | None = None  # bool
    ref_logps_R: Tensor | None = None  # float32
    old_logps_R: Tensor | None = None  # float32
    rollout_weights_R: Tensor | None = None  # float32
    sequence_log_ratios_R: Tensor | None = None  # float32, replaces lp - old_lp; the gradient stays the token's own
    active_R: Tensor | None = None  # bool; other tokens are not read and get zeros

    def select(self, rows: Tensor | slice) -> "PolicyTokens":
        """The tokens `rows`, indices or a range."""
        return self.map(lambda column: column[rows])

    def map(self, change: Callable[[Tensor], Tensor]) -> "PolicyTokens":
        """The tokens with every column that is there changed."""
        return self._replace(**{name: change(column) for name, column in self._asdict().items() if column is not None})

    def with_active(self, active_R: Tensor) -> "PolicyTokens":
        """The tokens with `active_R`, and label 0 on the others: their own may be anything, such as -100."""
        return self._replace(active_R=active_R, labels_R=self.labels_R.where(active_R, 0))

    def with_sequence_log_ratios(self, logps_R: Tensor, sequence_ids_R: Tensor, num_sequences: int) -> "PolicyTokens":
        """The tokens, which have `old_logps_R`, with the mean of lp - old_lp over the active ones of each sequence.

        Args:
            sequence_ids_R: rising, so that segments are summed in order: atomic additions would not be deterministic.
        """
        assert self.old_logps_R is not None
        ones_R = torch.ones_like(sequence_ids_R)
        active_R = ones_R.bool() if self.active_R is None else self.active_R
        tallies_2R = torch.stack([ones_R, active_R.long()])
        rows_S, tokens_S = tallies_2R.new_zeros(2, num_sequences).index_add(1, sequence_ids_R, tallies_2R)
        log_ratios_R = (logps_R - self.old_logps_R).where(active_R, 0)
        sums_S = torch.segment_reduce(log_ratios_R, "sum", lengths=rows_S, unsafe=True)
        return self._replace(sequence_log_ratios_R=(sums_S / tokens_S.clamp(min=1))[sequence_ids_R])


class RowTerms(NamedTuple):
    """What the loss says of each token, float32 (R,); or the sums of them, 0-d."""

    logps: Tensor
    entropies: Tensor
    losses: Tensor  # times the weights
    kls: Tensor
    ratios: Tensor
    clipped: Tensor  # 1 where a policy token's ratio is clipped
    is_policy: Tensor  # 1 where the token has a policy term


def row_passes(device: torch.device) -> ModuleType:
    """The module of row passes that serves tensors on `device`."""
    return import_module(f"outcome_rl_kernels.loss.row_kernels_{'cpu' if device.type == 'cpu' else 'triton'}")
