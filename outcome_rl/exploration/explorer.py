"""The `Explorer`: from the responses of a step to advantages and bonuses, with all that a run remembers of outcomes."""

import json
import logging
import os
from collections.abc import Hashable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray
from torch import Tensor

from outcome_rl.exploration.batch import from_rank_zero, group_indices, move, numbers_of, rows_by_size, verdicts_of
from outcome_rl.exploration.config import ExplorationConfig
from outcome_rl.exploration.questions import Questions
from outcome_rl.exploration.scored import Scored
from outcome_rl.files import MANIFEST, atomic_folder, check_folder, seal_folder
from outcome_rl.outcomes.keys import NO_ANSWER, question_key
from outcome_rl.outcomes.matcher import Outcomes
from outcome_rl_kernels import OutcomeCounts, group_advantages
from outcome_rl_kernels.advantages.groups import Scale
from outcome_rl_kernels.backends import triton_obstacle

logger = logging.getLogger(__name__)

COUNTS_FILE, STATE_FILE = "counts.safetensors", "state.json"
_FORMAT = "outcome_rl exploration 1"
_FIX = "Continue from another checkpoint, or start with new counts"


def device_of_counts(device: torch.device) -> torch.device:
    """Return the device for the counts of a trainer on `device`: that GPU if Triton runs on it, else the CPU."""
    return device if device.type == "cuda" and triton_obstacle(device) is None else torch.device("cpu")


class Explorer:
    """Outcome counts, outcome classes and solved questions of a run, and the advantages that follow from them.

    Args:
        config: settings; None takes the defaults.
        device: where the counts are kept and where the tensors of `Scored` are. With a GPU, `score` copies its columns
            there once, computes there, and waits once for the values of the metrics, then in `Scored.host`.
        process_group: processes that train together and all call `score` and `count` with the same responses. Rank zero
            compares the answers, since a comparison may time out on one rank and not on another; all ranks get the same
            result and keep the same counts. Outcome classes are on rank zero alone, so `seen`, `state_dict` and `save`
            are called there. None: this process alone.
        **settings: fields of `ExplorationConfig`, in place of those of `config`.

    Attributes:
        config: the settings.
        counts: `OutcomeCounts` of all responses so far.
        matcher: `OutcomeMatcher`, or for an outcome function `FunctionMatcher`, with the outcome classes so far.
        solved: question id -> whether a correct response was ever sampled, for every question sampled so far; a
            read-only copy.
        batches: number of calls of `score` so far.
        id_source: where the question ids come from, in words; see `set_id_source`.

    Raises:
        TypeError, ValueError: a setting is unknown, of the wrong type, or out of range.

    Example:
        >>> with Explorer(bonus="ucb", coef=1.0) as explorer:
        ...     scored = explorer.score(["q", "q"], [r"\\boxed{4}", r"\\boxed{5}"], ["4", "4"])
        ...     scored.correct.tolist(), scored.bonuses.tolist(), explorer.seen("q")
        ([True, False], [1.0, 1.0], [('4', 1), ('5', 1)])

    Source: Song, Kempe, Munos, "Outcome-based Exploration for LLM Reasoning", 2025.
    """

    def __init__(
        self,
        config: ExplorationConfig | None = None,
        *,
        device: torch.device | str = "cpu",
        process_group: dist.ProcessGroup | None = None,
        **settings: Any,
    ) -> None:
        self.config = ExplorationConfig.from_mapping((vars(config) if config else {}) | settings, "Explorer")
        self.process_group = process_group
        self.matcher = self.config.matcher()
        self.counts = OutcomeCounts(device=device, rule=self.matcher.rule)
        self._questions = Questions()
        self.batches = 0
        self.id_source = ""
        self._told_unmasked = self._told_unanswered = False
        self._num_counted = 0  # len(counts); reading it from a GPU would synchronise

    @property
    def solved(self) -> Mapping[str, bool]:
        return self._questions.solved

    def score(
        self,
        question_ids: Sequence[str],
        responses: Sequence[str],
        golds: Sequence[str] | None,
        rewards: Tensor | Sequence[float] | None = None,
        *,
        group_ids: Sequence[Hashable] | None = None,
        correct: Tensor | Sequence[bool] | None = None,
        examples: Sequence[Mapping[str, Any]] | None = None,
        outcome_keys: Tensor | Sequence[int] | None = None,
        logps: Tensor | Sequence[float] | None = None,
        scale: Scale = "std",
    ) -> Scored:
        """Classify N responses, compute their advantages and bonuses, and count them.

        `A_i = (r_i - mean(r)) / (std(r) + eps)` within each group, or the result of another `adv_estimator`, and the
        bonus of `group_advantages`, from the counts before this call: the responses of one call never see one another,
        whatever groups they are in. A group in which no response has an answer gets no bonus, unless
        `no_answer="own_class"`.

        Args:
            question_ids: N stable ids of the questions, the same whenever a question comes back; an id of the data set,
                or `outcome_rl.question_id(prompt)`.
            responses: N texts.
            golds: N gold answers, the same for all responses to a question, or texts that end in them, such as GSM8K's
                solutions; None where there are none.
            rewards: N finite numbers, which may hold penalties; None takes 1 for a correct response and 0 for another.
                `adv_estimator="majority"` reads neither rewards nor golds.
            group_ids: N ids that say which responses are normalised together, each group of one question. None makes
                one group of each question.
            correct: N verdicts to use in place of the comparison with the golds.
            examples: N data rows for the outcome function, equal for all responses to a question; None passes empty
                ones.
            outcome_keys: N integers that name the outcomes, 0 for none, where `outcome="given"`: clusters of
                embeddings, or a judge's. `keys` of the result are their hashes.
            logps: N log-probabilities of the responses, each the mean over its tokens, for `unlikeliness` alone.
            scale: "std", or "none" to leave out the division of `grpo` by the standard deviation (Dr. GRPO).

        Returns:
            `Scored`, without gradient.

        Raises:
            TypeError, ValueError: an argument has the wrong type, length or value, a question comes with another gold
                than before, a group holds two questions, nothing tells which responses are correct although rewards or
                bonus depend on it, or the ranks of the process group came with different responses. Nothing is counted.
        """
        groups = group_indices(question_ids, question_ids if group_ids is None else group_ids)
        responses = self._named(responses, outcome_keys, golds)
        judged = golds is not None or correct is not None or bool(self.config.is_correct)
        rewarded = rewards is not None or not self.config.needs_rewards
        if not judged and (not rewarded or self.config.needs_correctness):
            needs = f"bonus={self.config.bonus!r}" if rewarded else "the rewards"
            raise ValueError(
                f"golds or correct must tell which responses are correct, because {needs} would follow from it; got "
                "neither. Pass one of them, or rewards and zero_when_all_correct=False"
            )
        given_rewards = None if rewards is None else numbers_of("rewards", rewards, len(groups))
        given_logps = [] if logps is None else [numbers_of("logps", logps, len(groups))]
        verdicts = None if correct is None else verdicts_of(correct, len(groups))
        keys, outcomes = self._classify(
            question_ids, responses, golds, examples, groups, given_rewards, verdicts, *given_logps
        )
        verdicts = torch.from_numpy(outcomes.correct) if verdicts is None else verdicts
        order, shapes = rows_by_size(groups)
        questions_N, keys_N, correct_N, rewards_N, groups_N, order_N, *logps_N = move(
            [
                keys,
                torch.from_numpy(outcomes.keys),
                verdicts,
                verdicts.float() if given_rewards is None else given_rewards,
                torch.from_numpy(groups),
                order,
                *given_logps,
            ],
            self.counts.device,
        )
        advantages_N, bonuses_N = torch.zeros_like(rewards_N), torch.zeros_like(rewards_N)
        counts_N = torch.empty_like(keys_N)
        # Groups of several sizes are counted together, so that none sees the samples of another alone.
        counts_here, rule = len(shapes) == 1, self.config.rule(scale)
        for rows_N, shape in zip(order_N.split_with_sizes([B * n for B, n in shapes]), shapes, strict=True):
            rows_Bn = rows_N.view(shape)
            part = group_advantages(
                rewards_N[rows_Bn],
                questions_N[rows_Bn[:, 0]],
                keys_N[rows_Bn],
                self.counts,
                rule,
                correct=correct_N[rows_Bn],
                logps=logps_N[0][rows_Bn] if logps_N else None,
                batch=self.batches,
                update=counts_here,
            )
            # Without any answer nothing tells the samples apart: an equal bonus for all would not explore.
            without_B1 = (keys_N[rows_Bn] == NO_ANSWER).all(dim=1, keepdim=True) & (self.config.no_answer == "no_bonus")
            advantages_N[rows_Bn], bonuses_N[rows_Bn] = part.advantages, part.bonuses.masked_fill(without_B1, 0.0)
            if counts_here and part.counts is not None:
                counts_N[rows_Bn] = part.counts
        if not counts_here:
            counts_N = self.counts.observe(questions_N, keys_N, correct_N)
        scored = Scored(
            correct_N,
            rewards_N,
            keys_N,
            counts_N,
            advantages_N,
            bonuses_N,
            groups_N,
            outcomes.answers,
            [],
            self.config.answer_mask_mode,
            judged,
            outcomes.unresolved,
            {},
        )
        self._remember(question_ids, scored.host.correct, scored.host.keys, scored.host.counts)
        scored.solved.extend(map(self._questions.is_solved, question_ids))
        self.batches += 1
        self._tell_unmasked(outcomes)
        self._tell_unanswered(outcomes)
        scored.history.update(self._history(judged))
        return scored

    def count(
        self,
        question_ids: Sequence[str],
        responses: Sequence[str],
        golds: Sequence[str] | None,
        examples: Sequence[Mapping[str, Any]] | None = None,
    ) -> None:
        """Count responses that were sampled and are not scored, such as groups that a stack filters out before.

        Args:
            question_ids, responses, golds, examples: as for `score`.

        Raises:
            TypeError, ValueError: as `score` does; nothing is counted.
        """
        questions_N, outcomes = self._classify(question_ids, responses, golds, examples)
        keys_N = torch.from_numpy(outcomes.keys)
        correct_N = torch.from_numpy(outcomes.correct)
        counts_N = self.counts.observe(*move([questions_N, keys_N, correct_N], self.counts.device))
        self._remember(question_ids, correct_N, keys_N, counts_N)

    def seen(self, question_id: str) -> list[tuple[str | None, int]]:
        """List the outcomes sampled for a question so far, the most frequent first.

        Returns:
            `(answer, count)`: the text of one representative answer of each outcome class, None for "no answer".

        Raises:
            RuntimeError: this is not rank zero of the process group.
        """
        self._check_rank_zero("seen")
        texts: dict[int, str | None] = {**self.matcher.representatives(question_id), NO_ANSWER: None}
        keys_A = torch.tensor(list(texts), device=self.counts.device)
        counts_A = self.counts.lookup(torch.full_like(keys_A, question_key(question_id)), keys_A).tolist()
        found = [(text, count) for text, count in zip(texts.values(), counts_A, strict=True) if count > 0]
        return sorted(found, key=lambda outcome: (-outcome[1], outcome[0] or ""))

    def state_dict(self) -> dict[str, Any]:
        """Return counts, outcome classes and solved questions, as tensors and JSON values.

        Raises:
            RuntimeError: this is not rank zero of the process group.
        """
        self._check_rank_zero("state_dict")
        return {
            "counts": self.counts.state_dict(),
            "outcomes": self.matcher.state_dict(),
            "solved": dict(self.solved),
            "batches": self.batches,
            "id_source": self.id_source,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from a `state_dict`, on every rank.

        Raises:
            ValueError: it was made under another outcome rule, or is damaged; this explorer is then as it was.
        """
        counts = OutcomeCounts(device=self.counts.device, rule=self.matcher.rule)
        try:
            solved, id_source, batches = dict(state["solved"]), state["id_source"], int(state["batches"])
            if not all(isinstance(i, str) and isinstance(yes, bool) for i, yes in solved.items()):
                raise TypeError("solved must map question ids to booleans")
            counts.load_state_dict(state["counts"])
            ids = {question_key(question_id): question_id for question_id in solved}
            entries = counts.items()
            if ids.keys() != {*entries.question_keys.tolist()}:
                raise TypeError("its counts and its solved questions belong to different runs or steps")
            questions = Questions()
            questions.add(solved.items())
            answered = entries.question_keys[entries.outcome_keys != NO_ANSWER].tolist()
            questions.add_answers(ids[key] for key in answered)
            self.matcher.load_state_dict(state["outcomes"])
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"the exploration state is damaged: {error!r}. {_FIX}") from error
        self.counts, self._questions, self.id_source, self.batches = counts, questions, id_source, batches
        self._num_counted = len(entries.counts)

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Write the state into a folder atomically; an older folder of that name is replaced.

        Raises:
            RuntimeError: this is not rank zero of the process group.
        """
        state = self.state_dict()
        del state["counts"]
        # Functions are not saved; the outcome rule identifies them.
        config = {name: value for name, value in vars(self.config).items() if not callable(value)}
        with atomic_folder(folder, replace=True) as scratch:
            self.counts.save(scratch / COUNTS_FILE)
            content = json.dumps({"format": _FORMAT, "config": config, **state}, sort_keys=True)
            (scratch / STATE_FILE).write_text(content, encoding="utf-8")
            seal_folder(scratch)

    @classmethod
    def load(
        cls,
        folder: str | os.PathLike[str],
        config: ExplorationConfig | None = None,
        *,
        device: torch.device | str = "cpu",
        process_group: dist.ProcessGroup | None = None,
        **settings: Any,
    ) -> Self:
        """Make an explorer that continues from a folder that `save` wrote, in this stack or another.

        Args:
            folder: the folder.
            config: settings; None takes those that were saved.
            device, process_group, **settings: as for the constructor.

        Raises:
            FileNotFoundError: the folder lacks a file.
            TypeError, ValueError: a file is damaged or foreign, the counts were made under another outcome rule, or a
                setting is wrong.
        """
        if not any(Path(folder, name).exists() for name in (MANIFEST, STATE_FILE)):
            raise FileNotFoundError(f"{folder} holds no exploration state. {_FIX}")
        try:
            check_folder(Path(folder))
        except (FileNotFoundError, ValueError) as error:
            raise type(error)(f"{error}. {_FIX}") from error
        path = Path(folder, STATE_FILE)
        try:
            state = json.loads(path.read_text(encoding="utf-8"))
            if not isinstance(state, dict) or state.get("format") != _FORMAT:
                raise ValueError(f"it does not have the format {_FORMAT!r}")
            saved = dict(state["config"])
        except (ValueError, KeyError, TypeError) as error:
            raise ValueError(f"{path} is damaged or not an exploration state: {error!r}. {_FIX}") from error
        if config is None:
            config = ExplorationConfig.from_mapping(saved | settings, str(path))
        explorer = cls(config, device=device, process_group=process_group, **settings)
        try:
            counts = OutcomeCounts.load(Path(folder, COUNTS_FILE), rule=explorer.matcher.rule)
            explorer.load_state_dict({**state, "counts": counts.state_dict()})
        except (FileNotFoundError, ValueError) as error:
            raise type(error)(f"{folder}: {error}") from error
        return explorer

    def set_id_source(self, source: str) -> None:
        """Record where the question ids come from, such as "the column 'id'"; it is saved with the state.

        Raises:
            ValueError: the saved counts were made under ids from elsewhere, so that they would never be found again.
        """
        if self.id_source not in ("", source):
            raise ValueError(
                f"the saved outcomes were counted under ids from {self.id_source}, and this run takes them from "
                f"{source}. Set id_key as it was, or start with new counts"
            )
        self.id_source = source

    def close(self) -> None:
        """End the math-verify processes; the explorer can still be used, and starts new ones when it needs them."""
        self.matcher.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Explorer({self.config}, {len(self._questions)} questions, {self.counts})"

    def _named(
        self, responses: Sequence[str], outcome_keys: Tensor | Sequence[int] | None, golds: Sequence[str] | None
    ) -> Sequence[str]:
        """Return the responses, or the names of the given outcomes instead."""
        if (outcome_keys is None) == (self.config.outcome == "given"):
            raise ValueError(
                "outcome_keys must be given if and only if outcome='given'; got "
                f"{'none' if outcome_keys is None else 'some'} with outcome={self.config.outcome!r}"
            )
        if outcome_keys is None:
            return responses
        keys_N = torch.as_tensor(outcome_keys)
        if keys_N.shape != (len(responses),) or keys_N.is_floating_point() or keys_N.dtype == torch.bool:
            raise ValueError(
                f"outcome_keys must be {len(responses)} integers, one per response; got {keys_N.dtype} of shape "
                f"{tuple(keys_N.shape)}"
            )
        if golds is not None:
            raise ValueError("golds cannot be compared with given outcomes; pass golds=None and correct")
        return [str(key) for key in keys_N.tolist()]

    def _tell_unmasked(self, outcomes: Outcomes) -> None:
        """Say once that no token is masked, where an outcome function gives no span."""
        if self._told_unmasked or self.config.answer_mask_mode == "none" or not self.config.explores:
            return
        if any(answer is not None and answer.source == "function" and not answer.end for answer in outcomes.answers):
            self._told_unmasked = True
            logger.warning(
                "answer_mask_mode=%s masks nothing where the outcome function gives no span, so the bonus reaches the "
                "tokens that spell the outcome. Return Outcome(value, start, end) to mask them.",
                self.config.answer_mask_mode,
            )

    def _tell_unanswered(self, outcomes: Outcomes) -> None:
        """Say once that no response of a batch has an answer."""
        if not self._told_unanswered and all(answer is None for answer in outcomes.answers):
            self._told_unanswered = True
            logger.warning(
                "none of the %d responses of this batch has an answer, so none is correct and none gets a bonus. Are "
                "they cut off at the length limit (data.max_response_length, max_completion_length), does the prompt "
                "lack an instruction to end with \\boxed{...}, or does the outcome function return None?",
                len(outcomes.answers),
            )

    def _classify(
        self,
        question_ids: Sequence[str],
        responses: Sequence[str],
        golds: Sequence[str] | None,
        examples: Sequence[Mapping[str, Any]] | None,
        *more: Tensor | NDArray[np.int64] | None,
    ) -> tuple[Tensor, Outcomes]:
        """Return question keys and, from rank zero, outcomes; `more` must be equal on all ranks too."""
        key_of = {question_id: question_key(question_id) for question_id in set(question_ids)}
        keys = [key_of[question_id] for question_id in question_ids]
        questions_N = torch.tensor(keys, dtype=torch.int64)
        limit_s = self.config.grading_limit_s
        call = partial(self.matcher.classify, question_ids, responses, golds, examples, limit_s=limit_s)
        if self.process_group is None:
            return questions_N, call()
        columns = [None if column is None else column.tolist() for column in more]
        inputs = (list(question_ids), list(responses), golds and list(golds), columns)
        return questions_N, from_rank_zero(call, inputs, self.process_group)

    def _remember(self, question_ids: Sequence[str], correct_N: Tensor, keys_N: Tensor, counts_N: Tensor) -> None:
        """Note the solved questions, and the outcomes that are new: their counts before the batch are 0."""
        rows = zip(question_ids, keys_N.tolist(), counts_N.tolist(), strict=True)
        new = {(question_id, key) for question_id, key, count in rows if count == 0}
        self._questions.add(zip(question_ids, correct_N.tolist(), strict=True))
        self._questions.add_answers(question_id for question_id, key in new if key != NO_ANSWER)
        self._num_counted += len(new)

    def _history(self, judged: bool) -> dict[str, float]:
        """Metrics of everything sampled so far."""
        return {"exploration/counted_outcomes": float(self._num_counted), **self._questions.metrics(judged=judged)}

    def _check_rank_zero(self, name: str) -> None:
        if self.process_group is not None and dist.get_rank(self.process_group) != 0:
            raise RuntimeError(
                f"Explorer.{name} must be called on rank zero of the process group, which alone has the outcome "
                f"classes; this is rank {dist.get_rank(self.process_group)}"
            )
