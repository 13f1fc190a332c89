"""Outcome-based exploration as one object: from responses to outcomes, counts, advantages, bonuses and answer masks.

    explorer = Explorer(bonus="ucb_con", coef=0.2)            # counts and outcome classes, kept over training
    scored = explorer.score(question_ids, responses, golds)   # one entry per response; counts the batch
    explorer.save("checkpoint/exploration")                   # the same format in every training stack

The trainer and the plug-ins for TRL, verl and slime translate column names; all their exploration is in this module.

Shapes: N responses of a step, in groups whose sizes may differ; T completion tokens.
"""

import json
import os
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from difflib import get_close_matches
from functools import cached_property, partial
from hashlib import blake2b
from pathlib import Path
from typing import Any, Literal, Self, TypeVar

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray
from torch import Tensor

from outcome_rl.files import atomic_folder
from outcome_rl.outcomes.answer_mask import Tokenizer, answer_mask
from outcome_rl.outcomes.extraction import Answer
from outcome_rl.outcomes.keys import NO_ANSWER, question_key
from outcome_rl.outcomes.matcher import Judge, OutcomeMatcher, Outcomes
from outcome_rl.settings import check_settings, setting
from outcome_rl_kernels import OutcomeCounts, group_advantages, parse_bonus
from outcome_rl_kernels.advantages.reference import NoAnswerRule, Scale, is_zeroed
from outcome_rl_kernels.loss.inputs import AnswerMaskMode

T = TypeVar("T")

# Usual columns of question ids and gold answers in data sets, tried in this order.
ID_COLUMNS = ("id", "question_id", "unique_id")
ANSWER_COLUMNS = ("answer", "gold")

COUNTS_FILE, STATE_FILE = "counts.safetensors", "state.json"
_FORMAT = "outcome_rl exploration 1"
_FIX = "Continue from another checkpoint, or start with new counts"


@dataclass(frozen=True)
class ExplorationConfig:
    """Settings of outcome-based exploration, the same in every training stack.

    Raises:
        TypeError, ValueError: a setting has the wrong type, or is outside its range.
    """

    bonus: str = setting(
        "ucb_con",
        'Exploration bonus: none, ucb, ucb_mean, ucb_con, batch, batch_positive, or several joined by "+".',
    )
    coef: float | list[float] = setting(0.1, "Coefficient of the bonus; a list has one for each method of a sum.", ge=0)
    baseline: float = setting(0.5, "Baseline b0 of ucb_con; the paper uses 1 for easy and 0.5 for medium data.")
    zero_when_all_correct: bool | None = setting(
        None,
        "Whether a group whose answers are all correct gets no bonus; null follows the paper: yes for ucb_mean and "
        "ucb_con.",
    )
    no_answer: NoAnswerRule = setting(
        "no_bonus",
        "Response without an answer: no_bonus gives it the raw bonus 0, own_class treats it like any other outcome.",
    )
    answer_mask_mode: AnswerMaskMode = setting(
        "policy",
        "Answer tokens are kept out of the policy gradient (policy), of the bonus alone (bonus), of the whole loss and "
        "its denominator (all), or of nothing (none).",
    )
    equivalence: Literal["canonical", "math_verify"] | Judge = setting(
        "canonical",
        "When two answers are the same: canonical compares canonical texts and asks math-verify about the rest, "
        "math_verify asks it about every pair, as the paper did; in Python also a function (a, b) -> bool.",
    )
    workers: int | None = setting(
        None, "Number of math-verify processes; null starts one per CPU core.", gt=0, affects_results=False
    )
    timeout_s: float = setting(5.0, "Seconds that one comparison by math-verify may take.", gt=0)
    gold_tolerance: bool = setting(
        False,
        "Whether an answer that differs from the gold answer in rounding, labels or units alone is correct; outcomes "
        "stay strict.",
    )

    def __post_init__(self) -> None:
        check_settings(self)
        methods = parse_bonus(self.bonus)
        if isinstance(self.coef, list | tuple) and len(self.coef) != len(methods):
            raise ValueError(
                f"coef must be one number, or one for each method of bonus={self.bonus!r}, {len(methods)} in all; got "
                f"{self.coef}"
            )

    def matcher(self) -> OutcomeMatcher:
        """Return a new matcher with these settings."""
        return OutcomeMatcher(self.equivalence, self.workers, self.timeout_s, gold_tolerance=self.gold_tolerance)

    @classmethod
    def from_mapping(cls, settings: Mapping[str, Any], origin: str) -> Self:
        """Read the settings from the configuration of another stack.

        Args:
            settings: any of the fields.
            origin: where they are written, for errors.

        Raises:
            TypeError, ValueError: a setting is unknown (the nearest valid one is named), of the wrong type, or out of
                range.
        """
        known = [field.name for field in fields(cls)]
        for name in settings:
            if name not in known:
                nearest = get_close_matches(str(name), known, n=1)
                hint = f"did you mean {nearest[0]!r}?" if nearest else f"there are {', '.join(known)}"
                raise ValueError(f"{origin}: unknown setting {name!r}; {hint}")
        return cls(**settings)

    @property
    def explores(self) -> bool:
        """Return whether there is a bonus at all."""
        return parse_bonus(self.bonus) != ("none",)

    @property
    def needs_correctness(self) -> bool:
        """Return whether the bonus depends on correctness, by the rule for groups that are all correct."""
        return self.explores and any(is_zeroed(m, self.zero_when_all_correct) for m in parse_bonus(self.bonus))

    @property
    def group_settings(self) -> dict[str, Any]:
        """Return the arguments of `group_advantages` that are settings."""
        names = ("bonus", "coef", "baseline", "zero_when_all_correct", "no_answer")
        return {name: getattr(self, name) for name in names}


@dataclass(frozen=True, eq=False)
class Scored:
    """N scored responses, in the order in which they came; tensors are on the explorer's device, without gradient."""

    correct: Tensor  # (N,) bool; False throughout where neither golds nor correct were given
    rewards: Tensor  # (N,) float32, or the floating dtype they came in
    keys: Tensor  # (N,) int64 outcome keys; NO_ANSWER = 0 without an answer
    counts: Tensor  # (N,) int64, how often the outcome was sampled for the question before this batch
    advantages: Tensor  # (N,), reward part, in the dtype of the rewards
    bonuses: Tensor  # (N,), exploration part, times its coefficient
    groups: Tensor  # (N,) int64, index of the group, in order of appearance
    answers: list[Answer | None]  # N final answers with their character spans
    answer_mask_mode: AnswerMaskMode  # of the explorer's settings
    judged: bool  # whether correctness is known, from golds or verdicts
    unresolved: int  # comparisons of this batch that timed out or failed
    history: dict[str, float]  # metrics of everything sampled so far, this batch included

    @cached_property
    def metrics(self) -> dict[str, float]:
        """Metrics of the batch and of everything sampled so far, under the same names in every training stack.

        | name | meaning |
        |---|---|
        | `outcomes/correct_rate` * | correct responses / responses |
        | `outcomes/all_correct_groups` * | groups whose responses are all correct / groups |
        | `outcomes/all_wrong_groups` * | groups without a correct response / groups |
        | `outcomes/distinct_in_group` | different answers in a group, mean over groups |
        | `outcomes/distinct_in_group_solved` * | the same over groups with a correct response, if there are any |
        | `outcomes/distinct_in_group_unsolved` * | the same over groups without one, if there are any |
        | `outcomes/no_answer_rate` | responses without an answer / responses |
        | `outcomes/unresolved` | comparisons of two answers that timed out or failed |
        | `exploration/bonus_mean` | bonus times coefficient, mean over responses |
        | `exploration/bonus_abs_mean` | its absolute value, mean over responses |
        | `exploration/new_outcome_rate` | responses whose answer was never sampled before this batch / responses |
        | `exploration/counted_outcomes` | pairs of question and outcome counted so far, "no answer" included |
        | `exploration/solved_fraction` * | questions with a correct response so far / questions sampled so far |
        | `exploration/distinct_answers` | different answers so far, mean over the questions sampled so far |
        | `exploration/distinct_answers_unsolved` * | the same over those never answered correctly, if there are any |

        A response without an answer counts as a response, but not as a different answer. Names with * need golds or
        `correct`.
        """
        correct, keys, counts, bonuses, groups = (
            x.cpu().numpy() for x in (self.correct, self.keys, self.counts, self.bonuses, self.groups)
        )
        answered = keys != NO_ANSWER
        group_index, sizes = np.unique(groups, return_inverse=True, return_counts=True)[1:]
        group_of_answer = np.unique(np.stack([group_index, keys])[:, answered], axis=1)[0]
        distinct = np.bincount(group_of_answer, minlength=len(sizes))
        metrics = {
            "outcomes/distinct_in_group": _mean(distinct),
            "outcomes/no_answer_rate": _mean(~answered),
            "outcomes/unresolved": float(self.unresolved),
            "exploration/bonus_mean": _mean(bonuses),
            "exploration/bonus_abs_mean": _mean(abs(bonuses)),
            "exploration/new_outcome_rate": _mean(answered & (counts == 0)),
        }
        if self.judged:
            num_correct = np.bincount(group_index[correct], minlength=len(sizes))
            metrics |= {
                "outcomes/correct_rate": _mean(correct),
                "outcomes/all_correct_groups": _mean(num_correct == sizes),
                "outcomes/all_wrong_groups": _mean(num_correct == 0),
            }
            for name, chosen in (("solved", num_correct > 0), ("unsolved", num_correct == 0)):
                if chosen.any():
                    metrics[f"outcomes/distinct_in_group_{name}"] = _mean(distinct[chosen])
        return metrics | self.history

    def answer_mask(self, tokenizer: Tokenizer, completion_ids: Sequence[Sequence[int]] | Tensor) -> Tensor:
        """Mark the tokens of each completion that spell its final answer.

        Args:
            tokenizer: Hugging Face tokenizer of the policy.
            completion_ids: sampled token ids without the prompt, (N, T) or N sequences of up to T ids. The responses
                that were scored must be their texts, by `outcome_rl.outcomes.answer_mask.decode_completion`.

        Returns:
            (N, T) bool on the device of `completion_ids` (a sequence: on the CPU); all False if `answer_mask_mode` is
            "none".

        Raises:
            ValueError: the number of completions is not N, or an answer is not in the text of its completion.
        """
        if self.answer_mask_mode == "none":
            return answer_mask(tokenizer, completion_ids, [None] * len(self.answers))
        return answer_mask(tokenizer, completion_ids, self.answers)

    def token_advantages(self, answer_mask: Tensor) -> Tensor:
        """Spread advantages and bonuses over the tokens, for a stack that has a policy loss of its own.

        `advantages + bonuses` on every token but those of the answer, where `answer_mask_mode="policy"` has 0 and
        "bonus" has `advantages`. Under "all" the stack must also drop these tokens from its loss.

        Args:
            answer_mask: (N, T) bool, from `answer_mask`.

        Returns:
            (N, T) on the device of `answer_mask`.
        """
        advantages_N1, bonuses_N1 = (x.to(answer_mask.device)[:, None] for x in (self.advantages, self.bonuses))
        if self.answer_mask_mode == "bonus":
            return advantages_N1 + bonuses_N1.masked_fill(answer_mask, 0.0)
        kept = answer_mask if self.answer_mask_mode == "policy" else torch.zeros_like(answer_mask)
        return (advantages_N1 + bonuses_N1).masked_fill(kept, 0.0)

    def select(self, rows: Sequence[int]) -> "Scored":
        """Return some of the responses, in the given order; `metrics` are then those of the selection."""
        index = torch.as_tensor(rows, dtype=torch.int64)
        columns: dict[str, Any] = {name: getattr(self, name)[index.to(self.keys.device)] for name in _COLUMNS}
        return replace(self, answers=[self.answers[row] for row in index.tolist()], **columns)

    @classmethod
    def join(cls, parts: Sequence["Scored"]) -> "Scored":
        """Concatenate batches that were scored one after another in one step; groups stay apart."""
        columns: dict[str, Any] = {name: torch.cat([getattr(part, name) for part in parts]) for name in _COLUMNS}
        ends = torch.tensor([0] + [int(part.groups.max()) + 1 for part in parts]).cumsum(dim=0).tolist()
        columns["groups"] = torch.cat([part.groups + first for part, first in zip(parts, ends, strict=False)])
        return replace(
            parts[-1],
            answers=[answer for part in parts for answer in part.answers],
            judged=all(part.judged for part in parts),
            unresolved=sum(part.unresolved for part in parts),
            **columns,
        )


_COLUMNS = ("correct", "rewards", "keys", "counts", "advantages", "bonuses", "groups")


class Explorer:
    """Outcome counts, outcome classes and solved questions of a run, and the advantages that follow from them.

    Args:
        config: settings; None takes the defaults.
        device: where the counts are kept and where the tensors of `Scored` are; with a GPU, `score` reads back what its
            metrics need.
        process_group: processes that train together and all call `score` and `count` with the same responses. Rank zero
            compares the answers, since a comparison may time out on one rank and not on another; all ranks get the same
            result and keep the same counts. Outcome classes are on rank zero alone, so `seen`, `state_dict` and `save`
            are called there. None: this process alone.
        **settings: fields of `ExplorationConfig`, in place of those of `config`.

    Attributes:
        config: the settings.
        counts: `OutcomeCounts` of all responses so far.
        matcher: `OutcomeMatcher` with the outcome classes so far.
        solved: question id -> whether a correct response was ever sampled, for every question sampled so far.
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
        self.solved: dict[str, bool] = {}
        self.id_source = ""
        self._question_keys: dict[str, int] = {}  # of the questions in `solved`, in the same order

    def score(
        self,
        question_ids: Sequence[str],
        responses: Sequence[str],
        golds: Sequence[str] | None,
        rewards: Tensor | Sequence[float] | None = None,
        *,
        group_ids: Sequence[Hashable] | None = None,
        correct: Tensor | Sequence[bool] | None = None,
        scale: Scale = "std",
    ) -> Scored:
        """Classify N responses, compute their advantages and bonuses, and count them.

        `A_i = (r_i - mean(r)) / (std(r) + eps)` within each group, and the bonus of `group_advantages`, from the counts
        before this call: the responses of one call never see one another, whatever groups they are in.

        Args:
            question_ids: N stable ids of the questions, the same whenever a question comes back; an id of the data set,
                or `outcome_rl.question_id(prompt)`.
            responses: N texts.
            golds: N gold answers, the same for all responses to a question; None where there are none.
            rewards: N finite numbers, which may hold penalties; None takes 1 for a correct response and 0 for another.
            group_ids: N ids that say which responses are normalised together, each group of one question. None makes
                one group of each question.
            correct: N verdicts to use in place of the comparison with the golds.
            scale: "std", or "none" to leave out the division by the standard deviation (Dr. GRPO).

        Returns:
            `Scored`, without gradient.

        Raises:
            TypeError, ValueError: an argument has the wrong type, length or value, a question comes with another gold
                than before, a group holds two questions, nothing tells which responses are correct although rewards or
                bonus depend on it, or the ranks of the process group came with different responses. Nothing is counted.
        """
        groups_N = _group_indices(question_ids, question_ids if group_ids is None else group_ids)
        judged = golds is not None or correct is not None
        if not judged and (rewards is None or self.config.needs_correctness):
            needs = "the rewards" if rewards is None else f"bonus={self.config.bonus!r}"
            raise ValueError(
                f"golds or correct must tell which responses are correct, because {needs} would follow from it; got "
                "neither. Pass one of them, or rewards and zero_when_all_correct=False"
            )
        rewards_N = None if rewards is None else _rewards(rewards, len(groups_N))
        verdicts_N = None if correct is None else _verdicts(correct, len(groups_N))
        questions_N, outcomes = self._classify(question_ids, responses, golds, groups_N, rewards_N, verdicts_N)
        device = self.counts.device
        keys_N = torch.from_numpy(outcomes.keys).to(device)
        correct_N = (torch.from_numpy(outcomes.correct) if verdicts_N is None else verdicts_N).to(device)
        rewards_N = correct_N.float() if rewards_N is None else rewards_N.to(device)
        advantages_N, bonuses_N = torch.zeros_like(rewards_N), torch.zeros_like(rewards_N)
        counts_N = torch.zeros_like(keys_N)
        for rows_Bn in _rows_by_size(groups_N):
            rows_Bn = rows_Bn.to(device)
            part = group_advantages(
                rewards_N[rows_Bn],
                questions_N[rows_Bn[:, 0]],
                keys_N[rows_Bn],
                self.counts,
                correct=correct_N[rows_Bn],
                scale=scale,
                update=False,  # counted below, so that no group sees the samples of another
                **self.config.group_settings,
            )
            assert part.counts is not None
            advantages_N[rows_Bn], bonuses_N[rows_Bn], counts_N[rows_Bn] = part.advantages, part.bonuses, part.counts
        self._count(question_ids, questions_N, keys_N, correct_N)
        return Scored(
            correct_N,
            rewards_N,
            keys_N,
            counts_N,
            advantages_N,
            bonuses_N,
            torch.from_numpy(groups_N).to(device),
            outcomes.answers,
            self.config.answer_mask_mode,
            judged,
            outcomes.unresolved,
            self._history(judged),
        )

    def count(self, question_ids: Sequence[str], responses: Sequence[str], golds: Sequence[str] | None) -> None:
        """Count responses that were sampled and are not scored, such as groups that a stack filters out before.

        Args:
            question_ids, responses, golds: as for `score`.

        Raises:
            TypeError, ValueError: as `score` does; nothing is counted.
        """
        questions_N, outcomes = self._classify(question_ids, responses, golds)
        keys_N = torch.from_numpy(outcomes.keys).to(self.counts.device)
        self._count(question_ids, questions_N, keys_N, torch.from_numpy(outcomes.correct))

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
            "id_source": self.id_source,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from a `state_dict`, on every rank.

        Raises:
            ValueError: it was made under another outcome rule, or is damaged; this explorer is then as it was.
        """
        counts = OutcomeCounts(device=self.counts.device, rule=self.matcher.rule)
        try:
            solved, id_source = dict(state["solved"]), state["id_source"]
            if not all(isinstance(i, str) and isinstance(yes, bool) for i, yes in solved.items()):
                raise TypeError("solved must map question ids to booleans")
            counts.load_state_dict(state["counts"])
            question_keys = {question_id: question_key(question_id) for question_id in solved}
            if {*question_keys.values()} != {*counts.items().question_keys.tolist()}:
                raise TypeError("its counts and its solved questions belong to different runs or steps")
            self.matcher.load_state_dict(state["outcomes"])
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"the exploration state is damaged: {error!r}. {_FIX}") from error
        self.counts, self.solved, self.id_source = counts, solved, id_source
        self._question_keys = question_keys

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Write the state into a folder, which is either whole or not there; an older one of that name is replaced.

        Raises:
            RuntimeError: this is not rank zero of the process group.
        """
        state = self.state_dict()
        del state["counts"]
        config = asdict(self.config)
        if callable(config["equivalence"]):
            del config["equivalence"]  # the outcome rule says that there was one
        with atomic_folder(folder, replace=True) as scratch:
            self.counts.save(scratch / COUNTS_FILE)
            content = json.dumps({"format": _FORMAT, "config": config, **state}, sort_keys=True)
            (scratch / STATE_FILE).write_text(content, encoding="utf-8")

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
        path = Path(folder, STATE_FILE)
        if not path.is_file():
            raise FileNotFoundError(f"{folder} holds no exploration state: {STATE_FILE} is missing. {_FIX}")
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
        return f"Explorer({self.config}, {len(self.solved)} questions, {self.counts})"

    def _classify(
        self,
        question_ids: Sequence[str],
        responses: Sequence[str],
        golds: Sequence[str] | None,
        *more: Tensor | NDArray[np.int64] | None,
    ) -> tuple[Tensor, Outcomes]:
        """Return question keys and, from rank zero, outcomes; `more` must be equal on all ranks too."""
        key_of = {question_id: question_key(question_id) for question_id in set(question_ids)}
        keys = [key_of[question_id] for question_id in question_ids]
        questions_N = torch.tensor(keys, dtype=torch.int64, device=self.counts.device)
        if self.process_group is None:
            return questions_N, self.matcher.classify(question_ids, responses, golds)
        columns = [None if column is None else column.tolist() for column in more]
        inputs = (list(question_ids), [len(response) for response in responses], golds and list(golds), columns)
        call = partial(self.matcher.classify, question_ids, responses, golds)
        return questions_N, _from_rank_zero(call, inputs, self.process_group)

    def _count(self, question_ids: Sequence[str], questions_N: Tensor, keys_N: Tensor, correct_N: Tensor) -> None:
        self.counts.observe(questions_N, keys_N)
        for question_id, key, correct in zip(question_ids, questions_N.tolist(), correct_N.tolist(), strict=True):
            self.solved[question_id] = correct or self.solved.get(question_id, False)
            self._question_keys[question_id] = key

    def _history(self, judged: bool) -> dict[str, float]:
        """Metrics of everything sampled so far."""
        keys_Q = torch.from_numpy(np.fromiter(self._question_keys.values(), np.int64)).to(self.counts.device)
        no_answer_Q = self.counts.lookup(keys_Q, torch.full_like(keys_Q, NO_ANSWER)) > 0
        distinct_Q = (self.counts.distinct(keys_Q) - no_answer_Q.long()).cpu().numpy()
        solved_Q = np.fromiter(self.solved.values(), bool)
        metrics = {
            "exploration/counted_outcomes": float(len(self.counts)),
            "exploration/distinct_answers": _mean(distinct_Q),
        }
        if judged:
            metrics["exploration/solved_fraction"] = _mean(solved_Q)
            if not solved_Q.all():
                metrics["exploration/distinct_answers_unsolved"] = _mean(distinct_Q[~solved_Q])
        return metrics

    def _check_rank_zero(self, name: str) -> None:
        if self.process_group is not None and dist.get_rank(self.process_group) != 0:
            raise RuntimeError(
                f"Explorer.{name} must be called on rank zero of the process group, which alone has the outcome "
                f"classes; this is rank {dist.get_rank(self.process_group)}"
            )


def _group_indices(question_ids: Sequence[str], group_ids: Sequence[Hashable]) -> NDArray[np.int64]:
    """Index the groups in order of appearance, and check that each is of one question."""
    if not question_ids or len(group_ids) != len(question_ids):
        raise ValueError(
            "question_ids and group_ids must have one entry per response, and at least one; got "
            f"{len(question_ids)} and {len(group_ids)}"
        )
    index_of: dict[Hashable, int] = {}
    question_of: dict[Hashable, str] = {}
    for question_id, group_id in zip(question_ids, group_ids, strict=True):
        index_of.setdefault(group_id, len(index_of))
        if question_of.setdefault(group_id, question_id) != question_id:
            raise ValueError(
                f"group_ids must name groups of one question each; group {group_id!r} has responses to "
                f"{question_of[group_id]!r} and to {question_id!r}"
            )
    return np.array([index_of[group_id] for group_id in group_ids])


def _rows_by_size(groups_N: NDArray[np.int64]) -> Iterator[Tensor]:
    """Yield the rows of the groups, (B, n) for every group size n."""
    order_N, sizes = np.argsort(groups_N, kind="stable"), np.bincount(groups_N)
    for n in np.unique(sizes):
        yield torch.from_numpy(order_N[sizes[groups_N[order_N]] == n].reshape(-1, n))


def _rewards(rewards: Tensor | Sequence[float], n: int) -> Tensor:
    rewards_N = rewards.detach() if isinstance(rewards, Tensor) else torch.tensor(rewards, dtype=torch.float32)
    if not rewards_N.is_floating_point() or rewards_N.shape != (n,) or not rewards_N.isfinite().all():
        raise ValueError(
            f"rewards must be {n} finite floating-point numbers, one per response; got {rewards_N.dtype} of shape "
            f"{tuple(rewards_N.shape)} with {int((~rewards_N.isfinite()).sum())} that are not finite"
        )
    return rewards_N


def _verdicts(correct: Tensor | Sequence[bool], n: int) -> Tensor:
    correct_N = torch.as_tensor(correct)
    if correct_N.dtype != torch.bool or correct_N.shape != (n,):
        raise ValueError(
            f"correct must be {n} booleans, one per response; got {correct_N.dtype} of shape {tuple(correct_N.shape)}. "
            "Use rewards > 0 for rewards"
        )
    return correct_N


def _mean(values: NDArray[Any]) -> float:
    return float(values.mean(dtype=np.float64))


def _from_rank_zero(call: Callable[[], T], inputs: object, group: dist.ProcessGroup) -> T:
    """Return on every rank what a call returns on rank zero, or raise what it raises there.

    Raises:
        ValueError: the ranks came with different inputs.
    """
    digests: list[Any] = [None] * dist.get_world_size(group)
    dist.all_gather_object(digests, blake2b(repr(inputs).encode("utf-8", "surrogatepass")).hexdigest(), group=group)
    if len(set(digests)) > 1:
        raise ValueError(
            "all ranks of the process group must score the same responses, but they came with different ones; gather "
            "the questions, responses, golds and rewards of all ranks first, by all_gather_object"
        )
    found: list[Any] = [None]
    if dist.get_rank(group) == 0:
        try:
            found = [call()]
        except Exception as error:  # noqa: BLE001 - the other ranks wait for it
            portable = isinstance(error, TypeError | ValueError)
            found = [error if portable else RuntimeError(f"{type(error).__name__}: {error}")]
    dist.broadcast_object_list(found, src=dist.get_global_rank(group, 0), group=group)
    if isinstance(found[0], Exception):
        raise found[0]
    result: T = found[0]
    return result
