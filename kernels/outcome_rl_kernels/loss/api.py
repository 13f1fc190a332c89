"""The policy loss of group-based RL, from logits or straight from hidden states.

`linear_policy_loss` takes hidden (B, T, H) and the lm_head weight (V, H); `policy_loss` takes logits (B, T, V). Both
compute log-probabilities, importance ratios, clipping, KL to a reference, answer masking and bonus-adjusted advantages,
and reduce to a scalar. The maths is the head of `reference/policy_loss.py`.
"""

from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor

from outcome_rl_kernels.dispatch import Impl, choose
from outcome_rl_kernels.loss.checks import (
    FLOATS,
    TokenLayout,
    autocast,
    check_head,
    check_labels,
    check_normalizer,
    check_rows,
    check_tensor,
    check_workspace,
    shape_text,
    token_batch,
)
from outcome_rl_kernels.loss.fused import fused_policy_loss
from outcome_rl_kernels.loss.fused_linear import fused_linear_policy_loss
from outcome_rl_kernels.loss.operator_arguments import TokenArguments
from outcome_rl_kernels.loss.reference import (
    AnswerMaskMode,
    ImportanceLevel,
    KLPenalty,
    LossAggregation,
    LossSettings,
    PolicyLossOutput,
    TokenBatch,
    active_tokens,
    contributing_tokens,
    denominator,
    head_logits,
    policy_loss_from_logits,
    token_weights,
)


def linear_policy_loss(
    hidden: Tensor,
    weight: Tensor,
    labels: Tensor,
    advantages: Tensor,
    mask: Tensor,
    *,
    bonuses: Tensor | None = None,
    answer_mask: Tensor | None = None,
    answer_mask_mode: AnswerMaskMode = "policy",
    bias: Tensor | None = None,
    ref_logps: Tensor | None = None,
    old_logps: Tensor | None = None,
    rollout_weights: Tensor | None = None,
    temperature: float = 1.0,
    beta: float = 0.0,
    kl_penalty: KLPenalty = "k3",
    epsilon_low: float = 0.2,
    epsilon_high: float = 0.2,
    delta: float | None = None,
    importance_level: ImportanceLevel = "token",
    loss_agg: LossAggregation = "token-mean",
    normalizer: float | Tensor | None = None,
    entropy_coef: float = 0.0,
    log_ratio_clamp: float | None = None,
    kl_clamp: float | None = None,
    cu_seqlens: Tensor | None = None,
    rows: Literal["contributing", "active"] | Tensor = "contributing",
    workspace_bytes: int | None = None,
    fp32_logits: bool = False,
    impl: Impl = "auto",
) -> PolicyLossOutput:
    """Policy loss from the last hidden states and the lm_head weight, without the caller ever forming logits.

    Equivalent to `policy_loss((hidden @ weight.T + bias), labels, ...)`: per token
    `-min(r * A, clip(r, 1 - epsilon_low, 1 + epsilon_high) * A) + beta * k3 - entropy_coef * H` with `A = advantage +
    bonus`.

    Args:
        hidden: (B, T, H), or packed (N, H) with `cu_seqlens`; `hidden[t]` predicts `labels[t]`, so the caller shifts.
        weight: (V, H), the lm_head weight, in the dtype of `hidden`.
        labels: (B, T) or (N,) int64 in [0, V); any value where `mask` is False.
        advantages: one a sequence, (B,), or one a token; a prompt's advantage must be repeated for its samples.
        mask: bool like `labels`, True on completion tokens. Nothing flows through the other rows, NaN included.
        bonuses: exploration bonuses, already times their coefficient, (B,) or one a token; added to the advantages.
        answer_mask: bool like `labels`, True on the tokens of the final answer.
        answer_mask_mode: what `answer_mask` removes: "policy" the policy term, "bonus" only the bonus, "all" the token
            itself with its share of the denominator, "none" nothing.
        bias: (V,) or None.
        ref_logps: log-probabilities of the labels under the reference policy, like `labels`; without them there is no
            KL.
        old_logps: log-probabilities under the policy that sampled; None is the on-policy step, with ratio 1.
        rollout_weights: truncated importance weights of the rollout engine, one a sequence or a token; they multiply
            the policy term only.
        temperature: > 0, divides the logits.
        beta: coefficient of the KL term.
        kl_penalty: "k1", "k2" or "k3" estimator, with its own gradient (k3: `d/dlp = 1 - exp(ref - lp)`).
        epsilon_low, epsilon_high: the ratio is clipped to `[1 - epsilon_low, 1 + epsilon_high]`.
        delta: dual clip, > 1: with a negative advantage the loss is at most `-delta * A`. None is off.
        importance_level: "token" (PPO, GRPO) or "sequence" (GSPO).
        loss_agg: verl's names: "token-mean", "token-sum", "seq-mean-token-sum", "seq-mean-token-mean",
            "seq-mean-token-sum-norm" (also divided by T: Dr. GRPO).
        normalizer: replaces the denominator of `loss_agg`, so that micro-batches and ranks add up to the whole batch.
        entropy_coef: coefficient of the entropy, which is subtracted.
        log_ratio_clamp, kl_clamp: bounds on |log-ratio| and |KL| of a token; verl uses 20 and 10. None is off.
        cu_seqlens: (S + 1,) int, bounds of the packed sequences; `B` above is then S.
        rows: which tokens are computed. "contributing" leaves out active tokens that cannot have a gradient, such as
            those of a group with equal rewards and no bonus where `beta` and `entropy_coef` are 0: they reach no matrix
            product, `logps` and `entropies` are 0 there, and means in `metrics` leave them out. "active" computes the
            whole mask. On a GPU both wait once for the number of rows; increasing flat indices (R,) int64 spare that,
            as a CUDA graph needs: of the active tokens, exactly those among them are computed.
        workspace_bytes: most bytes of logits at a time, at least one row's. None takes up to 2 GiB on a GPU and up to
            256 MiB on the CPU. Beyond it and the gradients, several chunks need a float32 accumulator (V, H).
        fp32_logits: keep the logits of half-precision operands in float32. On the CPU this makes float32 copies.
        impl: "reference" is plain PyTorch on all logits at once; "native" on the CPU (float32, bfloat16) and "triton"
            on a GPU (float32, bfloat16, float16) take the gradients in the forward pass, in three matrix products and
            chunks of logits; "auto" takes the fast one where it can.

    Returns:
        `PolicyLossOutput(loss, logps, entropies, metrics)`; `loss` is differentiable in hidden, weight and bias, and is
        0 with zero gradients where no token is active. Advantages, bonuses, `*_logps` and weights get no gradient.

    Raises:
        TypeError, ValueError: an argument has the wrong type, dtype, shape, device or range. Labels out of range raise
            on the CPU; on a GPU they make the loss NaN, since to raise would be to wait.

    Sources: PPO (arXiv:1707.06347), GRPO (arXiv:2402.03300), answer masking from Song et al. 2025; aggregations as
    verl's `agg_loss`.
    """
    check_tensor("hidden", hidden, FLOATS)
    settings = LossSettings(
        answer_mask_mode=answer_mask_mode,
        temperature=temperature,
        beta=beta,
        kl_penalty=kl_penalty,
        epsilon_low=epsilon_low,
        epsilon_high=epsilon_high,
        delta=delta,
        importance_level=importance_level,
        loss_agg=loss_agg,
        entropy_coef=entropy_coef,
        log_ratio_clamp=log_ratio_clamp,
        kl_clamp=kl_clamp,
    )
    batch, layout = token_batch(
        labels,
        advantages,
        mask,
        bonuses=bonuses,
        answer_mask=answer_mask,
        ref_logps=ref_logps,
        old_logps=old_logps,
        rollout_weights=rollout_weights,
        cu_seqlens=cu_seqlens,
        device=hidden.device,
    )
    check_head(hidden, weight, bias, layout.shape)
    hidden_NH, weight, bias = autocast(hidden.reshape(-1, hidden.shape[-1]), weight, bias)
    check_workspace(workspace_bytes)
    check_normalizer(normalizer)
    active_N = active_tokens(batch, settings.answer_mask_mode)
    weights_N = token_weights(batch, active_N, settings, normalizer)
    rows_R = check_rows(rows, hidden_NH) if isinstance(rows, Tensor) else None
    if rows_R is not None:
        computed_N = active_N & torch.zeros_like(active_N).index_fill(0, rows_R, True)
    elif rows == "contributing":
        computed_N = contributing_tokens(batch, active_N, settings)
    elif rows == "active":
        computed_N = active_N
    else:
        raise ValueError(f"rows must be 'contributing', 'active' or a tensor of flat indices; got {rows!r}")
    if choose("linear_policy_loss", impl, hidden_NH) == "reference":

        def logits_of(rows_R: Tensor) -> Tensor:
            return head_logits(hidden_NH[rows_R], weight, bias, fp32_logits=fp32_logits)

        output = _reference(logits_of, computed_N, batch, weights_N, settings, vocab=weight.shape[0])
    else:
        arguments = TokenArguments.of_batch(batch, weights_N, settings)
        output = fused_linear_policy_loss(
            hidden_NH, weight, bias, computed_N, rows_R, arguments, workspace_bytes, fp32_logits=fp32_logits
        )
    return _finish(output, active_N, layout)


def policy_loss(
    logits: Tensor,
    labels: Tensor,
    advantages: Tensor,
    mask: Tensor,
    *,
    bonuses: Tensor | None = None,
    answer_mask: Tensor | None = None,
    answer_mask_mode: AnswerMaskMode = "policy",
    ref_logps: Tensor | None = None,
    old_logps: Tensor | None = None,
    rollout_weights: Tensor | None = None,
    temperature: float = 1.0,
    beta: float = 0.0,
    kl_penalty: KLPenalty = "k3",
    epsilon_low: float = 0.2,
    epsilon_high: float = 0.2,
    delta: float | None = None,
    importance_level: ImportanceLevel = "token",
    loss_agg: LossAggregation = "token-mean",
    normalizer: float | Tensor | None = None,
    entropy_coef: float = 0.0,
    log_ratio_clamp: float | None = None,
    kl_clamp: float | None = None,
    cu_seqlens: Tensor | None = None,
    inplace: bool = False,
    impl: Impl = "auto",
) -> PolicyLossOutput:
    """Policy loss from logits that the caller already has; see `linear_policy_loss` for the formula and the other
    arguments.

    Args:
        logits: (B, T, V), or packed (N, V) with `cu_seqlens`, before the division by the temperature.
        inplace: allows the gradient to overwrite the logits, which saves their size in memory. They are then of no
            further use. The reference makes no use of it.
        impl: as for `linear_policy_loss`; "native" and "triton" read the logits once and write their gradient once.

    Returns:
        `PolicyLossOutput(loss, logps, entropies, metrics)`; `loss` is differentiable in the logits.

    Raises:
        TypeError, ValueError: as `linear_policy_loss`.
    """
    check_tensor("logits", logits, FLOATS)
    settings = LossSettings(
        answer_mask_mode=answer_mask_mode,
        temperature=temperature,
        beta=beta,
        kl_penalty=kl_penalty,
        epsilon_low=epsilon_low,
        epsilon_high=epsilon_high,
        delta=delta,
        importance_level=importance_level,
        loss_agg=loss_agg,
        entropy_coef=entropy_coef,
        log_ratio_clamp=log_ratio_clamp,
        kl_clamp=kl_clamp,
    )
    batch, layout = token_batch(
        labels,
        advantages,
        mask,
        bonuses=bonuses,
        answer_mask=answer_mask,
        ref_logps=ref_logps,
        old_logps=old_logps,
        rollout_weights=rollout_weights,
        cu_seqlens=cu_seqlens,
        device=logits.device,
    )
    if tuple(logits.shape[:-1]) != layout.shape:
        raise ValueError(
            f"logits must have shape (*labels.shape, V) = {(*layout.shape, 'V')}; got {shape_text(logits)}"
        )
    logits_NV = logits.reshape(-1, logits.shape[-1])
    check_normalizer(normalizer)
    active_N = active_tokens(batch, settings.answer_mask_mode)
    weights_N = token_weights(batch, active_N, settings, normalizer)
    if choose("policy_loss", impl, logits_NV) == "reference":
        output = _reference(logits_NV.__getitem__, active_N, batch, weights_N, settings, vocab=logits.shape[-1])
    else:
        arguments = TokenArguments.of_batch(batch, weights_N, settings)
        output = fused_policy_loss(logits_NV, active_N, arguments, inplace=inplace)
    return _finish(output, active_N, layout)


def loss_normalizer(
    mask: Tensor,
    answer_mask: Tensor | None = None,
    *,
    answer_mask_mode: AnswerMaskMode = "policy",
    loss_agg: LossAggregation = "token-mean",
    horizon: float | None = None,
) -> Tensor:
    """The denominator of the policy loss over a whole batch, to be passed as `normalizer` for each of its
    micro-batches.

    Args:
        mask: (B, T) bool, True on completion tokens.
        answer_mask: (B, T) bool or None; counts only with `answer_mask_mode="all"`.
        answer_mask_mode, loss_agg: as the loss is called with.
        horizon: what "seq-mean-token-sum-norm" divides by; default T. A constant such as the longest allowed completion
            keeps the scale of the loss over training.

    Returns:
        A 0-d tensor on the device of `mask`, 0 where nothing counts. Its sum over ranks is the denominator of all of
        them, given one `horizon`; but for "token-sum", whose denominator is 1.

    Raises:
        TypeError, ValueError: an argument has the wrong type, dtype, shape or device.
    """
    check_tensor("mask", mask, (torch.bool,))
    if mask.dim() != 2:
        raise ValueError(f"mask must have shape (B, T); got {shape_text(mask)}")
    settings = LossSettings(answer_mask_mode=answer_mask_mode, loss_agg=loss_agg)
    if answer_mask is not None and settings.answer_mask_mode == "all":
        check_tensor("answer_mask", answer_mask, (torch.bool,), mask.device)
        if answer_mask.shape != mask.shape:
            raise ValueError(
                f"answer_mask must have the shape of mask, {shape_text(mask)}; got {shape_text(answer_mask)}"
            )
        mask = mask & ~answer_mask
    return denominator(mask.sum(dim=1), settings.loss_agg, mask.shape[1] if horizon is None else horizon)


def _reference(
    logits_of: Callable[[Tensor], Tensor],
    computed_N: Tensor,
    batch: TokenBatch,
    weights_N: Tensor,
    settings: LossSettings,
    vocab: int,
) -> PolicyLossOutput:
    """The specification on the computed tokens, `logits_of` their indices; what it says of tokens as (N,)."""
    check_labels(batch.labels_N, computed_N, vocab)
    rows_R = computed_N.nonzero()[:, 0]
    output = policy_loss_from_logits(logits_of(rows_R), batch.select(rows_R), weights_N[rows_R], settings)
    logps_N, entropies_N = (
        values_R.new_zeros(len(computed_N)).index_put((rows_R,), values_R)
        for values_R in (output.logps, output.entropies)
    )
    return output._replace(logps=logps_N, entropies=entropies_N)


def _finish(output: PolicyLossOutput, active_N: Tensor, layout: TokenLayout) -> PolicyLossOutput:
    return output._replace(
        logps=output.logps.reshape(layout.shape),
        entropies=output.entropies.reshape(layout.shape),
        metrics=output.metrics | {"active_tokens": active_N.sum()},
    )
