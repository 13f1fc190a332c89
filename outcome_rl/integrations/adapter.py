"""A training stack's columns and an `Explorer`, in between: the functions that all plug-ins share.

A stack gives rows of data, token ids and rewards, and takes advantages. The files in `examples/stacks/` are complete
uses. Between sampling and the loss a plug-in does this:

    ids = [stable_id(id_key, row, row["prompt"], place="the columns of every row", has_media=False) for row in rows]
    turns = [outcome_turn(explorer, tokens, written) for tokens, written in sampled]     # where an answer may stand
    texts = [decode_completion(tokenizer, turn.ids) for turn in turns]
    golds = golds_of_all(explorer, [row.get("answer") for row in rows], "answer", prompts)
    scored = score(explorer, Batch(ids, texts, golds, rewards, rows=rows), id_source="the column id")
    mask = answer_mask(scored, tokenizer, turns, width)
    advantages = scored.token_advantages(mask)          # (N, width), or scored.advantages + scored.bonuses, (N,)

A stack that takes one advantage per response makes its explorer by `explorer_without_mask`; one that takes one per
token calls `check_mask_mode`. `validation` and `means` give the metrics of an evaluation, which counts nothing, and
`count` counts responses that the stack has filtered out.
"""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import replace
from statistics import fmean
from typing import Any, NamedTuple

import torch
from torch import Tensor

from outcome_rl.exploration.explorer import Explorer
from outcome_rl.exploration.scored import Scored
from outcome_rl.files.rows import filled_text, id_of_row
from outcome_rl.files.rows import id_source as id_source
from outcome_rl.metrics import validation_metrics
from outcome_rl.outcomes.answer_mask import Tokenizer
from outcome_rl.outcomes.batch import Batch
from outcome_rl.questions import question_id
from outcome_rl.sampler.stale import warn_of_identical
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


class Turn(NamedTuple):
    """The tokens of a response that hold its outcome."""

    start: int  # index of the first one in the response
    ids: list[int]


def outcome_turn(explorer: Explorer, ids: Sequence[int], written: Sequence[Any]) -> Turn:
    """Return the tokens that hold the outcome: the policy's last turn, or for an outcome function the whole episode.

    Args:
        explorer: whose outcomes are read.
        ids: tokens of a response, without padding.
        written: which of them the policy wrote, and no tool or environment; if it wrote none, there is no outcome.
    """
    turn = last_turn(ids, written)
    return Turn(0, [*ids]) if turn.ids and explorer.matcher.needs_row else turn


def last_turn(ids: Sequence[int], written: Sequence[Any]) -> Turn:
    """Return the last tokens in a row that the policy wrote; none if it wrote none."""
    marks = bytes(map(bool, written))
    end = marks.rfind(1) + 1
    if end == 0:
        return Turn(0, [])
    start = marks.rfind(0, 0, end) + 1
    return Turn(start, [*ids[start:end]])


def answer_mask(scored: Scored, tokenizer: Tokenizer, turns: Sequence[Turn], width: int) -> Tensor:
    """Return which of `width` tokens of each response spell its answer, bool (N, width)."""
    mask = torch.zeros(len(turns), width, dtype=torch.bool)
    spelled = scored.answer_mask(tokenizer, [turn.ids for turn in turns])
    for row, (start, ids) in enumerate(turns):
        mask[row, start : start + len(ids)] = spelled[row, : len(ids)]
    return mask


def score(
    explorer: Explorer, batch: Batch, *, id_source: str, scale: Scale = "std", scores: Tensor | None = None
) -> Scored:
    """Score and count the batch of a stack; without golds its rewards decide which responses are correct.

    Args:
        explorer: counts, kept over training.
        batch: with rewards. Without golds, and without `is_correct`, a response with a positive reward is correct.
        id_source: where the question ids come from, in words.
        scale: as for `Explorer.score`.
        scores: (N,) numbers that decide so in place of the rewards, where these hold a penalty too.

    Returns:
        The scored batch; its metrics have `exploration/reward_disagrees`, the share of responses that are correct
        without a positive reward, or the reverse.

    Raises:
        TypeError, ValueError: as `Explorer.score` and `Explorer.set_id_source`.
    """
    explorer.set_id_source(id_source)
    warn_of_identical(batch.question_ids if batch.group_ids is None else batch.group_ids, batch.responses)
    decisive = batch.rewards if scores is None else scores
    scored = explorer.score(_judged(explorer, batch, decisive), scale=scale)
    if decisive is not None and scored.judged:
        scored = with_disagreement(scored, torch.as_tensor(decisive), torch.ones(len(batch), dtype=torch.bool))
    return scored


def with_disagreement(scored: Scored, rewards: Tensor, chosen: Tensor) -> Scored:
    """Return a batch with the metric `exploration/reward_disagrees`, over its chosen responses; 0 over none."""
    differ = ((rewards > 0).cpu() != scored.host.correct)[chosen.cpu()]
    share = differ.float().mean().nan_to_num().item()
    return replace(scored, further=scored.further | {"exploration/reward_disagrees": share})


def stable_id(id_key: str, row: Mapping[str, Any], prompt: Any, *, place: str, has_media: bool) -> str:
    """Return the id of a question: that of its row by `id_of_row`, or without an `id_key` the hash of its prompt.

    Args:
        row: what may hold the id.
        place: where that is, in words.
        has_media: whether the question is more than its prompt.

    Raises:
        ValueError: the row lacks the id, or has neither text nor a number there, or there must be one.
    """
    if id_key:
        return id_of_row(row, [id_key], _place(prompt), f"id_key must name a stable id in {place}")[0]
    if has_media:
        raise ValueError(
            f"id_key must name a stable id in {place}, since with images, videos or audio a question is more than its "
            "prompt"
        )
    return question_id(prompt)


def golds_of_all(explorer: Explorer, values: Sequence[Any], name: str, prompts: Sequence[Any]) -> list[str] | None:
    """Return the gold answers of a batch, or None if no row has one: scores then decide which responses are correct.

    With `is_correct` there are none, because a value may be anything.

    Args:
        values: N answers, None where a row has none.
        name: of their field.
        prompts: N prompts, for errors.

    Raises:
        ValueError: some rows have one and others not, so that one row would decide how the others are judged; or one
            is neither text nor a number.
    """
    if explorer.config.is_correct:
        return None
    given = [
        filled_text(value, name, "gold answer", _place(prompt))
        for value, prompt in zip(values, prompts, strict=True)
        if value is not None
    ]
    if given and len(given) < len(values):
        raise ValueError(
            f"{name} must be one answer in all rows or in none, because correctness is by gold answers or by scores; "
            f"a batch has both. Make it text or a number everywhere, or set is_correct"
        )
    return given or None


def _place(prompt: Any) -> str:
    return f"sample of the prompt {str(prompt)[:80]!r}"


def validation(
    explorer: Explorer, batch: Batch, completions: Sequence[Hashable] | None = None
) -> dict[str, list[float]]:
    """Return `validation_metrics` of samples, which are neither scored nor counted.

    Args:
        explorer: whose outcomes are read.
        batch: with rewards, or golds, or `correct`, of which the last decides first. An outcome function that needs the
            rows of the data is called only if the batch has them.
        completions: N tuples of token ids; None takes the responses.
    """
    batch = _judged(explorer, batch, batch.rewards)
    if batch.golds is None and batch.correct is None and not explorer.config.is_correct:
        raise ValueError("rewards, golds or correct must be given, or pass@k is unknown; got none of them")
    keys, given = None, batch.correct
    if batch.rows is not None or not explorer.matcher.needs_row:
        outcomes = explorer.matcher.classify(batch, limit_s=explorer.config.grading_limit_s)
        keys = outcomes.keys.tolist()
        given = outcomes.correct.tolist() if given is None else given
    correct = torch.as_tensor(given).bool().tolist()
    return validation_metrics(batch.question_ids, keys, correct, completions or batch.responses)


def means(metrics: dict[str, list[float]], source: str = "") -> dict[str, float]:
    """Return the mean of each metric over the questions that have it, with the data source in its name."""
    section = f"validation/{source}/" if source else "validation/"
    return {section + name.removeprefix("validation/"): fmean(values) for name, values in metrics.items()}


def count(explorer: Explorer, batch: Batch) -> None:
    """Count responses that a stack has dropped; their rewards, if there are some, decide as in `score`."""
    explorer.count(_judged(explorer, batch, batch.rewards))


def _judged(explorer: Explorer, batch: Batch, scores: Any) -> Batch:
    if scores is None or batch.golds is not None or batch.correct is not None or explorer.config.is_correct:
        return batch
    return replace(batch, correct=torch.as_tensor(scores) > 0)
