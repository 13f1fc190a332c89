"""Independent seeds for the purposes of a run, from its own."""

import hashlib
import json


def derive_seed(seed: int, *purpose: str | int) -> int:
    """Derive an independent seed for one purpose, such as the rollouts of one step, from the run's seed."""
    digest = hashlib.blake2b(json.dumps([seed, *purpose]).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1
