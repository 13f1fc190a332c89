"""From columns of numbers to a scored batch: advantages and bonuses, from counts that it does not change."""

import torch
from torch import Tensor

from outcome_rl.exploration.columns import group_indices, move, rows_by_size
from outcome_rl.exploration.config import ExplorationConfig
from outcome_rl.exploration.gate import Gate
from outcome_rl.exploration.reading import Reading
from outcome_rl.exploration.scored import Scored
from outcome_rl.outcomes.extraction.answer import Answer
from outcome_rl.outcomes.keys import NO_ANSWER
from outcome_rl_kernels import GroupRule, OutcomeCounts, group_advantages
from outcome_rl_kernels.counts.api import History
from outcome_rl_kernels.counts.reference import Past


def score_batch(
    reading: Reading,
    answers: list[Answer | None],
    config: ExplorationConfig,
    rule: GroupRule,
    counts: OutcomeCounts,
    batches: int,
) -> tuple[Tensor, Scored]:
    """Compute advantages and bonuses of N responses on the device of the counts.

    Args:
        reading, answers: the responses.
        config: settings.
        rule: those of `config`, with the scale of this call.
        counts: all responses before these.
        batches: number of scored batches before this one, for bonuses that read it.

    Returns:
        The keys of the questions on that device, (N,), and `Scored`, without `solved` and `history`, which are known
        once the batch is counted.

    Raises:
        ValueError: a group holds two questions, or a registered function gives a number that is not finite.
    """
    groups = group_indices(reading.question_ids, reading.group_ids)
    order, shapes = rows_by_size(groups)
    questions_N, keys_N, correct_N, rewards_N, groups_N, order_N, *logps_N = move(
        [
            reading.questions,
            reading.keys,
            reading.correct,
            reading.correct.float() if reading.rewards is None else reading.rewards,
            torch.from_numpy(groups),
            order,
            *([] if reading.logps is None else [reading.logps]),
        ],
        counts.device,
    )
    counts_N, history_3N = counts.read(questions_N, keys_N)
    advantages_N, bonuses_N = torch.zeros_like(rewards_N), torch.zeros_like(rewards_N)
    for rows_N, shape in zip(order_N.split_with_sizes([B * n for B, n in shapes]), shapes, strict=True):
        rows_Bn = rows_N.view(shape)
        part = group_advantages(
            rewards_N[rows_Bn],
            questions_N[rows_Bn[:, 0]],
            keys_N[rows_Bn],
            counts,
            rule,
            correct=correct_N[rows_Bn],
            logps=logps_N[0][rows_Bn] if logps_N else None,
            past=Past(counts_N[rows_Bn], history_3N[:, rows_Bn[:, 0]]),
            batch=batches,
            update=False,
        )
        # Without any answer all samples share one outcome: an equal bonus for all would not explore.
        without_B1 = (keys_N[rows_Bn] == NO_ANSWER).all(dim=1, keepdim=True) & (config.no_answer == "no_bonus")
        advantages_N[rows_Bn], bonuses_N[rows_Bn] = part.advantages, part.bonuses.masked_fill(without_B1, 0.0)
    history = History(*history_3N)
    gate = Gate.of(config.gate)
    gated_N = None if gate is None else gate.closed(history)
    if gated_N is not None:
        advantages_N.masked_fill_(gated_N, 0.0)
        bonuses_N.masked_fill_(gated_N, 0.0)
    scored = Scored(
        correct=correct_N,
        rewards=rewards_N,
        keys=keys_N,
        counts=counts_N,
        **history._asdict(),
        advantages=advantages_N,
        bonuses=bonuses_N,
        groups=groups_N,
        gated=gated_N,
        answers=answers,
        solved=[],
        answer_mask_mode=config.answer_mask_mode,
        judged=reading.judged,
        unresolved=reading.unresolved,
        history={},
    )
    if rule.may_refuse:
        _check_finite(scored.host, config)
    return questions_N, scored


def _check_finite(scored: Scored, config: ExplorationConfig) -> None:
    """Refuse values of a registered function that are not finite; the tensors are on the host."""
    for setting, values_N in (("adv_estimator", scored.advantages), ("bonus", scored.bonuses)):
        if not values_N.isfinite().all():
            raise ValueError(
                f"{setting}={getattr(config, setting)!r} must give finite numbers; got "
                f"{int((~values_N.isfinite()).sum())} of {len(values_N)} that are not"
            )
