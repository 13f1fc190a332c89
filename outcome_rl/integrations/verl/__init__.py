"""Outcome-based exploration in verl 0.9: a plug-in that verl finds by its entry point group `verl.plugins`.

    algorithm.adv_estimator=outcome_grpo +algorithm.outcome_exploration.bonus=batch

The estimator replaces `grpo`. verl gives an estimator rewards and a group id that is new at every fetch. The plug-in
therefore also hooks the trainer (`trainer`), which has questions and responses: it classifies the answers, counts them
on the CPU of the driver process, and saves the counts in verl's checkpoints. docs/verl.md explains its use.
"""

ADV_ESTIMATOR = "outcome_grpo"
SETTINGS = "algorithm.outcome_exploration"
