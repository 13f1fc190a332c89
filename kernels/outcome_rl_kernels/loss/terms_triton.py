"""The token loss and its derivative as functions of a token's log-probability, in Triton.

The formulas are those of `reference/policy_loss.py`, and the derivatives those of PyTorch's autograd over them, where
terms tie as well. A term that is None is absent and costs nothing. Arguments are float32, numbers or blocks of them.
"""

# The kernels are in Triton's language, which has no types.
# mypy: disable-error-code="import-untyped,no-untyped-def,untyped-decorator"

import triton
import triton.language as tl


@triton.jit
def expm1(x):
    """exp(x) - 1; near 0, where the subtraction cancels, the series up to x^8."""
    series = 1 + x * 0.125
    for i in tl.static_range(7, 1, -1):
        series = 1 + x * (1.0 / i) * series
    return tl.where(tl.abs(x) < 0.5, x * series, tl.exp(x) - 1)


@triton.jit
def _clamp(x, low, high):
    """The bounded value, NaN included, and its derivative, which is 1 at the bounds as well."""
    return tl.where(x < low, low, tl.where(x > high, high, x)), ((x >= low) & (x <= high)).to(tl.float32)


@triton.jit
def policy_terms(
    logp, advantage, rollout_weight, old_logp, sequence_log_ratio, is_answer, ratio_low, ratio_high, delta,
    log_ratio_clamp,
):  # fmt: skip
    """Loss of the policy term, its derivative by logp, the ratio, and 1 where that is clipped."""
    log_ratio = logp - logp  # 0 where logp is finite, else NaN
    if sequence_log_ratio is not None:
        log_ratio += sequence_log_ratio
    elif old_logp is not None:
        log_ratio = logp - old_logp
    log_ratio_grad = 1.0
    if log_ratio_clamp is not None:
        log_ratio, log_ratio_grad = _clamp(log_ratio, -log_ratio_clamp, log_ratio_clamp)
    ratio = tl.exp(log_ratio)
    clipped_ratio = _clamp(ratio, ratio_low, ratio_high)[0]
    gain = ratio * advantage
    clipped_gain = clipped_ratio * advantage
    loss = -tl.where(clipped_gain < gain, clipped_gain, gain)
    # The part of the gradient that reaches the ratio: a minimum halves it between equal arguments, of which the
    # clipped one passes its half on only where it is the ratio itself.
    is_tie = (clipped_gain == gain) & (clipped_ratio != ratio)
    part = tl.where(clipped_gain < gain, 0.0, tl.where(is_tie, 0.5, 1.0))
    is_clipped = ((ratio < ratio_low) & (advantage < 0)) | ((ratio > ratio_high) & (advantage > 0))
    if delta is not None:
        bound = -delta * advantage
        is_above = (advantage < 0) & (loss > bound)
        is_tie = (advantage < 0) & (loss == bound)
        part = tl.where(is_above, 0.0, tl.where(is_tie, 0.5 * part, part))
        loss = tl.where(is_above, bound, loss)
        is_clipped = is_clipped | is_above
    logp_grad = -advantage * part * ratio * log_ratio_grad
    clipped = is_clipped.to(tl.float32)
    if rollout_weight is not None:
        loss *= rollout_weight
        logp_grad *= rollout_weight
    if is_answer is not None:
        loss = tl.where(is_answer, 0.0, loss)
        logp_grad = tl.where(is_answer, 0.0, logp_grad)
        clipped = tl.where(is_answer, 0.0, clipped)
    return loss, logp_grad, ratio, clipped


@triton.jit
def kl_terms(logp, ref_logp, log_ratio_clamp, kl_clamp, KL_PENALTY: tl.constexpr):
    """The estimate of KL(policy || reference) and its derivative by logp."""
    log_ratio = ref_logp - logp
    log_ratio_grad = 1.0
    if log_ratio_clamp is not None:
        log_ratio, log_ratio_grad = _clamp(log_ratio, -log_ratio_clamp, log_ratio_clamp)
    if KL_PENALTY == "k1":
        kl = -log_ratio
        logp_grad = log_ratio_grad
    elif KL_PENALTY == "k2":
        kl = 0.5 * log_ratio * log_ratio
        logp_grad = -log_ratio * log_ratio_grad
    else:
        excess = expm1(log_ratio)
        kl = excess - log_ratio
        logp_grad = -excess * log_ratio_grad
    if kl_clamp is not None:
        kl, kl_grad = _clamp(kl, -kl_clamp, kl_clamp)
        logp_grad *= kl_grad
    return kl, logp_grad
