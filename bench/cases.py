"""Inputs on which policy losses are compared: heads of real models, rectangular batches and RL micro-batches.

Hidden states and labels are random, or come from responses that a pretrained model samples.

Shapes: S sequences, T their longest, N tokens (rows of the head, padding included), H hidden, V vocabulary.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

import torch
from torch import Tensor

from bench.responses import PRETRAINED, Source, sample_responses
from outcome_rl_kernels import Support

# (H, V) of the lm_head; "small" is what two CPU cores can do in a third of a second.
MODELS = {
    "Llama-3.1-8B": (4096, 128256),
    "Qwen3-8B": (4096, 151936),
    "Qwen2.5-7B": (3584, 152064),
    "Qwen2.5-1.5B": (1536, 151936),
    "SmolLM2-135M": (576, 49152),
    "small": (512, 32000),
}
# An RL step of 256 prompts with 8 samples: log-normal lengths, clipped where generation stops.
STEP_SEQUENCES, MEDIAN_LENGTH, LENGTH_SIGMA, LONGEST = 2048, 600, 0.8, 4096
# Log-ratios of off-policy tokens: inside and outside [0.8, 1.2], none so near a bound that rounding would decide.
OFF_POLICY_LOG_RATIOS = (-0.6, -0.1, 0.1, 0.6)
PEAK = 14.0  # of the favoured token's logit, in standard deviations of the others': its probability is about 0.97
# Standard deviation of the other logits, over sqrt(2 log V), in rows like a language model's: the tokens that share the
# probability are then V ** 0.36, some 70 of 128,256.
TAIL = 0.8
FLOAT64_LOGITS_BYTES = 2**30


@dataclass(frozen=True, kw_only=True)
class Spec:
    """Description of a case: `sequences` of `length` tokens or, without `length`, a micro-batch of an RL step.

    Args:
        model: a key of MODELS.
        tokens: of the RL micro-batch, at most; its lengths are `scale` times the lengths at the top of this module.
        layout: "packed" sequences lie one after another; "padded" ones are filled up to the longest.
        logits: "peaked" rows give one token nearly all the probability, as most rows of a trained model do.
        nats: mean entropy of rows like a language model's, and labels drawn from them; 0: as `logits` says.
        dead: share of the tokens that lie in groups whose samples are all right or all wrong: their advantage is 0.
        beta: coefficient of the KL term; with one, zero-advantage groups still have a gradient.
        kept: number of tokens that truncated sampling kept for each token; 0 is the whole vocabulary.
        temperature: of `sequences` responses of at most `length` tokens that `source` samples; 0: all is random.
        top_p: of these responses; below 1 it gives each token its support.
    """

    model: str
    dtype: torch.dtype
    sequences: int = 0
    length: int | None = None
    tokens: int = 0
    scale: float = 1.0
    layout: Literal["padded", "packed"] = "padded"
    logits: Literal["random", "peaked"] = "random"
    nats: float = 0.0
    dead: float = 0.0
    beta: float = 0.001
    kept: int = 0
    temperature: float = 0.0
    top_p: float = 1.0
    source: Source = PRETRAINED

    @property
    def has_support(self) -> bool:
        return self.kept > 0 or self.top_p < 1


@dataclass(frozen=True, kw_only=True)
class Batch:
    """Inputs of a loss besides hidden states and weight, in the shapes of the public functions and flattened."""

    labels: Tensor  # (S, T), or (N,) with cu_seqlens
    mask: Tensor
    advantages: Tensor  # (S,)
    advantages_N: Tensor
    cu_seqlens: Tensor | None
    beta: float
    ref_logps: Tensor | None = None
    old_logps: Tensor | None = None
    kept_NK: Tensor | None = None  # the tokens that sampling kept, the label first and again as padding; None: all

    @cached_property  # it is an input, and must not be timed
    def support(self) -> Support | None:
        if self.kept_NK is None:
            return None
        is_kept_NK = self.kept_NK != self.kept_NK[:, :1]
        is_kept_NK[:, 0] = True
        ends_N = is_kept_NK.sum(dim=1).cumsum(dim=0)
        return Support(torch.cat([ends_N.new_zeros(1), ends_N]), self.kept_NK[is_kept_NK])

    @property
    def labels_N(self) -> Tensor:
        return self.labels.view(-1)

    @property
    def mask_N(self) -> Tensor:
        return self.mask.view(-1)

    def as_cross_entropy(self) -> "Batch":
        """Return the batch whose loss has the gradient of the mean cross-entropy over the mask's tokens."""
        ones, ones_N = torch.ones_like(self.advantages), torch.ones_like(self.advantages_N)
        return replace(self, advantages=ones, advantages_N=ones_N, beta=0.0, ref_logps=None, old_logps=None)


@dataclass(frozen=True)
class Case:
    """Inputs of the losses of a section.

    Attributes:
        hidden: (N, H).
        weight: (V, H).
        batch: on-policy; it is timed.
        off_policy: for the check.
        entropy: mean over the mask of the distribution that tokens are drawn from, in nats.
    """

    hidden: Tensor
    weight: Tensor
    batch: Batch
    off_policy: Batch
    entropy: float


def make_case(spec: Spec, device: torch.device, seed: int = 0) -> Case:
    """Return the inputs of `spec`; equal for equal seeds on the same kind of device."""
    generator = torch.Generator(device).manual_seed(seed)
    sampled = None
    if spec.temperature:
        assert spec.length is not None
        sampled = sample_responses(spec.source, spec.sequences, spec.length, spec.temperature, spec.top_p, device, seed)
    lengths_S = _lengths(spec, torch.Generator().manual_seed(seed)) if sampled is None else sampled.lengths_S
    dead_S = lengths_S.cumsum(0) <= round(spec.dead * int(lengths_S.sum()))
    advantages_S = torch.where(torch.arange(len(lengths_S)) % 2 == 0, 1.2, -0.7).masked_fill(dead_S, 0.0)
    cu_seqlens = None
    mask = torch.arange(int(lengths_S.max())) < lengths_S[:, None]
    advantages_N = advantages_S.repeat_interleave(mask.shape[1])
    if spec.layout == "packed":
        cu_seqlens = torch.cat([lengths_S.new_zeros(1), lengths_S.cumsum(0)]).to(device)
        mask = torch.ones(int(lengths_S.sum()), dtype=torch.bool)
        advantages_N = advantages_S.repeat_interleave(lengths_S)
    mask = mask.to(device)

    if sampled is None:
        hidden, weight, labels, kept_NK = _random_states(spec, mask, generator)
    else:
        hidden, weight, labels, kept_NK = sampled.hidden, sampled.weight, sampled.labels_N, sampled.kept_NK
    hidden, weight = hidden.to(spec.dtype), weight.to(spec.dtype)

    logps_N, entropies_N = _float64_statistics(hidden, weight, labels.view(-1), kept_NK)
    logps = logps_N.float().view(mask.shape)
    log_ratios = torch.tensor(OFF_POLICY_LOG_RATIOS, device=device)
    choice = torch.randint(len(log_ratios), mask.shape, generator=generator, device=device)
    batch = Batch(
        labels=labels,
        mask=mask,
        advantages=advantages_S.to(device),
        advantages_N=advantages_N.to(device),
        cu_seqlens=cu_seqlens,
        beta=spec.beta,
        ref_logps=logps + 0.1 * torch.randn(mask.shape, generator=generator, device=device) if spec.beta else None,
        kept_NK=kept_NK,
    )
    off_policy = replace(batch, old_logps=logps - log_ratios[choice])
    return Case(hidden, weight, batch, off_policy, float(entropies_N[mask.view(-1)].mean()))


def _random_states(
    spec: Spec, mask: Tensor, generator: torch.Generator
) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
    """Return hidden states (N, H), the weight, labels in the shape of the mask, and the tokens that were kept."""
    device = mask.device
    H, V = MODELS[spec.model]
    hidden = torch.randn(mask.numel(), H, generator=generator, device=device)
    weight = torch.randn(V, H, generator=generator, device=device) / math.sqrt(H)
    labels = torch.randint(V, mask.shape, generator=generator, device=device)
    if spec.nats:
        # log p of the favoured token against all others is normal: some rows are sure, some are open.
        spread = TAIL * math.sqrt(2 * math.log(V))
        favoured = math.log(V) + spread**2 / 2 + _margin(spec.nats, spread, V)
        hidden *= math.sqrt(max(spread**2 - favoured**2 / H, 0))  # the rest comes from the favoured token's row
        tokens = weight[labels.reshape(-1)]
        wanted = favoured + spread * torch.randn(len(hidden), 1, generator=generator, device=device)
        found, squares = ((tokens * other).sum(dim=1, keepdim=True) for other in (hidden, tokens))
        hidden += (wanted - found) / squares * tokens
        labels = _drawn(hidden.to(spec.dtype), weight.to(spec.dtype), generator).view(mask.shape)
    if spec.logits == "peaked":
        hidden += PEAK * weight[labels.reshape(-1)]
        unlikely = torch.rand(mask.shape, generator=generator, device=device) < 0.03
        labels = torch.where(unlikely, (labels + 1) % V, labels)

    kept_NK = None
    if spec.kept:  # distinct: the label, and tokens after a random one
        first_N1 = torch.randint(V, (mask.numel(), 1), generator=generator, device=device)
        others_NK = (first_N1 + torch.arange(spec.kept, device=device)) % V
        kept_NK = torch.cat([labels.view(-1, 1), others_NK[:, 1:]], dim=1)
    return hidden, weight, labels, kept_NK


def _margin(nats: float, spread: float, vocabulary: int) -> float:
    """Return the mean log-odds of the favoured token with which rows of a large vocabulary have `nats` in the mean.

    The log-odds are normal with deviation `spread`. With odds of p, a row has the entropy of a coin and, with 1 - p,
    that of the others: `log V - spread^2 / 2` for normal logits.
    """
    levels = (torch.arange(999, dtype=torch.float64) + 0.5) / 999
    odds = spread * torch.special.ndtri(levels)
    others = math.log(vocabulary) - spread**2 / 2
    low, high = -8 * spread, 8 * spread
    for _ in range(60):
        middle = (low + high) / 2
        p = (odds + middle).sigmoid()
        entropy = (torch.special.entr(p) + torch.special.entr(1 - p) + (1 - p) * others).mean()
        low, high = (middle, high) if entropy > nats else (low, middle)
    return low


@torch.no_grad()
def _drawn(hidden: Tensor, weight: Tensor, generator: torch.Generator) -> Tensor:
    """Return a token for each row, drawn from its softmax."""
    labels = []
    for rows in float64_chunks(len(hidden), len(weight)):
        probabilities = (hidden[rows] @ weight.t()).float().softmax(dim=-1)
        labels.append(torch.multinomial(probabilities, 1, generator=generator)[:, 0])
    return torch.cat(labels)


def only_kept(logits_RV: Tensor, kept_RK: Tensor | None) -> Tensor:
    """Return logits with -inf for the tokens that sampling did not keep."""
    if kept_RK is None:
        return logits_RV
    # A mask, not a copy of the kept logits: the gradient of a copy would count a padding label again.
    is_kept_RV = torch.zeros_like(logits_RV, dtype=torch.bool).scatter(1, kept_RK, True)
    return logits_RV.masked_fill(~is_kept_RV, -torch.inf)


def float64_chunks(num_rows: int, vocabulary: int) -> Iterator[slice]:
    """Ranges of rows whose logits in float64 take at most `FLOAT64_LOGITS_BYTES`."""
    size = max(1, FLOAT64_LOGITS_BYTES // (8 * vocabulary))
    for start in range(0, num_rows, size):
        yield slice(start, min(start + size, num_rows))


def _lengths(spec: Spec, generator: torch.Generator) -> Tensor:
    if spec.length is not None:
        return torch.full((spec.sequences,), spec.length)
    draws = (LENGTH_SIGMA * torch.randn(STEP_SEQUENCES, generator=generator)).exp()
    lengths = ((MEDIAN_LENGTH * draws).clamp(max=LONGEST) * spec.scale).ceil().long()
    return lengths[lengths.cumsum(0) <= spec.tokens]


@torch.no_grad()
def _float64_statistics(
    hidden: Tensor, weight: Tensor, labels_N: Tensor, kept_NK: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Return log-probabilities of the labels and entropies, each (N,)."""
    weight, logps, entropies = weight.double(), [], []
    for rows in float64_chunks(len(hidden), len(weight)):
        logits = only_kept(hidden[rows].double() @ weight.t(), None if kept_NK is None else kept_NK[rows])
        logps_RV = logits.log_softmax(dim=-1)
        logps.append(logps_RV.gather(1, labels_N[rows, None])[:, 0])
        entropies.append(torch.special.entr(logps_RV.exp()).sum(dim=-1))
    return torch.cat(logps), torch.cat(entropies)
