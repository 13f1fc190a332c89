"""Token losses for tests, in a module that settings name."""

from typing import Any

from torch import Tensor

from outcome_rl import TokenLoss


def doubled(logps: Tensor, entropies: Tensor, inputs: Any) -> Tensor:
    """Return twice the losses of `reinforce`."""
    return -2 * inputs.advantages * logps


doubled_of_sequences = TokenLoss(doubled, needs_sequences=True, scales_with_advantage=True)
