"""Outcome-based exploration in TRL: `OutcomeGRPOTrainer` in place of `GRPOTrainer`."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from outcome_rl.integrations.trl.trainer import OutcomeGRPOTrainer

__all__ = ["OutcomeGRPOTrainer"]


def __getattr__(name: str) -> Any:
    if name != "OutcomeGRPOTrainer":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        from outcome_rl.integrations.trl.trainer import OutcomeGRPOTrainer
    except ModuleNotFoundError as error:
        if error.name != "trl":
            raise
        from outcome_rl.integrations.trl.compatibility import TRIED

        raise ImportError(f"OutcomeGRPOTrainer needs TRL, which is not installed here: pip install '{TRIED}'") from None
    return OutcomeGRPOTrainer
