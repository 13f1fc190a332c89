"""Checks of the installed TRL: its version, and the methods that `OutcomeGRPOTrainer` overrides.

TRL has no interface for advantages, so the trainer overrides private methods, which any release may change and another
package may rewrite. Both checks run before any work is done.
"""

import inspect
import re
from importlib.metadata import PackageNotFoundError, version

OLDEST, NEWEST = (1, 16), (1, 16)
WANTED = f"trl>={OLDEST[0]}.{OLDEST[1]},<{NEWEST[0]}.{NEWEST[1] + 1}"

# The methods of GRPOTrainer that OutcomeGRPOTrainer overrides, with the parameters that it relies on.
HOOKS = {
    "_generate_and_score_completions": ("self", "inputs"),
    "_generate": ("self", "prompts"),
    "_calculate_rewards": ("self", "inputs", "prompts", "completions", "completion_ids_list"),
    "_get_per_token_logps_and_entropies": ("self", "model", "input_ids", "attention_mask", "logits_to_keep"),
    "_compute_loss": ("self", "model", "inputs"),
    "_save_checkpoint": ("self", "model", "trial"),
    "_load_optimizer_and_scheduler": ("self", "checkpoint"),
}


def check_trl() -> None:
    """Check the version of TRL without importing it.

    Raises:
        ImportError: TRL is not installed, or has another version.
    """
    try:
        found = version("trl")
    except PackageNotFoundError:
        raise ImportError(
            f"outcome_rl.integrations.trl needs TRL, which is not installed here: pip install '{WANTED}'"
        ) from None
    numbers = re.match(r"(\d+)\.(\d+)", found)
    if numbers is None or not OLDEST <= (int(numbers[1]), int(numbers[2])) <= NEWEST:
        raise ImportError(
            f"outcome_rl.integrations.trl works with {WANTED}, and {found} is installed: pip install '{WANTED}'"
        )


def check_hooks(trainer: type) -> None:
    """Check that a `GRPOTrainer` has the methods that `OutcomeGRPOTrainer` overrides.

    Raises:
        TypeError: one is missing or takes other parameters, as after another package has rewritten the class.
    """
    for name, expected in HOOKS.items():
        method = getattr(trainer, name, None)
        found = () if method is None else tuple(inspect.signature(method).parameters)
        if found[: len(expected)] != expected:
            has = f"takes ({', '.join(found)})" if found else "does not exist"
            raise TypeError(
                f"OutcomeGRPOTrainer overrides {trainer.__module__}.{trainer.__qualname__}.{name}"
                f"({', '.join(expected)}), which {has} here. Another package may have replaced TRL's trainer: import "
                f"this one first, or install the TRL that it is made for: pip install '{WANTED}'"
            )
