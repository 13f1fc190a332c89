"""Entry point that verl imports in every process: registers the estimator and prepares the hook of the trainer.

verl logs a plug-in's error at DEBUG only, so nothing here raises for another version of verl: the name is registered
anyway, and its use raises the error. Only one process needs the trainer's module, which is slow to import, so the
hook waits until a trainer is constructed: verl's trainer first builds its checkpoint callback.
"""

import functools
import sys
from typing import Any, NoReturn

from verl import __version__
from verl.trainer.ppo import checkpoint_callback, core_algos

from outcome_rl.integrations.verl import ADV_ESTIMATOR, algorithms


def unfit(version: str) -> str | None:
    """Return why this version of verl cannot be used, or None if it can."""
    if version.split(".")[:2] == ["0", "9"]:
        return None
    return (
        f"outcome_rl's plug-in is written for verl 0.9, not for verl {version}: the trainer that it hooks may differ. "
        "Run: pip install 'verl>=0.9.1,<0.10'"
    )


def register(version: str) -> None:
    """Register the advantage estimator, and hook the trainers that ask for it."""
    obstacle = unfit(version)
    if obstacle is not None:

        def refuse(*args: Any, **kwargs: Any) -> NoReturn:
            raise ImportError(obstacle)

        core_algos.register_adv_est(ADV_ESTIMATOR)(refuse)
        return
    core_algos.register_adv_est(ADV_ESTIMATOR)(algorithms.outcome_grpo)
    _hook_when_a_trainer_is_made()


def _hook_when_a_trainer_is_made() -> None:
    build = checkpoint_callback.build_checkpoint_callback

    @functools.wraps(build)
    def build_and_hook(config: Any) -> Any:
        from outcome_rl.integrations.verl.trainer import prepare

        prepare(config)
        return build(config)

    for name in ("verl.trainer.ppo.checkpoint_callback", "verl.trainer.ppo.v1.trainer_base"):
        if name in sys.modules:  # an external module of verl's may have imported the second one before
            sys.modules[name].build_checkpoint_callback = build_and_hook  # type: ignore[attr-defined]


register(__version__)
