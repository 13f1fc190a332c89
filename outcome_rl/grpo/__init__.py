"""A lean GRPO driver: rollout -> answer -> key -> count -> bonus -> advantage -> loss -> step.

`trainer.py` holds that line; every other module is one of its parts.
"""
