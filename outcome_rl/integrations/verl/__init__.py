"""Outcome-based exploration in verl 0.9: a plug-in that verl finds by itself, by the entry point group `verl.plugins`.

    algorithm.adv_estimator=outcome_grpo +algorithm.outcome_exploration.bonus=ucb_con

The estimator replaces `grpo`. verl gives an estimator rewards and a group id that is new at every fetch, so the plug-in
also hooks the trainer (`trainer`), which knows questions and responses: it classifies the answers, counts them on the
CPU of the driver actor, and saves the counts with verl's checkpoints. docs/integrate.md tells how to switch it on.
"""

ADV_ESTIMATOR = "outcome_grpo"
POLICY_LOSS = "outcome"
SETTINGS = "algorithm.outcome_exploration"
