"""The toy default: a verifiable arithmetic task and a tiny policy, both small enough to ship in the package."""

from pathlib import Path

from outcome_rl.toy.task import DialectTask

__all__ = ["DialectTask", "policy_dir"]


def policy_dir() -> Path:
    """Folder of the shipped policy, loadable with `AutoModelForCausalLM` and `AutoTokenizer`."""
    return Path(__file__).parent / "policy"
