"""Outcome-based exploration as one object: from responses to outcomes, counts, advantages, bonuses and answer masks.

    explorer = Explorer(bonus="batch", coef=0.2)              # counts and outcome classes, kept over training
    scored = explorer.score(question_ids, responses, golds)   # one entry per response; counts the batch
    explorer.save("checkpoint/exploration")                   # the same format in every training stack

- `config` has the settings, `ExplorationConfig`;
- `columns` checks and groups the columns of a batch, on one rank or many;
- `gate` leaves questions without advantages, `questions` and `saved` keep what was solved and write it to disk;
- `scored` holds a scored batch: its metrics, its answer mask, its advantages per token;
- `explorer` is the `Explorer`.

The trainer and the plug-ins for TRL, verl and slime translate column names; all their exploration is in this package.
"""
