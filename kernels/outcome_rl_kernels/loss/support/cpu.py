"""Supports on the CPU: products with kept rows of a head, their softmax, sums of gradients (csrc/support.cpp).

`support.triton` has the same functions for a GPU. Every sum has one order, whatever runs at the same time.
"""

import torch
from torch import Tensor

from outcome_rl_kernels.backends import call_native
from outcome_rl_kernels.cpu_memory import empty
from outcome_rl_kernels.loss.types import Support


def kept_logits(hidden_NH: Tensor, weight: Tensor, rows_E: Tensor, ids_E: Tensor) -> Tensor:
    """Return `hidden[rows] . weight[ids]` of each entry, (E,) float32; 0 where the id is negative.

    The tables are contiguous, float32 or bfloat16.
    """
    logits_E = torch.empty(len(ids_E), dtype=torch.float32, device="cpu")
    kind = int(weight.dtype == torch.bfloat16)
    given = kind, hidden_NH, weight, rows_E, ids_E, len(ids_E), weight.shape[1]
    call_native("kept_logits", *given, logits_E, torch.get_num_threads())
    return logits_E


def log_softmax(
    scores_E: Tensor, ids_E: Tensor, support: Support, labels_N: Tensor, active_N: Tensor | None, tokens: int
) -> Tensor:
    """Return log-probabilities of the labels, entropies and log-sum-exps of positions, (3, N) float64.

    Args:
        scores_E: float64 logits / temperature, 0 where the id is -1.
        ids_E: of `_Entries`.
        active_N: positions that are False get zeros.
        tokens: the size of the vocabulary. A label that is not kept, and a kept token out of range, give NaN.
    """
    values_3N = scores_E.new_empty(3, len(labels_N))
    given = scores_E, ids_E, support.token_ids, support.offsets, labels_N, active_N
    call_native("support_log_softmax", *given, len(labels_N), tokens, values_3N, torch.get_num_threads())
    return values_3N


def token_gradients(
    scores_E: Tensor, ids_E: Tensor, offsets: Tensor, labels_N: Tensor, values_3N: Tensor, grads_2N: Tensor
) -> Tensor:
    """Return the gradients of scores, (E,) float32, 0 where the id is negative.

    Args:
        values_3N: result of `log_softmax`.
        grads_2N: gradients of its log-probabilities and entropies, float64.
    """
    grads_E = torch.empty(len(ids_E), dtype=torch.float32, device="cpu")
    given = scores_E, ids_E, offsets, labels_N, values_3N, grads_2N
    call_native("support_token_gradients", *given, len(labels_N), grads_E, torch.get_num_threads())
    return grads_E


def segment_sums(table: Tensor, index_E: Tensor, coefficients_E: Tensor, offsets: Tensor) -> Tensor:
    """Return for each segment of entries the sum of `coefficient * table[index]`, (S, H) in the table's dtype.

    Args:
        table: float32 or bfloat16.
        index_E: rows of the table; entries with a negative one are left out.
        coefficients_E: float32.
        offsets: (S + 1,) bounds of the segments.
    """
    sums = empty((len(offsets) - 1, table.shape[1]), table.dtype, table.device).zero_()
    kind = int(table.dtype == torch.bfloat16)
    given = kind, table, index_E, coefficients_E, offsets, len(sums), table.shape[1]
    call_native("segment_sums", *given, sums, torch.get_num_threads())
    return sums
