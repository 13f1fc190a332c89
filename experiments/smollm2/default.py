"""The plan that decides the default method: MaxRL with Batch against GRPO, from the five warm starts of Countdown.

python -m experiments.smollm2.default            # five trainings
python -m experiments.smollm2.default --units 0  # one warm start, on another machine, say

`ExplorationConfig()` is MaxRL with Batch because of the toy language model alone. This trains it as `countdown` trained
GRPO, whose result files it is compared with: the same warm starts, made again, the same data, steps and seeds. The
test compares the policies before training of each unit, as both result files have them.

**What follows.** If pass@1 is judged lower than GRPO's, the default becomes GRPO with Batch, `adv_estimator="grpo",
bonus="batch"`, whose pass@1 on Countdown is GRPO's within .01. Else it stays MaxRL with Batch, and methods.md shows
the interval: an undecided loss is no licence to say that there is none. The other two rows decide no default; they say
what it gains.

Five units decide effects of about twice their spread. The predicted loss of pass@1 would be missed, one of .1 has a
power of nine tenths.
"""

import sys
from functools import partial

from experiments.smollm2 import countdown
from experiments.smollm2.study import GRPO, Row, Study, run

DEFAULT = "maxrl+batch"
METHODS = {
    GRPO: countdown.METHODS[GRPO],
    DEFAULT: ["exploration.adv_estimator=maxrl", "exploration.bonus=batch", "exploration.coef=0.2"],
}
ROWS = (
    Row(
        DEFAULT,
        GRPO,
        "pass@1",
        -0.02,
        0.04,
        "PKPO and Batch on these warm starts: -.006 and -.002, spread .053 and .033",
    ),
    Row(DEFAULT, GRPO, "pass@32", 0.06, 0.05, "the toy language model, +.059; PKPO here +.22"),
    Row(DEFAULT, GRPO, "diff@32", 1.0, 0.5, "half of PKPO's on these warm starts, +1.8"),
)
STUDY = Study("default", countdown.PLAN, METHODS, ROWS, countdown.SETTINGS, taken={GRPO: countdown.STUDY.name})


if __name__ == "__main__":
    sys.exit(run(STUDY, partial(countdown.prepare, countdown.PLAN), __doc__))
