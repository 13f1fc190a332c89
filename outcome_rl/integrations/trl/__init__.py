"""Outcome-based exploration in TRL: `OutcomeGRPOTrainer` in place of `GRPOTrainer`.

`exploration_advantages` is the same in one call, for a subclass of `GRPOTrainer` of your own.
"""

from outcome_rl.integrations.trl.compatibility import check_trl

check_trl()  # before the modules below import TRL: its absence or version would show as something else

from outcome_rl.integrations.trl.config import ExplorationConfig  # noqa: E402
from outcome_rl.integrations.trl.exploration import Exploration, exploration_advantages  # noqa: E402
from outcome_rl.integrations.trl.trainer import OutcomeGRPOTrainer  # noqa: E402

__all__ = ["Exploration", "ExplorationConfig", "OutcomeGRPOTrainer", "exploration_advantages"]
