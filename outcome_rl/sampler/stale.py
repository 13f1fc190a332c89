"""Warnings of a sampler: log-probabilities that rounding does not explain, and identical samples.

A sampler that still has old weights, or those without an adapter, gives log-probabilities of another policy. Training
then goes on without an error, on samples that the policy would not give.

The limit is 8 eps of the coarser of the two dtypes. A log-probability is a difference of logits. Each comes from a
hidden state whose value is rounded to eps of itself in every layer; rounding errors have random signs, so over tens of
layers they add up to a few eps, times logits that differ by a few units. bfloat16 has eps = 1/128, so the limit is
1/16. float16 has eps = 1/1024, so it is 1/128. float32 gets the limit of float16, because GPUs may multiply float32 in
TF32, which has the same eps. The mean over all tokens of a step is compared: single tokens of low probability differ by
far more.
"""

import logging
import warnings
from collections.abc import Hashable, Sequence

import torch

logger = logging.getLogger(__name__)

_TF32_EPS = 2.0**-10


def rounding_limit(*dtypes: torch.dtype) -> float:
    """Return the mean difference in log-probability that rounding to the coarsest of some dtypes explains."""
    return 8 * max(_TF32_EPS, *(torch.finfo(dtype).eps for dtype in dtypes))


class SamplerCheck:
    """Warn once if sampler and policy differ by more than rounding."""

    def __init__(self, advice: str, *dtypes: torch.dtype) -> None:
        """Check a sampler and a policy of these dtypes; `advice` ends the warning."""
        self._advice, self._limit = advice, rounding_limit(*dtypes)
        self._has_warned = False

    def check(self, metric: str, difference: float | None) -> None:
        """Compare the mean of |log p of the sampler - log p of the policy|; None and NaN are no measurement."""
        if self._has_warned or difference is None or not difference > self._limit:
            return
        self._has_warned = True
        logger.warning(
            "%s is %.3g, and rounding explains at most %.3g: the sampler does not sample from the policy that is "
            "trained. Its weights may be stale, lack an adapter, or be quantised. %s",
            metric,
            difference,
            self._limit,
            self._advice,
        )


def warn_of_identical(group_ids: Sequence[Hashable], completions: Sequence[Hashable]) -> None:
    """Warn that most groups of three samples or more consist of identical samples; Python shows a warning once.

    Args:
        group_ids: N ids of groups.
        completions: N texts, or tuples of token ids.
    """
    groups: dict[Hashable, list[Hashable]] = {}
    for group_id, completion in zip(group_ids, completions, strict=True):
        groups.setdefault(group_id, []).append(completion)
    large = [group for group in groups.values() if len(group) > 2]
    identical = sum(len({*group}) == 1 for group in large)
    if 2 * identical > len(large):  # a solved question of few tokens has such groups in every run
        warnings.warn(
            "most groups of a batch consist of identical completions, from which nothing is learned. Late in a run the "
            "policy may be sure of these questions. Early in a run look for a fixed seed of the sampler, a temperature "
            "near 0, or a policy that has collapsed",
            stacklevel=3,
        )
