"""Gold answers and answers, with the verdicts of the one grader: with tolerance, and strictly."""

from tables import rows

PAIRS = [
    (gold, answer, loose == "equal", strict == "equal") for _, gold, answer, loose, strict in rows(__file__, "pairs")
]
