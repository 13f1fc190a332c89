"""Runs of the trainer, whose files the tools read."""

from grpo_fixtures import _one_thread, finished, policy, shared_policy, small, small_config, two_steps

__all__ = ["_one_thread", "finished", "policy", "shared_policy", "small", "small_config", "two_steps"]
