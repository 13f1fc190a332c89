"""Token losses by name: the policy term of each token, differentiable in its log-probability and entropy.

    lp = log_softmax(logits / temperature)[label]     r = exp(lp - old_lp)     A = advantage + bonus
    sg = stopgrad     el, eh = epsilon_low, epsilon_high     without old_lp: old_lp = sg(lp), so r = 1

| name      | loss of a token                                                       | source                        |
|-----------|-----------------------------------------------------------------------|-------------------------------|
| ppo       | -min(r A, clip(r, 1 - el, 1 + eh) A), at most -delta A where A < 0    | arXiv:1707.06347, 1912.09729  |
| gspo      | ppo with r the geometric mean over the sequence                       | arXiv:2507.18071              |
| gmpo      | -A times the geometric mean of exp(clip(log r, -el, eh)), clipped     | arXiv:2507.20673              |
|           | as ppo clips                                                          |                               |
| cispo     | -sg(clip(r, 1 - el, 1 + eh)) A lp                                     | arXiv:2506.13585              |
| sapo      | -A (4 / tau) sigmoid(tau (r - 1)), tau = 1 where A > 0, else 1.05     | arXiv:2511.20347              |
| dppo_tv   | -sg(min(r, delta)) A lp, 0 where |p - p_old| left its bound, el or eh | arXiv:2602.04879              |
| dppo_kl   | the same with the binary KL of p and p_old                            | arXiv:2602.04879              |
| vespo     | -sg(w^k exp(l - l w)) A lp, w the product of r and rollout weights    | arXiv:2602.10693              |
|           | over the sequence; k = 2, l = 3 where A >= 0, else k = 3, l = 2       |                               |
| reinforce | -A lp                                                                 | Williams 1992                 |

`token_loss` adds what all have in common: rollout weights, answer mask, KL and entropy.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from outcome_rl_kernels.registry import add_by_name

if TYPE_CHECKING:
    from outcome_rl_kernels.loss.inputs import LossInputs
    from outcome_rl_kernels.loss.settings import LossSettings

# From log-probabilities and entropies of R tokens, and their inputs, to their losses, all (R,).
TokenLossFunction = Callable[[Tensor, Tensor, Any], Tensor]


@dataclass(frozen=True)
class TokenLoss:
    """A token loss with the properties that fused losses need; `linear_policy_loss(..., token_loss=...)` takes one.

    Args:
        function: `(logps, entropies, inputs) -> losses`, (R,) each, in PyTorch: log-probabilities of the labels and
            entropies of the rows, which carry gradients, and the tokens' `LossInputs`: `advantages`, `bonuses`,
            `old_logps`, `ref_logps`, `rollout_weights`, `rollout_logps`, `answer_mask`, `sequence_ids` (each (R,), or
            None where the caller gave none), and the methods `effective_advantages()`, `importance_ratios(logps)`,
            `mean_by_sequence(values)` and `sum_by_sequence(values)`. It returns the policy term alone: rollout weights,
            answer mask, KL and entropy are applied to it by the settings of the loss.
        needs_sequences: the loss of a token depends on other tokens of the call. They are then given together, at the
            cost of one more matrix product where the logits are cut into chunks.
        scales_with_advantage: the loss is 0, with zero gradient, where advantage plus bonus is 0. Such tokens are then
            left out with `rows="contributing"`.
        weighs_rollouts: the function takes `rollout_weights` into account itself, and its result is not multiplied by
            them.
        ratios: `(logps, inputs) -> (R,)`, the ratios of the metric `ratio_mean`; None takes those of the tokens.
        clipped: `(logps, inputs) -> (R,)` bool, the tokens of the metric `clip_fraction`; None counts none.
    """

    function: TokenLossFunction
    needs_sequences: bool = False
    scales_with_advantage: bool = False
    weighs_rollouts: bool = False
    ratios: Callable[[Tensor, Any], Tensor] | None = None
    clipped: Callable[[Tensor, Any], Tensor] | None = None

    def __call__(self, logps: Tensor, entropies: Tensor, inputs: Any) -> Tensor:
        return self.function(logps, entropies, inputs)


def token_loss_of(chosen: "str | TokenLoss | TokenLossFunction") -> TokenLoss:
    """Return the token loss that a setting names or is."""
    if isinstance(chosen, str):
        return _BY_NAME[chosen]
    return chosen if isinstance(chosen, TokenLoss) else TokenLoss(chosen)


def register_token_loss(name: str, loss: "TokenLoss | TokenLossFunction") -> None:
    """Give a token loss a name, by which settings, files and `torch.compile` can refer to it.

    Args:
        name: letters, digits and underscores; not the name of another loss.
        loss: as for `linear_policy_loss`.

    Raises:
        TypeError: the loss is no function.
        ValueError: the name is taken, or is not a name.
    """
    if not callable(loss):
        raise TypeError(f"loss must be a function or a TokenLoss; got {type(loss).__name__}")
    add_by_name(_BY_NAME, "token_loss", name, token_loss_of(loss), taken=_BUILTIN)


def token_loss_names() -> tuple[str, ...]:
    """Return the registered names."""
    return tuple(_BY_NAME)


def is_builtin(chosen: object) -> bool:
    """Say whether a token loss is one of this module's table."""
    return isinstance(chosen, str) and chosen in _BUILTIN


# --- ratios and clipping


def sequence_ratios(logps: Tensor, inputs: "LossInputs") -> Tensor:
    """Return for each token exp(mean over its sequence of lp - old_lp).

    Each token keeps its own gradient: sg(s) exp(lp - sg(lp)), GSPO's token variant and verl's.
    """
    if inputs.old_logps is None:
        return inputs.importance_ratios(logps)
    log_ratios = logps - logps.detach() + inputs.mean_by_sequence((logps - inputs.old_logps).detach())
    clamp = inputs.settings.log_ratio_clamp
    return exp(log_ratios if clamp is None else log_ratios.clamp(-clamp, clamp))


def exp(x: Tensor) -> Tensor:
    """Return e^x; PyTorch's own exp wakes all threads for a few float64 numbers: 16 ms where other programs run."""
    return torch.expm1(x) + 1


def clipped_surrogate(ratios: Tensor, advantages: Tensor, settings: "LossSettings") -> Tensor:
    """Return PPO's clipped surrogate of each token, with dual clip where `delta` is given."""
    clipped = ratios.clamp(1 - settings.epsilon_low, 1 + settings.epsilon_high)
    losses = -torch.minimum(ratios * advantages, clipped * advantages)
    if settings.delta is None:
        return losses
    return torch.where(advantages < 0, torch.minimum(losses, -settings.delta * advantages), losses)


def is_clipped(ratios: Tensor, advantages: Tensor, settings: "LossSettings") -> Tensor:
    """Return for each token, bool, whether a bound of `clipped_surrogate` stops its gradient."""
    most = 1 + settings.epsilon_high
    clipped = ((ratios < 1 - settings.epsilon_low) & (advantages < 0)) | ((ratios > most) & (advantages > 0))
    return clipped if settings.delta is None else clipped | ((ratios > settings.delta) & (advantages < 0))


# --- the table


def _ppo(logps: Tensor, entropies: Tensor, inputs: "LossInputs") -> Tensor:
    return _surrogate(inputs.importance_ratios(logps), inputs)


def _gspo(logps: Tensor, entropies: Tensor, inputs: "LossInputs") -> Tensor:
    return _surrogate(sequence_ratios(logps, inputs), inputs)


def _surrogate(ratios: Tensor, inputs: "LossInputs") -> Tensor:
    advantages = inputs.effective_advantages()
    if inputs.old_logps is None:  # the ratio is 1, within every bound
        return -ratios * advantages
    return clipped_surrogate(ratios, advantages, inputs.settings)


def _ppo_clipped(logps: Tensor, inputs: "LossInputs") -> Tensor:
    return is_clipped(inputs.importance_ratios(logps), inputs.effective_advantages(), inputs.settings)


def _gspo_clipped(logps: Tensor, inputs: "LossInputs") -> Tensor:
    return is_clipped(sequence_ratios(logps, inputs), inputs.effective_advantages(), inputs.settings)


def _gmpo(logps: Tensor, entropies: Tensor, inputs: "LossInputs") -> Tensor:
    """With the weights of "seq-mean-token-mean" the gradient is that of the geometric mean of whole sequences."""
    advantages = inputs.effective_advantages()
    kept = _bounded_log_ratios(logps, inputs)
    if inputs.old_logps is None:
        return -advantages * exp(kept)
    return -advantages * exp(kept - kept.detach() + inputs.mean_by_sequence(kept.detach()))


def _bounded_log_ratios(logps: Tensor, inputs: "LossInputs") -> Tensor:
    """Return log-ratios with GMPO's bounds, upwards for positive advantages and downwards for negative ones."""
    log_ratios, settings = inputs.log_ratios(logps), inputs.settings
    low, high = log_ratios.clamp(min=-settings.epsilon_low), log_ratios.clamp(max=settings.epsilon_high)
    return torch.where(inputs.effective_advantages() > 0, high, low)


def _gmpo_clipped(logps: Tensor, inputs: "LossInputs") -> Tensor:
    return (_bounded_log_ratios(logps, inputs) != inputs.log_ratios(logps)) & (inputs.effective_advantages() != 0)


def _cispo(logps: Tensor, entropies: Tensor, inputs: "LossInputs") -> Tensor:
    ratios, settings = inputs.importance_ratios(logps).detach(), inputs.settings
    clipped = ratios.clamp(1 - settings.epsilon_low, 1 + settings.epsilon_high)
    return -clipped * inputs.effective_advantages() * logps


def _cispo_clipped(logps: Tensor, inputs: "LossInputs") -> Tensor:
    ratios, settings = inputs.importance_ratios(logps), inputs.settings
    return (ratios < 1 - settings.epsilon_low) | (ratios > 1 + settings.epsilon_high)


def _reinforce(logps: Tensor, entropies: Tensor, inputs: "LossInputs") -> Tensor:
    return -inputs.effective_advantages() * logps


def sapo(tau_positive: float = 1.0, tau_negative: float = 1.05) -> TokenLoss:
    """Return SAPO's soft gate in place of a clip: `-A (4 / tau) sigmoid(tau (r - 1))` (arXiv:2511.20347).

    Args:
        tau_positive, tau_negative: > 0, sharpness of the gate where the advantage is positive, and elsewhere.

    Raises:
        ValueError: one is not positive.
    """
    if not (tau_positive > 0 and tau_negative > 0):
        raise ValueError(f"tau_positive and tau_negative must be > 0; got {tau_positive} and {tau_negative}")

    def loss(logps: Tensor, entropies: Tensor, inputs: "LossInputs") -> Tensor:
        advantages = inputs.effective_advantages()
        tau = torch.full_like(advantages, tau_negative).masked_fill(advantages > 0, tau_positive)
        return -advantages * (4 / tau) * torch.sigmoid(tau * (inputs.importance_ratios(logps) - 1))

    return TokenLoss(loss, scales_with_advantage=True)


def vespo(
    k_positive: float = 2.0, lambda_positive: float = 3.0, k_negative: float = 3.0, lambda_negative: float = 2.0
) -> TokenLoss:
    """Return VESPO: `-phi(w) A lp`, w the ratio of the whole sequence, phi(w) = w^k exp(lambda (1 - w)) a constant.

    w is the product of the ratios and, where there are some, of the rollout weights over the sequence, within 1e-8 and
    e^20; phi(1) = 1 (arXiv:2602.10693).

    Args:
        k_positive, lambda_positive: k and lambda, >= 0, where the advantage is at least 0.
        k_negative, lambda_negative: where it is negative.

    Raises:
        ValueError: an argument is negative.
    """
    numbers = k_positive, lambda_positive, k_negative, lambda_negative
    if not all(number >= 0 for number in numbers):
        raise ValueError(f"k_positive, lambda_positive, k_negative and lambda_negative must be >= 0; got {numbers}")
    least, most = math.log(1e-8), 20.0

    def weights(logps: Tensor, inputs: "LossInputs", advantages: Tensor) -> Tensor:
        log_ratios = inputs.log_ratios(logps.detach()).clamp(-most, most)
        if inputs.rollout_weights is not None:
            log_ratios = log_ratios + inputs.rollout_weights.log().clamp(least, most)
        log_w = inputs.sum_by_sequence(log_ratios).clamp(least, most)
        up = advantages >= 0
        k = torch.full_like(advantages, k_negative).masked_fill(up, k_positive)
        decay = torch.full_like(advantages, lambda_negative).masked_fill(up, lambda_positive)
        return exp(decay + k * log_w - decay * exp(log_w))

    def loss(logps: Tensor, entropies: Tensor, inputs: "LossInputs") -> Tensor:
        advantages = inputs.effective_advantages()
        if inputs.old_logps is None and inputs.rollout_weights is None:  # w is 1
            return -advantages * logps
        return -weights(logps, inputs, advantages) * advantages * logps

    return TokenLoss(loss, needs_sequences=True, scales_with_advantage=True, weighs_rollouts=True)


def _dppo(moved: Callable[[Tensor, Tensor], Tensor]) -> TokenLoss:
    """Return DPPO by a divergence: no gradient for tokens that moved further than its bound, away from p_old.

    Args:
        moved: from log-probabilities, new and old, to a signed divergence: positive where p > p_old.
    """

    def clipped(logps: Tensor, inputs: "LossInputs") -> Tensor:
        if inputs.old_logps is None:
            return torch.zeros_like(logps, dtype=torch.bool)
        distances, settings = moved(logps.detach(), inputs.old_logps), inputs.settings
        up = inputs.effective_advantages() > 0
        return (up & (distances > settings.epsilon_high)) | (~up & (distances < -settings.epsilon_low))

    def loss(logps: Tensor, entropies: Tensor, inputs: "LossInputs") -> Tensor:
        ratios, most = inputs.importance_ratios(logps).detach(), inputs.settings.delta
        losses = -(ratios if most is None else ratios.clamp(max=most)) * inputs.effective_advantages() * logps
        return losses.masked_fill(clipped(logps, inputs), 0.0)

    return TokenLoss(loss, scales_with_advantage=True, clipped=clipped)


def _total_variation(logps: Tensor, old_logps: Tensor) -> Tensor:
    return logps.exp() - old_logps.exp()


def _binary_kl(logps: Tensor, old_logps: Tensor) -> Tensor:
    """Return KL((p_old, 1 - p_old) || (p, 1 - p)) with the sign of p - p_old."""
    others, old_others = (-torch.expm1(values) for values in (logps, old_logps))
    tiny = 1e-8  # as in verl: a token of probability 1 leaves nothing to the others
    kl = old_logps.exp() * (old_logps - logps) + old_others * torch.log((old_others + tiny) / (others + tiny))
    return kl.copysign(logps - old_logps)


# --- selections of tokens, which read all tokens of a call


def top_entropy(loss: "str | TokenLoss | TokenLossFunction", share: float) -> TokenLoss:
    """Keep a token loss on the tokens of highest entropy alone (arXiv:2506.01939; TRL's `top_entropy_quantile`).

    Args:
        loss: the token loss.
        share: in (0, 1], of the active tokens of a call.

    Raises:
        ValueError: the share is outside its range.
    """
    inner = token_loss_of(loss)
    _check_share(share)

    def selected(logps: Tensor, entropies: Tensor, inputs: "LossInputs") -> Tensor:
        if len(entropies) == 0:  # without a quantile
            return inner(logps, entropies, inputs)
        levels = entropies.detach()
        if inputs.active is not None:
            levels = levels.where(inputs.active, torch.nan)
        low = levels < levels.nanquantile(1 - share)
        return inner(logps, entropies, inputs).masked_fill(low, 0.0)

    return replace(inner, function=selected, needs_sequences=True, scales_with_advantage=False)


def near_policy(loss: "str | TokenLoss | TokenLossFunction", threshold: float) -> TokenLoss:
    """Keep a token loss off sequences that the policy has left, where the advantage is negative (arXiv:2512.02556).

    A token with A < 0 is dropped if the mean of `mu - lp` over its sequence is above the threshold; mu are
    `rollout_logps`, without them `old_logps`. TRL calls it `off_policy_mask_threshold`.

    Args:
        loss: the token loss.
        threshold: of the mean, in nats per token. A token whose mu is NaN counts as 0.

    Raises:
        ValueError: the threshold is NaN.
    """
    inner = token_loss_of(loss)
    if math.isnan(threshold):
        raise ValueError("threshold must be a number; got NaN")

    def kept(logps: Tensor, entropies: Tensor, inputs: "LossInputs") -> Tensor:
        losses = inner(logps, entropies, inputs)
        sampler = inputs.old_logps if inputs.rollout_logps is None else inputs.rollout_logps
        distances = torch.zeros_like(logps) if sampler is None else (sampler - logps.detach()).nan_to_num(nan=0.0)
        left = inputs.mean_by_sequence(distances) > threshold
        return losses.masked_fill(left & (inputs.effective_advantages() < 0), 0.0)

    return replace(inner, function=kept, needs_sequences=True)


def clip_cov(share: float = 2e-4, low: float = 1.0, high: float = 5.0) -> TokenLoss:
    """Drop the gradient of random tokens of high covariance: Clip-Cov (arXiv:2505.22617).

    The covariance of a token is (A - mean A) (lp - mean lp), with means over the active tokens of a call. The loss is
    ppo's; tokens that it clips are none of the candidates.

    Args:
        share: in (0, 1], of the active tokens, at least one of them if there is a candidate.
        low, high: bounds of the covariance of candidates.

    Raises:
        ValueError: the share is outside its range.
    """
    _check_share(share)

    def loss(logps: Tensor, entropies: Tensor, inputs: "LossInputs") -> Tensor:
        covariances = _covariances(logps, inputs)
        candidates = (covariances > low) & (covariances < high)
        if inputs.old_logps is not None:
            candidates &= ~_ppo_clipped(logps.detach(), inputs)
        order = torch.rand_like(covariances).where(candidates, -torch.inf)
        return _ppo(logps, entropies, inputs).masked_fill(_largest(order, share, inputs) & candidates, 0.0)

    return TokenLoss(loss, needs_sequences=True)


def kl_cov(share: float = 2e-4, coef: float = 1.0) -> TokenLoss:
    """Hold the tokens of highest covariance: `-r A`, plus `coef |lp - old_lp|` on them: KL-Cov (arXiv:2505.22617).

    Args:
        share: in (0, 1], of the active tokens, at least one.
        coef: coefficient of the penalty, >= 0.

    Raises:
        ValueError: an argument is outside its range.
    """
    _check_share(share)
    if not coef >= 0:
        raise ValueError(f"coef must be >= 0; got {coef}")

    def loss(logps: Tensor, entropies: Tensor, inputs: "LossInputs") -> Tensor:
        held = _largest(_covariances(logps, inputs), share, inputs)
        losses = -inputs.importance_ratios(logps) * inputs.effective_advantages()
        return losses + coef * inputs.log_ratios(logps).abs().where(held, 0.0)

    return TokenLoss(loss, needs_sequences=True)


def _covariances(logps: Tensor, inputs: "LossInputs") -> Tensor:
    def centred(values: Tensor) -> Tensor:
        return values - inputs.sum_active(values) / inputs.num_active().clamp(min=1)

    return centred(inputs.effective_advantages()) * centred(logps.detach())


def _largest(values: Tensor, share: float, inputs: "LossInputs") -> Tensor:
    """Return which active tokens, bool, have the largest values: a share of them, at least one; ties all do."""
    if inputs.active is not None:
        values = values.where(inputs.active, -torch.inf)
    if len(values) == 0:
        return torch.zeros_like(values, dtype=torch.bool)
    number = (inputs.num_active() * share).long().clamp(min=1)
    least = values.sort(descending=True).values.index_select(0, number[None] - 1)
    return values >= least


def _check_share(share: float) -> None:
    if not 0 < share <= 1:
        raise ValueError(f"share must lie in (0, 1]; got {share}")


_BY_NAME = {
    "ppo": TokenLoss(_ppo, scales_with_advantage=True, clipped=_ppo_clipped),
    "gspo": TokenLoss(
        _gspo, needs_sequences=True, scales_with_advantage=True, ratios=sequence_ratios, clipped=_gspo_clipped
    ),
    "gmpo": TokenLoss(_gmpo, needs_sequences=True, scales_with_advantage=True, clipped=_gmpo_clipped),
    "cispo": TokenLoss(_cispo, scales_with_advantage=True, clipped=_cispo_clipped),
    "sapo": sapo(),
    "dppo_tv": _dppo(_total_variation),
    "dppo_kl": _dppo(_binary_kl),
    "vespo": vespo(),
    "reinforce": TokenLoss(_reinforce, scales_with_advantage=True),
}
_BUILTIN = frozenset(_BY_NAME)
