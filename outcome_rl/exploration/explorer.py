"""The `Explorer`: computes advantages and bonuses from the responses of a step, and keeps the outcomes of a run."""

import os
import threading
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, NoReturn, Self

import torch
import torch.distributed as dist
from torch import Tensor

from outcome_rl.exploration import saved
from outcome_rl.exploration.config import ExplorationConfig
from outcome_rl.exploration.reading import Facts, Reading, read_batch
from outcome_rl.exploration.scored import Scored, move
from outcome_rl.exploration.scoring import score_batch
from outcome_rl.isolation.closing import Closing
from outcome_rl.outcomes.batch import Batch
from outcome_rl.outcomes.keys import NO_ANSWER
from outcome_rl.questions import question_key
from outcome_rl_kernels import OutcomeCounts
from outcome_rl_kernels.advantages.groups import Scale
from outcome_rl_kernels.backends import triton_obstacle
from outcome_rl_kernels.settings import values_of


def device_of_counts(device: torch.device) -> torch.device:
    """Return the device for the counts of a trainer on `device`: that GPU if Triton runs on it, else the CPU."""
    return device if device.type == "cuda" and triton_obstacle(device) is None else torch.device("cpu")


class Explorer(Closing):
    """Counts of the outcomes of a run, and the advantages that follow from them.

    The count table is the only state: its history says which questions were solved, and how many answers each got.
    Texts of outcomes and golds stand beside it, and are only ever added. A call computes everything, adds what is new
    to these, and then counts the batch in one step: if it raises or is interrupted, all of the batch is counted, or
    nothing.

    Args:
        config: settings; None takes the defaults.
        device: device of the counts and of the tensors in `Scored`. With a GPU, `score` copies its columns there once,
            computes there, and synchronises once to check the values, which `Scored.host` has; `Scored.metrics` waits
            once more.
        process_group: processes that train together and all call `score` and `count`, each with its own responses,
            whose groups may span ranks. All get the same result and keep the same counts and texts. None: this process
            only.
        **settings: fields of `ExplorationConfig`; they override `config`.

    Attributes:
        config: the settings.
        counts: `OutcomeCounts` of all responses so far.
        matcher: the kind of outcomes: an `OutcomeKind`, such as `OutcomeMatcher`.
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
        if config is not None and not isinstance(config, ExplorationConfig):
            raise TypeError(
                f"config, or exploration of TRL's trainer, must be an ExplorationConfig; got {type(config).__name__}. "
                "Write ExplorationConfig(bonus='batch')"
            )
        self.config = ExplorationConfig.from_mapping((values_of(config) if config else {}) | settings, "Explorer")
        self.process_group = process_group
        self.matcher = self.config.matcher()
        self.counts = OutcomeCounts(device=device, rule=self.matcher.rule)
        self._facts = Facts({}, {})
        self.batches = 0
        self.id_source = ""
        self._said: set[str] = set()  # warnings
        self._lock = threading.RLock()

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "an Explorer is not copied or sent to another process; use state_dict and load_state_dict, or save and load"
        )

    @property
    def solved(self) -> Mapping[str, bool]:
        with self._lock:
            ids = list(self._facts.texts)
            keys = torch.tensor([*map(question_key, ids)], dtype=torch.int64, device=self.counts.device)
            history = self.counts.history(keys)
        rows = zip(ids, history.visits.tolist(), history.successes.tolist(), strict=True)
        return MappingProxyType({question_id: successes > 0 for question_id, visits, successes in rows if visits})

    def score(
        self,
        question_ids: Batch | Sequence[str],
        responses: Sequence[str] | None = None,
        golds: Sequence[str] | None = None,
        rewards: Tensor | Sequence[float] | Sequence[Sequence[float]] | None = None,
        *,
        scale: Scale | None = None,
        **columns: Any,
    ) -> Scored:
        """Classify N responses, compute their advantages and bonuses, and count them.

        The advantage is `A_i = (r_i - mean(r)) / (std(r) + 1e-6)` within each group, or the result of another
        `adv_estimator`. The bonus is that of `group_advantages`, computed from the counts before this call: responses
        of one call do not affect one another's counts. A group in which no response has an answer gets no bonus.
        Threads may share an explorer: calls take turns.

        Several rewards, (N, K), are each normalised by the estimator, and the weighted sum of their advantages is
        divided by its standard deviation over the batch, before the bonus is added (GDPO, arXiv:2601.05242).

        Args:
            question_ids, responses, golds, rewards: columns of a `Batch`, or a `Batch` in place of the first.
                `adv_estimator="majority"` reads neither rewards nor golds.
            scale: "std", or "none" to leave out the division of `grpo` by the standard deviation (Dr. GRPO); None takes
                the settings'.
            **columns: further columns of a `Batch`.

        Returns:
            `Scored`, without gradient; in a process group the responses of all ranks, one rank after another.

        Raises:
            TypeError, ValueError: an argument has the wrong type, length or value; a question has another gold than
                before; a group holds two questions; correctness is unknown although rewards or bonus depend on
                it; an outcome function fails on all responses of its first batch; or a bonus or advantage is not
                finite. Nothing is then counted.
        """
        config = self.config if scale is None else replace(self.config, scale=scale)
        with self._lock:
            reading = self._read(question_ids, responses, golds, rewards, **columns)
            goes_on = self.batches > 0 and reading.rewards is not None  # a reward that is not 0 or 1 ends no run
            if not (reading.correctness.source or goes_on):
                self.config.check_correctness(
                    fix=f"{reading.correctness.unknown}; or choose settings without correctness, such as "
                    "a bonus with zero_when_all_correct=false",
                    rewarded=reading.rewards is not None,
                )
            questions_N, scored = score_batch(reading, config, self.counts, self.batches)
            self._warn(reading, scored)
            self._count([questions_N, scored.keys, scored.correct], reading)
            self.batches += 1
            scored.sums.copy_(self.counts.sums())
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
                golds and `correct`, responses are compared with the golds of earlier calls; a question
                without one has no correct response.

        Raises:
            TypeError, ValueError: as `score` does; nothing is counted.
        """
        with self._lock:
            reading = self._read(question_ids, responses, golds, rows=rows)
            columns = move([reading.questions, reading.keys, reading.correct], self.counts.device)
            self._count(columns, reading)

    def seen(self, question_id: str | int) -> list[tuple[str | None, int]]:
        """List the outcomes sampled for a question so far, the most frequent first.

        Returns:
            `(answer, count)`: the text of one representative answer of each outcome class, None for "no answer".

        Raises:
            TypeError: the id is neither text nor an integer.
        """
        key, question_id = question_key(question_id), str(question_id)
        with self._lock:
            texts: dict[int, str | None] = {**self._facts.texts.get(question_id, {}), NO_ANSWER: None}
            keys_A = torch.tensor(list(texts), device=self.counts.device)
            counts_A = self.counts.lookup(torch.full_like(keys_A, key), keys_A).tolist()
        found = [(text, count) for text, count in zip(texts.values(), counts_A, strict=True) if count > 0]
        return sorted(found, key=lambda outcome: (-outcome[1], outcome[0] or ""))

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
            entries = self.counts.items()
            if not saved.is_whole(entries, self._facts.texts):
                raise ValueError(
                    "explorer.counts must hold the samples that score and count took, or its state could not be "
                    "loaded; it holds others. Count these in your own OutcomeCounts"
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
        entries, facts, batches, id_source = saved.read_state(state, self.matcher)
        counts = OutcomeCounts(device=self.counts.device, rule=self.matcher.rule)
        counts.load_state_dict({"rule": counts.rule, **entries._asdict()})
        with self._lock:
            self.counts, self._facts, self.matcher.seen = counts, facts, facts.texts
            self.batches, self.id_source = batches, id_source

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Write the current state into a file of a folder, in one step; the folder's older state is replaced.

        Raises:
            OSError: the file cannot be written; an older state is as it was.
            ValueError: as for `state_dict`.
        """
        saved.write_state(Path(folder), self.config, self.state_dict())

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
        state, found = saved.read_folder(Path(folder))
        if config is None:
            config = saved.settings_of_folder(Path(folder), found, settings)
        explorer = cls(config, device=device, process_group=process_group, **settings)
        try:
            explorer.load_state_dict(state)
        except ValueError as error:
            raise ValueError(f"{folder}: {error}") from error
        return explorer

    @property
    def has_golds(self) -> bool:
        """Whether a gold answer of any question is known."""
        return bool(self._facts.golds)

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

    def __repr__(self) -> str:
        return f"Explorer({self.config}, {len(self._facts.texts)} questions, {self.counts})"

    def _read(self, *columns: Any, **named: Any) -> Reading:
        """Read the responses of all ranks."""
        batch = partial(Batch.of, *columns, **named)
        return read_batch(batch, self.matcher, self.config, self._facts, self.process_group)

    def _count(self, columns: Sequence[Tensor], reading: Reading) -> None:
        """Add the facts of a batch, then count it, so that whatever is counted has its text."""
        self._facts.add(reading)
        self.counts.observe(*columns)

    def _warn(self, reading: Reading, scored: Scored) -> None:
        """Warn once of unknown correctness, groups of one, unmasked answers, and batches without an answer."""
        mode, said = self.config.answer_mask_mode, {}
        if reading.correctness.unknown:
            said["correct"] = (
                "it is unknown which responses are correct, and metrics that need it are left out: "
                f"{reading.correctness.unknown}."
            )
        groups = scored.host.groups.tolist()  # in order of appearance
        if groups[-1] + 1 == len(groups) and not any(scored.host.advantages.tolist()):
            said["groups"] = (
                f"every group has one response, and {self.config.adv_estimator} compares responses of a group, so all "
                "advantages are 0. Score several responses to a question in one call, under the same id."
            )
        masks = self.config.explores and mode != "none"
        if masks and any(answer is not None and not answer.end for answer in reading.answers):
            said["span"] = (
                f"answer_mask_mode={mode} masks nothing where the outcome function gives no span, so the bonus reaches "
                "the tokens that spell the outcome. Return Outcome(value, start, end) to mask them, or set "
                "answer_mask_mode='none'."
            )
        if not reading.keys.any():
            said["answer"] = (
                "no response of a batch has an answer, so none is correct and none gets a bonus. Are they cut off at "
                "the length limit, does the prompt lack an instruction to end with \\boxed{...}, or does the outcome "
                "function return None?"
            )
        for name, text in said.items():
            if name not in self._said:
                self._said.add(name)
                warnings.warn(text, stacklevel=3)
