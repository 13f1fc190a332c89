"""The policy loss and its log-probabilities in plain PyTorch, for any dtype up to float64: the specification.

Shapes: N tokens, R of them computed, H hidden, V vocabulary. `aggregate` has the formulas.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from outcome_rl_kernels.loss.aggregate import token_loss, total
from outcome_rl_kernels.loss.inputs import check_labels
from outcome_rl_kernels.loss.types import Head, TokenBatch, in_dtype


def head_logits(head: Head, rows_R: Tensor | slice, *, fp32_logits: bool) -> Tensor:
    """Return the logits of rows, (R, V), which `fp32_logits` keeps from being rounded to a half-precision dtype."""
    hidden_RH, weight, bias = head.hidden[rows_R], head.weight, head.bias
    if fp32_logits and weight.dtype.itemsize < 4:
        hidden_RH, weight, bias = hidden_RH.float(), weight.float(), None if bias is None else bias.float()
    with torch.autocast(weight.device.type, enabled=False):  # its dtype is the head's already
        return torch.nn.functional.linear(hidden_RH, weight, bias)


def capped(logits: Tensor, softcap: float | None) -> Tensor:
    """Return `softcap * tanh(logits / softcap)`, rounded once, or the logits where there is no soft cap."""
    if softcap is None:
        return logits
    wide = logits.to(torch.promote_types(logits.dtype, torch.float32))
    return (softcap * torch.tanh(wide / softcap)).to(logits.dtype)


def log_probabilities(logits_NV: Tensor, temperature: float) -> Tensor:
    """Return `log_softmax(logits / temperature)`, (N, V).

    bf16 and fp16 logits are upcast first: a log-sum-exp over V terms in half precision is off in the second digit. The
    largest term, 1, is apart from the others: beside it, a peaked row's would be rounded off. Its distance to
    itself is a constant, else the gradient at the label would be the difference of 1 and p.
    """
    logits_NV = logits_NV.to(torch.promote_types(logits_NV.dtype, torch.float32)) / temperature
    tops_N1 = logits_NV.detach().argmax(dim=-1, keepdim=True)
    maxima_N1 = logits_NV.gather(1, tops_N1)
    distances_NV = (logits_NV - maxima_N1).scatter(1, tops_N1, (maxima_N1 - maxima_N1).detach())
    others_N1 = distances_NV.scatter(1, tops_N1, -torch.inf).exp().sum(dim=-1, keepdim=True)
    return distances_NV - others_N1.log1p()


def entropies_of(log_probs_NV: Tensor) -> Tensor:
    """Return the entropy of each row; a token of probability 0 contributes 0, not 0 * -inf."""
    return -(log_probs_NV.exp() * log_probs_NV.masked_fill(log_probs_NV.isneginf(), 0.0)).sum(dim=-1)


def logps_and_entropies(logits_NV: Tensor, tokens_N: Tensor, temperature: float) -> tuple[Tensor, Tensor]:
    """Return the log-probability of each label and the entropy of each row, of `softmax(logits / temperature)`.

    With ids (N, K) in place of labels, the first are (N, K + 1): those of the ids, and of all other tokens together.
    """
    log_probs_NV = log_probabilities(logits_NV, temperature)
    entropies_N = entropies_of(log_probs_NV)
    if tokens_N.dim() == 1:
        return log_probs_NV.gather(1, tokens_N[:, None])[:, 0], entropies_N
    # Not the logarithm of what the ids leave of 1, which is nothing but rounding where they hold all but 1e-8.
    rest_N1 = log_probs_NV.scatter(1, tokens_N, -torch.inf).logsumexp(dim=1, keepdim=True)
    return torch.cat([log_probs_NV.gather(1, tokens_N), rest_N1], dim=1), entropies_N


def reference_logprobs(
    logits_of: Callable[[Tensor], Tensor],
    tokens_N: Tensor,
    active_N: Tensor | None,
    vocabulary: int,
    temperature: float,
) -> tuple[Tensor, Tensor]:
    """Return `logps_and_entropies`, 0 on inactive tokens.

    Args:
        logits_of: from indices (R,) of the active tokens to their logits (R, V).
    """
    check_labels(tokens_N, active_N, vocabulary)
    total = tokens_N.shape[0]
    rows_R = (tokens_N.new_ones(total) if active_N is None else active_N).nonzero()[:, 0]
    values_R = logps_and_entropies(logits_of(rows_R), tokens_N[rows_R], temperature)
    logps_N, entropies_N = (one.new_zeros(total, *one.shape[1:]).index_put((rows_R,), one) for one in values_R)
    return logps_N, entropies_N


def loss_of_logprobs(logps_N: Tensor, entropies_N: Tensor, batch: TokenBatch) -> tuple[Tensor, Tensor, Tensor]:
    """Return the loss, by autograd through log-probabilities and entropies, and the two in the dtype of the weights."""
    # Gradients of inactive tokens, perhaps NaN, end in the zeros of log-probabilities and entropies.
    losses_N = token_loss(logps_N, entropies_N, in_dtype(batch, logps_N.dtype))
    loss = total(losses_N * batch.weights, logps_N, batch.inputs.active)
    dtype = batch.weights.dtype
    return loss.to(dtype), logps_N.to(dtype), entropies_N.to(dtype)
