"""Per-token log-probabilities and entropies straight from hidden states and the lm_head weight."""

import torch
from torch import Tensor

from outcome_rl_kernels.dispatch import Impl, choose
from outcome_rl_kernels.loss.checks import (
    FLOATS,
    autocast,
    check_head,
    check_labels,
    check_number,
    check_tensor,
    check_workspace,
    shape_text,
)
from outcome_rl_kernels.loss.fused_logprobs import fused_logprobs
from outcome_rl_kernels.loss.reference import head_logits, logps_and_entropies


def linear_logprobs(
    hidden: Tensor,
    weight: Tensor,
    labels: Tensor,
    *,
    bias: Tensor | None = None,
    temperature: float = 1.0,
    mask: Tensor | None = None,
    return_entropy: bool = False,
    workspace_bytes: int | None = None,
    fp32_logits: bool = False,
    impl: Impl = "auto",
) -> tuple[Tensor, Tensor | None]:
    """Log-probability of each label, and on request the entropy of its distribution, from hidden states.

    Equivalent to `log_softmax(logits / temperature, -1).gather(-1, labels[..., None])[..., 0]` with
    `logits = (hidden @ weight.T + bias).float()`.

    Args:
        hidden: (B, T, H) or (N, H); `hidden[t]` predicts `labels[t]`, so the caller shifts.
        weight: (V, H), the lm_head weight, in the dtype of `hidden`.
        labels: (B, T) or (N,) int64 in [0, V); any value where `mask` is False.
        bias: (V,) or None.
        temperature: > 0, divides the logits.
        mask: bool like `labels`; rows where it is False cost nothing and return 0.
        return_entropy: also return `-sum_v p_v log p_v` in nats.
        workspace_bytes, fp32_logits: as for `linear_policy_loss`.
        impl: "reference" is plain PyTorch on all logits at once; "native" on the CPU (float32, bfloat16) and "triton"
            on a GPU (float32, bfloat16, float16) never hold more than a chunk of logits: one matrix product forward,
            and three backward, the first to have the chunk's logits again; "auto" takes the fast one where it can.

    Returns:
        `(logps, entropies or None)`, both shaped like `labels`, float32 (float64 for float64 inputs), differentiable in
        `hidden`, `weight` and `bias`.

    Raises:
        TypeError, ValueError: an argument has the wrong type, dtype, shape, device or range. Labels out of range raise
            on the CPU; on a GPU their log-probabilities are NaN, since to raise would be to wait.
    """
    check_tensor("hidden", hidden, FLOATS)
    if not check_number("temperature", temperature) > 0:
        raise ValueError(f"temperature must be > 0; got {temperature}")
    check_tensor("labels", labels, (torch.int64,), hidden.device)
    check_head(hidden, weight, bias, tuple(labels.shape))
    hidden_NH, weight, bias = autocast(hidden.reshape(-1, hidden.shape[-1]), weight, bias)
    check_workspace(workspace_bytes)
    labels_N = labels.reshape(-1)
    mask_N = None
    if mask is not None:
        check_tensor("mask", mask, (torch.bool,), hidden.device)
        if mask.shape != labels.shape:
            raise ValueError(f"mask must have the shape of labels, {shape_text(labels)}; got {shape_text(mask)}")
        mask_N = mask.reshape(-1)
    if choose("linear_logprobs", impl, hidden_NH) == "reference":
        check_labels(labels_N, mask_N, weight.shape[0])
        rows_R = torch.arange(len(labels_N), device=labels.device) if mask_N is None else mask_N.nonzero()[:, 0]
        logits_RV = head_logits(hidden_NH[rows_R], weight, bias, fp32_logits=fp32_logits)
        values_R = logps_and_entropies(logits_RV, labels_N[rows_R], temperature)
        logps_N, entropies_N = (x.new_zeros(len(labels_N)).index_put((rows_R,), x) for x in values_R)
    else:
        logps_N, entropies_N = fused_logprobs(
            hidden_NH, weight, bias, mask_N, labels_N, temperature, workspace_bytes, fp32_logits=fp32_logits
        )
    return logps_N.reshape(labels.shape), entropies_N.reshape(labels.shape) if return_entropy else None
