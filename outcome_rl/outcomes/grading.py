"""The one grader: whether an answer equals a gold answer, for `OutcomeMatcher`, `math_verify` and verifiers' rubric.

Keys decide first, then the tolerance, if it is wanted, and what a sentence states. math-verify votes on pairs that no
rule reads, if what it drops without notice is the same in both texts (`refutation`). docs/outcomes.md has the table of
all that is accepted.
"""

from collections.abc import Iterable
from functools import cache

from outcome_rl.isolation.grader import MathVerifyPool, Pair, Progress, Verdict
from outcome_rl.outcomes.keys import Tag, canonical_text, is_open
from outcome_rl.outcomes.refutation import refuted, states
from outcome_rl.outcomes.tolerance import contradicts, within_tolerance

MAX_COMPARED_CHARS = 300
"""Longer answers are compared only by canonical text. The longest of 13,286 gold answers has 139 characters; longer
texts are prose, which math-verify reads as a product of letters, for seconds."""


LONGEST_VOTE_S = 30.0
"""Longest time limit of a vote by the shared pool."""


@cache
def shared_pool() -> MathVerifyPool:
    """Return the pool of the functions that are called without one; its processes start at the first vote."""
    return MathVerifyPool(timeout_s=LONGEST_VOTE_S)


def grade(
    pairs: Iterable[Pair],
    pool: MathVerifyPool,
    *,
    tolerant: bool,
    deadline: float = float("inf"),
    timeout_s: float | None = None,
    most: int | None = None,
    progress: Progress | None = None,
) -> dict[Pair, Verdict]:
    """Return the verdict on each pair of a gold answer and an answer.

    Args:
        pairs: gold answers and answers, without boxes; an empty text is no answer, and equals nothing.
        pool: casts the votes.
        tolerant: whether an answer that agrees with the gold answer but for rounding, labels or units is equal
            (`tolerance`).
        deadline, timeout_s, progress: as for `MathVerifyPool.vote`.
        most: number of pairs that are voted on; the verdict on further ones is "cut". None is no limit.

    Raises:
        ValueError: `timeout_s` is above the time limit of the pool.
        RuntimeError: the workers do not start.
    """
    verdicts: dict[Pair, Verdict] = {}
    unread = []
    for pair in dict.fromkeys(pairs):
        gold, answer = map(canonical_text, pair)
        equal = gold == answer != ""
        if equal and tolerant and pair[0] != pair[1]:
            equal = not contradicts(*pair)
        elif not equal and gold and answer:
            equal = tolerant and within_tolerance(*pair)
            if not equal and (is_open(gold) or is_open(answer)) and can_vote(*pair):
                equal = tolerant and states(*pair)
                if not equal and not refuted(*pair):
                    unread.append(pair)
        verdicts[pair] = "equal" if equal else "different"
    if not unread:
        return verdicts
    verdicts |= dict.fromkeys(unread[most:] if most is not None else (), "cut")
    unread = unread[:most]
    # A gold on which math-verify hangs does so once, with a number.
    golds = dict.fromkeys(gold for gold, _ in unread if is_open(canonical_text(gold)))
    of_gold = dict(zip(golds, pool.vote([("1", gold) for gold in golds], deadline, timeout_s=timeout_s), strict=True))
    hung = {pair: of_gold[pair[0]] for pair in unread if of_gold.get(pair[0]) in ("timeout", "error")}
    asked = [pair for pair in unread if pair not in hung]
    votes = pool.vote(asked, deadline, timeout_s=timeout_s, progress=progress)
    for pair, vote in zip(asked, votes, strict=True):
        verdicts[pair] = "different" if vote == "equal" and tolerant and contradicts(*pair) else vote
    return verdicts | hung


def can_vote(a: str, b: str) -> bool:
    """Return whether math-verify may compare two answers: neither is long, nor equal to nothing but itself."""
    unique = any(canonical_text(text).startswith(Tag.UNIQUE) for text in (a, b))
    return not unique and max(len(a), len(b)) <= MAX_COMPARED_CHARS
