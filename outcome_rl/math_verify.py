r"""math-verify's `parse` and `verify` and TRL's `accuracy_reward`, decided by this library's grader.

    from outcome_rl.math_verify import LatexExtractionConfig, parse, verify    # before: from math_verify import ...

They work in any thread and in bounded time. `docs/math-verify.md` lists the differences from math-verify, and
docs/outcomes.md says which answers are equal.
"""

from collections.abc import Callable, Sequence
from typing import Any

from math_verify import ExprExtractionConfig, LatexExtractionConfig, LatexNormalizationConfig, StringExtractionConfig
from math_verify.errors import TimeoutException

from outcome_rl.outcomes.extraction.response import extract_answer, final_answer
from outcome_rl.outcomes.grading import LONGEST_VOTE_S, grade, shared_pool
from outcome_rl.outcomes.keys import canonical_text
from outcome_rl.outcomes.matcher import once_each

__all__ = [
    "ExprExtractionConfig",
    "LatexExtractionConfig",
    "LatexNormalizationConfig",
    "StringExtractionConfig",
    "TimeoutException",
    "accuracy_reward",
    "parse",
    "verify",
]


def parse(
    pred: str,
    extraction_config: Sequence[Any] = (),
    fallback_mode: str = "first_match",
    extraction_mode: str = "any_match",
    parsing_timeout: float | None = None,
    raise_on_error: bool = False,
) -> list[str]:
    """Return the final answer in a text, or else the whole text.

    Args:
        pred: a response or a gold answer.
        extraction_config, fallback_mode, extraction_mode, parsing_timeout, raise_on_error: arguments of math-verify
            that are not read: one grammar reads all notations, in linear time and without errors.

    Returns:
        One text; none if it is empty.
    """
    answer = final_answer(pred).strip()
    return [answer] if canonical_text(answer) else []


def verify(
    gold: str | Sequence[str],
    target: str | Sequence[str],
    *,
    tolerant: bool = True,
    timeout_seconds: float | None = 5,
    raise_on_error: bool = False,
) -> bool:
    """Return whether an answer equals the gold answer; the order of the two matters.

    Args:
        gold, target: results of `parse`, or a text; of several texts one pair that is equal is enough.
        tolerant: as for `outcome_rl.OutcomeMatcher`.
        timeout_seconds: time limit of one vote of math-verify; None and 0 take the longest, `LONGEST_VOTE_S`.
        raise_on_error: raise an error where a vote has no result; otherwise the answers are different then, and a
            warning is logged.

    Raises:
        TypeError: `gold` or `target` is neither a text nor several.
        ValueError: `timeout_seconds` is above `LONGEST_VOTE_S`.
        TimeoutException, RuntimeError: if `raise_on_error`, the vote took too long, or its process ended.
    """
    golds, targets = ([one] if isinstance(one, str) else one for one in (gold, target))
    _check_texts("gold", golds)
    _check_texts("target", targets)
    pairs = [(a, b) for a in golds for b in targets]
    verdicts = grade(pairs, shared_pool(), tolerant=tolerant, timeout_s=timeout_seconds or LONGEST_VOTE_S)
    if raise_on_error and "equal" not in verdicts.values():
        for pair, verdict in verdicts.items():
            if verdict != "different":
                raise _ERRORS.get(verdict, RuntimeError)(f"math-verify has no result for {pair}: {verdict}")
    return "equal" in verdicts.values()


def _check_texts(name: str, values: Any) -> None:
    if not (isinstance(values, list | tuple) and all(isinstance(one, str) for one in values)):
        raise TypeError(f"{name} must be texts; got {values!r:.80}. Write numbers as text, and no answer as ''")


_ERRORS: dict[str, type[Exception]] = {"timeout": TimeoutException}


def accuracy_reward(
    completions: Sequence[Any],
    solution: Sequence[str],
    log_extra: Callable[[str, list[Any]], None] | None = None,
    *,
    tolerant: bool = True,
    **kwargs: Any,
) -> list[float | None]:
    """Reward N completions for the correct final answer, in place of `trl.rewards.accuracy_reward`.

    Args:
        completions: N texts, or lists that begin with a message `{"content": text}`.
        solution: N gold answers, or texts that end in them.
        log_extra: called with the columns `solution`, `gold_parsed` and `answer_parsed`, the texts that were compared.
        tolerant: as for `outcome_rl.OutcomeMatcher`.
        **kwargs: not read; trainers pass the other columns.

    Returns:
        1.0 or 0.0; None, which trainers skip, where the gold answer is empty.

    Raises:
        TypeError: a solution is no text.
        ValueError: the numbers of completions and solutions differ.
    """
    texts = [one if isinstance(one, str) else one[0]["content"] for one in completions]
    _check_texts("solution", solution)
    if len(completions) != len(solution):
        raise ValueError(f"completions and solution must have one length; got {len(completions)} and {len(solution)}")
    found = once_each(extract_answer, texts)
    golds = [gold.strip() for gold in once_each(final_answer, solution)]
    pairs = list(zip(golds, ["" if answer is None else answer.text.strip() for answer in found], strict=True))
    verdicts = grade(pairs, shared_pool(), tolerant=tolerant, timeout_s=5)
    if log_extra is not None:
        log_extra("solution", list(solution))
        log_extra("gold_parsed", [gold or "[unparseable]" for gold, _ in pairs])
        log_extra("answer_parsed", [(answer or "[unparseable]") if gold else "[skipped]" for gold, answer in pairs])
    return [float(verdicts[pair] == "equal") if canonical_text(pair[0]) else None for pair in pairs]
