"""The finaliser of SplitMix64 in numpy: 64-bit hashes, as the count tables in NumPy and Triton compute them."""

import numpy as np
from numpy.typing import NDArray

GOLDEN_RATIO = np.uint64(0x9E3779B97F4A7C15)  # the increment of SplitMix64


def mix64(x: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Mix 64-bit words: a bijection in which every input bit changes every output bit with probability near 1/2."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))
