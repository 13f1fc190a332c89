"""Exploration for a stack that has responses, gold answers and rewards of its own: from there to advantages.

What an adapter needs at a step and over a run is in one object: classify the answers, read the counts, add bonuses to
the normalised rewards, count, and keep counts, outcome classes and solved questions in a checkpoint. Groups may differ
in size, since stacks drop failed samples.
"""

import json
import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from difflib import get_close_matches
from pathlib import Path
from typing import Any, NamedTuple, Self

import torch
from torch import Tensor

from outcome_rl.grpo.config.schema import ExplorationConfig, OutcomesConfig
from outcome_rl.outcomes.extraction import Answer
from outcome_rl.outcomes.keys import NO_ANSWER, question_key
from outcome_rl.outcomes.matcher import OutcomeMatcher
from outcome_rl_kernels import OutcomeCounts, group_advantages
from outcome_rl_kernels.advantages.reference import Scale


@dataclass(frozen=True)
class OutcomeExplorationConfig(ExplorationConfig, OutcomesConfig):
    """Exploration and outcome settings of an adapter, by the names of the driver's sections of that kind."""

    # Where a row of the data keeps the stable id of its question, such as extra_info.index; empty takes the hash of its
    # prompt.
    id_key: str = ""

    @classmethod
    def from_mapping(cls, settings: Mapping[str, Any], origin: str) -> Self:
        """The settings of a stack's own configuration.

        Args:
            settings: any of the fields; `coef` may be one number.
            origin: where they stand there, for errors.

        Raises:
            ValueError: an unknown key, with the nearest valid one.
        """
        known = [field.name for field in fields(cls)]
        for key in settings:
            if key not in known:
                nearest = get_close_matches(str(key), known, n=1)
                hint = f"did you mean {nearest[0]!r}?" if nearest else f"it has {', '.join(known)}"
                raise ValueError(f"{origin}: unknown key {key!r}; {hint}")
        given = dict(settings)
        if isinstance(given.get("coef"), int | float):
            given["coef"] = [given["coef"]]
        return cls(**given)


class ScoredResponses(NamedTuple):
    """What `OutcomeExploration.score` says of R responses."""

    advantages: Tensor  # (R,), reward part
    bonuses: Tensor  # (R,), exploration part, times its coefficient
    correct: Tensor  # (R,) bool
    answers: list[Answer | None]
    metrics: dict[str, float]  # under exploration/


class OutcomeExploration:
    """Counts, outcome classes and solved questions of a run, and the advantages that follow from them.

    Args:
        config: what to explore with.

    Raises:
        TypeError, ValueError: a setting is of the wrong type or out of range.
    """

    def __init__(self, config: OutcomeExplorationConfig) -> None:
        self.config = config
        self.matcher = OutcomeMatcher(config.equivalence, config.workers, config.timeout_s)
        self.counts = OutcomeCounts(rule=self.matcher.rule)
        self.solved: dict[str, bool] = {}  # of every question seen
        self._arguments: dict[str, Any] = {
            "bonus": config.bonus,
            "coef": config.coef if len(config.coef) > 1 else config.coef[0],
            "baseline": config.baseline,
            "zero_when_all_correct": config.zero_when_all_correct,
            "no_answer": config.no_answer,
        }
        # Wrong settings are found now rather than after the first rollout.
        nothing = torch.zeros(1, 2, dtype=torch.int64)
        group_advantages(nothing.float(), nothing[:, 0], nothing, self.counts, update=False, **self._arguments)

    def score(
        self,
        question_ids: Sequence[str],
        group_ids: Sequence[str],
        responses: Sequence[str],
        golds: Sequence[str],
        rewards: Tensor,
        *,
        scale: Scale = "std",
    ) -> ScoredResponses:
        """Classify R responses, take their advantages, and count them.

        Args:
            question_ids: stable ids of the questions.
            group_ids: which responses are normalised together; a question may have several groups in a step.
            responses: texts.
            golds: gold answers, the same for all responses to a question.
            rewards: (R,) floating point, on the CPU, as the stack's own reward function gave them. What is correct for
                the all-correct rule and `solved` follows from the golds instead: rewards may hold penalties.
            scale: "std", or "none" to leave out the division by the standard deviation (Dr. GRPO).

        Returns:
            `ScoredResponses`, without gradient.

        Raises:
            TypeError, ValueError: lengths, types or shapes are wrong; nothing is counted then.
        """
        if len(group_ids) != len(question_ids) or rewards.shape != (len(question_ids),):
            raise ValueError(
                f"group_ids and rewards must have one entry per response, {len(question_ids)}; got {len(group_ids)} "
                f"and shape {tuple(rewards.shape)}"
            )
        outcomes = self.matcher.classify(question_ids, responses, golds)
        questions_R = torch.tensor([question_key(i) for i in question_ids], dtype=torch.int64)
        keys_R, correct_R = torch.from_numpy(outcomes.keys), torch.from_numpy(outcomes.correct)
        advantages_R, bonuses_R = torch.zeros_like(rewards), torch.zeros_like(rewards)
        counts_R = torch.zeros_like(keys_R)
        groups = _rows_by_group(group_ids)
        for rows_Bn in _equal_sizes(groups):
            part = group_advantages(
                rewards[rows_Bn],
                questions_R[rows_Bn[:, 0]],
                keys_R[rows_Bn],
                self.counts,
                correct=correct_R[rows_Bn],
                scale=scale,
                update=False,
                **self._arguments,
            )
            assert part.counts is not None
            advantages_R[rows_Bn], bonuses_R[rows_Bn] = part.advantages, part.bonuses
            counts_R[rows_Bn] = part.counts
        # Only now, so that no group of a step sees another's samples, whatever their sizes.
        self._count(question_ids, questions_R, keys_R, correct_R)
        answered_R = keys_R != NO_ANSWER
        metrics = {
            "exploration/bonus_mean": bonuses_R.mean().item(),
            "exploration/bonus_abs_mean": bonuses_R.abs().mean().item(),
            "exploration/new_outcome_rate": (answered_R & (counts_R == 0)).float().mean().item(),
            "exploration/distinct_outcomes": _distinct_answers(groups, keys_R),
            "exploration/no_answer_rate": 1 - answered_R.float().mean().item(),
            "exploration/correct_rate": correct_R.float().mean().item(),
            "exploration/all_correct_groups": sum(bool(correct_R[rows].all()) for rows in groups) / max(len(groups), 1),
            "exploration/solved_fraction": sum(self.solved.values()) / max(len(self.solved), 1),
            "exploration/counted_outcomes": float(len(self.counts)),
            "exploration/unresolved": float(outcomes.unresolved),
        }
        return ScoredResponses(advantages_R, bonuses_R, correct_R, outcomes.answers, metrics)

    def count(self, question_ids: Sequence[str], responses: Sequence[str], golds: Sequence[str]) -> None:
        """Count responses that were sampled but are not trained on, such as groups that DAPO filters out."""
        outcomes = self.matcher.classify(question_ids, responses, golds)
        questions_R = torch.tensor([question_key(i) for i in question_ids], dtype=torch.int64)
        self._count(question_ids, questions_R, torch.from_numpy(outcomes.keys), torch.from_numpy(outcomes.correct))

    def _count(self, question_ids: Sequence[str], questions_R: Tensor, keys_R: Tensor, correct_R: Tensor) -> None:
        self.counts.observe(questions_R, keys_R)
        for question_id, correct in zip(question_ids, correct_R.tolist(), strict=True):
            self.solved[question_id] = correct or self.solved.get(question_id, False)

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Write everything into a folder, which is either whole or not there; one of that name is replaced."""
        place = Path(folder)
        scratch = place.with_name(f".unfinished-{place.name}")
        shutil.rmtree(scratch, ignore_errors=True)
        scratch.mkdir(parents=True)
        self.counts.save(scratch / "counts.safetensors")
        state = {"solved": self.solved, "matcher": self.matcher.state_dict()}
        (scratch / "state.json").write_text(json.dumps(state))
        if place.exists():
            shutil.rmtree(place)
        scratch.rename(place)

    def load(self, folder: str | os.PathLike[str]) -> None:
        """Continue from a folder that `save` wrote.

        Raises:
            FileNotFoundError: a file is missing.
            ValueError: it was written under another outcome rule, or is damaged; this object is as it was.
        """
        place = Path(folder)
        counts = OutcomeCounts.load(place / "counts.safetensors", rule=self.matcher.rule)
        try:
            state = json.loads((place / "state.json").read_text())
            solved, classes = dict(state["solved"]), state["matcher"]
        except (json.JSONDecodeError, KeyError, TypeError) as error:
            raise ValueError(f"{place / 'state.json'} is damaged: {error!r}; continue from an earlier one") from error
        self.matcher.load_state_dict(classes)
        self.counts, self.solved = counts, solved

    def close(self) -> None:
        """End the math-verify processes."""
        self.matcher.close()


def _rows_by_group(group_ids: Sequence[str]) -> list[Tensor]:
    """The rows of each group, in order of appearance."""
    rows: dict[str, list[int]] = {}
    for row, group_id in enumerate(group_ids):
        rows.setdefault(group_id, []).append(row)
    return [torch.tensor(members) for members in rows.values()]


def _equal_sizes(groups: Sequence[Tensor]) -> list[Tensor]:
    """The groups as (B, n) tensors of rows, one for each n that occurs."""
    by_size: dict[int, list[Tensor]] = {}
    for rows in groups:
        by_size.setdefault(len(rows), []).append(rows)
    return [torch.stack(same_size) for same_size in by_size.values()]


def _distinct_answers(groups: Sequence[Tensor], keys_R: Tensor) -> float:
    """Mean number of different answers in a group."""
    distinct = [len(set(keys_R[rows].tolist()) - {NO_ANSWER}) for rows in groups]
    return sum(distinct) / max(len(distinct), 1)
