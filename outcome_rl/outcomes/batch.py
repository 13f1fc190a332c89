"""The responses of a step and their columns: one input type for outcomes, counts and plug-ins."""

import math
from collections.abc import Hashable, Mapping, Sequence, Set
from dataclasses import KW_ONLY, dataclass
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from outcome_rl.user_functions import plain

if TYPE_CHECKING:
    from torch import Tensor

Row = Mapping[str, Any]


class Correctness(NamedTuple):
    """The source that says which responses are correct."""

    source: str  # "is_correct", "correct", "golds" or "scores"; empty: there is none
    of_scores: NDArray[np.bool_] | None = None  # (N,), if the scores say it
    unknown: str = ""  # without a source: why there is none, and what would be one


@dataclass(frozen=True, eq=False)
class Batch:
    """N responses and their columns, with one entry per response each.

    Args:
        question_ids: stable ids of the questions, the same whenever a question comes back: an id of the data set, or
            `outcome_rl.question_id(prompt)`. An integer is its text.
        responses: texts.
        golds: gold answers, the same for all responses to a question, or texts that end in them, such as GSM8K's
            solutions; None where there are none. A number is its text.
        rewards: finite numbers, (N,), which may hold penalties; None takes 1 for a correct response and 0 for another.
            (N, K) of K reward functions: each is normalised by itself, see `Explorer.score`. Numbers beyond 1e15 in
            size count as 1e15.
        reward_weights: K finite factors of the rewards (N, K); None is 1 each.
        rows: data rows for an outcome function, equal for all responses to a question; None passes empty ones.
        group_ids: ids that say which responses are normalised together, each group of one question. None makes one
            group of each question.
        correct: booleans that replace the comparison with the golds.
        scores: numbers of the reward functions before weights and penalties, (N,), or (N, K) with a column for each
            function; None takes the rewards. See `correctness`.

    Raises:
        TypeError: a response is not a string, or an id or gold is no text.
        ValueError: a column has another length or no order. Numbers are checked where they are read, by `numbers`.
    """

    question_ids: Sequence[str]
    responses: Sequence[str]
    golds: Sequence[str] | None = None
    rewards: "Tensor | Sequence[float] | Sequence[Sequence[float]] | None" = None
    _: KW_ONLY
    reward_weights: "Sequence[float] | None" = None
    rows: Sequence[Row] | None = None
    group_ids: Sequence[Hashable] | None = None
    correct: "Tensor | Sequence[bool] | None" = None
    scores: "Tensor | Sequence[float] | Sequence[Sequence[float]] | None" = None

    def __post_init__(self) -> None:
        for name in self.__dataclass_fields__:
            if isinstance(column := getattr(self, name), str | bytes | Mapping | Set):
                kind = type(column).__name__
                raise ValueError(f"{name} must have one entry per response, in their order; got a {kind}")
        for name in ("question_ids", "responses", "golds", "rows", "group_ids"):
            column = getattr(self, name)
            if column is None:
                if name in ("question_ids", "responses"):
                    raise TypeError(f"{name} must be a list of strings, one per response; got None")
                continue
            if not isinstance(column, list | tuple):  # NumPy's, pandas', a tensor, a generator
                object.__setattr__(self, name, column := _listed(name, column))
            if len(column) != len(self.question_ids):
                got = f"{len(column)} for {len(self.question_ids)} ids"
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

    def correctness(self, *, is_correct: bool = False) -> Correctness:
        """Return the source that says which responses are correct: the first of these that is there.

        1. the kind of outcomes, if it needs no gold answers;
        2. the column `correct`;
        3. the column `golds`;
        4. the scores, if they are of one function, and all of them are 0 or 1.

        Other scores say nothing, because they may hold a penalty or a reward for the format.

        Args:
            is_correct: whether the kind decides by itself.

        Raises:
            ValueError: the scores have another shape.
        """
        if is_correct:
            return Correctness("is_correct")
        for name in ("correct", "golds"):
            if getattr(self, name) is not None:
                return Correctness(name)
        given: Any = self.rewards if self.scores is None else self.scores
        if given is None:
            why = "there are no rewards either"
        else:
            scores = numbers("rewards" if self.scores is None else "scores", given, finite=False)
            if scores.shape[:1] != (len(self),) or scores.ndim > 2:
                raise ValueError(f"scores must be {len(self)} numbers or rows of numbers; got shape {scores.shape}")
            scores_NK = scores.reshape(len(self), -1) if len(self) else np.zeros((0, 1))
            other = scores_NK[~np.isin(scores_NK, (0, 1))]
            if scores_NK.shape[1] != 1:
                why = f"the rewards are of {scores_NK.shape[1]} functions"
            elif other.size:
                why = f"the rewards are not 0 and 1 alone, but also {other[0]:g}"
            else:
                return Correctness("scores", scores_NK[:, 0] == 1)
        return Correctness("", unknown=f"there are no golds, and {why}. Pass golds or correct")

    @property
    def examples(self) -> Sequence[Row]:
        """The data rows, empty ones where there are none."""
        return [{}] * len(self) if self.rows is None else self.rows


def numbers(name: str, values: Any, *, finite: bool = True) -> NDArray[Any]:
    """Return a column of finite real numbers or booleans, or of rows of them, in host memory.

    Without `finite`, a number may be missing (NaN) or infinite.

    Raises:
        ValueError: it holds something else, such as text, a complex number or NaN.
    """
    try:
        found = np.array([plain(value) for value in _listed(name, values)])
        if found.dtype == object and all(isinstance(value, Real) for value in found.flat):  # such as fractions
            found = found.astype(np.float64)
        if found.dtype.kind in "biuf" and (not finite or np.isfinite(found).all()):
            return found
        reason = f"got {values!r:.80}"
    except (OverflowError, ValueError) as error:
        reason = str(error)
    kind = f"{'finite ' * finite}real numbers or booleans"
    raise ValueError(f"{name} must be {kind}, one per response or rows of them; {reason}")


def _listed(name: str, column: Any) -> list[Any]:
    """Return a column of a library, or of a generator, as a list."""
    try:
        return [*(column.tolist() if hasattr(column, "tolist") else column)]
    except (RuntimeError, TypeError) as error:  # such as of a tensor without values
        raise TypeError(f"{name} must have one entry per response; {error}") from error


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
    if isinstance(value, dict) or (isinstance(value, list | tuple) and not all(isinstance(x, Real) for x in value)):
        return "Pass the text, such as messages[-1]['content']"
    if name == "responses":
        return "Use str()" if isinstance(value, Integral) else "Use tokenizer.batch_decode, and '' where no text is"
    return "Pass outcome_rl.question_id(prompt)" if name == "question_ids" else "Pass text or a finite number"
