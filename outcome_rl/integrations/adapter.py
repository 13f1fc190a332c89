"""Rules that all plug-ins share: supported mask modes, and correctness without gold answers."""

from dataclasses import replace
from typing import Any

import torch

from outcome_rl.exploration.explorer import Explorer
from outcome_rl.exploration.scored import Scored
from outcome_rl.outcomes.batch import Batch
from outcome_rl_kernels.advantages.groups import Scale
from outcome_rl_kernels.loss.types import AnswerMaskMode


def check_mask_mode(mode: AnswerMaskMode, stack: str) -> None:
    """Check the mask mode for a stack that takes one advantage per token and computes its loss itself.

    Raises:
        ValueError: it is "all": advantages cannot take tokens out of a denominator.
    """
    if mode == "all":
        raise ValueError(
            f"answer_mask_mode must be 'policy', 'bonus' or 'none' for {stack}, which has one advantage per token and "
            "leaves the denominator to its loss; got 'all'. Use 'policy', which differs in the denominator only"
        )


def explorer_without_mask(stack: str, **settings: Any) -> Explorer:
    """Return an explorer for a stack that takes one advantage per response, and so cannot mask the answer's tokens.

    Raises:
        TypeError, ValueError: as `Explorer`, or `answer_mask_mode` is among the settings.
    """
    if "answer_mask_mode" in settings:
        raise ValueError(
            f"answer_mask_mode cannot be set for {stack}, which takes one advantage per response; leave it out"
        )
    return Explorer(**settings)


def score(explorer: Explorer, batch: Batch, *, id_source: str, scale: Scale = "std") -> Scored:
    """Score and count the batch of a stack; without golds its rewards decide which responses are correct.

    Args:
        explorer: counts and outcome classes, kept over training.
        batch: with rewards. Without golds, and without `is_correct`, a response with a positive reward is correct.
        id_source: where the question ids come from, in words.
        scale: as for `Explorer.score`.

    Raises:
        TypeError, ValueError: as `Explorer.score` and `Explorer.set_id_source`.
    """
    explorer.set_id_source(id_source)
    return explorer.score(_judged(explorer, batch), scale=scale)


def count(explorer: Explorer, batch: Batch) -> None:
    """Count responses that a stack has dropped; their rewards, if there are some, decide as in `score`."""
    explorer.count(_judged(explorer, batch))


def _judged(explorer: Explorer, batch: Batch) -> Batch:
    if batch.rewards is None or batch.golds is not None or batch.correct is not None or explorer.config.is_correct:
        return batch
    return replace(batch, correct=torch.as_tensor(batch.rewards) > 0)
