"""From TRL's generation batch to advantages with a bonus for outcomes that were rarely seen.

Shapes: N completions of this rank, T tokens; B groups of n samples over all ranks, in TRL's order: the N of rank 0,
then those of rank 1, and so on, so that a group may span ranks.

    every rank   its N completions -> last turn -> answer
    rank 0       gathered (question id, gold, answer) of B * n completions -> outcome classes
    every rank   classes -> counts, bonuses (B, n), the same everywhere
                 its own N of them -> added to TRL's advantages, the answer's tokens kept out
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from outcome_rl.integrations.trl.config import ExplorationConfig
from outcome_rl.outcomes.answer_mask import Tokenizer, answer_mask, decode_completion
from outcome_rl.outcomes.extraction import Answer, extract_answer
from outcome_rl.outcomes.keys import question_key
from outcome_rl.outcomes.matcher import OutcomeMatcher
from outcome_rl_kernels import OutcomeCounts, group_advantages


class Exploration(NamedTuple):
    """What `exploration_advantages` found over all ranks, the same on each; tensors are on the CPU."""

    question_ids: list[str]  # B
    answers: list[str | None]  # B * n, as extracted
    outcome_keys: Tensor  # (B, n) int64
    correct: Tensor | None  # (B, n) bool; None where nothing tells
    counts: Tensor  # (B, n) int64, times each outcome was seen before
    bonuses: Tensor  # (B, n) float32, times their coefficient
    unresolved: int  # comparisons that timed out or failed


class _Sample(NamedTuple):
    """What the other ranks must know of a completion."""

    question_id: str
    gold: str | None
    answer: str | None
    correct: bool | None


class _Turn(NamedTuple):
    """The last turn of a completion that the policy wrote, without padding."""

    start: int  # first of its tokens
    ids: list[int]


def exploration_advantages(
    output: dict[str, Any],
    question_ids: Sequence[str],
    golds: Sequence[str] | None,
    *,
    config: ExplorationConfig,
    counts: OutcomeCounts,
    matcher: OutcomeMatcher,
    tokenizer: Any,
    num_generations: int,
    correct: Sequence[bool] | None = None,
) -> Exploration:
    """Count the outcomes of a generation batch and add the exploration bonus to its advantages, in place.

    `advantages = A + bonus`, 0 on the tokens of the answer for `answer_mask_mode="policy"`; the bonuses are those of
    `group_advantages`. All ranks must call this together, once a generation and in training only.

    Args:
        output: of `GRPOTrainer._generate_and_score_completions`, with `advantages` (N,). They become (N, T) where
            answer tokens are masked; `answer_mask_mode="all"` changes `tool_mask` and `num_items_in_batch` instead.
            With tools, the answer is sought in what the policy wrote after the last token that it did not write.
        question_ids: N stable ids of this rank's completions.
        golds: N reference answers, or texts that end in one, such as a solution; None where there are none.
        config: settings; its columns and `correct_reward` are not used here.
        counts: on the CPU, the same on every rank, which this call updates.
        matcher: rank 0's decides for all, so that the state to be saved is rank 0's.
        tokenizer: of the policy, with its padding token.
        num_generations: n samples a question.
        correct: N judgements to use in place of the golds, such as `rewards == 1`.

    Returns:
        The `Exploration` of all ranks.

    Raises:
        ValueError: lengths differ, groups are not n samples of one question, a question comes with another gold than
            before, or nothing tells which responses are correct although the bonus depends on it.
    """
    from accelerate import PartialState  # comes with TRL
    from accelerate.utils import gather_object

    num_local = len(output["completion_ids"])
    for name, values in (("question_ids", question_ids), ("golds", golds), ("correct", correct)):
        if values is not None and len(values) != num_local:
            raise ValueError(f"{name} must have one entry for each of {num_local} completions; got {len(values)}")
    if golds is None and correct is None and config.needs_correctness:
        raise ValueError(
            f"bonus={config.bonus!r} gives nothing to a group whose answers are all correct: pass golds or correct, or "
            "set zero_when_all_correct=False"
        )
    turns = _last_turns(output, tokenizer.pad_token_id)
    answers = [extract_answer(decode_completion(tokenizer, turn.ids)) for turn in turns]
    samples: list[_Sample] = gather_object(
        [
            _Sample(
                question_ids[i],
                None if golds is None else _final_answer(golds[i]),
                None if answer is None else answer.text,
                None if correct is None else bool(correct[i]),
            )
            for i, answer in enumerate(answers)
        ]
    )
    ids_of_groups = _groups(samples, num_generations)
    keys, judged, unresolved = _classify(samples, matcher)
    outcome_keys_Bn = keys.view(-1, num_generations)
    correct_Bn = None
    if correct is not None:
        correct_Bn = torch.tensor([sample.correct for sample in samples]).view(-1, num_generations)
    elif golds is not None:
        correct_Bn = judged.view(-1, num_generations)
    groups = group_advantages(
        torch.zeros(outcome_keys_Bn.shape),  # the reward part is TRL's
        torch.tensor([question_key(i) for i in ids_of_groups]),
        outcome_keys_Bn,
        counts,
        correct=torch.zeros_like(outcome_keys_Bn, dtype=torch.bool) if correct_Bn is None else correct_Bn,
        **config.group_settings,
    )
    assert groups.counts is not None
    if config.explores:
        first = PartialState().process_index * num_local
        bonuses_N = groups.bonuses.flatten()[first : first + num_local].to(output["advantages"].device)
        _add(output, bonuses_N, turns, answers, tokenizer, config)
    texts = [sample.answer for sample in samples]
    return Exploration(ids_of_groups, texts, outcome_keys_Bn, correct_Bn, groups.counts, groups.bonuses, unresolved)


def _add(
    output: dict[str, Any],
    bonuses_N: Tensor,
    turns: list[_Turn],
    answers: list[Answer | None],
    tokenizer: Tokenizer,
    config: ExplorationConfig,
) -> None:
    """Add bonuses to the advantages, and keep the answer's tokens out of what `answer_mask_mode` says."""
    from accelerate.utils import gather

    advantages_N, mode = output["advantages"], config.answer_mask_mode
    if mode in ("none", "all"):
        output["advantages"] = advantages_N + bonuses_N
    if mode == "none":
        return
    answer_NT = torch.zeros(output["completion_ids"].shape, dtype=torch.bool)
    spelled_NL = answer_mask(tokenizer, [turn.ids for turn in turns], answers)
    for row, (start, ids) in enumerate(turns):
        answer_NT[row, start : start + len(ids)] = spelled_NL[row, : len(ids)]
    answer_NT = answer_NT.to(advantages_N.device)
    if mode == "policy":
        output["advantages"] = (advantages_N + bonuses_N)[:, None].masked_fill(answer_NT, 0.0)
    elif mode == "bonus":
        output["advantages"] = advantages_N[:, None] + bonuses_N[:, None].masked_fill(answer_NT, 0.0)
    else:
        # TRL's tool_mask: tokens that the policy sees and the loss does not, in its denominators neither.
        written_NT = output.get("tool_mask", torch.ones_like(output["completion_mask"]))
        output["tool_mask"] = written_NT.masked_fill(answer_NT, 0)
        output["num_items_in_batch"] = gather((output["completion_mask"] * output["tool_mask"]).sum()).sum()


def _classify(samples: list[_Sample], matcher: OutcomeMatcher) -> tuple[Tensor, Tensor, int]:
    """Outcome keys (B * n,) int64, whether they are the gold's (B * n,) bool, and the comparisons without a verdict.

    Rank 0 decides: a comparison that times out on one rank and not on another must not give them different classes.
    """
    from accelerate import PartialState
    from accelerate.utils import broadcast_object_list

    decided: list[Any] = [None]
    if PartialState().is_main_process:
        question_ids, golds, answers, _ = zip(*samples, strict=True)
        outcomes = matcher.classify_answers(question_ids, answers, None if None in golds else golds)
        decided = [(torch.from_numpy(outcomes.keys), torch.from_numpy(outcomes.correct), outcomes.unresolved)]
    keys, correct, unresolved = broadcast_object_list(decided)[0]
    return keys, correct, unresolved


def _groups(samples: list[_Sample], n: int) -> list[str]:
    """The question id of each group of n consecutive samples."""
    ids = [sample.question_id for sample in samples]
    if len(ids) % n != 0 or any(len(set(ids[first : first + n])) > 1 for first in range(0, len(ids), n)):
        raise ValueError(
            f"every {n} consecutive completions must be samples of one question, as num_generations={n} and TRL's "
            f"sampler make them; got the question ids {ids[: 2 * n]}, ..., {len(ids)} in all"
        )
    return ids[::n]


def _last_turns(output: dict[str, Any], pad_id: int) -> list[_Turn]:
    """Of each completion the tokens after the last that a tool or environment wrote."""
    turns = []
    written_NT = output.get("tool_mask")
    written_rows = None if written_NT is None else written_NT.tolist()
    for row, ids in enumerate(output["completion_ids"].tolist()):
        end = len(ids)
        while (
            end and ids[end - 1] == pad_id
        ):  # not by the mask, which is empty where mask_truncated_completions applies
            end -= 1
        start = 0
        if written_rows is not None:
            start = next((i + 1 for i in range(end - 1, -1, -1) if not written_rows[row][i]), 0)
        turns.append(_Turn(start, ids[start:end]))
    return turns


def _final_answer(gold: str) -> str:
    """The answer in a solution that ends in one, such as GSM8K's `... #### 42`; else the text itself."""
    answer = extract_answer(gold)
    return gold if answer is None else answer.text
