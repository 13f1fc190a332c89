"""Outcome-based exploration in TRL: `OutcomeGRPOTrainer` in place of `GRPOTrainer`.

`exploration_advantages` does the same in one call, for your own subclass of `GRPOTrainer`.
"""

from outcome_rl.integrations.trl.compatibility import check_trl

check_trl()  # before the modules below import TRL, whose absence or version would show as another error

from outcome_rl.integrations.trl.advantages import exploration_advantages  # noqa: E402
from outcome_rl.integrations.trl.trainer import OutcomeGRPOTrainer  # noqa: E402

__all__ = ["OutcomeGRPOTrainer", "exploration_advantages"]
