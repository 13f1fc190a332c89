"""The tokens that top-k, top-p and min-p kept, from the processed log-probabilities that vLLM returns.

Tokens that were filtered out have -inf. vLLM's own `return_sampling_mask` names the kept ones too, but not on the CPU,
and then refuses every other sampling of the engine, such as an evaluation without top-k.
"""

import math
from collections.abc import Iterable

_MIN_KEPT_MASS = 0.99  # of the probabilities of the kept tokens; the rest is rounding
_FLOOR = -9999.0  # -inf in the JSON of vLLM's server


def kept_limit(top_k: int, vocabulary: int) -> int:
    """Return how many log-probabilities vLLM must return with a token for all that were kept to be among them.

    vLLM also keeps the tokens that tie with the last of the k most likely ones, in bfloat16 often several.
    """
    return min(2 * top_k + 8, vocabulary)


def kept_tokens(sampled: int, candidates: Iterable[tuple[int, float | None]], top_k: int) -> list[int]:
    """Return the kept tokens of a position, in rising order.

    Args:
        sampled: the sampled token, which was kept.
        candidates: the most likely tokens, `kept_limit` of them, with processed log-probabilities; None is unknown.
        top_k: as sampled with, for the error.

    Raises:
        ValueError: more tokens were kept than vLLM was asked for.
    """
    found = {token: logp for token, logp in candidates if logp is not None and logp > _FLOOR}
    if sum(map(math.exp, found.values())) < _MIN_KEPT_MASS:
        raise ValueError(
            f"top_k={top_k}: vLLM kept more than {len(found)} tokens, because many tie with the last; set a larger "
            "top_k, or sample without vLLM"
        )
    return sorted({sampled, *found})
