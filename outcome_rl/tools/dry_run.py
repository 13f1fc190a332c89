"""Steps of a run, and the obstacle to it here, for `--dry-run`: the run's own plan, without loading weights."""

from contextlib import closing

from outcome_rl.grpo.config.schema import TrainConfig
from outcome_rl.grpo.plan import plan


def describe(config: TrainConfig) -> list[str]:
    """Return the lines that `outcome-rl train --dry-run` prints after the settings.

    Raises:
        ValueError: the run would not start here; the message says why.
    """
    try:
        with closing(plan(config)) as planned:
            done = planned.saved.get("run", {}).get("step", 0)
            continues = [] if planned.checkpoint is None else [f"Continues after step {done}: {planned.checkpoint}"]
            steps = f"Steps: {planned.order.steps_per_epoch} per epoch, {planned.total_steps} in all"
            return [*continues, steps]
    except (OSError, ValueError) as error:
        raise ValueError(f"the run would not start here: {error}") from error
