"""The `Explorer`: computes advantages and bonuses from the responses of a step, and keeps the outcomes of a run."""

import os
import threading
import warnings
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple, NoReturn, Self

import torch
import torch.distributed as dist
from torch import Tensor

from outcome_rl.exploration import saved
from outcome_rl.exploration.columns import group_indices, move, rows_by_size
from outcome_rl.exploration.config import ExplorationConfig
from outcome_rl.exploration.gate import Gate
from outcome_rl.exploration.history import QuestionHistory, Totals
from outcome_rl.exploration.older import read_again, upgraded
from outcome_rl.exploration.reading import Facts, Reading, read_batch
from outcome_rl.exploration.scored import Scored
from outcome_rl.outcomes.batch import Batch
from outcome_rl.outcomes.extraction.answer import Answer
from outcome_rl.outcomes.fork_locks import lock_of
from outcome_rl.outcomes.keys import NO_ANSWER, question_key
from outcome_rl_kernels import GroupRule, OutcomeCounts, group_advantages
from outcome_rl_kernels.advantages.groups import Scale
from outcome_rl_kernels.backends import triton_obstacle
from outcome_rl_kernels.counts.api import History
from outcome_rl_kernels.counts.reference import CountEntries, Past
from outcome_rl_kernels.counts.snapshot import check_entries, check_rule, read_snapshot


def device_of_counts(device: torch.device) -> torch.device:
    """Return the device for the counts of a trainer on `device`: that GPU if Triton runs on it, else the CPU."""
    return device if device.type == "cuda" and triton_obstacle(device) is None else torch.device("cpu")


class Explorer:
    """Counts of the outcomes of a run, and the advantages that follow from them.

    The count table is the only state: what was solved, and how many answers a question got, is its history. Beside it
    are facts that are only added, the texts of outcomes and the golds. A call computes everything and then commits
    once, so that one which raises, or is interrupted, leaves either no trace or all of its results.

    Args:
        config: settings; None takes the defaults.
        device: device of the counts and of the tensors in `Scored`. With a GPU, `score` copies its columns there once,
            computes there, and synchronises once to read the metrics; `Scored.host` has the values.
        process_group: processes that train together and all call `score` and `count`, each with its own responses,
            whose groups may span ranks. All of them get the same result and keep the same counts and texts. None: only
            this process.
        **settings: fields of `ExplorationConfig`; they override `config`.

    Attributes:
        config: the settings.
        counts: `OutcomeCounts` of all responses so far.
        matcher: the kind of outcomes: `OutcomeMatcher`, for an outcome function `FunctionMatcher`, or another
            `OutcomeKind`.
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
        self._facts = Facts({}, {})
        # A table and its sums, because asking one on a GPU would synchronise; another table is summed up anew.
        self._known: tuple[Any, Totals] = (self.counts.table, Totals())
        self._commit: _Commit | None = None  # begun, and not known to be finished
        self.batches = 0
        self.id_source = ""
        self.length_setting = ""
        self._warned_unmasked = self._warned_unanswered = False
        self._lock = lock_of(self, threading.RLock)

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "an Explorer is not copied or sent to another process; use state_dict and load_state_dict, or save and load"
        )

    @property
    def solved(self) -> Mapping[str, bool]:
        return MappingProxyType({id_: history.successes > 0 for id_, history in self.questions().items()})

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
            `Scored`, without gradient; in a process group the responses of all ranks, one rank after another.

        Raises:
            TypeError, ValueError: an argument has the wrong type, length or value; a question has another gold than
                before; a group holds two questions; correctness is unknown although rewards or bonus depend on
                it; an outcome function fails on all responses of its first batch; or a bonus or advantage is not
                finite. The explorer is then unchanged.
        """
        rule = self.config.rule(scale)

        def own() -> Batch:
            batch = Batch.of(question_ids, responses, golds, rewards, **columns)
            self._check_judged(batch)
            return batch

        with self._lock:
            self._finish()
            reading, answers = read_batch(own, self.matcher, self.config, self._facts, self.process_group)
            counted, scored = self._scored(reading, answers, rule)
            host = scored.host
            if rule.may_refuse:
                self._check_finite(host)
            past = Past(host.counts, torch.stack([host.visits, host.successes, host.distinct]))
            totals, solved = self._totals().after(reading.questions, host.keys, host.correct, past)
            scored.solved.extend(solved.tolist())
            scored.history.update(totals.metrics(judged=reading.judged))
            self._warn_unmasked(answers)
            self._warn_unanswered(reading.keys)
            self._count(counted, _Commit(self.counts, totals, reading, self.batches + 1))
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
        own = partial(Batch.of, question_ids, responses, golds, rows=rows)
        with self._lock:
            self._finish()
            reading, _ = read_batch(own, self.matcher, self.config, self._facts, self.process_group)
            columns = [reading.questions, reading.keys, reading.correct]
            counted = move(columns, self.counts.device)
            past = Past(*(column.cpu() for column in self.counts.read(*counted[:2])))
            questions_N, keys_N, correct_N = (column.cpu() for column in columns)
            totals, _ = self._totals().after(questions_N, keys_N, correct_N, past)
            self._count(counted, _Commit(self.counts, totals, reading, self.batches))

    def seen(self, question_id: str | int) -> list[tuple[str | None, int]]:
        """List the outcomes sampled for a question so far, the most frequent first.

        Returns:
            `(answer, count)`: the text of one representative answer of each outcome class, None for "no answer".

        Raises:
            TypeError: the id is neither text nor an integer.
        """
        key, question_id = question_key(question_id), str(question_id)
        with self._lock:
            self._finish()
            texts: dict[int, str | None] = {**self._facts.texts.get(question_id, {}), NO_ANSWER: None}
            keys_A = torch.tensor(list(texts), device=self.counts.device)
            counts_A = self.counts.lookup(torch.full_like(keys_A, key), keys_A).tolist()
        found = [(text, count) for text, count in zip(texts.values(), counts_A, strict=True) if count > 0]
        return sorted(found, key=lambda outcome: (-outcome[1], outcome[0] or ""))

    def questions(self) -> dict[str, QuestionHistory]:
        """Return samples, correct samples and different answers of every question sampled so far, by its id."""
        with self._lock:
            self._finish()
            ids = list(self._facts.texts)
            keys_Q = torch.tensor([question_key(question_id) for question_id in ids], dtype=torch.int64)
            history = self.counts.history(keys_Q.to(self.counts.device))
        rows = zip(*(column.tolist() for column in history), strict=True)
        return {question_id: QuestionHistory(*row) for question_id, row in zip(ids, rows, strict=True)}

    def state_dict(self) -> dict[str, Any]:
        """Return counts, texts and golds, as tensors and JSON values; on every rank the same.

        Raises:
            ValueError: the outcome function has no name, or the counts hold other samples than its own.
        """
        if not self.matcher.rule:
            raise ValueError(
                f"outcome={self.config.outcome!r} has no name by which its counts could be found again. Give it one: "
                "outcome_function(name=..., version=...)(function)"
            )
        with self._lock:
            self._finish()
            entries = self.counts.items()
            if not saved.is_whole(entries, self._facts.texts):
                raise ValueError(
                    "explorer.counts must hold the samples that score and count took, or its state could not be "
                    "loaded; it holds others. Count these in an OutcomeCounts of your own"
                )
            return {
                "counts": {"rule": self.counts.rule, **entries._asdict()},
                "texts": {
                    id_: [value for pair in of.items() for value in pair] for id_, of in self._facts.texts.items()
                },
                "golds": dict(self._facts.golds),
                "batches": self.batches,
                "id_source": self.id_source,
            }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from a `state_dict`, on every rank; outcomes of an older rule are read again from their texts.

        Raises:
            ValueError: it was made under a rule that this explorer cannot read, or is damaged; this explorer is then
                unchanged.
        """
        name = "the exploration state"
        if isinstance(state, Mapping) and "outcomes" in state:
            state = upgraded(name, state)
        saved.check_state(name, state, saved.StateInMemory)
        columns = dict(state["counts"])
        rule = str(columns.pop("rule", ""))
        self._continue(state, rule, check_entries(columns, name))

    def _continue(self, state: Mapping[str, Any], rule: str, entries: CountEntries) -> None:
        texts = saved.texts_of(state)
        if not saved.is_whole(entries, texts):
            raise ValueError(
                "the exploration state is damaged: its counts and its texts belong to different runs or steps. "
                f"{saved.FIX}"
            )
        kind = self.matcher
        if not kind.reads(rule):
            check_rule(rule, kind.rule, "the exploration state")
        if rule != kind.rule or state.get("former"):
            entries, texts = read_again(kind, rule, entries, texts)
        counts = OutcomeCounts(device=self.counts.device, rule=kind.rule)
        counts.load_state_dict({"rule": kind.rule, **entries._asdict()})
        with self._lock:
            self.counts, self._facts, self._commit = counts, Facts(texts, dict(state["golds"])), None
            self.id_source, self.batches = state["id_source"], state["batches"]

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Write the current state into a folder atomically, and replace an older state in it.

        Raises:
            FileExistsError: the folder holds other files, or is a file.
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
            TypeError, ValueError: a file is damaged or foreign, the counts were made under a rule that the settings
                cannot read, a setting is wrong, or was or names a function and is not given.
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
                entries, rule = read_snapshot(folder / saved.COUNTS_FILE)
                explorer._continue(state, rule, entries)
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
        return f"Explorer({self.config}, {len(self._facts.texts)} questions, {self.counts})"

    def _totals(self) -> Totals:
        """Return the sums over the table, as the last commit left them; those of another table are computed."""
        table = self.counts.table
        if self._known[0] is not table:  # a user has replaced the counts, or a state was loaded
            self._known = (table, Totals.of(self.counts))
        return self._known[1]

    def _count(self, columns: Sequence[Tensor], commit: "_Commit") -> None:
        """Change the table, and with it everything else.

        The facts of a commit are noted before the table changes, and are kept after it. If this is interrupted
        between, the next call looks at the table to see whether it changed, and keeps or drops them.
        """
        self._commit = commit
        self.counts.observe(*columns)
        self._finish(counted=True)

    def _finish(self, *, counted: bool = False) -> None:
        """Keep the facts of a commit whose batch is in the table, and drop those of one whose batch is not."""
        commit = self._commit
        if commit is None:
            return
        if counted or (commit.counts is self.counts and commit.counts.total() >= commit.totals.samples):
            for question_id, key, text in commit.reading.texts:
                known = self._facts.texts.setdefault(question_id, {})
                if key != NO_ANSWER:
                    known.setdefault(key, text)
            self._facts.golds.update(commit.reading.golds)
            self._known = (commit.counts.table, commit.totals)
            self.batches = commit.batches
        self._commit = None

    def _check_judged(self, batch: Batch) -> None:
        """Check that no column is missing which the settings need.

        Raises:
            ValueError: correctness is unknown, and something depends on it.
        """
        if batch.golds is not None or batch.correct is not None or self.config.is_correct:
            return
        rewarded = batch.rewards is not None or "rewards" not in self.config.needs
        needing = self.config.needs_correctness if rewarded else "adv_estimator without rewards"
        if needing:
            raise ValueError(
                f"golds or correct must be given, because {needing} requires correctness labels; got neither. Pass "
                "one of them; or pass rewards, and choose settings without correctness, such as "
                "zero_when_all_correct=False"
            )

    def _scored(self, reading: Reading, answers: list[Answer | None], rule: GroupRule) -> tuple[list[Tensor], Scored]:
        """Compute advantages and bonuses from the table as it is; return also the columns to count."""
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
            self.counts.device,
        )
        counts_N, history_3N = self.counts.read(questions_N, keys_N)
        advantages_N, bonuses_N = torch.zeros_like(rewards_N), torch.zeros_like(rewards_N)
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
                past=Past(counts_N[rows_Bn], history_3N[:, rows_Bn[:, 0]]),
                batch=self.batches,
                update=False,
            )
            # Without any answer all samples share one outcome: an equal bonus for all would not explore.
            without_B1 = (keys_N[rows_Bn] == NO_ANSWER).all(dim=1, keepdim=True) & (self.config.no_answer == "no_bonus")
            advantages_N[rows_Bn], bonuses_N[rows_Bn] = part.advantages, part.bonuses.masked_fill(without_B1, 0.0)
        gate = Gate.of(self.config.gate)
        gated_N = None if gate is None else gate.closed(History(*history_3N))
        if gated_N is not None:
            advantages_N.masked_fill_(gated_N, 0.0)
            bonuses_N.masked_fill_(gated_N, 0.0)
        scored = Scored(
            correct=correct_N,
            rewards=rewards_N,
            keys=keys_N,
            counts=counts_N,
            visits=history_3N[0],
            successes=history_3N[1],
            distinct=history_3N[2],
            advantages=advantages_N,
            bonuses=bonuses_N,
            groups=groups_N,
            gated=gated_N,
            answers=answers,
            solved=[],
            answer_mask_mode=self.config.answer_mask_mode,
            judged=reading.judged,
            unresolved=reading.unresolved,
            history={},
        )
        return [questions_N, keys_N, correct_N], scored

    def _check_finite(self, scored: Scored) -> None:
        """Refuse values of a registered function that are not finite; the tensors are on the host."""
        for setting, values_N in (("adv_estimator", scored.advantages), ("bonus", scored.bonuses)):
            if not values_N.isfinite().all():
                raise ValueError(
                    f"{setting}={getattr(self.config, setting)!r} must give finite numbers; got "
                    f"{int((~values_N.isfinite()).sum())} of {len(values_N)} that are not"
                )

    def _warn_unmasked(self, answers: Sequence[Answer | None]) -> None:
        """Warn once that no token is masked, if the outcomes have no span."""
        if self._warned_unmasked or self.matcher.gives_spans or not self.config.explores:
            return
        mode = self.config.answer_mask_mode
        if mode != "none" and any(answer is not None and not answer.end for answer in answers):
            self._warned_unmasked = True
            warnings.warn(
                f"answer_mask_mode={mode} masks nothing where the outcome function gives no span, so the bonus reaches "
                "the tokens that spell the outcome. Return Outcome(value, start, end) to mask them.",
                stacklevel=3,
            )

    def _warn_unanswered(self, keys_N: Tensor) -> None:
        """Warn once that no response of a batch has an answer."""
        if not self._warned_unanswered and not keys_N.any():
            self._warned_unanswered = True
            limit = f" ({self.length_setting})" if self.length_setting else ""
            warnings.warn(
                "no response of a batch has an answer, so none is correct and none gets a bonus. Are they cut off at "
                f"the length limit{limit}, does the prompt lack an instruction to end with \\boxed{{...}}, or does the "
                "outcome function return None?",
                stacklevel=3,
            )


class _Commit(NamedTuple):
    """A batch that is about to be counted, and everything that is true once it is."""

    counts: OutcomeCounts
    totals: Totals  # of the table with the batch
    reading: Reading
    batches: int
