"""Success and diversity metrics of a policy, computed from its samples.

Each metric is a function of counts over the `n` samples of one question: `c` correct samples, and `m_a` samples with
the answer `a`. All have closed forms; nothing is sampled.

- `pass_at_k` and `diff_at_k` draw `k` of the `n` samples **without** replacement: unbiased estimates for the policy.
- `best_at_k` draws **with** replacement, as verl's validation does: biased low, for comparison with verl's logs.
"""

import math
from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, TypedDict, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

from outcome_rl.outcomes.keys import NO_ANSWER


@overload
def pass_at_k(n: int, c: int, k: int) -> float: ...
@overload
def pass_at_k(n: ArrayLike, c: ArrayLike, k: int) -> NDArray[np.float64]: ...
def pass_at_k(n: Any, c: Any, k: int) -> Any:
    """Estimate the probability that at least one of `k` samples is correct, without bias, from `n` samples.

    `1 - C(n-c, k) / C(n, k)`, equivalent to `1 - prod((n - c - i) / (n - i) for i in range(k))` (Chen et al. 2021,
    "Evaluating Large Language Models Trained on Code", equation 1); the product neither overflows nor cancels.

    Args:
        n: number of samples of each question, integers >= k; a scalar or any shape that broadcasts with `c`.
        c: number of correct samples of each question, integers in [0, n].
        k: number of draws, at least 1.

    Returns:
        Probabilities in [0, 1], float64, in the broadcast shape of `n` and `c`; a scalar for scalars.

    Raises:
        TypeError: `n`, `c` or `k` has a dtype other than integer.
        ValueError: `k < 1`, `k > n`, `c < 0`, `c > n`, or shapes that do not broadcast.

    Example:
        >>> float(pass_at_k(n=4, c=1, k=2))
        0.5
    """
    n, c, k = _check_counts(n, c, k)
    if np.any(n < k):
        raise ValueError(
            f"k must be at most n, because the k samples are drawn without replacement; got k={k} and n={n.min()}. "
            "Take more samples or a smaller k (ks_up_to(n) lists the powers of two that fit)."
        )
    miss = np.ones(np.broadcast_shapes(n.shape, c.shape))
    for drawn in range(k):
        # With fewer wrong samples than draws one factor is zero; the clamp keeps later factors from being negative.
        miss *= np.maximum(n - c - drawn, 0) / (n - drawn)
    return 1.0 - miss


@overload
def best_at_k(n: int, c: int, k: int) -> float: ...
@overload
def best_at_k(n: ArrayLike, c: ArrayLike, k: int) -> NDArray[np.float64]: ...
def best_at_k(n: Any, c: Any, k: int) -> Any:
    """Compute the probability that one of `k` draws **with** replacement is correct: `best@k/mean` in verl's logs.

    `1 - (1 - c/n)^k`. verl estimates the same number from 1000 bootstrap draws (`bootstrap_metric` in its
    `trainer/ppo/metric_utils.py`); this is the limit of many draws. A sample may be drawn twice, so the value is below
    `pass_at_k` for every `k > 1` with `0 < c < n`: compare it with verl's logs, not with pass@k.

    Args:
        n, c, k: as for `pass_at_k`, but `k` may exceed `n`, which is at least 1.

    Returns:
        Probabilities in [0, 1], float64, in the broadcast shape of `n` and `c`; a scalar for scalars.

    Raises:
        TypeError, ValueError: as `pass_at_k`.
    """
    n, c, k = _check_counts(n, c, k)
    return 1.0 - ((n - c) / n) ** k


def diff_at_k(class_sizes: ArrayLike, k: int, *, n: int | None = None) -> float:
    """Compute the expected number of different answers among `k` of one question's `n` samples.

    Samples are drawn without replacement: `sum_a 1 - C(n - m_a, k) / C(n, k)`, where `m_a` is the number of samples
    with answer `a`; the unbiased form of the paper's diff@k (Song, Kempe and Munos 2025).

    Args:
        class_sizes: `m_a` for every answer of the question, shape (A,), integers >= 0.
        k: number of draws, in [1, n].
        n: number of samples of the question, at least `sum(class_sizes)` (the default). Pass it if some samples have
            no answer: they are drawn like any other, but do not count as a different answer.

    Returns:
        A number in [0, min(k, A)].

    Raises:
        TypeError: `class_sizes`, `k` or `n` has a dtype other than integer.
        ValueError: `class_sizes` is not one-dimensional or has a negative entry, `n` is below its sum, or `k` is not in
            [1, n].

    Example:
        >>> diff_at_k([2, 1, 1], k=4)
        3.0
    """
    sizes = _as_integers("class_sizes", class_sizes)
    if sizes.ndim != 1:
        raise ValueError(
            f"class_sizes must have shape (A,), one size per answer of one question; got shape {sizes.shape}. "
            "Call diff_at_k once per question."
        )
    if np.any(sizes < 0):
        raise ValueError(f"class_sizes must be at least 0; got {sizes.min()}.")
    total = int(sizes.sum())
    samples = total if n is None else int(_as_integers("n", n))
    if samples < total:
        raise ValueError(f"n must be at least sum(class_sizes) = {total}; got {n}. n counts every sample.")
    return math.fsum(pass_at_k(np.int64(samples), sizes, k))


def ks_up_to(n: int) -> list[int]:
    """Return the powers of two `1, 2, 4, ...` up to `n`: the values of `k` in reports.

    Raises:
        ValueError: `n < 1`.
    """
    if n < 1:
        raise ValueError(f"n must be at least 1; got {n}.")
    return [1 << power for power in range(int(n).bit_length())]


class SampleSummary(TypedDict):
    """Metrics of a set of sampled questions; `*_at_k` map "1", "2", "4", ... to the mean over questions."""

    n_questions: int
    n_samples: int
    pass_at_k: dict[str, float]
    best_at_k: dict[str, float]
    diff_at_k: dict[str, float]
    no_answer_rate: float
    distinct_per_question: float
    solved_fraction: float | None  # None: correctness is unknown


def summarise(keys: Sequence[ArrayLike], correct: Sequence[ArrayLike]) -> SampleSummary:
    """Summarise the outcomes of many questions, for `outcome-rl analyze` and the evaluations of a training run.

    Every question has the same weight, whatever its number of samples; only `no_answer_rate` is a rate over samples.
    `*_at_k` go up to the largest number of samples of a question; each value is a mean over the questions that have k.
    A response without an answer is a sample (it is drawn, and correct where a reward says so) but not an answer:
    `diff_at_k` and `distinct_per_question` count real answers only, and `no_answer_rate` reports the rest.

    Args:
        keys: outcome keys of the samples of each of Q questions, shapes (n_q,), integers; `NO_ANSWER` marks no answer.
        correct: for each question, whether each sample is correct, shapes (n_q,), bool.

    Returns:
        The summary: `solved_fraction` is the share of questions with a correct sample, `distinct_per_question` the mean
        number of different answers among all samples of a question.
    """
    samples, successes, distinct, unanswered = [], [], [], 0
    class_sizes, class_samples = [], []
    for question_keys, question_correct in zip(keys, correct, strict=True):
        key_n, correct_n = np.asarray(question_keys), np.asarray(question_correct)
        sizes = np.unique(key_n[key_n != NO_ANSWER], return_counts=True)[1]
        samples.append(len(key_n))
        successes.append(int(correct_n.sum()))
        distinct.append(len(sizes))
        unanswered += int((key_n == NO_ANSWER).sum())
        class_sizes.append(sizes)
        class_samples.append(np.full(len(sizes), len(key_n)))
    n, c = np.array(samples), np.array(successes)
    m, n_of_m = np.concatenate(class_sizes), np.concatenate(class_samples)

    def curve(value: Callable[..., Any], draws: NDArray[Any], hits: NDArray[Any]) -> dict[str, float]:
        sums = {k: math.fsum(value(draws[draws >= k], hits[draws >= k], k)) for k in ks_up_to(int(n.max()))}
        return {str(k): total / int((n >= k).sum()) for k, total in sums.items()}

    # fsum rounds once, so the order of the questions does not change the last digit.
    return SampleSummary(
        n_questions=len(n),
        n_samples=int(n.sum()),
        pass_at_k=curve(pass_at_k, n, c),
        best_at_k=curve(best_at_k, n, c),
        # diff@k sums over a question's classes and averages over questions: one sum over all classes does both.
        diff_at_k=curve(pass_at_k, n_of_m, m),
        no_answer_rate=unanswered / int(n.sum()),
        distinct_per_question=float(np.mean(distinct)),
        solved_fraction=float(np.mean(c > 0)),
    )


def majority(class_sizes: Mapping[int, int]) -> tuple[list[int], int]:
    """Return the keys of the most frequent answers, which are several in a tie, and the samples of each of them.

    Args:
        class_sizes: key -> samples, without `NO_ANSWER`.
    """
    largest = max(class_sizes.values(), default=0)
    return [key for key, size in class_sizes.items() if size == largest], largest


def validation_metrics(
    question_ids: Sequence[Hashable],
    keys: Sequence[int] | None,
    correct: Sequence[bool | None],
    completions: Sequence[Hashable],
) -> dict[str, list[float]]:
    """Compute metrics of N validation samples for each question, in the plug-ins under the names of `summarise`.

    Args:
        question_ids: N ids; the samples of a question need not be neighbours.
        keys: N outcome keys, `NO_ANSWER` for none; None where outcomes are unknown leaves their metrics out.
        correct: N booleans; a response without an answer may be correct here, as a reward says. None where that is
            unknown: a question with one has neither `pass_at_k` nor `majority_correct`.
        completions: N texts, or tuples of token ids.

    Returns:
        Name -> one value for each question that has it, whose mean is the metric of the data set. With n samples of a
        question: `validation/pass_at_k/1`, `2`, `4`, ... up to n, unbiased; `validation/diff_at_k/...`, as
        `diff_at_k`; `validation/majority_correct`, whether its most frequent answer is correct, in a tie the share of
        those that are; `validation/no_answer_rate`; `validation/identical_rate`, the share of its completions that are
        equal to another one of it from the first token to the last.
    """
    rows_of: dict[Hashable, list[int]] = {}
    for row, question_id in enumerate(question_ids):
        rows_of.setdefault(question_id, []).append(row)
    metrics: dict[str, list[float]] = {}
    for rows in rows_of.values():
        n, right = len(rows), [correct[row] for row in rows]
        is_known, found = None not in right, dict[str, float]()
        if is_known:
            found |= {f"pass_at_k/{k}": pass_at_k(n, sum(map(bool, right)), k) for k in ks_up_to(n)}
        equal = Counter(completions[row] for row in rows)
        found["identical_rate"] = sum(m for m in equal.values() if m > 1) / n
        if keys is not None:
            given = Counter(int(keys[row]) for row in rows if keys[row] != NO_ANSWER)
            found |= {f"diff_at_k/{k}": diff_at_k([*given.values()], k, n=n) for k in ks_up_to(n)}
            if is_known:
                voted, _ = majority(given)
                right_keys = {keys[row] for row in rows if correct[row]}
                found["majority_correct"] = sum(key in right_keys for key in voted) / max(len(voted), 1)
            found["no_answer_rate"] = 1 - given.total() / n
        for name, value in found.items():
            metrics.setdefault(f"validation/{name}", []).append(float(value))
    return metrics


def _check_counts(n: ArrayLike, c: ArrayLike, k: int) -> tuple[NDArray[np.int64], NDArray[np.int64], int]:
    n_array, c_array = _as_integers("n", n), _as_integers("c", c)
    if isinstance(k, bool) or not isinstance(k, int | np.integer):
        raise TypeError(f"k must be an integer; got {k!r}.")
    if k < 1:
        raise ValueError(f"k must be at least 1; got {k}.")
    wrong = np.flatnonzero((n_array < 1) | (c_array < 0) | (c_array > n_array))
    if wrong.size:
        c_flat, n_flat = (array.ravel() for array in np.broadcast_arrays(c_array, n_array))
        raise ValueError(
            f"c, the correct ones of n samples, must be from 0 to n, and n at least 1; got c={c_flat[wrong[0]]} with "
            f"n={n_flat[wrong[0]]}. Are the arguments in the order (n, c, k)?"
        )
    return n_array, c_array, int(k)


def _as_integers(name: str, values: ArrayLike) -> NDArray[np.int64]:
    array = np.asarray(values)
    if array.size == 0:
        array = array.astype(np.int64)  # an empty list becomes float64 otherwise
    if array.dtype.kind not in "iu":
        raise TypeError(f"{name} must be integers (counts); got dtype {array.dtype}.")
    return array.astype(np.int64, copy=False)
