"""The token policy loss: the specification, in plain PyTorch, for any dtype up to float64.

Shapes: N tokens (all sequences flattened), V vocabulary, S sequences.

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

Aggregation follows verl's names and `agg_loss`: a sequence without a counted token never counts as a sequence.
"""

from dataclasses import dataclass, fields
from typing import Literal, NamedTuple, get_args

import torch
from torch import Tensor

AnswerMaskMode = Literal["policy", "bonus", "all", "none"]
ImportanceLevel = Literal["token", "sequence"]
KLPenalty = Literal["k1", "k2", "k3"]
LossAggregation = Literal[
    "token-mean", "token-sum", "seq-mean-token-sum", "seq-mean-token-mean", "seq-mean-token-sum-norm"
]


@dataclass(frozen=True, kw_only=True)
class LossSettings:
    """The scalars of the loss; each field is documented where the public functions take it."""

    answer_mask_mode: AnswerMaskMode = "policy"
    temperature: float = 1.0
    beta: float = 0.0
    kl_penalty: KLPenalty = "k3"
    epsilon_low: float = 0.2
    epsilon_high: float = 0.2
    delta: float | None = None
    importance_level: ImportanceLevel = "token"
    loss_agg: LossAggregation = "token-mean"
    entropy_coef: float = 0.0
    log_ratio_clamp: float | None = None
    kl_clamp: float | None = None

    def __post_init__(self) -> None:
        choices = {
            "answer_mask_mode": AnswerMaskMode,
            "kl_penalty": KLPenalty,
            "importance_level": ImportanceLevel,
            "loss_agg": LossAggregation,
        }
        for name, literal in choices.items():
            value = getattr(self, name)
            if value not in get_args(literal):
                raise ValueError(f"{name} must be one of {', '.join(map(repr, get_args(literal)))}; got {value!r}")
        for field in fields(self):
            value = getattr(self, field.name)
            if field.name in choices or value is None:
                continue
            if isinstance(value, bool) or not isinstance(value, int | float):
                raise TypeError(f"{field.name} must be a Python number; got {type(value).__name__}")
        if not self.temperature > 0:
            raise ValueError(f"temperature must be > 0; got {self.temperature}")
        if not 0 <= self.epsilon_low <= 1:
            raise ValueError(f"epsilon_low must lie in [0, 1], so that 1 - epsilon_low >= 0; got {self.epsilon_low}")
        if not self.epsilon_high >= 0:
            raise ValueError(f"epsilon_high must be >= 0; got {self.epsilon_high}")
        if self.delta is not None and not self.delta > 1:
            raise ValueError(
                f"delta bounds the ratio of negative advantages from above and must be > 1; got {self.delta}"
            )
        for name in ("log_ratio_clamp", "kl_clamp"):
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise ValueError(f"{name} must be > 0 or None; got {value}")


class TokenBatch(NamedTuple):
    """Per-token inputs of the loss, flattened over sequences; a None means that the term is absent."""

    labels_N: Tensor  # int64
    advantages_N: Tensor
    mask_N: Tensor  # bool
    sequence_ids_N: Tensor  # int64 in [0, num_sequences)
    num_sequences: int
    horizon: int | Tensor  # denominator of "seq-mean-token-sum-norm": T, or the longest packed sequence
    bonuses_N: Tensor | None = None
    answer_mask_N: Tensor | None = None  # bool
    ref_logps_N: Tensor | None = None
    old_logps_N: Tensor | None = None
    rollout_weights_N: Tensor | None = None

    def select(self, rows: Tensor | slice) -> "TokenBatch":
        """The batch restricted to the tokens `rows`, indices or a range."""
        chosen = {
            name: value[rows] for name, value in self._asdict().items() if name.endswith("_N") and value is not None
        }
        return self._replace(**chosen)

    def to(self, dtype: torch.dtype) -> "TokenBatch":
        """The batch with its floating-point columns in `dtype`."""
        return self._replace(
            **{
                name: value.to(dtype)
                for name, value in self._asdict().items()
                if name.endswith("_N") and value is not None and value.is_floating_point()
            }
        )


class PolicyLossOutput(NamedTuple):
    """Loss and diagnostics; only `loss` carries a gradient.

    `logps` and `entropies` have the shape of the labels and are 0 on tokens that were not computed. `metrics` holds 0-d
    tensors: `kl`, `ratio_mean`, `entropy` (means over the computed tokens), `clip_fraction` (share of the computed
    policy tokens whose ratio is clipped), `active_tokens` (what the denominator counts) and `computed_tokens`.
    """

    loss: Tensor
    logps: Tensor
    entropies: Tensor
    metrics: dict[str, Tensor]


def active_tokens(batch: TokenBatch, mode: AnswerMaskMode) -> Tensor:
    """(N,) bool: the tokens that the denominator counts."""
    if mode == "all" and batch.answer_mask_N is not None:
        return batch.mask_N & ~batch.answer_mask_N
    return batch.mask_N


def head_logits(hidden_NH: Tensor, weight: Tensor, bias: Tensor | None, *, fp32_logits: bool) -> Tensor:
    """(N, V) `hidden @ weight.T + bias`, with `fp32_logits` not rounded to the half precision of the operands."""
    if fp32_logits and weight.dtype.itemsize < 4:
        hidden_NH, weight, bias = hidden_NH.float(), weight.float(), None if bias is None else bias.float()
    return torch.nn.functional.linear(hidden_NH, weight, bias)


def logps_and_entropies(logits_NV: Tensor, labels_N: Tensor, temperature: float) -> tuple[Tensor, Tensor]:
    """Log-probability of each label and entropy of each row, of `softmax(logits / temperature)`.

    bf16 and fp16 logits are upcast first: a log-sum-exp over V terms in half precision is off in the second digit.
    """
    logits_NV = logits_NV.to(torch.promote_types(logits_NV.dtype, torch.float32)) / temperature
    log_probs_NV = logits_NV.log_softmax(dim=-1)
    logps_N = log_probs_NV.gather(1, labels_N[:, None])[:, 0]
    # A token of probability 0 (logit -inf) contributes 0 to the entropy, not 0 * -inf.
    entropies_N = -(log_probs_NV.exp() * log_probs_NV.masked_fill(log_probs_NV.isneginf(), 0.0)).sum(dim=-1)
    return logps_N, entropies_N


def contributing_tokens(batch: TokenBatch, active_N: Tensor, settings: LossSettings) -> Tensor:
    """(N,) bool: the active tokens whose loss can have a gradient.

    The others have neither a KL nor an entropy term, and their policy term is zero whatever the ratio: zero advantage,
    bonus included, zero rollout weight, or an answer token that `answer_mask_mode="policy"` drops. Where the ratio is
    the sequence's, all tokens of a sequence count as soon as one does: each has its part in the ratio.
    """
    if (settings.beta != 0 and batch.ref_logps_N is not None) or settings.entropy_coef != 0:
        return active_N
    contributes_N = active_N & (effective_advantages(batch, settings) != 0)
    if batch.rollout_weights_N is not None:
        contributes_N = contributes_N & (batch.rollout_weights_N != 0)
    if settings.answer_mask_mode == "policy" and batch.answer_mask_N is not None:
        contributes_N = contributes_N & ~batch.answer_mask_N
    if settings.importance_level == "sequence" and batch.old_logps_N is not None:
        contributes_N = active_N & (_sum_by_sequence(contributes_N.long(), batch) > 0)[batch.sequence_ids_N]
    return contributes_N


def effective_advantages(batch: TokenBatch, settings: LossSettings) -> Tensor:
    """Advantage plus bonus of each token, without the bonus on the answer where `answer_mask_mode="bonus"`."""
    if batch.bonuses_N is None:
        return batch.advantages_N
    bonuses_N = batch.bonuses_N
    if settings.answer_mask_mode == "bonus" and batch.answer_mask_N is not None:
        bonuses_N = bonuses_N.masked_fill(batch.answer_mask_N, 0.0)
    return batch.advantages_N + bonuses_N


def kl_divergence(logps_N: Tensor, ref_logps_N: Tensor, settings: LossSettings) -> Tensor:
    """Per-token estimate of KL(policy || reference): k1 `lp - ref`, k2 `(lp - ref)^2 / 2`, k3 as in this module's
    head."""
    log_ratio_N = ref_logps_N - logps_N
    if settings.log_ratio_clamp is not None:
        log_ratio_N = log_ratio_N.clamp(-settings.log_ratio_clamp, settings.log_ratio_clamp)
    if settings.kl_penalty == "k1":
        kl_N = -log_ratio_N
    elif settings.kl_penalty == "k2":
        kl_N = 0.5 * log_ratio_N.square()
    else:
        kl_N = torch.expm1(log_ratio_N) - log_ratio_N
    return kl_N if settings.kl_clamp is None else kl_N.clamp(-settings.kl_clamp, settings.kl_clamp)


def _sum_by_sequence(values_N: Tensor, batch: TokenBatch) -> Tensor:
    return values_N.new_zeros(batch.num_sequences).index_add(0, batch.sequence_ids_N, values_N)


def _tokens_by_sequence(batch: TokenBatch) -> Tensor:
    """(S,) int64. Counted as integers: bfloat16 would stop at 256, where adding 1 rounds back, and float16 at 2048."""
    return _sum_by_sequence(torch.ones_like(batch.sequence_ids_N), batch)


def importance_ratios(logps_N: Tensor, batch: TokenBatch, settings: LossSettings) -> Tensor:
    """Importance ratio of each token.

    "sequence" (GSPO, arXiv:2507.18071) gives every token the value exp(mean over the sequence of lp - old_lp), while
    each token keeps its own gradient: stopgrad(s) * exp(lp - stopgrad(lp)), the paper's token variant and verl's.
    """
    if batch.old_logps_N is None:
        return (logps_N - logps_N.detach()).exp()
    log_ratio_N = logps_N - batch.old_logps_N
    if settings.importance_level == "sequence":
        mean_S = _sum_by_sequence(log_ratio_N.detach(), batch) / _tokens_by_sequence(batch).clamp(min=1)
        log_ratio_N = logps_N - logps_N.detach() + mean_S[batch.sequence_ids_N]
    if settings.log_ratio_clamp is not None:
        log_ratio_N = log_ratio_N.clamp(-settings.log_ratio_clamp, settings.log_ratio_clamp)
    return log_ratio_N.exp()


def policy_gradient_losses(ratios_N: Tensor, advantages_N: Tensor, settings: LossSettings) -> tuple[Tensor, Tensor]:
    """Clipped surrogate of each token, and whether its ratio is clipped."""
    clipped_N = ratios_N.clamp(1 - settings.epsilon_low, 1 + settings.epsilon_high)
    losses_N = -torch.minimum(ratios_N * advantages_N, clipped_N * advantages_N)
    is_clipped_N = ((ratios_N < 1 - settings.epsilon_low) & (advantages_N < 0)) | (
        (ratios_N > 1 + settings.epsilon_high) & (advantages_N > 0)
    )
    if settings.delta is not None:
        bound_N = -settings.delta * advantages_N
        is_clipped_N = is_clipped_N | ((advantages_N < 0) & (losses_N > bound_N))
        losses_N = torch.where(advantages_N < 0, torch.minimum(losses_N, bound_N), losses_N)
    return losses_N, is_clipped_N


def token_weights(
    batch: TokenBatch, active_N: Tensor, settings: LossSettings, normalizer: float | Tensor | None
) -> Tensor:
    """What each active token's loss is multiplied by, so that the scalar loss is `(losses_N * weights_N).sum()` over
    them.

    That is 1 over the denominator, and for "seq-mean-token-mean" also 1 over the active tokens of the sequence.
    `normalizer` replaces the denominator, so that the losses of micro-batches and of ranks add up to the loss of the
    whole batch. In float32, or float64 with float64 advantages.
    """
    tokens_S = _sum_by_sequence(active_N.long(), batch)
    if normalizer is None:
        normalizer = denominator(tokens_S, settings.loss_agg, batch.horizon)
    if isinstance(normalizer, Tensor):
        normalizer = normalizer.where(normalizer != 0, 1)  # nothing counts, so there is nothing to divide
    dtype = torch.promote_types(batch.advantages_N.dtype, torch.float32)
    weights_N = torch.ones_like(batch.advantages_N, dtype=dtype) / normalizer
    if settings.loss_agg == "seq-mean-token-mean":
        weights_N = weights_N / tokens_S.clamp(min=1)[batch.sequence_ids_N]
    return weights_N


def denominator(tokens_S: Tensor, loss_agg: LossAggregation, horizon: float | Tensor) -> Tensor:
    """What the aggregation divides by, of the number of counted tokens in each of S sequences; 0 where there are
    none."""
    if loss_agg == "token-sum":
        return tokens_S.new_ones(())
    if loss_agg == "token-mean":
        return tokens_S.sum()
    sequences = (tokens_S > 0).sum()
    return sequences * horizon if loss_agg == "seq-mean-token-sum-norm" else sequences


class TokenSums(NamedTuple):
    """The loss of some tokens and the sums behind its metrics, 0-d each."""

    loss: Tensor
    kl: Tensor
    ratio: Tensor
    clipped: Tensor  # policy tokens whose ratio is clipped
    policy_tokens: Tensor  # tokens that have a policy term
    entropy: Tensor


def token_sums(
    logps_N: Tensor, entropies_N: Tensor, batch: TokenBatch, weights_N: Tensor, settings: LossSettings
) -> TokenSums:
    """The loss of active tokens as a function of their log-probabilities and entropies, differentiable in both.

    Tokens may be a part of the batch; with `importance_level="sequence"` whole sequences of it.
    """
    dtype = logps_N.dtype
    batch = batch.to(dtype)
    advantages_N = effective_advantages(batch, settings)
    ratios_N = importance_ratios(logps_N, batch, settings)
    losses_N, is_clipped_N = policy_gradient_losses(ratios_N, advantages_N, settings)
    if batch.rollout_weights_N is not None:
        losses_N = losses_N * batch.rollout_weights_N
    is_policy_N = torch.ones_like(is_clipped_N)
    if settings.answer_mask_mode == "policy" and batch.answer_mask_N is not None:
        is_policy_N = ~batch.answer_mask_N
        losses_N = losses_N.masked_fill(batch.answer_mask_N, 0.0)
    kl_N = torch.zeros_like(logps_N)
    if batch.ref_logps_N is not None:
        kl_N = kl_divergence(logps_N, batch.ref_logps_N, settings)
        if settings.beta != 0:
            losses_N = losses_N + settings.beta * kl_N
    if settings.entropy_coef != 0:
        losses_N = losses_N - settings.entropy_coef * entropies_N
    return TokenSums(
        loss=(losses_N * weights_N.to(dtype)).sum(),
        kl=kl_N.detach().sum(),
        ratio=ratios_N.detach().sum(),
        clipped=(is_clipped_N & is_policy_N).sum(),
        policy_tokens=is_policy_N.sum(),
        entropy=entropies_N.detach().sum(),
    )


def policy_loss_from_logits(
    logits_NV: Tensor, batch: TokenBatch, weights_N: Tensor, settings: LossSettings
) -> PolicyLossOutput:
    """The loss of this module's head for tokens that are all active; see `active_tokens` and `TokenBatch.select`.

    Args:
        logits_NV: (N, V), before the division by the temperature.
        batch: inputs of the same N tokens.
        weights_N: their `token_weights`.

    Returns:
        PolicyLossOutput with (N,) logps and entropies.
    """
    logps_N, entropies_N = logps_and_entropies(logits_NV, batch.labels_N, settings.temperature)
    sums = token_sums(logps_N, entropies_N, batch, weights_N, settings)
    computed = torch.tensor(len(logps_N), device=logps_N.device)
    return PolicyLossOutput(sums.loss, logps_N.detach(), entropies_N.detach(), metrics(sums, computed))


def metrics(sums: TokenSums, computed_tokens: Tensor) -> dict[str, Tensor]:
    """The metrics of a `PolicyLossOutput` from the sums over its computed tokens."""
    tokens = computed_tokens.clamp(min=1)
    return {
        "kl": sums.kl / tokens,
        "ratio_mean": sums.ratio / tokens,
        "clip_fraction": sums.clipped / sums.policy_tokens.clamp(min=1),
        "entropy": sums.entropy / tokens,
        "computed_tokens": computed_tokens,
    }
