"""The claims of the paper, its measurements, and the verdict of the records on each, by one rule.

The rule, fixed beforehand: two methods are compared run by run, on the same rule table, base policy, split and seed.
Let d be the mean of those differences in the direction of the claim and s its standard error. The claim is **seen** if
d > 2 s, **not seen** if d < -2 s, which is the opposite, and **inconclusive** otherwise or with fewer than four pairs.
A claim that there is no reliable gain is seen if d + 2 s < 0.01 for the gain d, and not seen if d > 2 s. Pairs of one
split share questions and base policy, and two standard errors of a few pairs are little evidence: a verdict is a hint,
and a better one the more pairs it has.

The measurements of the paper are from arXiv:2509.06941v1: numbers from its tables of entropy and distinct answers, and
its descriptions of the figures.
"""

from typing import Literal, NamedTuple

from experiments.paper.measures import (
    BASE,
    Contrast,
    Estimate,
    Results,
    distinct_on_common_unsolved,
    final,
    frontier,
    late,
    of,
    solved,
)

Verdict = Literal["seen", "not seen", "inconclusive", "not run"]
LEAST_PAIRS = 4
STANDARD_ERRORS = 2.0
NO_GAIN = 0.01  # a gain in pass@k below this is none


class Claim(NamedTuple):
    """`left` differs from `right` in the direction `sign` (0: it does not gain reliably)."""

    text: str
    paper: str
    left: str
    right: str
    measure: str
    contrast: Contrast
    sign: int


SOLVED, DISTINCT = "questions solved", "answers a question, on those that neither solved"
CLAIMS = (
    Claim(
        "RL solves fewer training questions than the base policy at equal samples",
        "RL ahead early and behind in the long run (figure 2, top)",
        *("none", BASE, SOLVED, of(solved), -1),
    ),
    Claim(
        "The loss of diversity transfers to unsolved questions",
        "fewer answers than base sampling, also on unsolved questions (figure 2, bottom)",
        *("none", BASE, DISTINCT, distinct_on_common_unsolved, -1),
    ),
    Claim(
        "RL raises pass@1", "substantial accuracy gains (abstract)", "none", BASE, "test pass@1, last", of(final(1)), 1
    ),
    Claim(
        "RL lowers pass@k at large k below the base policy",
        "stated of outcome-based RL in the introduction",
        *("none", BASE, "test pass@32, last", of(final(32)), -1),
    ),
    Claim(
        "UCB solves more training questions than GRPO",
        "more questions solved, and sooner (figure 3)",
        *("ucb", "none", SOLVED, of(solved), 1),
    ),
    Claim(
        "UCB sees more answers on unsolved training questions than GRPO",
        "more distinct answers (figure 3)",
        *("ucb", "none", DISTINCT, distinct_on_common_unsolved, 1),
    ),
    Claim(
        "UCB does not reliably help on test questions",
        "no consistent gain in test pass@k (figure 4)",
        *("ucb", "none", "mean test pass@k, last", of(frontier), 0),
    ),
    Claim(
        "The mean baseline helps UCB on test questions",
        "steadier and better test pass@k than UCB (figure 4)",
        *("ucb_mean", "ucb", "mean test pass@k, last", of(frontier), 1),
    ),
    Claim(
        "The constant baseline gives the best frontier: above GRPO",
        "UCB-Con best of the historical methods at nearly all k (figure 4)",
        *("ucb_con", "none", "mean test pass@k, last", of(frontier), 1),
    ),
    Claim(
        "The constant baseline gives the best frontier: above UCB",
        "the same",
        *("ucb_con", "ucb", "mean test pass@k, last", of(frontier), 1),
    ),
    Claim(
        "Historical exploration finds more in training than Batch",
        "UCB-Con solves more questions than Batch (figure 5)",
        *("ucb_con", "batch", SOLVED, of(solved), 1),
    ),
    Claim(
        "Batch is best at large k at the end: above GRPO",
        "highest pass@k at large k late in training (figure 6)",
        *("batch", "none", "test pass@32, last", of(final(32)), 1),
    ),
    Claim(
        "Batch is best at large k at the end: above UCB-Con",
        "the same",
        *("batch", "ucb_con", "test pass@32, last", of(final(32)), 1),
    ),
    Claim(
        "Batch has the highest entropy of incorrect generations: above GRPO",
        "0.153 against 0.096 (table 1)",
        *("batch", "none", "token entropy, incorrect", of(late("entropy_incorrect")), 1),
    ),
    Claim(
        "Batch has the highest entropy of incorrect generations: above UCB-Con",
        "0.153 against 0.103 (table 1)",
        *("batch", "ucb_con", "token entropy, incorrect", of(late("entropy_incorrect")), 1),
    ),
    Claim(
        "Batch has the most distinct answers in an unsolved group: above GRPO",
        "5.390 against 4.805 of 8 samples (table 2)",
        *("batch", "none", "answers a group without a correct sample", of(late("group_unsolved")), 1),
    ),
    Claim(
        "Batch has the most distinct answers in an unsolved group: above UCB-Con",
        "5.390 against 4.855 of 8 samples (table 2)",
        *("batch", "ucb_con", "answers a group without a correct sample", of(late("group_unsolved")), 1),
    ),
    Claim(
        "A positive batch bonus does not do what the penalty does",
        "an ablation that the paper drops",
        *("batch_positive", "batch", "test pass@32, last", of(final(32)), -1),
    ),
)


def judge(claim: Claim, results: Results) -> tuple[Estimate | None, Verdict]:
    """Return the measured difference, and the verdict of the module's rule."""
    if not {claim.left, claim.right} <= {BASE, *results.records["plan"]["methods"]}:
        return None, "not run"
    found = results.difference(claim.left, claim.right, claim.contrast)
    return found, "inconclusive" if found is None else verdict(found, claim.sign)


def verdict(found: Estimate, sign: int) -> Verdict:
    """Apply the module's rule to a difference."""
    if found.pairs < LEAST_PAIRS:
        return "inconclusive"
    margin = STANDARD_ERRORS * found.error
    if sign == 0:
        return "seen" if found.mean + margin < NO_GAIN else "not seen" if found.mean > margin else "inconclusive"
    towards = sign * found.mean
    return "seen" if towards > margin else "not seen" if towards < -margin else "inconclusive"
