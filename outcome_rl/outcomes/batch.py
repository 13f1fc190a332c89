"""The responses of a step and their columns: one input type for outcomes, counts and plug-ins."""

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from torch import Tensor

Row = Mapping[str, Any]


@dataclass(frozen=True, eq=False)
class Batch:
    """N responses and their columns, with one entry per response each.

    Args:
        question_ids: stable ids of the questions, the same whenever a question comes back: an id of the data set, or
            `outcome_rl.question_id(prompt)`. An integer is its text.
        responses: texts.
        golds: gold answers, the same for all responses to a question, or texts that end in them, such as GSM8K's
            solutions; None where there are none. A number is its text.
        rewards: finite numbers, which may hold penalties; None takes 1 for a correct response and 0 for another.
        rows: data rows for an outcome function, equal for all responses to a question; None passes empty ones.
        group_ids: ids that say which responses are normalised together, each group of one question. None makes one
            group of each question.
        correct: booleans that replace the comparison with the golds.
        outcome_keys: integers that name the outcomes, 0 for none, where `outcome="given"`: clusters of embeddings, or
            the classes of another model.

    Raises:
        TypeError: a response is not a string, or an id or gold is no text.
        ValueError: a column has another length. Columns of numbers are checked where they are read.
    """

    question_ids: Sequence[str]
    responses: Sequence[str]
    golds: Sequence[str] | None = None
    rewards: "Tensor | Sequence[float] | None" = None
    _: KW_ONLY
    rows: Sequence[Row] | None = None
    group_ids: Sequence[Hashable] | None = None
    correct: "Tensor | Sequence[bool] | None" = None
    outcome_keys: "Tensor | Sequence[int] | None" = None

    def __post_init__(self) -> None:
        for name in ("question_ids", "responses", "golds", "rows", "group_ids"):
            column = getattr(self, name)
            if column is None:
                if name in ("question_ids", "responses"):
                    raise TypeError(f"{name} must be a list of strings, one per response; got None")
                continue
            if not isinstance(column, str | list | tuple):  # NumPy's, pandas', a tensor, a generator
                column = column.tolist() if hasattr(column, "tolist") else list(column)
                object.__setattr__(self, name, column)
            if isinstance(column, str) or len(column) != len(self.question_ids):
                got = "a string" if isinstance(column, str) else f"{len(column)} for {len(self.question_ids)} ids"
                raise ValueError(f"{name} must have one entry per response; got {got}")
        for name in ("question_ids", "responses", "golds"):
            column = getattr(self, name) or ()
            if not {str}.issuperset(map(type, column)):  # ten times as fast as looking at each value
                object.__setattr__(self, name, [_text(name, value) for value in column])

    @classmethod
    def of(cls, batch: "Batch | Sequence[str]", *columns: Any, **named: Any) -> Self:
        """Return the batch itself, or the batch with these columns: a call takes either."""
        if not isinstance(batch, cls):
            if unknown := [name for name in named if name not in cls.__dataclass_fields__]:
                from outcome_rl_kernels.checks import did_you_mean  # not above: workers do without torch

                known = [*cls.__dataclass_fields__]
                hint = did_you_mean(unknown[0], known)
                raise TypeError(f"there is no column {unknown[0]!r}{hint}; a batch has {', '.join(known)}")
            return cls(batch, *columns, **named)  # type: ignore[arg-type]
        if any(column is not None for column in (*columns, *named.values())):
            raise TypeError("a Batch has all columns; pass them to Batch, or pass only columns")
        return batch

    def __len__(self) -> int:
        return len(self.question_ids)

    @property
    def examples(self) -> Sequence[Row]:
        """The data rows, empty ones where there are none."""
        return [{}] * len(self) if self.rows is None else self.rows


def _text(name: str, value: object) -> str:
    """Return a value of a column of texts as text, also an integer as an id, and a finite number as a gold answer."""
    if isinstance(value, str):
        return value
    is_number = isinstance(value, Integral) or (name == "golds" and isinstance(value, Real) and math.isfinite(value))
    if is_number and name != "responses" and not isinstance(value, bool):
        return str(value)
    raise TypeError(f"{name} must be strings; got {repr(value)[:80]} ({type(value).__name__}). {_fix(name, value)}")


def _fix(name: str, value: object) -> str:
    """Return what to pass in place of a value that is no text; `str` of most values would pass, and mean nothing."""
    if value is None and name == "golds":
        return "Pass '' for a question without a gold answer, or golds=None if no question has one"
    if isinstance(value, bytes):
        return "Use .decode()"
    if hasattr(value, "tolist"):
        return "Use .tolist()"
    if isinstance(value, list | tuple | dict):
        return "Pass the text, such as messages[-1]['content']"
    if name == "responses":
        return "Use str()" if isinstance(value, Integral) else "Tokens become text by tokenizer.batch_decode"
    return "Pass outcome_rl.question_id(prompt)" if name == "question_ids" else "Pass text or a finite number"
