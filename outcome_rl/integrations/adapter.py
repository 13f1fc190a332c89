"""A training stack's columns and an `Explorer`, in between: the functions that all plug-ins share.

A stack gives rows of data, token ids and rewards, and takes advantages. The files in `examples/stacks/` are complete
uses. Between sampling and the loss a plug-in does this:

    ids, origin = stable_ids(id_key, rows, prompts, place="the columns of every row")
    turns = [outcome_turn(explorer, tokens, written) for tokens, written in sampled]     # where an answer may stand
    texts = [decode_completion(tokenizer, turn.ids) for turn in turns]
    golds = golds_of_all(explorer, [row.get("answer") for row in rows], "answer", prompts)
    scored = score(explorer, Batch(ids, texts, golds, rewards, rows=rows), id_source=origin)
    mask = answer_mask(scored, tokenizer, turns, width)
    advantages = scored.token_advantages(mask)          # (N, width), or scored.advantages + scored.bonuses, (N,)

A stack that takes one advantage per response makes its explorer with `answer_mask_mode="none"`; one that takes one per
token calls `check_mask_mode`. `validation` and `means` give the metrics of an evaluation, which counts nothing.
`Explorer.count` counts responses that the stack has filtered out.

Correctness has one source, or is unknown (`Batch.correctness`). A plug-in passes what its stack declares: `golds`,
`correct` from a reward that the user names, and otherwise the rewards, as `scores` (N, K) if there are K functions.
"""

import warnings
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import replace
from statistics import fmean
from typing import Any, NamedTuple

import torch
from torch import Tensor

from outcome_rl.exploration.explorer import Explorer
from outcome_rl.exploration.scored import Scored
from outcome_rl.files.rows import filled_text, id_of_row, id_source, one_origin
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
    return Turn(0, [*ids]) if turn.ids and explorer.matcher.reads == "rows" else turn


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


def score(explorer: Explorer, batch: Batch, *, id_source: str, scale: Scale | None = None) -> Scored:
    """Score and count the batch of a stack; `Batch.correctness` says which responses are correct.

    Args:
        explorer: counts, kept over training.
        batch: with rewards; give `scores` too if the rewards are a sum of several functions or hold a penalty.
        id_source: where the question ids come from, in words.
        scale: as for `Explorer.score`.

    Returns:
        The scored batch, `with_disagreement`.

    Raises:
        TypeError, ValueError: as `Explorer.score` and `Explorer.set_id_source`.
    """
    explorer.set_id_source(id_source)
    warn_of_identical(batch.question_ids if batch.group_ids is None else batch.group_ids, batch.responses)
    scored = explorer.score(batch, scale=scale)
    return with_disagreement(scored, batch.rewards if batch.scores is None else batch.scores)


def with_disagreement(scored: Scored, scores: Any) -> Scored:
    """Return a scored batch with the metric `exploration/reward_disagrees`, if a single reward function gives 0 and 1.

    It is the share of responses that are correct with score 0, or the reverse.

    Args:
        scored: N responses.
        scores: (N,) or (N, K) numbers of the reward functions, NaN for a response that is left out; or None.
    """
    given = torch.as_tensor([] if scores is None else scores).detach().cpu()
    if not scored.judged or given.numel() != len(scored.correct):
        return scored
    scores_N = given.flatten()
    chosen_N = ~scores_N.isnan()
    if not torch.isin(scores_N[chosen_N], torch.tensor([0.0, 1.0])).all():
        return scored
    differ = (scores_N == 1) != scored.host.correct
    share = differ[chosen_N].float().mean().nan_to_num().item()
    return replace(scored, further=scored.further | {"exploration/reward_disagrees": share})


def correct_by_reward(scores_NK: Tensor, chosen: Sequence[int], threshold: float) -> Tensor | None:
    """Return which responses the named rewards call correct: one of them is at least the threshold.

    Without a named reward that is unknown: None.

    Args:
        scores_NK: numbers of K reward functions for N responses, NaN where a function gave none.
        chosen: indices of the functions that decide.

    Raises:
        ValueError: none of them scored a response that another function scored.
    """
    if not chosen:
        return None
    decisive = scores_NK[:, [*chosen]]
    if (decisive.isnan().all(dim=1) & ~scores_NK.isnan().all(dim=1)).any():
        raise ValueError(
            "correct_reward gave None for a completion that another reward function scored, so it is unknown "
            "whether it is correct. Give correct_reward a list that has a function for every row of the data"
        )
    return (decisive >= threshold).any(dim=1)


def stable_ids(
    id_key: str,
    rows: Sequence[Mapping[str, Any]],
    prompts: Sequence[Any],
    *,
    place: str,
    has_media: Sequence[bool] = (),
) -> tuple[list[str], str]:
    """Return the ids of questions, by `id_of_row` or without an `id_key` the hashes of the prompts, and their origin.

    Args:
        rows: N rows, which may hold the id.
        prompts: N prompts.
        place: where the id is, in words.
        has_media: for each row, whether the question is more than its prompt; empty if none is.

    Raises:
        ValueError: a row lacks the id, has neither text nor a number there, or has its id from another origin than the
            rest; or there must be one.
    """
    if id_key:
        fix = f"id_key must name a stable id in {place}"
        places = [*map(_place, prompts)]
        found = [id_of_row(row, [id_key], where, fix) for row, where in zip(rows, places, strict=True)]
        origin = one_origin(zip(places, (origin for _, origin in found), strict=True))
        return [id_ for id_, _ in found], origin
    if any(has_media):
        raise ValueError(
            f"id_key must name a stable id in {place}, since with images, videos or audio a question is more than its "
            "prompt"
        )
    try:
        return [*map(question_id, prompts)], id_source(None, within_source=False)
    except TypeError as error:  # an image in it
        raise TypeError(f"{error}. id_key must name a stable id in {place}") from error


def golds_of_all(explorer: Explorer, values: Sequence[Any], name: str, prompts: Sequence[Any]) -> list[str] | None:
    """Return the gold answers of a batch, or None if no row has one, or if the kind of outcomes needs none.

    All batches of an explorer have them, or none has.

    Args:
        values: N answers, None where a row has none.
        name: of their field.
        prompts: N prompts, for errors.

    Raises:
        ValueError: some rows have one and others not, in this batch or an earlier one, so that one row would decide
            how the others are judged; or one is neither text nor a number.
    """
    if not explorer.matcher.needs_gold:
        return None
    given = [
        filled_text(value, name, "gold answer", _place(prompt))
        for value, prompt in zip(values, prompts, strict=True)
        if value is not None
    ]
    before = explorer.has_golds if explorer.batches else bool(given)
    if values and len(given) != len(values) * before:
        raise ValueError(
            f"{name} must be one answer in all rows or in none, because correctness has one source; {len(given)} of "
            f"{len(values)} rows of a batch have one{', and earlier batches differ' * (bool(given) != before)}. Make "
            "it text or a number everywhere"
        )
    return given or None


def _place(prompt: Any) -> str:
    return f"sample of the prompt {str(prompt)[:80]!r}"


def validation(
    explorer: Explorer, batch: Batch, completions: Sequence[Hashable] | None = None
) -> dict[str, list[float]]:
    """Return `validation_metrics` of samples, which are neither scored nor counted.

    Where `Batch.correctness` is unknown, there is neither pass@k nor the majority, and a warning says so; nor are there
    for a question whose gold is empty while others have one.

    Args:
        explorer: whose outcomes are read. An outcome function that needs the rows of the data is called only if the
            batch has them.
        batch: of all samples of its questions.
        completions: N tuples of token ids; None takes the responses.
    """
    source = batch.correctness(is_correct=not explorer.matcher.needs_gold)
    keys: list[int] | None = None
    correct: Any = batch.correct if source.source == "correct" else source.of_scores
    if batch.rows is not None or explorer.matcher.reads != "rows":
        outcomes = explorer.matcher.classify(batch, limit_s=explorer.config.grading_limit_s)
        keys = outcomes.keys.tolist()
        if source.source in ("golds", "is_correct"):
            correct = outcomes.correct
    verdicts = [None] * len(batch) if correct is None else torch.as_tensor(correct).bool().tolist()
    if source.source == "golds":
        verdicts = [one if gold.strip() else None for one, gold in zip(verdicts, batch.golds or (), strict=True)]
    if verdicts and None in verdicts:
        warnings.warn(
            "pass@k is left out for validation questions of which it is unknown which responses are correct: no gold "
            "answer, and no reward that is 0 or 1",
            stacklevel=2,
        )
    return validation_metrics(batch.question_ids, keys, verdicts, completions or batch.responses)


def means(metrics: dict[str, list[float]]) -> dict[str, float]:
    """Return the mean of each metric over the questions that have it."""
    return {name: fmean(values) for name, values in metrics.items()}
