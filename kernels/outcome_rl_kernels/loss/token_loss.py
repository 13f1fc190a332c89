"""The token loss: every formula, once, in differentiable PyTorch on per-token log-probabilities and entropies.

    lp    = log_softmax(logits / temperature)[label]
    ratio = exp(lp - old_lp)                      on-policy (no old_logps): old_lp = stopgrad(lp), so the ratio is 1
    A     = advantage + bonus
    pg    = -min(ratio * A, clip(ratio, 1 - epsilon_low, 1 + epsilon_high) * A)       PPO's clipped surrogate
    pg    = min(pg, -delta * A) where A < 0       dual clip, optional (arXiv:1912.09729)
    pg    = pg * rollout_weight                   truncated importance sampling, optional
    k3    = exp(ref - lp) - (ref - lp) - 1        J. Schulman, "Approximating KL divergence", 2020
    loss  = m_pg * pg + beta * kl - entropy_coef * entropy

`answer_mask_mode` keeps the exploration bonus from being earned by editing the answer tokens alone:

| mode     | policy term on answer tokens          | KL and entropy there | denominator counts them |
|----------|---------------------------------------|----------------------|-------------------------|
| `policy` | dropped (the paper's words)           | kept                 | yes                     |
| `bonus`  | kept, with the reward advantage alone | kept                 | yes                     |
| `all`    | dropped                               | dropped              | no                      |
| `none`   | kept                                  | kept                 | yes                     |

The reference and the fused losses differentiate these functions by autograd. There is one copy, of the default formula,
in `row_kernels_triton`: in one launch with the passes over the logits. `is_default` says which settings it covers.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from outcome_rl_kernels.loss.inputs import LossInputs, LossSettings

# From log-probabilities and entropies of R tokens, and their inputs, to their losses (R,). Inactive tokens may get any
# loss.
TokenLoss = Callable[[Tensor, Tensor, LossInputs], Tensor]


def token_loss(logps: Tensor, entropies: Tensor, inputs: LossInputs) -> Tensor:
    """Return the loss of each token, before its weight, differentiable in `logps` and `entropies`.

    Args:
        logps, entropies: (R,), of the labels and of the rows' distributions.
        inputs: of the same tokens; where `needs_sequences`, whole sequences of them.
    """
    settings = inputs.settings
    ratios, advantages = importance_ratios(logps, inputs), effective_advantages(inputs)
    on_policy = inputs.old_logps is None  # then the ratio is 1, within every bound
    losses = -ratios * advantages if on_policy else clipped_surrogate(ratios, advantages, settings)
    if inputs.rollout_weights is not None:
        losses = losses * inputs.rollout_weights
    if settings.answer_mask_mode == "policy" and inputs.answer_mask is not None:
        losses = losses.masked_fill(inputs.answer_mask, 0.0)
    if inputs.ref_logps is not None and settings.beta != 0:  # without beta they are there for the metrics
        losses = losses + settings.beta * kl_divergence(logps, inputs.ref_logps, settings)
    if settings.entropy_coef != 0:
        losses = losses - settings.entropy_coef * entropies
    return losses


def needs_sequences(inputs: LossInputs) -> bool:
    """Say whether a token's loss depends on other tokens of its sequence."""
    return inputs.settings.importance_level == "sequence" and inputs.old_logps is not None


def is_default(inputs: LossInputs) -> bool:
    """Say whether the formula is the default one: PPO's clip, k3, masks and entropy, and no other bounds."""
    settings = inputs.settings
    return (
        not needs_sequences(inputs)
        and settings.delta is None
        and settings.log_ratio_clamp is None
        and not (settings.beta != 0 and (settings.kl_penalty != "k3" or settings.kl_clamp is not None))
    )


def contributing_tokens(inputs: LossInputs) -> Tensor | None:
    """Return the active tokens whose loss can have a gradient, bool (N,).

    The others have neither a KL nor an entropy term, and their policy term is zero whatever the ratio: zero advantage,
    bonus included, zero rollout weight, or an answer token that `answer_mask_mode="policy"` drops. Where the ratio is
    the sequence's, all tokens of a sequence count as soon as one does: each has its part in the ratio.
    """
    settings = inputs.settings
    if settings.beta != 0 or settings.entropy_coef != 0:
        return inputs.active
    contributes = effective_advantages(inputs) != 0
    if inputs.active is not None:
        contributes = contributes & inputs.active
    if inputs.rollout_weights is not None:
        contributes = contributes & (inputs.rollout_weights != 0)
    if settings.answer_mask_mode == "policy" and inputs.answer_mask is not None:
        contributes = contributes & ~inputs.answer_mask
    if needs_sequences(inputs):
        in_sequence = inputs.mean_by_sequence(contributes.float()) > 0
        return in_sequence if inputs.active is None else in_sequence & inputs.active
    return contributes


def effective_advantages(inputs: LossInputs) -> Tensor:
    """Return advantage plus bonus of each token, without the bonus on the answer where `answer_mask_mode="bonus"`."""
    bonuses = inputs.bonuses
    if bonuses is None:
        return inputs.advantages
    if inputs.settings.answer_mask_mode == "bonus" and inputs.answer_mask is not None:
        bonuses = bonuses.masked_fill(inputs.answer_mask, 0.0)
    return inputs.advantages + bonuses


def importance_ratios(logps: Tensor, inputs: LossInputs) -> Tensor:
    """Return the importance ratio of each token.

    "sequence" (GSPO, arXiv:2507.18071) gives every token the value exp(mean over the sequence of lp - old_lp), while
    each token keeps its own gradient: stopgrad(s) * exp(lp - stopgrad(lp)), the paper's token variant and verl's.
    """
    if inputs.old_logps is None:
        return _exp(logps - logps.detach())
    log_ratios = logps - inputs.old_logps
    if needs_sequences(inputs):
        log_ratios = logps - logps.detach() + inputs.mean_by_sequence(log_ratios.detach())
    clamp = inputs.settings.log_ratio_clamp
    return _exp(log_ratios if clamp is None else log_ratios.clamp(-clamp, clamp))


def _exp(x: Tensor) -> Tensor:
    """Return e^x; PyTorch's own exp wakes all threads for a few float64 numbers: 16 ms where other programs run."""
    return torch.expm1(x) + 1


def clipped_surrogate(ratios: Tensor, advantages: Tensor, settings: LossSettings) -> Tensor:
    """Return PPO's clipped surrogate of each token, with dual clip where `delta` is given."""
    clipped = ratios.clamp(1 - settings.epsilon_low, 1 + settings.epsilon_high)
    losses = -torch.minimum(ratios * advantages, clipped * advantages)
    if settings.delta is None:
        return losses
    return torch.where(advantages < 0, torch.minimum(losses, -settings.delta * advantages), losses)


def is_clipped(ratios: Tensor, advantages: Tensor, settings: LossSettings) -> Tensor:
    """Return for each token, bool, whether a bound of `clipped_surrogate` stops its gradient."""
    most = 1 + settings.epsilon_high
    clipped = ((ratios < 1 - settings.epsilon_low) & (advantages < 0)) | ((ratios > most) & (advantages > 0))
    return clipped if settings.delta is None else clipped | ((ratios > settings.delta) & (advantages < 0))


def kl_divergence(logps: Tensor, ref_logps: Tensor, settings: LossSettings) -> Tensor:
    """Return the per-token estimate of KL(policy || reference): k1 `lp - ref`, k2 `(lp - ref)^2 / 2`, k3 as above."""
    log_ratios = ref_logps - logps
    if settings.log_ratio_clamp is not None:
        log_ratios = log_ratios.clamp(-settings.log_ratio_clamp, settings.log_ratio_clamp)
    if settings.kl_penalty == "k1":
        kl = -log_ratios
    elif settings.kl_penalty == "k2":
        kl = 0.5 * log_ratios.square()
    else:
        kl = torch.expm1(log_ratios) - log_ratios
    return kl if settings.kl_clamp is None else kl.clamp(-settings.kl_clamp, settings.kl_clamp)


def metrics(logps: Tensor, entropies: Tensor, inputs: LossInputs) -> dict[str, Tensor]:
    """Return the metrics of the active tokens, 0-d and without gradient; `PolicyLossOutput` says what they are."""
    computed = policy_tokens = inputs.num_active()
    ratios = importance_ratios(logps, inputs)
    columns = {"ratio_mean": ratios, "entropy": entropies}
    if inputs.ref_logps is not None:
        columns["kl"] = kl_divergence(logps, inputs.ref_logps, inputs.settings)
    if inputs.old_logps is not None:  # else the ratio is 1
        clipped = is_clipped(ratios, effective_advantages(inputs), inputs.settings)
        if inputs.settings.answer_mask_mode == "policy" and inputs.answer_mask is not None:
            without_answer = ~inputs.answer_mask
            clipped, policy_tokens = clipped & without_answer, inputs.sum_active(without_answer)
        columns["clip_fraction"] = clipped.to(ratios.dtype)
    sums = inputs.sum_active(torch.stack([*columns.values()])).unbind()
    zero, tokens = ratios.new_zeros(()), computed.clamp(min=1)
    found = {"kl": zero, "clip_fraction": zero} | {
        name: total / (policy_tokens.clamp(min=1) if name == "clip_fraction" else tokens)
        for name, total in zip(columns, sums, strict=True)
    }
    return found | {"computed_tokens": computed}
