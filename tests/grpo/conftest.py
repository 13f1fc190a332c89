"""Runs of the trainer on the toy task."""

from grpo_fixtures import _one_thread, alone, finished, policy, shared_policy, small, small_config, split, two_steps

__all__ = ["_one_thread", "alone", "finished", "policy", "shared_policy", "small", "small_config", "split", "two_steps"]
