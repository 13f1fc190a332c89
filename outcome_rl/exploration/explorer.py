"""The `Explorer`: computes advantages and bonuses from the responses of a step, and keeps the outcomes of a run."""

import os
import threading
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, NoReturn, Self

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray
from torch import Tensor

from outcome_rl.exploration import saved
from outcome_rl.exploration.columns import group_indices, move, numbers_of, rows_by_size, verdicts_of
from outcome_rl.exploration.config import ExplorationConfig
from outcome_rl.exploration.gate import Gate
from outcome_rl.exploration.questions import QuestionHistory, Questions
from outcome_rl.exploration.ranks import from_rank_zero
from outcome_rl.exploration.scored import Scored
from outcome_rl.outcomes.batch import Batch
from outcome_rl.outcomes.fork_locks import lock_of
from outcome_rl.outcomes.keys import NO_ANSWER, question_key
from outcome_rl.outcomes.kinds import Outcomes
from outcome_rl_kernels import GroupRule, OutcomeCounts, group_advantages
from outcome_rl_kernels.advantages.groups import Scale
from outcome_rl_kernels.backends import triton_obstacle
from outcome_rl_kernels.counts.api import History


def device_of_counts(device: torch.device) -> torch.device:
    """Return the device for the counts of a trainer on `device`: that GPU if Triton runs on it, else the CPU."""
    return device if device.type == "cuda" and triton_obstacle(device) is None else torch.device("cpu")


class Explorer:
    """Outcome counts, outcome classes and solved questions of a run, and the advantages that follow from them.

    Args:
        config: settings; None takes the defaults.
        device: device of the counts and of the tensors in `Scored`. With a GPU, `score` copies its columns there once,
            computes there, and synchronises once to read the metrics; `Scored.host` has the values.
        process_group: processes that train together and all call `score` and `count` with the same responses. Rank zero
            compares the answers, since a comparison may time out on one rank and not on another. All ranks get the same
            result and keep the same counts. Only rank zero has the outcome classes, so call `seen`, `state_dict` and
            `save` there. None: only this process.
        **settings: fields of `ExplorationConfig`; they override `config`.

    Attributes:
        config: the settings.
        counts: `OutcomeCounts` of all responses so far.
        matcher: reads the outcomes and holds the classes so far: `OutcomeMatcher`, for an outcome function
            `FunctionMatcher`, or another `OutcomeKind`.
        solved: question id -> whether a correct response was ever sampled, for every question sampled so far; a
            read-only copy.
        batches: number of calls of `score` so far.
        id_source: where the question ids come from, in words; see `set_id_source`.
        length_setting: name of the stack's setting that limits the length of responses, for a warning.

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
        if config is not None and not isinstance(config, ExplorationConfig):
            raise TypeError(
                f"config must be an ExplorationConfig; got {type(config).__name__}. Give settings by name: "
                "Explorer(bonus='batch')"
            )
        self.config = ExplorationConfig.from_mapping((vars(config) if config else {}) | settings, "Explorer")
        self.process_group = process_group
        self.matcher = self.config.matcher()
        self.counts = OutcomeCounts(device=device, rule=self.matcher.rule)
        self._questions = Questions()
        self.batches = 0
        self.id_source = ""
        self.length_setting = ""
        self._warned_unmasked = self._warned_unanswered = False
        self._lock = lock_of(self, threading.RLock)
        # Numbers of pairs and samples in `_known_table`; asking a table on a GPU would synchronise.
        self._known_table = self.counts.table
        self._num_counted = self._num_samples = 0
        self._counting: tuple[Tensor, ...] = ()  # rows that this call counts

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "an Explorer is not copied or sent to another process; use state_dict and load_state_dict, or save and load"
        )

    @property
    def solved(self) -> Mapping[str, bool]:
        with self._lock:
            return self._questions.solved

    def score(
        self,
        question_ids: Batch | Sequence[str],
        responses: Sequence[str] | None = None,
        golds: Sequence[str] | None = None,
        rewards: Tensor | Sequence[float] | None = None,
        *,
        scale: Scale = "std",
        **columns: Any,
    ) -> Scored:
        """Classify N responses, compute their advantages and bonuses, and count them.

        The advantage is `A_i = (r_i - mean(r)) / (std(r) + eps)` within each group, or the result of another
        `adv_estimator`. The bonus is that of `group_advantages`, computed from the counts before this call: responses
        of one call do not affect one another's counts. A group in which no response has an answer gets no bonus, unless
        `no_answer="own_class"`. Threads may share an explorer: calls take turns.

        Args:
            question_ids, responses, golds, rewards: columns of a `Batch`, or a `Batch` in place of the first.
                `adv_estimator="majority"` reads neither rewards nor golds.
            scale: "std", or "none" to leave out the division of `grpo` by the standard deviation (Dr. GRPO).
            **columns: further columns of a `Batch`.

        Returns:
            `Scored`, without gradient.

        Raises:
            TypeError, ValueError: an argument has the wrong type, length or value; a question has another gold than
                before; a group holds two questions; correctness is unknown although rewards or bonus depend on
                it; an outcome function fails on all responses of its first batch; a bonus or advantage is not finite;
                or the ranks of the process group have different responses. The explorer is then unchanged.
        """
        batch = Batch.of(question_ids, responses, golds, rewards, **columns)
        numbers, rule = self._numbers(batch), self.config.rule(scale)
        with self._unless_refused(batch):
            outcomes = self._classify(batch, numbers[:-1])
            scored = self._scored(batch, numbers, outcomes, rule)
            self._remember(batch.question_ids, scored.host.correct, scored.host.keys, scored.host.counts)
            self.batches += 1
            scored.solved.extend(map(self._questions.is_solved, batch.question_ids))
            scored.history.update(self._history(numbers.judged))
            self._warn_unmasked(outcomes)
            self._warn_unanswered(outcomes)
        return scored

    def count(
        self,
        question_ids: Batch | Sequence[str],
        responses: Sequence[str] | None = None,
        golds: Sequence[str] | None = None,
        rows: Sequence[Mapping[str, Any]] | None = None,
    ) -> None:
        """Count responses that were sampled but are not scored, such as groups that a stack has filtered out.

        Args:
            question_ids, responses, golds, rows: columns of a `Batch`, or a `Batch` in place of the first. Without
                golds, `correct` and `is_correct`, responses are compared with the golds of earlier calls; a question
                without one has no correct response.

        Raises:
            TypeError, ValueError: as `score` does; nothing is counted.
        """
        batch = Batch.of(question_ids, responses, golds, rows=rows)
        given = None if batch.correct is None else verdicts_of(batch.correct, len(batch))
        with self._unless_refused(batch):
            outcomes = self._classify(batch, [given])
            keys_N = torch.from_numpy(outcomes.keys)
            correct_N = torch.from_numpy(outcomes.correct) if given is None else given
            self._counting = tuple(move([_question_keys(batch), keys_N, correct_N], self.counts.device))
            counts_N = self.counts.observe(*self._counting)
            self._remember(batch.question_ids, correct_N, keys_N, counts_N)

    def seen(self, question_id: str) -> list[tuple[str | None, int]]:
        """List the outcomes sampled for a question so far, the most frequent first.

        Returns:
            `(answer, count)`: the text of one representative answer of each outcome class, None for "no answer".

        Raises:
            TypeError: the id is no string.
            RuntimeError: this is not rank zero of the process group.
        """
        if not isinstance(question_id, str):
            raise TypeError(f"question_id must be a string; got {question_id!r} ({type(question_id).__name__})")
        self._check_rank_zero("seen")
        with self._lock:
            return self._seen(question_id)

    def _seen(self, question_id: str) -> list[tuple[str | None, int]]:
        texts: dict[int, str | None] = {**self.matcher.representatives(question_id), NO_ANSWER: None}
        keys_A = torch.tensor(list(texts), device=self.counts.device)
        counts_A = self.counts.lookup(torch.full_like(keys_A, question_key(question_id)), keys_A).tolist()
        found = [(text, count) for text, count in zip(texts.values(), counts_A, strict=True) if count > 0]
        return sorted(found, key=lambda outcome: (-outcome[1], outcome[0] or ""))

    def questions(self) -> dict[str, QuestionHistory]:
        """Return samples, correct samples and different answers of every question sampled so far, by its id."""
        with self._lock:
            ids = list(self._questions)
            history = _history_of(ids, self.counts)
        rows = zip(history.visits.tolist(), history.successes.tolist(), history.distinct.tolist(), strict=True)
        return {question_id: QuestionHistory(*row) for question_id, row in zip(ids, rows, strict=True)}

    def state_dict(self) -> dict[str, Any]:
        """Return counts, outcome classes and solved questions, as tensors and JSON values.

        Raises:
            RuntimeError: this is not rank zero of the process group.
            ValueError: the outcome function has no name, or the counts hold other samples than its own.
        """
        self._check_rank_zero("state_dict")
        if not self.matcher.rule:
            raise ValueError(
                f"outcome={self.config.outcome!r} has no name by which its counts could be found again. Give it one: "
                "outcome_function(name=..., version=...)(function)"
            )
        with self._lock:
            if not _is_whole(_history_of(self._questions, self.counts), self.counts):
                raise ValueError(
                    "explorer.counts must hold the samples that score and count took, or its state could not be "
                    "loaded; it holds others. Count these in an OutcomeCounts of your own"
                )
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
            ValueError: it was made under another outcome rule, or is damaged; this explorer is then unchanged.
        """
        saved.check_state("the exploration state", state, saved.StateInMemory)
        counts = OutcomeCounts(device=self.counts.device, rule=self.matcher.rule)
        counts.load_state_dict(state["counts"])
        self._continue(state, counts)

    def _continue(self, state: Mapping[str, Any], counts: OutcomeCounts) -> None:
        solved = state["solved"]
        history = _history_of(solved, counts)
        if not _is_whole(history, counts):
            raise ValueError(
                "the exploration state is damaged: its counts and its solved questions belong to different runs or "
                f"steps. {saved.FIX}"
            )
        questions = Questions()
        questions.add(solved.items())
        questions.add_answers(dict(zip(solved, history.distinct.tolist(), strict=True)))
        with self._lock:
            self.matcher.load_state_dict(state["outcomes"])
            self.counts, self._questions = counts, questions
            self.id_source, self.batches = state["id_source"], state["batches"]

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Write the current state into a folder atomically, and replace an older state in it.

        Raises:
            FileExistsError: the folder holds other files, or is a file.
            RuntimeError: this is not rank zero of the process group.
            ValueError: as for `state_dict`.
        """
        saved.check_replaceable(Path(folder))
        with saved.paused_garbage_collection():
            state = self.state_dict()
        saved.write_state(Path(folder), self.config, state)

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
        """Load an explorer from a folder that `save` wrote, in this stack or another.

        A folder gives data, never code: settings that were functions, or that name them as "module:function", must be
        passed again, such as `outcome="tasks:sign"`.

        Args:
            folder: the folder.
            config: settings; None takes those that were saved.
            device, process_group, **settings: as for the constructor.

        Raises:
            FileNotFoundError: the folder lacks a file.
            TypeError, ValueError: a file is damaged or foreign, the counts were made under another outcome rule, a
                setting is wrong, or was or names a function and is not given.
        """
        read = partial(cls._load, config=config, device=device, process_group=process_group, settings=settings)
        return saved.read_unreplaced(Path(folder), read, discard=cls.close)

    @classmethod
    def _load(
        cls,
        folder: Path,
        config: ExplorationConfig | None,
        device: torch.device | str,
        process_group: dist.ProcessGroup | None,
        settings: dict[str, Any],
    ) -> Self:
        state = saved.read_state(folder)
        if config is None:
            saved.check_functions(folder, {name: one for name, one in state["config"].items() if name not in settings})
            config = ExplorationConfig.from_mapping(state["config"] | settings, str(folder / saved.STATE_FILE))
        explorer = cls(config, device=device, process_group=process_group, **settings)
        try:
            with saved.paused_garbage_collection():
                rule, device = explorer.matcher.rule, explorer.counts.device
                counts = OutcomeCounts.load(folder / saved.COUNTS_FILE, device=device, rule=rule)
                explorer._continue(state, counts)
        except (FileNotFoundError, ValueError) as error:
            raise type(error)(f"{folder}: {error}") from error
        return explorer

    def set_id_source(self, source: str) -> None:
        """Record where the question ids come from, such as "the column 'id'"; it is saved with the state.

        Raises:
            ValueError: the saved counts have ids from another source, so no question would match them.
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

    @contextmanager
    def _unless_refused(self, batch: Batch) -> Iterator[None]:
        """Hold the lock, and undo all changes if the body raises, be it Ctrl-C or no memory while it counts."""
        with self._lock:
            if self.counts.table is not self._known_table:  # a user has replaced the counts, or a state was loaded
                self._known_table = self.counts.table
                self._num_counted, self._num_samples = len(self.counts), self.counts.total()
            before = self.batches, self._num_counted, self._num_samples
            questions, self._counting = self._questions.snapshot(batch.question_ids), ()
            try:
                with self.matcher.unless_refused(batch.question_ids):
                    yield
            except BaseException:
                self.batches, self._num_counted, self._num_samples = before
                self._questions.restore(questions)
                if self._counting and self.counts.total() == self._num_samples + len(batch):
                    self.counts.take_back(*self._counting)
                raise

    def _numbers(self, batch: Batch) -> "_Numbers":
        """Check the columns of numbers and the groups, and that no column which the settings need is missing.

        Raises:
            TypeError, ValueError: as for `score`.
        """
        judged = batch.golds is not None or batch.correct is not None or bool(self.config.is_correct)
        if not judged:
            rewarded = batch.rewards is not None or "rewards" not in self.config.needs
            needing = self.config.needs_correctness if rewarded else "adv_estimator without rewards"
            if needing:
                raise ValueError(
                    f"golds or correct must be given, because {needing} requires correctness labels; got neither. Pass "
                    "one of them; or pass rewards, and choose settings without correctness, such as "
                    "zero_when_all_correct=False"
                )
        N = len(batch)
        return _Numbers(
            groups=group_indices(batch.question_ids, batch.group_ids),
            rewards=None if batch.rewards is None else numbers_of("rewards", batch.rewards, N),
            correct=None if batch.correct is None else verdicts_of(batch.correct, N),
            logps=None if batch.logps is None else numbers_of("logps", batch.logps, N),
            judged=judged,
        )

    def _scored(self, batch: Batch, numbers: "_Numbers", outcomes: Outcomes, rule: GroupRule) -> Scored:
        """Compute advantages and bonuses, and count the outcomes."""
        correct = torch.from_numpy(outcomes.correct) if numbers.correct is None else numbers.correct
        order, shapes = rows_by_size(numbers.groups)
        questions_N, keys_N, correct_N, rewards_N, groups_N, order_N, *logps_N = move(
            [
                _question_keys(batch),
                torch.from_numpy(outcomes.keys),
                correct,
                correct.float() if numbers.rewards is None else numbers.rewards,
                torch.from_numpy(numbers.groups),
                order,
                *([] if numbers.logps is None else [numbers.logps]),
            ],
            self.counts.device,
        )
        advantages_N, bonuses_N = torch.zeros_like(rewards_N), torch.zeros_like(rewards_N)
        counts_N = torch.empty_like(keys_N)
        gate = Gate.of(self.config.gate)
        gated_N = None if gate is None else gate.closed(self.counts.history(questions_N))
        # Groups of several sizes are counted after all of them are scored, so that no group sees the others' samples.
        counts_here = len(shapes) == 1
        self._counting = (questions_N, keys_N, correct_N)
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
            # Without any answer all samples share one outcome: an equal bonus for all would not explore.
            without_B1 = (keys_N[rows_Bn] == NO_ANSWER).all(dim=1, keepdim=True) & (self.config.no_answer == "no_bonus")
            advantages_N[rows_Bn], bonuses_N[rows_Bn] = part.advantages, part.bonuses.masked_fill(without_B1, 0.0)
            assert part.counts is not None  # there is a table
            counts_N[rows_Bn] = part.counts
        if gated_N is not None:
            advantages_N.masked_fill_(gated_N, 0.0)
            bonuses_N.masked_fill_(gated_N, 0.0)
        scored = Scored(
            correct=correct_N,
            rewards=rewards_N,
            keys=keys_N,
            counts=counts_N,
            advantages=advantages_N,
            bonuses=bonuses_N,
            groups=groups_N,
            gated=gated_N,
            answers=outcomes.answers,
            solved=[],
            answer_mask_mode=self.config.answer_mask_mode,
            judged=numbers.judged,
            unresolved=outcomes.unresolved,
            history={},
        )
        if rule.may_refuse:
            self._check_finite(scored.host)
        if not counts_here:
            self.counts.observe(*self._counting)
        return scored

    def _check_finite(self, scored: Scored) -> None:
        """Refuse values of a registered function that are not finite; the tensors are on the host."""
        for setting, values_N in (("adv_estimator", scored.advantages), ("bonus", scored.bonuses)):
            if not values_N.isfinite().all():
                raise ValueError(
                    f"{setting}={getattr(self.config, setting)!r} must give finite numbers; got "
                    f"{int((~values_N.isfinite()).sum())} of {len(values_N)} that are not"
                )

    def _warn_unmasked(self, outcomes: Outcomes) -> None:
        """Warn once that no token is masked, if the outcomes have no span."""
        if self._warned_unmasked or self.matcher.gives_spans or not self.config.explores:
            return
        mode = self.config.answer_mask_mode
        if mode != "none" and any(answer is not None and not answer.end for answer in outcomes.answers):
            self._warned_unmasked = True
            warnings.warn(
                f"answer_mask_mode={mode} masks nothing where the outcome function gives no span, so the bonus reaches "
                "the tokens that spell the outcome. Return Outcome(value, start, end) to mask them.",
                stacklevel=3,
            )

    def _warn_unanswered(self, outcomes: Outcomes) -> None:
        """Warn once that no response of a batch has an answer."""
        if not self._warned_unanswered and all(answer is None for answer in outcomes.answers):
            self._warned_unanswered = True
            limit = f" ({self.length_setting})" if self.length_setting else ""
            warnings.warn(
                "no response of a batch has an answer, so none is correct and none gets a bonus. Are they cut off at "
                f"the length limit{limit}, does the prompt lack an instruction to end with \\boxed{{...}}, or does the "
                "outcome function return None?",
                stacklevel=3,
            )

    def _classify(self, batch: Batch, columns: Sequence[NDArray[np.int64] | Tensor | None]) -> Outcomes:
        """Return the outcomes, which rank zero classifies; the batch and `columns` must be equal on all ranks.

        Raises:
            TypeError, ValueError: as for `score`.
        """
        if (batch.outcome_keys is None) == self.matcher.needs_keys:
            raise ValueError(
                "outcome_keys must be given if and only if outcome='given'; got "
                f"{'none' if batch.outcome_keys is None else 'some'} with outcome={self.config.outcome!r}"
            )
        call = partial(self.matcher.classify, batch, limit_s=self.config.grading_limit_s)
        if self.process_group is None:
            return call()
        values = [None if column is None else column.tolist() for column in columns]
        keys = None if batch.outcome_keys is None else [int(key) for key in batch.outcome_keys]
        inputs = (list(batch.question_ids), list(batch.responses), batch.golds and list(batch.golds), keys, values)
        return from_rank_zero(call, inputs, self.process_group)

    def _remember(self, question_ids: Sequence[str], correct_N: Tensor, keys_N: Tensor, counts_N: Tensor) -> None:
        """Update the solved questions, and the number of outcomes by those whose count before the batch is 0."""
        rows = zip(question_ids, keys_N.tolist(), counts_N.tolist(), strict=True)
        new = {(question_id, key) for question_id, key, count in rows if count == 0}
        self._questions.add(zip(question_ids, correct_N.tolist(), strict=True))
        self._questions.add_answers(Counter(question_id for question_id, key in new if key != NO_ANSWER))
        self._num_counted += len(new)
        self._num_samples += len(question_ids)

    def _history(self, judged: bool) -> dict[str, float]:
        """Return metrics of everything sampled so far."""
        return {"exploration/counted_outcomes": float(self._num_counted), **self._questions.metrics(judged=judged)}

    def _check_rank_zero(self, name: str) -> None:
        if self.process_group is not None and dist.get_rank(self.process_group) != 0:
            raise RuntimeError(
                f"Explorer.{name} must be called on rank zero of the process group, because only rank zero has the "
                f"outcome classes; this is rank {dist.get_rank(self.process_group)}"
            )


class _Numbers(NamedTuple):
    """The columns of numbers of a batch, checked."""

    groups: NDArray[np.int64]  # (N,) index of the group
    rewards: Tensor | None
    correct: Tensor | None
    logps: Tensor | None
    judged: bool  # whether correctness is known


def _question_keys(batch: Batch) -> Tensor:
    key_of = {question_id: question_key(question_id) for question_id in set(batch.question_ids)}
    return torch.tensor([key_of[question_id] for question_id in batch.question_ids], dtype=torch.int64)


def _history_of(question_ids: Iterable[str], counts: OutcomeCounts) -> History:
    keys_Q = torch.tensor([question_key(question_id) for question_id in question_ids], dtype=torch.int64)
    return counts.history(keys_Q.to(counts.device))


def _is_whole(history: History, counts: OutcomeCounts) -> bool:
    """Return whether the histories of an explorer's questions are all that its counts hold."""
    return bool((history.visits > 0).all()) and int(history.visits.sum()) == counts.total()
