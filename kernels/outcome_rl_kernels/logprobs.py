"""Per-token log-probabilities and entropies straight from hidden states and the lm_head weight."""

import torch
from torch import Tensor

from outcome_rl_kernels.checks import FLOATS, autocast, check_head, check_labels, check_tensor, shape_text
from outcome_rl_kernels.dispatch import Impl, choose
from outcome_rl_kernels.fused_policy_loss import fused_logprobs
from outcome_rl_kernels.reference import logps_and_entropies


def linear_logprobs(
    hidden: Tensor,
    weight: Tensor,
    labels: Tensor,
    *,
    bias: Tensor | None = None,
    temperature: float = 1.0,
    mask: Tensor | None = None,
    return_entropy: bool = False,
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
        impl: "reference" is plain PyTorch; "native", on the CPU in float32 and bfloat16 and without gradient, never
            holds more than a chunk of logits; "auto" takes native where it can.

    Returns:
        `(logps, entropies or None)`, both shaped like `labels`, float32 (float64 for float64 inputs), differentiable in
        `hidden`, `weight` and `bias`.

    Raises:
        TypeError, ValueError: an argument has the wrong type, dtype, shape, device or range; on CPU also labels out of
            range.
    """
    check_tensor("hidden", hidden, FLOATS)
    if not temperature > 0:
        raise ValueError(f"temperature must be > 0; got {temperature}")
    check_tensor("labels", labels, (torch.int64,), hidden.device)
    check_head(hidden, weight, bias, tuple(labels.shape))
    hidden_NH, weight, bias = autocast(hidden.reshape(-1, hidden.shape[-1]), weight, bias)
    labels_N = labels.reshape(-1)
    rows = None
    if mask is not None:
        check_tensor("mask", mask, (torch.bool,), hidden.device)
        if mask.shape != labels.shape:
            raise ValueError(f"mask must have the shape of labels, {shape_text(labels)}; got {shape_text(mask)}")
        rows = mask.reshape(-1).nonzero()[:, 0]
    check_labels(labels_N, None if mask is None else mask.reshape(-1), weight.shape[0])
    if rows is not None:
        labels_N, hidden_NH = labels_N[rows], hidden_NH[rows]
    chosen = choose("linear_logprobs", impl, hidden_NH)
    wants_grad = torch.is_grad_enabled() and any(x is not None and x.requires_grad for x in (hidden_NH, weight, bias))
    if wants_grad and impl == "native":
        raise ValueError(
            "linear_logprobs(impl='native') has no gradient in this version; use impl='auto' or torch.no_grad()"
        )
    if chosen == "native" and not wants_grad:
        logps_N, entropies_N = fused_logprobs(hidden_NH, weight, bias, labels_N, temperature)
    else:
        logits_NV = torch.nn.functional.linear(hidden_NH, weight, bias)
        logps_N, entropies_N = logps_and_entropies(logits_NV, labels_N, temperature)

    def unflatten(values_N: Tensor) -> Tensor:
        if rows is not None:
            values_N = values_N.new_zeros(labels.numel()).index_put((rows,), values_N)
        return values_N.reshape(labels.shape)

    return unflatten(logps_N), unflatten(entropies_N) if return_entropy else None
