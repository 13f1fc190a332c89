"""Supports as top-p sampling leaves them: most positions keep few tokens, some keep thousands."""

import math

import torch
from torch import Tensor

from outcome_rl_kernels import Support

# SmolLM2-135M at temperature 1 and top-p 0.95: log-normal sizes, and one token that a third of the positions keep.
MEDIAN, MEAN, LONGEST, HOTTEST = 19, 117, 2850, 0.32
SIGMA = math.sqrt(2 * math.log(MEAN / MEDIAN))


def even_support(labels_N: Tensor, vocabulary: int, kept: int) -> Support:
    """Return supports of `kept` tokens each, the label among them."""
    sizes_N = torch.full((len(labels_N),), kept, device=labels_N.device)
    return _of_sizes(labels_N, sizes_N, vocabulary, hottest=0.0)


def uneven_support(labels_N: Tensor, vocabulary: int, longest: int = LONGEST) -> Support:
    """Return supports with sizes drawn as above; one position keeps the most, and token 0 is the hottest."""
    generator = torch.Generator(labels_N.device).manual_seed(0)
    drawn_N = torch.randn(len(labels_N), generator=generator, device=labels_N.device)
    sizes_N = (MEDIAN * (SIGMA * drawn_N).exp()).long().clamp(1, longest)
    sizes_N[-1] = longest
    return _of_sizes(labels_N, sizes_N, vocabulary, HOTTEST)


def _of_sizes(labels_N: Tensor, sizes_N: Tensor, vocabulary: int, hottest: float) -> Support:
    """Fill supports with a run of tokens from a random one; the label is the first, token 0 maybe the second."""
    generator = torch.Generator(labels_N.device).manual_seed(1)
    device, N = labels_N.device, len(labels_N)
    offsets = torch.cat([sizes_N.new_zeros(1), sizes_N.cumsum(0)])
    starts_N = torch.randint(vocabulary, (N,), generator=generator, device=device)
    within = torch.arange(int(offsets[-1]), device=device) - offsets[:-1].repeat_interleave(sizes_N)
    ids = (starts_N.repeat_interleave(sizes_N) + within) % vocabulary
    ids[offsets[:-1]] = labels_N
    keeps_hot_N = (torch.rand(N, generator=generator, device=device) < hottest) & (sizes_N > 1)
    ids[offsets[:-1][keeps_hot_N] + 1] = 0
    return Support(offsets, ids)
