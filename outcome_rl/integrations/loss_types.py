"""TRL's loss types, which Liger shares, as settings of `linear_policy_loss`."""

from typing import Any

from outcome_rl_kernels.loss.losses.sapo import sapo
from outcome_rl_kernels.loss.losses.vespo import vespo
from outcome_rl_kernels.loss.types import LossAggregation

# "token-sum" where the denominator is the caller's.
AGGREGATION: dict[str, LossAggregation] = {
    "grpo": "seq-mean-token-mean",
    "bnpo": "token-mean",
    "dr_grpo": "token-sum",
    "dapo": "token-sum",
    "luspo": "token-sum",
    "cispo": "token-sum",
    "sapo": "seq-mean-token-mean",
    "vespo": "token-sum",
}
OF_ALL_TOKENS = ("dapo", "cispo", "vespo")  # divided by the tokens of the whole batch on all processes
UNCLIPPED = ("cispo", "sapo", "vespo")  # they define the weight of a ratio themselves


def obstacles_of(
    loss_type: str, level: str, epsilon_high: float, delta: float | None, *, unbiased_kl: bool
) -> dict[str, bool]:
    """Return options that `linear_policy_loss` cannot express, and whether each is set.

    Args:
        loss_type, level, epsilon_high, delta: `loss_type`, `importance_sampling_level` and bounds, as TRL takes them.
        unbiased_kl: `use_bias_correction_kl`, of a loss with KL.
    """
    return {
        f"loss_type={loss_type!r} (it takes {', '.join(AGGREGATION)})": loss_type not in AGGREGATION,
        f"loss_type={loss_type!r} with importance_sampling_level='sequence'": loss_type in UNCLIPPED
        and level == "sequence",
        "use_bias_correction_kl with importance_sampling_level='sequence'": unbiased_kl and level == "sequence",
        "loss_type='cispo' with epsilon_high below 1": loss_type == "cispo" and epsilon_high < 1,
        "delta below 1 + epsilon_high": loss_type not in UNCLIPPED and delta is not None and delta < 1 + epsilon_high,
    }


def settings_of(
    loss_type: str,
    level: str,
    epsilon_low: float,
    epsilon_high: float,
    delta: float | None,
    temperatures: tuple[float, float],
    gammas: tuple[float, float, float, float],
) -> dict[str, Any]:
    """Return `token_loss`, its bounds and `loss_agg`.

    Args:
        temperatures: SAPO's, of positive advantages and of the others.
        gammas: VESPO's k and lambda of positive advantages, then of the others.
        others: as for `obstacles_of`. The upper bound of "cispo" is epsilon_high itself, and it has no lower one.
    """
    token_loss: Any = "gspo" if level == "sequence" else "ppo"
    if loss_type == "cispo":
        token_loss, epsilon_low, epsilon_high = "cispo", 1.0, epsilon_high - 1
    elif loss_type == "sapo":
        token_loss = "sapo" if temperatures == (1.0, 1.05) else sapo(*temperatures)
    elif loss_type == "vespo":
        token_loss = "vespo" if gammas == (2.0, 3.0, 3.0, 2.0) else vespo(*gammas)
    return {
        "token_loss": token_loss,
        "epsilon_low": epsilon_low,
        "epsilon_high": epsilon_high,
        "delta": None if loss_type in UNCLIPPED else delta,
        "loss_agg": AGGREGATION[loss_type],
    }
