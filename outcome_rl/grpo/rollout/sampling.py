"""Batch-invariant sampling: tokens depend on per-response seeds, never on batch composition.

A generator draws numbers in the order of the calls, so samples depend on how a batch is split. Here every response has
its own seed, its t-th token takes the t-th number of that seed's SplitMix64 sequence (Steele, Lea and Flood 2014), and
the whole batch is drawn by inverting the distribution function: one uniform number per token. Samples are then the same
however the batch is split, as far as the logits are: products of another size may round differently.
"""

from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor

from outcome_rl.grpo.config.schema import SamplingConfig
from outcome_rl.grpo.types import Prompts
from outcome_rl.sampler.seeds import derive_seed
from outcome_rl_kernels.splitmix import GOLDEN_RATIO, mix64

_BLOCK = 64  # divides most vocabularies


def sample_seeds(prompts: Prompts, n: int, seed: int) -> list[int]:
    """Derive a seed for each of the n responses to each prompt from `seed` (the step's), its prompt and its number.

    A question keeps its seeds whatever else is in the batch. A question that occurs twice gets twice as many.
    """
    drawn: Counter[int] = Counter()
    seeds = []
    for prompt in prompts:
        question = derive_seed(seed, *prompt)
        seeds += [derive_seed(question, drawn[question] + sample) for sample in range(n)]
        drawn[question] += n
    return seeds


def uniforms(seeds: Sequence[int], count: int) -> Tensor:
    """Return the first `count` numbers in [0, 1) of each seed's sequence, (S, count) float64."""
    steps = np.arange(1, count + 1, dtype=np.uint64) * GOLDEN_RATIO
    bits = mix64(np.array(seeds, dtype=np.uint64)[:, None] + steps)
    return torch.from_numpy((bits >> np.uint64(11)) * 2.0**-53)


def draw(logits_GV: Tensor, uniforms_S: Tensor, rows_S: Tensor) -> Tensor:
    """Draw a token (S,) for each sequence from the softmax of its row of logits, never one of probability zero.

    First a block of tokens is drawn, then a token of the block: a tenth of the sums of a pass over all. They are in
    float64: in float32 the rare tokens of a large vocabulary would be lost.
    """
    probabilities_GV = logits_GV.float().softmax(dim=-1)
    if missing := -probabilities_GV.shape[1] % _BLOCK:
        probabilities_GV = torch.nn.functional.pad(probabilities_GV, (0, missing))
    blocks_GNB = probabilities_GV.view(len(probabilities_GV), -1, _BLOCK)
    ends_SN = blocks_GNB.sum(dim=-1).cumsum(dim=-1, dtype=torch.float64)[rows_S]
    target_S1 = uniforms_S[:, None] * ends_SN[:, -1:]
    chosen_S1 = torch.searchsorted(ends_SN, target_S1, right=True)
    start_S1, end_S1 = (torch.nn.functional.pad(ends_SN, (1, 0)).gather(1, chosen_S1 + side) for side in (0, 1))
    summed_SB = blocks_GNB[rows_S, chosen_S1[:, 0]].cumsum(dim=-1, dtype=torch.float64)
    share_S1 = ((target_S1 - start_S1) / (end_S1 - start_S1)).clamp(max=1 - 2.0**-52)  # 1 would be past the block
    return (chosen_S1 * _BLOCK + torch.searchsorted(summed_SB, share_S1 * summed_SB[:, -1:], right=True))[:, 0]


def warper(sampling: SamplingConfig) -> Callable[[Tensor], Tensor]:
    """Return the function that applies temperature, then top-k, then top-p to logits (S, V), as `generate` does."""
    from transformers import TemperatureLogitsWarper, TopKLogitsWarper, TopPLogitsWarper

    steps = [TemperatureLogitsWarper(sampling.temperature)] if sampling.temperature != 1 else []
    if sampling.top_k > 0:
        steps.append(TopKLogitsWarper(sampling.top_k))
    if sampling.top_p < 1:
        steps.append(TopPLogitsWarper(sampling.top_p))

    def warp(logits_SV: Tensor) -> Tensor:
        for step in steps:
            logits_SV = step(None, logits_SV)
        return logits_SV

    return warp
