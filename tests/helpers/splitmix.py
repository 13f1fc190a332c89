"""The hash of the count tables, and its inverse: keys that collide at will."""

MASK = 2**64 - 1


def mix64(x: int) -> int:
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9 & MASK
    x = (x ^ (x >> 27)) * 0x94D049BB133111EB & MASK
    return x ^ (x >> 31)


def unmix64(x: int) -> int:
    x = _unshift(x, 31) * pow(0x94D049BB133111EB, -1, 2**64) & MASK
    x = _unshift(x, 27) * pow(0xBF58476D1CE4E5B9, -1, 2**64) & MASK
    return _unshift(x, 30)


def outcome_with_hash(question: int, wanted_hash: int) -> int:
    """The outcome that makes (question, outcome) hash to `wanted_hash`."""
    outcome = (unmix64(wanted_hash) - mix64((question + 0x9E3779B97F4A7C15) & MASK)) & MASK
    return outcome - 2**64 if outcome >= 2**63 else outcome


def _unshift(y: int, shift: int) -> int:
    """Inverts y = x ^ (x >> shift) on 64-bit words."""
    x = y
    for _ in range(64 // shift):
        x = y ^ (x >> shift)
    return x
