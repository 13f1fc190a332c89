r"""math-verify's `parse` and `verify`, from any thread, with hard bounds on time and memory.

    from outcome_rl.math_verify import LatexExtractionConfig, parse, verify    # before: from math_verify import ...

Equal keys decide first, and numbers that differ by more than the rounding. math-verify itself decides the rest, in
worker processes that are killed at the time limit. `docs/math-verify.md` lists the deliberate differences.
"""

import base64
import logging
import pickle
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from fractions import Fraction
from functools import cached_property, lru_cache
from itertools import product
from typing import Any, Literal, NamedTuple

import math_verify
import sympy
from math_verify import ExprExtractionConfig, LatexExtractionConfig, LatexNormalizationConfig, StringExtractionConfig
from math_verify.errors import TimeoutException

from outcome_rl.isolation.grader import MAX_LOGGED_CHARS
from outcome_rl.isolation.process_memory import peak_mib
from outcome_rl.isolation.worker_pool import WorkerPool
from outcome_rl.isolation.worker_process import Handler
from outcome_rl.outcomes.extraction.response import after_reasoning, extract_answer
from outcome_rl.outcomes.keys import canonical_text
from outcome_rl.user_functions import describe

__all__ = [
    "ExprExtractionConfig",
    "LatexExtractionConfig",
    "LatexNormalizationConfig",
    "Parsed",
    "StringExtractionConfig",
    "TimeoutException",
    "accuracy_reward",
    "parse",
    "verify",
]

logger = logging.getLogger(__name__)

FallbackMode = Literal["no_fallback", "first_match"]
ExtractionMode = Literal["first_match", "any_match"]

LIMIT_S = 30
"""Longest time limit; None and 0 mean this limit, but no limit in math-verify."""

MEMORY_MIB = 2048
"""Address space of a worker process."""


class Parsed(Sequence[Any]):
    """Result of `parse`: a sequence that a worker process fills at its first access; `verify` may not need it.

    Attributes:
        text: the text to read.
        settings: the other arguments of `parse`, but for its time limit and `raise_on_error`.
        timeout_s: time limit of reading it, in seconds.
    """

    def __init__(self, text: str, settings: tuple[Any, ...], timeout_s: float) -> None:
        self.text, self.settings, self.timeout_s = text, settings, timeout_s

    @cached_property
    def items(self) -> list[Any]:
        """The sympy objects and texts that math-verify reads; none after a failure, which is logged."""
        return self.read(raise_on_error=False)

    def read(self, *, raise_on_error: bool) -> list[Any]:
        """Read the text in a worker process, now.

        Raises:
            Exception: if `raise_on_error`: that of math-verify, `TimeoutException`, `MemoryError`, or `RuntimeError` if
                the worker ended.
        """
        (read,) = _ask("parse", [{"text": self, "raise_on_error": raise_on_error}], self.timeout_s, raise_on_error)
        return [] if read is None else list(_loads(read))

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, index: Any) -> Any:
        return self.items[index]

    def __eq__(self, other: object) -> bool:
        return self.items == list(other) if isinstance(other, Parsed | list) else NotImplemented

    __hash__ = None  # type: ignore[assignment]  # as of a list

    def __add__(self, other: Iterable[Any]) -> list[Any]:
        return [*self, *other]

    def __radd__(self, other: Iterable[Any]) -> list[Any]:
        return [*other, *self]

    def __repr__(self) -> str:
        return repr(self.items)

    def __reduce__(self) -> tuple[Any, ...]:
        return Parsed, (self.text, self.settings, self.timeout_s)


def parse(
    pred: str,
    extraction_config: Sequence[Any] = (LatexExtractionConfig(), ExprExtractionConfig()),
    fallback_mode: FallbackMode = "first_match",
    extraction_mode: ExtractionMode = "any_match",
    parsing_timeout: float | None = 5,
    raise_on_error: bool = False,
) -> Parsed:
    """Read the mathematics in a text, as `math_verify.parse` does.

    Args:
        pred: the text.
        extraction_config: the kinds of text to look for: `LatexExtractionConfig`, `ExprExtractionConfig` or
            `StringExtractionConfig` objects.
        fallback_mode: `"first_match"` adds the text that was read to the result.
        extraction_mode: `"first_match"` reads only the first candidate, `"any_match"` the first that can be read.
        parsing_timeout: time limit, in seconds; None or 0 is `LIMIT_S`.
        raise_on_error: read at once and raise errors; otherwise the result is empty after an error.

    Returns:
        The sympy objects and texts, as a sequence that is filled at first use.

    Raises:
        ValueError: if `parsing_timeout` is above `LIMIT_S`.
        Exception: if `raise_on_error`, see `Parsed.read`.
    """
    settings = (tuple(extraction_config), fallback_mode, extraction_mode)
    pred = after_reasoning(pred) if isinstance(pred, str) else pred
    parsed = Parsed(pred, settings, _seconds("parsing_timeout", parsing_timeout))
    if raise_on_error:
        parsed.items = parsed.read(raise_on_error=True)
    return parsed


def verify(
    gold: Any,
    target: Any,
    float_rounding: int = 6,
    numeric_precision: int = 15,
    strict: bool = True,
    allow_set_relation_comp: bool = False,
    timeout_seconds: float | None = 5,
    raise_on_error: bool = False,
) -> bool:
    """Return whether an answer equals the gold answer, as `math_verify.verify` does; the order of the two matters.

    Args:
        gold: result of `parse`, or a sympy object, a text, or a list of them.
        target: likewise, of the response.
        float_rounding: decimal places to which decimals are rounded.
        numeric_precision: significant digits of numeric comparisons.
        strict: whether names of variables matter, and sets differ from tuples.
        allow_set_relation_comp: whether the relation `x > 1` may equal a gold answer that is a set.
        timeout_seconds: time limit of one comparison, in seconds; None or 0 is `LIMIT_S`.
        raise_on_error: raise errors; otherwise the answers are different after an error, and a warning is logged.

    Raises:
        ValueError: if `timeout_seconds` is above `LIMIT_S`.
        Exception: if `raise_on_error`, see `Parsed.read`.
    """
    limit_s = _seconds("timeout_seconds", timeout_seconds)
    options = _Options(float_rounding, numeric_precision, strict, allow_set_relation_comp, raise_on_error)
    if isinstance(gold, Parsed) and isinstance(target, Parsed):
        return _verdicts([(gold, target)], options, limit_s)[0].equal
    return any(
        a.strip() == b.strip() != ""
        if isinstance(a, str) and isinstance(b, str)
        else not isinstance(a, str) and not isinstance(b, str) and _verdicts([(a, b)], options, limit_s)[0].equal
        for a, b in product(_listed(gold), _listed(target))
    )


def accuracy_reward(
    completions: Sequence[Any],
    solution: Sequence[str],
    log_extra: Callable[[str, list[Any]], None] | None = None,
    **kwargs: Any,
) -> list[float | None]:
    """Reward N completions for the correct final answer, as `trl.rewards.accuracy_reward` does.

    Args:
        completions: N texts, or lists that begin with a message `{"content": text}`. An answer counts in a box, or in
            LaTeX after "final answer is" or "answer".
        solution: N gold answers.
        log_extra: called with the columns `solution`, `gold_parsed` and `answer_parsed`, the texts that were compared.
        **kwargs: not read; trainers pass the other columns.

    Returns:
        1.0 or 0.0; None, which trainers skip, where the gold answer cannot be read.

    Raises:
        ValueError: if the numbers of completions and solutions differ.
    """
    if len(completions) != len(solution):
        raise ValueError(f"completions and solution must have one length; got {len(completions)} and {len(solution)}")
    texts = [one if isinstance(one, str) else one[0]["content"] for one in completions]
    texts = [after_reasoning(text) for text in texts]
    boxes = [_only_box(text) for text in texts]
    texts = [text if box is None else rf"\boxed{{{box}}}" for text, box in zip(texts, boxes, strict=True)]
    pairs = {
        (gold, text): (
            parse(gold, parsing_timeout=10),
            parse(text, _REWARDED, extraction_mode="first_match", parsing_timeout=10),
        )
        for gold, text in zip(solution, texts, strict=True)
    }
    verdicts = dict(zip(pairs, _verdicts(list(pairs.values()), _Options(), limit_s=5), strict=True))
    rows = [verdicts[pair] for pair in zip(solution, texts, strict=True)]
    if log_extra is not None:
        log_extra("solution", list(solution))
        log_extra("gold_parsed", [row.gold or "[unparseable]" for row in rows])
        log_extra("answer_parsed", [(row.target or "[unparseable]") if row.gold else "[skipped]" for row in rows])
    return [float(row.equal) if row.gold else None for row in rows]


class _Options(NamedTuple):
    """Arguments of `verify` that its workers read."""

    float_rounding: int = 6
    numeric_precision: int = 15
    strict: bool = True
    allow_set_relation_comp: bool = False
    raise_on_error: bool = False


class _Verdict(NamedTuple):
    """Whether two answers are equal, and the texts that were read, empty where nothing was."""

    equal: bool
    gold: str
    target: str


# The format that TRL rewards: a box comes first, and no other formula counts without "answer".
_REWARDED = (
    LatexExtractionConfig(
        try_extract_without_anchor=False,
        boxed_match_priority=0,
        normalization_config=LatexNormalizationConfig(units=True),
    ),
)


def _seconds(name: str, limit: float | None) -> float:
    if limit is None or limit <= 0:
        return LIMIT_S
    if limit > LIMIT_S:
        raise ValueError(f"{name} must be at most {LIMIT_S} seconds, so that nothing hangs; got {limit!r}.")
    return limit


def _listed(value: Any) -> list[Any]:
    return list(value) if isinstance(value, list | Parsed) else [value]


# 1. Decisions from the texts


def _decided(gold: Any, target: Any, options: _Options) -> _Verdict | None:
    """Compare two answers by their keys; None where only math-verify can tell.

    Equal keys decide unless a setting may distinguish the answers: `strict` looks at names, and a relation may equal a
    set or a value in one direction only. Other keys decide for two plain numbers, unless they round alike.
    """
    a, b = _answer(gold), _answer(target)
    if a is None or b is None:
        return None
    equal = None
    if canonical_text(a) == canonical_text(b):
        if canonical_text(a).startswith(_TEXTS):
            equal = True
        elif _is_read(a):
            equal = _RELATION.search(a + b) is None and _names(a) == _names(b)
        else:
            equal = a == b and not _is_bare(gold, a) and not _is_bare(target, b)  # however hard to compute
        equal = equal or None
    elif _NUMBER.fullmatch(a) and _NUMBER.fullmatch(b) and options.numeric_precision >= 15:
        equal = abs(Fraction(a) - Fraction(b)) <= Fraction(10) ** -options.float_rounding and None
    return None if equal is None else _Verdict(equal, a, b)


def _delimited(one: Any) -> Any:
    """Add delimiters to a bare formula: without them math-verify reads parts of it, such as 2 in `2x`."""
    answer = _answer(one)
    if answer is None or not (_is_bare(one, answer) and _FORMULA.search(answer) and _is_read(answer)):
        return one
    return Parsed(f"${answer}$", one.settings, one.timeout_s)


def _keys_differ(gold: Any, target: Any) -> bool:
    """Return whether one of two texts is sent with delimiters and our rules read both as different mathematics."""
    a, b = _answer(gold), _answer(target)
    if a is None or b is None or (_delimited(gold) is gold and _delimited(target) is target):
        return False
    return _is_read(a) and _is_read(b) and canonical_text(a) != canonical_text(b)


def _answer(parsed: Any) -> str | None:
    """Return the answer of a text; None if math-verify might find another."""
    config = parsed.settings[0] if isinstance(parsed, Parsed) else ()
    latex = [one for one in config if isinstance(one, LatexExtractionConfig)]
    if len(latex) != 1 or any(isinstance(one, StringExtractionConfig) for one in config):
        return None
    rules = latex[0].normalization_config
    answer: str | None = None
    if 0 <= latex[0].boxed_match_priority <= 50 and rules.boxed != "none":
        answer = _only_box(parsed.text)
    if answer is None and latex[0].try_extract_without_anchor and isinstance(parsed.text, str):
        whole = _WHOLE.fullmatch(parsed.text.strip())
        phrase = extract_answer(parsed.text)
        if phrase is not None and phrase.source in ("phrase", "tag", "hash"):
            answer = phrase.text
        else:
            answer = whole and (whole["formula"] or whole["bare"]).strip()
    if not answer or not (rules.basic_latex and rules.units):
        return None
    return None if _SHORT.search(answer) and not rules.malformed_operators else answer


def _only_box(text: str) -> str | None:
    """Return the content of the only box of a text, if no other part of the text can be read as its answer."""
    if not isinstance(text, str) or text.count(r"\boxed{") != 1 or len(_BOX.findall(text)) != 1:
        return None
    answer = extract_answer(text)
    if answer is None or answer.source != "boxed" or _DELIMITER.search(answer.text) is not None:
        return None
    rest = text.partition(r"\boxed{")[0] + text[answer.end :]
    if _PERCENT.search(text, answer.end) is not None:
        return None
    final = _FINAL.search(rest)
    return answer.text if final is None or _FINAL_BOX.fullmatch(rest, final.start()) else None


def _is_bare(parsed: Parsed, answer: str) -> bool:
    return parsed.text.strip() == answer


def _is_read(answer: str) -> bool:
    """Return whether a rule reads an answer as a number, a formula, or a collection of them."""
    return canonical_text(answer).startswith(_READ)


def _names(answer: str) -> set[str]:
    canonical = canonical_text(answer)
    has_variables = any(sign in canonical for sign in ("f:", "over ", "#"))  # a digest may hide them
    return set(_LETTERS.findall(_COMMANDS.sub(" ", answer))) if has_variables else set()


_BOX = re.compile(r"\\f?box")
_DELIMITER = re.compile(r"(?<!\\)\$|\\[()\[\]]")
_PERCENT = re.compile(r"%|percent|pct", re.IGNORECASE)
_FINAL = re.compile(r"final\s+answer", re.IGNORECASE)
_FINAL_BOX = re.compile(r"final answer is:?\s*\$?\s*\}\s*\$?\.?\s*(?:I hope it is correct\.?)?\s*", re.IGNORECASE)
_WHOLE = re.compile(r"\$(?P<formula>[^$\n]++)\$|(?P<bare>(?:[^$\\\n]|\\(?!boxed|fbox|[()\[\]]))++)")
_SHORT = re.compile(r"\\[dt]?frac\s*[^{\s]|\\sqrt\s*[^{\[\s]|/")
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]{0,14})(?:\.[0-9]{1,15})?")
_RELATION = re.compile(r"[=<>≤≥≠≈∈:|]|\\(?:le|ge|lt|gt|ne|leq|geq|neq|leqslant|geqslant|approx|equiv|sim|in|mid|to)\b")
_FORMULA = re.compile(r"[A-Za-z\\(\[{]")
_READ = ("q:", "r:", "c:", "f:", "over ", "{", "(", "[", "U{", "M[")
_TEXTS = ("t:", "time:", "date:", "base:")
_COMMANDS = re.compile(r"\\[A-Za-z]+")
_LETTERS = re.compile(r"[A-Za-zα-ωΑ-Ω]")


# 2. Comparisons by math-verify, in worker processes


def _verdicts(pairs: Sequence[tuple[Any, Any]], options: _Options, limit_s: float) -> list[_Verdict]:
    """Compare pairs of results of `parse`, or of sympy objects; `limit_s` is for a comparison without reading."""
    verdicts = [_decided(*pair, options) for pair in pairs]
    reading_s = max((sum(one.timeout_s for one in pair if isinstance(one, Parsed)) for pair in pairs), default=0)

    def ask(asked: list[int], read: Callable[[Any], Any]) -> None:
        tasks = []
        for i in asked:
            sent = [read(one) if isinstance(one, Parsed) else _dumps([one]) for one in pairs[i]]
            tasks.append({"pair": sent, **options._asdict()})
        replies = _ask("verify", tasks, limit_s + reading_s, options.raise_on_error)
        for i, reply in zip(asked, replies, strict=True):
            verdicts[i] = _Verdict(*(reply or (False, "[failed]", "[failed]")))

    open_pairs = [i for i, verdict in enumerate(verdicts) if verdict is None]
    ask(open_pairs, _delimited)
    # Delimiters let math-verify read more of a formula. Where our rules say that the formulas differ, it has to call
    # them equal as they stand as well.
    equal = [i for i in open_pairs if (verdict := verdicts[i]) is not None and verdict.equal]
    ask([i for i in equal if _keys_differ(*pairs[i])], lambda one: one)
    return [verdict for verdict in verdicts if verdict is not None]


def _ask(kind: str, tasks: list[dict[str, Any]], limit_s: float, raise_on_error: bool) -> list[Any]:
    """Return the replies of the workers; None for a failure, which is logged."""
    replies: list[Any] = []
    sent = [_dumps((kind, task)) for task in tasks]
    for task, reply in zip(tasks, _WORKERS.ask(sent, timeout_s=limit_s), strict=True):
        if reply["verdict"] != "value":
            kind_of_failure, reason = reply["verdict"], reply.get("reason") or reply["error"]
            if raise_on_error:
                raise _ERRORS.get(kind_of_failure, RuntimeError)(f"math-verify: {reason}")
            texts = [one.text for one in task.get("pair", [task.get("text")]) if isinstance(one, Parsed)]
            shown = " and ".join(repr(text)[:MAX_LOGGED_CHARS] for text in texts)
            logger.warning("math-verify: %s on %s: %s", kind_of_failure, shown, reason)
            replies.append(None)
        else:
            if reply["raised"]:
                raise _loads(reply["raised"])
            replies.append(reply["reply"])
    return replies


_ERRORS: dict[str, type[BaseException]] = {"timeout": TimeoutException, "memory": MemoryError}


def load_work() -> Handler:
    """Load math-verify and its grammar in a worker, and return a handler of its tasks."""
    logging.disable(logging.CRITICAL)  # math-verify logs every text that it cannot read
    math_verify.verify(math_verify.parse("$1$", parsing_timeout=None), sympy.Integer(2), timeout_seconds=None)

    def work(sent: str, limit_s: float) -> dict[str, Any]:
        try:
            raised, reply = _work(*_loads(sent))
        except MemoryError:
            return {"verdict": "memory", "reason": "its memory limit was reached"}  # and its worker is replaced
        except BaseException as error:  # noqa: BLE001 - the failure is logged, and the worker goes on
            return {"verdict": "error", "error": describe(error)}
        return {"verdict": "value", "raised": raised, "reply": reply}

    return work


def _work(kind: str, task: Mapping[str, Any]) -> tuple[str, Any]:
    """Do a task in a worker process; return the error to raise, if any, and the reply."""
    try:
        if kind == "verify":
            return "", _compare(**task)
        items = _dumps(_read(task["text"], task["raise_on_error"]))
        _loads(items)  # what takes long to load ends here, within the limits
        return "", items
    except Exception as error:
        if not task["raise_on_error"]:
            raise
        return _dumps(error), None


def _compare(pair: tuple[Any, Any], **options: Any) -> tuple[bool, str, str]:
    gold, target = (_read(one, False) if isinstance(one, Parsed) else _loads(one) for one in pair)
    texts = [next((item.strip() for item in reversed(one) if isinstance(item, str)), "") for one in (gold, target)]
    same = "" != texts[0] == texts[1] and not options["raise_on_error"]  # also where the formulas take too long
    equal = same or bool(math_verify.verify(gold, target, timeout_seconds=None, **options))
    if not equal and peak_mib() > MEMORY_MIB / 2:
        raise MemoryError  # math-verify catches MemoryError itself, and calls the answers different
    shown = [text or str(one[0] if one else "") for text, one in zip(texts, (gold, target), strict=True)]
    return equal, shown[0], shown[1]


def _read(parsed: Parsed, raise_on_error: bool) -> list[Any]:
    return _read_once(parsed.text, *parsed.settings, raise_on_error)


@lru_cache(maxsize=256)  # the gold answer of many responses
def _read_once(text: str, config: Any, fallback: str, mode: str, raise_on_error: bool) -> list[Any]:
    items: list[Any] = math_verify.parse(text, config, fallback, mode, None, raise_on_error)
    return items


_WORKERS = WorkerPool(("outcome_rl.math_verify:load_work",), workers=None, timeout_s=3 * LIMIT_S, memory_mib=MEMORY_MIB)


def _dumps(value: Any) -> str:
    return base64.b64encode(pickle.dumps(value)).decode()


def _loads(text: str) -> Any:
    """Load a pickled value without computing anything: pickle calls the constructors of sympy, which evaluate."""
    with sympy.evaluate(False):
        return pickle.loads(base64.b64decode(text))
