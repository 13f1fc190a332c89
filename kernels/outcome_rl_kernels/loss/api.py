"""The policy loss of group-based RL, from logits or straight from hidden states.

Both compute log-probabilities, importance ratios, clipping, KL to a reference, answer masking and bonus-adjusted
advantages, and reduce to a scalar; `aggregate` and `losses` have the formulas.
"""

import inspect
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, Unpack

import torch
from torch import Tensor

from outcome_rl_kernels.backends import Impl, choose
from outcome_rl_kernels.checks import FLOATS, as_mask, check_number, check_tensor, did_you_mean, shape_text
from outcome_rl_kernels.loss.aggregate import metrics, sum_active
from outcome_rl_kernels.loss.fused import Options, fused_linear_policy_loss, fused_policy_loss
from outcome_rl_kernels.loss.inputs import (
    Rows,
    check_head,
    check_sampling,
    check_workspace,
    denominator,
    token_batch,
)
from outcome_rl_kernels.loss.logprobs import unchunked_logprobs
from outcome_rl_kernels.loss.reference import capped, loss_of_logprobs, reference_logprobs
from outcome_rl_kernels.loss.sampled.api import sampled_metrics
from outcome_rl_kernels.loss.support.api import check_support
from outcome_rl_kernels.loss.types import (
    INPUTS,
    SETTINGS,
    AnswerMaskMode,
    LossAggregation,
    LossOptions,
    LossSettings,
    Support,
    TokenBatch,
)
from outcome_rl_kernels.loss.vocab_parallel import vocab_shard


class PolicyLossOutput(NamedTuple):
    """Loss and diagnostics; only `loss` carries a gradient.

    `logps` and `entropies` have the shape of the labels and are 0 on tokens that were not computed. `metrics` holds 0-d
    tensors; means and shares are over the computed tokens:

    - `kl`: mean of the term that `beta` multiplies: the estimate `kl_penalty`, of a log-ratio within +-20. With
      `unbiased_kl` it is multiplied by the ratio. 0 without `ref_logps`.
    - `ratio_mean`, `entropy`: means.
    - `clip_fraction`: share, among the tokens with a policy term, at which the clip of the token loss stops the
      gradient. 0 on-policy, and for a loss without a clip.
    - `clamp_fraction`: share whose log-ratio to the old or the reference policy lies beyond +-20: the gradient
      through it is 0. Without a bound, as in verl, one beyond 88 would make all gradients NaN.
    - `active_tokens`, `computed_tokens`: tokens that the denominator counts, and those that were computed.
    - `sampled_entries`, `sampled_rows`: with `sample_below`, on this rank's part of the vocabulary: entries of the
      logits' gradient kept per token, and the share of tokens sampled at that threshold. 0 where dense products ran.
    - `overflow_fraction`: where logits are rounded to float16, the share without a finite log-probability. Logits
      beyond 65504 are infinite in float16 and make the loss NaN or infinite; `fp32_logits=True` keeps them.
    """

    loss: Tensor
    logps: Tensor
    entropies: Tensor
    metrics: dict[str, Tensor]


def linear_policy_loss(
    hidden: Tensor,
    weight: Tensor,
    labels: Tensor,
    advantages: Tensor,
    mask: Tensor,
    *,
    bias: Tensor | None = None,
    support: Support | tuple[Tensor, Tensor] | None = None,
    vocab_group: "torch.distributed.ProcessGroup | None" = None,
    rows: Rows = "contributing",
    workspace_bytes: int | None = None,
    fp32_logits: bool = False,
    sample_below: float = 0.0,
    sample_seed: int | None = None,
    impl: Impl = "auto",
    **options: Unpack[LossOptions],
) -> PolicyLossOutput:
    """Compute the policy loss from the last hidden states and the lm_head weight; the caller never forms logits.

    Equivalent to `policy_loss(hidden @ weight.T + bias, labels, ...)`: per token
    `-min(r * A, clip(r, 1 - epsilon_low, 1 + epsilon_high) * A) + beta * k3 - entropy_coef * H` with `A = advantage +
    bonus`.

    Args:
        hidden: (B, T, H), or packed (N, H) with `cu_seqlens`; `hidden[t]` predicts `labels[t]`, so the caller shifts.
        weight: (V, H), the lm_head weight, in the dtype of `hidden`.
        labels: (B, T) or (N,) int64 in [0, V); any value where `mask` is False.
        advantages: per sequence, (B,), or per token; a prompt's advantage must be repeated for its samples. They are
            finite where `mask` is True, which only the CPU checks. Packed sequences: if S equals N, a tensor (S,) is
            read as one value per sequence.
        mask: bool or integers 0 and 1 like `labels`, True on completion tokens. Other rows have no influence, even if
            they hold NaN.
        bias: (V,) or None.
        support: (offsets (N + 1,), token_ids (E,)), both int64: the tokens that the sampler kept for each of the N
            tokens of `labels`, flattened; token n kept `token_ids[offsets[n] : offsets[n + 1]]`, its label among them,
            in any order. The softmax then runs over the kept tokens only, for log-probabilities, entropies and
            gradients, and only their rows of `weight` are read. Full logits are never computed; the kept
            ones are float32 whatever `fp32_logits` says, but for `impl="reference"`. A token with one kept token has
            log-probability 0 and no gradient. None (default) is the whole vocabulary.
        vocab_group: ranks among which the vocabulary is sharded, as in Megatron's column-parallel head: `weight` and
            `bias` are this rank's rows, one or more, in the order of the ranks, and all other arguments are the same
            on all ranks. So are the results. The gradient of `hidden` is summed over the ranks; `weight` and `bias` get
            the gradients of this rank's rows. Each chunk of rows takes two reductions; sharding waits on the host in
            the first call only, so a group belongs to heads of one sharding. Not together with `support`,
            `impl="reference"` or `torch.compile`. None (default): not
            sharded.
        rows: which tokens are computed. "contributing" leaves out active tokens that cannot have a gradient, such as
            tokens of a zero-advantage group without bonus where `beta` and `entropy_coef` are 0: they reach no matrix
            product, `logps` and `entropies` are 0 there, and means in `metrics` leave them out. "active" computes the
            whole mask. On a GPU both wait once for the number of rows. "all" does not, as a CUDA graph requires: it
            computes every token, for a mask with few holes, where hidden states must be finite.
        workspace_bytes: maximum bytes of logits at a time, but at least one row's. None takes up to 2 GiB on a GPU, 512
            MiB where the weight gets no gradient, and up to 256 MiB on the CPU. Beyond eight chunks, the gradient of a
            half-precision weight is summed in float32, which takes 4 V H bytes; eight larger chunks are taken instead
            where that is less memory, so a smaller workspace never takes more.
        fp32_logits: keep the logits of half-precision operands in float32, where float16 overflows beyond 65504, as
            `metrics["overflow_fraction"]` counts. On the CPU this makes float32 copies.
        sample_below: a threshold of probabilities in [0, 1). The backward pass keeps the gradient of a logit whose
            token is the label or has at least this probability, and samples the others, a token of probability p with
            probability p / sample_below: gradients are exact in expectation, and take one matrix product instead of
            three. 1e-4 suits policies of up to 2 nats; `docs/math.md` bounds the variance. Rows that need more entries
            than dense products cost get a higher threshold; on the CPU a batch of many such rows takes dense products.
            The reference takes exact gradients. Not together with `support`. 0 (default) is off.
        sample_seed: seed of the choice, int64, which also depends on a token's flat index. Needed with `sample_below`:
            another one for each step and micro-batch, since the same one gives the same gradients.
        impl: "reference" is plain PyTorch on all logits at once; "native" on the CPU (float32, bfloat16) and "triton"
            on a GPU (float32, bfloat16, float16) take the gradients in the forward pass, in three matrix products and
            chunks of logits; "auto" takes the fast one where it can.
        token_loss: the policy term: "ppo" (default) or another registered name (`outcome_rl_kernels.loss.losses` has
            formulas and sources); or your function `(logps, entropies, inputs) -> losses`, or a `TokenLoss` of it.
        bonuses: exploration bonuses, already times their coefficient, (B,) or per token; added to the advantages.
            Default None.
        answer_mask: like `mask`, True on the tokens of the final answer. Default None.
        answer_mask_mode: what `answer_mask` removes: "policy" (default) the policy term, "bonus" only the bonus, "all"
            the token itself with its share of the denominator, "none" nothing.
        ref_logps: log-probabilities of the labels under the reference policy, like `labels`. Needed where `beta` is not
            0; where it is 0, the KL is measured in `metrics` and a warning says that the loss has none. Default None.
        old_logps: log-probabilities under the policy that sampled; None (default) is the on-policy step, with ratio 1.
        rollout_weights: truncated importance weights of the rollout engine, per sequence or per token; they multiply
            the policy term only, but for "vespo", which multiplies them over a sequence and needs one per token.
            Default None.
        rollout_logps: log-probabilities by the engine that sampled; custom token losses
            read them. Default None.
        entropy_weights: factors of the entropy term, per sequence or per token, for a term whose denominator
            differs from the policy term's. Default None.
        temperature: > 0, divides the logits. Default 1. A model that multiplies its logits by a scale (Cohere, Granite,
            Falcon-H1) needs the temperature of sampling divided by that scale.
        softcap: > 0, bounds the logits before the division: `softcap * tanh(logits / softcap)` (Gemma). The gradient
            then needs the logits too, so a chunk takes twice the memory. None (default) is no bound.
        beta: coefficient of the KL term, >= 0. Default 0.
        kl_penalty: "k1", "k2" or "k3" (default) estimator, with its own gradient (k3: `d/dlp = 1 - exp(ref - lp)`).
        unbiased_kl: multiply the KL of a token by the token's importance ratio, with its gradient (DeepSeek-V3.2,
            arXiv:2512.02556; TRL's `use_bias_correction_kl`). Default False.
        epsilon_low, epsilon_high: the ratio is clipped to `[1 - epsilon_low, 1 + epsilon_high]`; of "gmpo" the
            log-ratio to `[-epsilon_low, epsilon_high]`, of "dppo_*" the divergence. Default 0.2 each.
        delta: dual clip, > 1: with a negative advantage the loss of "ppo" and "gspo" is at most `-delta * A`; of
            "dppo_*" the ratio is at most delta. None (default) is off.
        loss_agg: verl's names: "token-mean" (default), "token-sum", "seq-mean-token-sum", "seq-mean-token-mean",
            "seq-mean-token-sum-norm" (also divided by T: Dr. GRPO).
        normalizer: > 0, replaces the denominator of `loss_agg`, so that micro-batches and ranks add up to the whole
            batch. Default None.
        entropy_coef: coefficient of the entropy, which is subtracted: a positive one raises the entropy, a negative one
            lowers it. Default 0.
        cu_seqlens: (S + 1,) int, bounds of the packed sequences; `B` above is then S. Default None.

    Returns:
        `PolicyLossOutput(loss, logps, entropies, metrics)`; `loss` is differentiable in hidden, weight and bias, and is
        0 with zero gradients where no token is active. Advantages, bonuses, `*_logps` and weights get no gradient.

    Raises:
        TypeError, ValueError: an argument has the wrong type, dtype, shape, device or range. Labels out of range or out
            of their support raise on the CPU; on a GPU they make the loss NaN, because checking would synchronise.

    Example:
        >>> hidden = model(input_ids).last_hidden_state[:, :-1]  # position t predicts token t + 1
        >>> output = linear_policy_loss(hidden, lm_head.weight, input_ids[:, 1:], advantages, completion_mask[:, 1:])
        >>> output.loss.backward()

    Sources: PPO (arXiv:1707.06347), GRPO (arXiv:2402.03300), answer masking from Song et al. 2025; aggregations as
    verl's `agg_loss`.
    """
    _check_names(linear_policy_loss, options)
    check_tensor("hidden", hidden, FLOATS)
    batch, counted = token_batch(hidden, labels, advantages, mask, rows=rows, **options)
    head = check_head(hidden, weight, bias, labels)
    check_workspace(workspace_bytes)
    seed = check_sampling(sample_below, sample_seed, support)
    active, settings = batch.inputs.active, batch.inputs.settings
    chosen, _ = choose("linear_policy_loss", impl, hidden.device, head.hidden.dtype)
    shard = vocab_shard(vocab_group, head.weight, support, chosen)
    if support is not None:
        support = check_support(support, batch.labels, active, weight.shape[0])
    kept_2 = None
    if chosen == "reference" or support is not None:
        numbers = settings.temperature, settings.softcap
        values = unchunked_logprobs(head, batch.labels, active, support, *numbers, fp32_logits, chosen)
        result = loss_of_logprobs(*values, batch)
    else:
        how = Options(rows != "all", chosen, workspace_bytes, fp32_logits, sample_below, seed)
        result, kept_2 = fused_linear_policy_loss(head, batch, how, shard)
    logits_dtype = torch.float32 if fp32_logits else head.weight.dtype
    output = _output(*result, batch, counted, labels.shape, logits_dtype)
    if sample_below > 0:
        kept_2 = output.loss.new_zeros(2) if kept_2 is None else kept_2
        output.metrics.update(sampled_metrics(kept_2, output.metrics["computed_tokens"]))
    return output


def policy_loss(
    logits: Tensor,
    labels: Tensor,
    advantages: Tensor,
    mask: Tensor,
    *,
    inplace: bool = False,
    impl: Impl = "auto",
    **options: Unpack[LossOptions],
) -> PolicyLossOutput:
    """Compute the policy loss from logits that the caller already has.

    `linear_policy_loss` has the formula and documents `labels`, `advantages`, `mask` and the `options`.

    Args:
        logits: (B, T, V), or packed (N, V) with `cu_seqlens`, before the division by the temperature. The logits that
            a model of transformers returns are capped and scaled: with them leave out `softcap`, which takes copies.
        inplace: allows the gradient to overwrite the logits, which saves their size in memory. Do not use the
            logits afterwards. The reference and `torch.compile` ignore this option.
        impl: as for `linear_policy_loss`.

    Returns:
        `PolicyLossOutput(loss, logps, entropies, metrics)`; `loss` is differentiable in the logits.

    Raises:
        TypeError, ValueError: as `linear_policy_loss`.
    """
    _check_names(policy_loss, options)
    check_tensor("logits", logits, FLOATS)
    batch, counted = token_batch(logits, labels, advantages, mask, rows="active", **options)
    if logits.shape[:-1] != labels.shape:
        raise ValueError(
            f"logits must have shape (*labels.shape, V) = {(*labels.shape, 'V')}; got {shape_text(logits)}"
        )
    logits_NV, softcap = logits.reshape(-1, logits.shape[-1]), batch.inputs.settings.softcap
    if softcap is not None:  # NaN times a gradient of 0 would be NaN
        logits_NV = capped(logits_NV.masked_fill(~counted[:, None], 0), softcap)
    chosen, _ = choose("policy_loss", impl, logits.device, logits.dtype)
    if chosen == "reference":
        temperature = batch.inputs.settings.temperature
        values = reference_logprobs(logits_NV.__getitem__, batch.labels, counted, logits.shape[-1], temperature)
        result = loss_of_logprobs(*values, batch)
    else:
        result = fused_policy_loss(logits_NV, batch, impl=chosen, inplace=inplace)
    return _output(*result, batch, counted, labels.shape, logits.dtype)


def _check_names(loss: Callable[..., Any], options: Iterable[str]) -> None:
    """Refuse an option that a loss does not take."""
    for name in options:
        if name not in INPUTS and name not in SETTINGS:
            known = [*inspect.signature(loss).parameters, *INPUTS, *SETTINGS]
            hint = did_you_mean(name, known) or f"; help({loss.__name__}) lists them"
            raise TypeError(f"{loss.__name__} takes no argument {name!r}{hint}")


def _output(
    loss: Tensor,
    logps_N: Tensor,
    entropies_N: Tensor,
    batch: TokenBatch,
    counted: Tensor,
    shape: torch.Size,
    logits_dtype: torch.dtype,
) -> PolicyLossOutput:
    logps_N, entropies_N = logps_N.detach(), entropies_N.detach()
    measured = metrics(logps_N, entropies_N, batch, counted)
    if logits_dtype == torch.float16:
        overflows = sum_active((~logps_N.isfinite()).to(measured["entropy"].dtype), batch.inputs.active)
        measured["overflow_fraction"] = overflows / measured["computed_tokens"].clamp(min=1)
    return PolicyLossOutput(loss, logps_N.reshape(shape), entropies_N.reshape(shape), measured)


def loss_normalizer(
    mask: Tensor,
    answer_mask: Tensor | None = None,
    *,
    answer_mask_mode: AnswerMaskMode = "policy",
    loss_agg: LossAggregation = "token-mean",
    horizon: float | None = None,
) -> Tensor:
    """Compute the denominator of the policy loss over a whole batch, to be passed as `normalizer` for each of its
    micro-batches.

    Args:
        mask: (B, T) bool or integers 0 and 1, True on completion tokens.
        answer_mask: like `mask`, or None; counts only with `answer_mask_mode="all"`.
        answer_mask_mode, loss_agg: the values that the loss is called with.
        horizon: length in the denominator of "seq-mean-token-sum-norm"; default T. A constant such as the longest
            allowed completion keeps the scale of the loss over training.

    Returns:
        A 0-d tensor on the device of `mask`, 0 where nothing counts. Its sum over ranks is the denominator of all
        ranks, given one `horizon`; except for "token-sum", whose denominator is 1.

    Raises:
        TypeError, ValueError: an argument has the wrong type, dtype, shape or device.
    """
    mask = as_mask("mask", mask)
    if mask.dim() != 2:
        raise ValueError(f"mask must have shape (B, T); got {shape_text(mask)}")
    if horizon is not None:
        check_number("horizon", horizon, least=1)
    settings = LossSettings(answer_mask_mode=answer_mask_mode, loss_agg=loss_agg)
    if answer_mask is not None and settings.answer_mask_mode == "all":
        mask = mask & ~as_mask("answer_mask", answer_mask, "mask", mask)
    return denominator(mask.sum(dim=1), settings.loss_agg, mask.shape[1] if horizon is None else horizon)
