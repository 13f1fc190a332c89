"""The SmolLM2 half of the plan of experiments/sampled: GRPO on Countdown with sampled gradients of logits.

python -m experiments.smollm2.sampled            # five trainings, an hour of a core each
python -m experiments.smollm2.sampled --units 0  # one warm start, on another machine, say

Warm starts, data, steps and seeds are those of `countdown`, whose trainings of GRPO are the other half of each pair.
The rule, the margins and the power are in experiments/sampled/README.md.
"""

import sys
from functools import partial

from experiments.smollm2 import countdown
from experiments.smollm2.study import GRPO, Study, run

SAMPLED = "none-sampled"
METHODS = {GRPO: countdown.METHODS[GRPO], SAMPLED: [*countdown.METHODS[GRPO], "actor.sample_below=1.25e-4"]}
STUDY = Study("sampled", countdown.PLAN, METHODS, (), countdown.SETTINGS, taken={GRPO: countdown.STUDY.name})


if __name__ == "__main__":
    sys.exit(run(STUDY, partial(countdown.prepare, countdown.PLAN), __doc__))
