"""The toy: a verifiable arithmetic task and a tiny policy, both small enough for the installed package."""

from pathlib import Path

from outcome_rl.toy.task import DialectTask

__all__ = ["DialectTask", "policy_dir"]


def policy_dir() -> Path:
    """Return the folder of the installed policy, for `AutoModelForCausalLM` and `AutoTokenizer`."""
    return Path(__file__).parent / "policy"
