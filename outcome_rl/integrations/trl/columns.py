"""Columns of TRL's training data that hold ids of questions and reference answers: found, and read row by row."""

import hashlib
import logging
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, NamedTuple

from outcome_rl.files.rows import ANSWER_COLUMNS, ID_COLUMNS, filled_text, id_of_row, id_source, one_origin
from outcome_rl.outcomes.kinds import OutcomeKind, golds_differ, same_gold
from outcome_rl.questions import question_id

logger = logging.getLogger(__name__)


class Columns(NamedTuple):
    """Names of the columns, and readers of a row."""

    ids: str | None  # None: ids are hashes of prompts, or of rows
    golds: str | None  # None: no reference answers are read
    id_source: str
    more_than_prompt: bool = False  # a question has images or an environment; without ids they are then of rows

    @classmethod
    def find(cls, trainer: Any, id_key: str, answer_key: str | None) -> "Columns":
        """Find the columns of a trainer's training data, and check them in every row.

        Raises:
            ValueError: a named or needed column is missing, or a row is unusable.
        """
        names, left = column_names(trainer.train_dataset), ""
        if trainer.args.remove_unused_columns:
            trainer._set_signature_columns_if_needed()
            names = [name for name in names if name in trainer._signature_columns]
            left = " left by remove_unused_columns=True, which is False by default"
        has = f"the training data has the columns {', '.join(map(repr, names)) or 'of no row'}{left}"
        if "prompt" not in names:
            raise ValueError(f"train_dataset must have a column 'prompt' of texts or messages; {has}. Rename it")
        for setting, name in (("id_key", id_key), ("answer_key", answer_key)):
            if name and name not in names:
                raise ValueError(f"{setting} must name a column; got {name!r}, but {has}")
        explorer, is_decided = trainer.explorer, trainer.correct_reward or not trainer.explorer.matcher.needs_gold
        ids = id_key or next((name for name in ID_COLUMNS if name in names), None)
        golds = answer_key
        if golds == "" and not is_decided:
            golds = next((name for name in ANSWER_COLUMNS if name in names), None)
        if not golds and not is_decided:
            explorer.config.check_correctness(
                fix=f"{has}. Name the column of the reference answer by answer_key, a reward function by "
                "correct_reward, or change the setting, such as bonus='ucb_con(zero_when_all_correct=false)'"
            )
        more = trainer.environment_factories is not None or not {"image", "images"}.isdisjoint(names)
        of_rows = more and ids is None
        origin = "the hash of the row" if of_rows else id_source(ids, within_source="data_source" in names)
        found = cls(ids, golds or None, origin, more)
        found.check(trainer.train_dataset, explorer.matcher, ids_are_named=bool(id_key))
        return found

    @property
    def of_rows(self) -> bool:
        """Whether an id is the hash of the whole row."""
        return self.ids is None and self.more_than_prompt

    def id(self, row: Mapping[str, Any]) -> str:
        if self.of_rows:
            return question_id(_with_digests(row))
        if self.ids is None:
            if "prompt" not in row:
                raise ValueError(f"{_where(row)}: has neither a prompt nor ids; name a column of stable ids by id_key")
            return question_id(row["prompt"])
        found, origin = id_of_row(row, [self.ids], _where(row), "Name another column by id_key")
        one_origin([("the data", self.id_source), (_where(row), origin)])
        return found

    def gold(self, row: Mapping[str, Any], *, is_needed: bool = True) -> str:
        """Return the reference answer of a row; one that is missing is "" where none is needed."""
        assert self.golds is not None
        gold = row.get(self.golds)
        if not is_needed and (gold is None or gold != gold or not str(gold).strip()):
            return ""
        fix = (
            ". Name another column by answer_key, or set answer_key=None, and correct_reward if a bonus asks who is "
            "correct"
        )
        return filled_text(gold, self.golds, "reference answer", _where(row), fix)

    def of_evaluation(self, data: Any) -> "Columns":
        """Return the columns that evaluation data has; its questions are told apart by their index."""
        names = getattr(data, "column_names", None)
        is_lacking = names is not None and self.golds not in names
        return self._replace(ids=None, golds=None if is_lacking else self.golds)

    def check(self, data: Any, kind: OutcomeKind, *, ids_are_named: bool = True, needs_golds: bool = True) -> None:
        """Read every row of a data set once, so that a run does not end at a bad one. Streams are read as they come.

        Args:
            data: training or evaluation data.
            kind: says which reference answers are the same.
            ids_are_named: the user chose the column of ids, so that an id may have several prompts.
            needs_golds: a row without its reference answer is refused; otherwise a warning says how many lack it.

        Raises:
            ValueError: a row lacks its id or its reference answer, a question has two reference answers, or an id that
                the user did not name has two prompts.
        """
        if not _may_be_read(data) or (self.ids is None and self.golds is None):
            return
        read = [name for name in data.column_names if name in ("prompt", self.ids, self.golds, "data_source")]
        missing, questions = 0, dict[str, tuple[str, str]]()  # id -> hash of its prompt, reference answer
        for row in data.select_columns(read):
            gold = self.gold(row, is_needed=needs_golds) if self.golds else ""
            missing += bool(self.golds) and not gold
            if self.of_rows:  # no image is read before its turn
                continue
            own, prompt = self.id(row), ""
            with suppress(TypeError):  # an image
                prompt = question_id(row.get("prompt"))
            known_prompt, known_gold = questions.setdefault(own, (prompt, gold))
            if gold and known_gold and gold != known_gold and not same_gold(kind, known_gold, gold):
                raise golds_differ(own if self.ids else str(row["prompt"])[:80], known_gold, gold)
            if self.ids and not ids_are_named and known_prompt != prompt:
                raise ValueError(
                    f"{_where(row)}: column {self.ids!r} has the same id {own!r} for another prompt, so they would "
                    f"share their counts. Name a column of unique ids by id_key, or id_key={self.ids!r} if they are "
                    "one question"
                )
        if missing:
            logger.warning(
                "%d of %d rows of evaluation data lack a reference answer in %r, so their questions have no pass@k",
                missing,
                len(data),
                self.golds,
            )


def column_names(data: Any) -> list[str]:
    """Return the columns of a data set; a stream may not know them."""
    names: list[str] = data.column_names or [*next(iter(data), ())]
    return names


def _may_be_read(data: Any) -> bool:
    """Whether rows can be read beforehand: they are no stream, and no transform, which may need all columns."""
    from datasets import Dataset  # comes with TRL

    return isinstance(data, Dataset) and data.format["type"] != "custom"


def _with_digests(value: Any) -> Any:
    """Return a row, or a part of it, with a digest in place of every image."""
    data = value.tobytes() if hasattr(value, "tobytes") else value
    if isinstance(data, bytes):
        return hashlib.sha256(data).hexdigest()
    if isinstance(data, Mapping):
        return {name: _with_digests(part) for name, part in data.items()}
    return [*map(_with_digests, data)] if isinstance(data, list | tuple) else data


def _where(row: Mapping[str, Any]) -> str:
    return f"training data, row of the prompt {str(row.get('prompt'))[:80]!r}"
