"""GRPO trainer: rollout -> answer -> key -> count -> bonus -> advantage -> loss -> step.

`trainer.py` holds that line; every other module is a part of it. `types.py` lists the records.
"""
