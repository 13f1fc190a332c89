"""From logits to tokens, as a function of seeds alone: which rows share a batch has no part in what is drawn.

A generator draws in the order in which it is asked, so that samples depend on how a batch is cut. Here every response
has a seed of its own, its t-th token takes the t-th number of that seed's SplitMix64 sequence (Steele, Lea and Flood
2014), and the whole batch is drawn by inverting the distribution function: one uniform number a token. Samples are then
the same however the batch is cut, as far as the logits are: products of another size may round differently.
"""

from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor

from outcome_rl.grpo.config.schema import SamplingConfig
from outcome_rl.grpo.data.problems import derive_seed
from outcome_rl_kernels.counts.entries import GOLDEN_RATIO, mix64


def sample_seeds(prompts: Sequence[Sequence[int]], n: int, seed: int) -> list[int]:
    """A seed for every response, a function of `seed` (that of the step), its prompt and its number among the samples.

    A question keeps its seeds whatever else is in the batch. One that stands in it twice gets twice as many.
    """
    drawn: Counter[int] = Counter()
    seeds = []
    for prompt in prompts:
        question = derive_seed(seed, *prompt)
        seeds += [derive_seed(question, drawn[question] + sample) for sample in range(n)]
        drawn[question] += n
    return seeds


def uniforms(seeds: Sequence[int], count: int) -> Tensor:
    """The first `count` numbers in [0, 1) of each seed's sequence, (R, count) float64."""
    places = np.arange(1, count + 1, dtype=np.uint64) * GOLDEN_RATIO
    bits = mix64(np.array(seeds, dtype=np.uint64)[:, None] + places)
    return torch.from_numpy((bits >> np.uint64(11)) * 2.0**-53)


def draw(logits_RV: Tensor, uniforms_R: Tensor) -> Tensor:
    """A token (R,) for each row, from the softmax of its logits; none whose probability is zero.

    The distribution function is summed in float64: in float32 the rare tokens of a large vocabulary would be lost.
    """
    summed_RV = logits_RV.float().softmax(dim=-1).cumsum(dim=-1, dtype=torch.float64)
    return torch.searchsorted(summed_RV, uniforms_R[:, None] * summed_RV[:, -1:], right=True)[:, 0]


def warper(sampling: SamplingConfig) -> Callable[[Tensor], Tensor]:
    """Temperature, then top-k, then top-p, as `generate` applies them: logits (R, V) to those that are sampled from."""
    from transformers import TemperatureLogitsWarper, TopKLogitsWarper, TopPLogitsWarper

    steps = [TemperatureLogitsWarper(sampling.temperature)] if sampling.temperature != 1 else []
    if sampling.top_k > 0:
        steps.append(TopKLogitsWarper(sampling.top_k))
    if sampling.top_p < 1:
        steps.append(TopPLogitsWarper(sampling.top_p))

    def warp(logits_RV: Tensor) -> Tensor:
        for step in steps:
            logits_RV = step(None, logits_RV)
        return logits_RV

    return warp
