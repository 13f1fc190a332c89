"""Check that no pattern of extraction and canonical can backtrack over a run that has no bound.

A repeat without a bound is refused where a shorter run could be tried again: if what follows may begin with a character
of the run, and the repeat is neither possessive nor in an atomic group. A repeat of repeats is refused everywhere, the
rest only in `extraction/`: answers, which `canonical/` reads, have at most 1,000 characters.
"""

import re
import sys
from collections.abc import Iterable, Iterator
from importlib import import_module
from pathlib import Path
from re import _constants as constants  # type: ignore[attr-defined]
from re import _parser as parser  # type: ignore[attr-defined]
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = "outcome_rl.outcomes"
ALPHABET = frozenset(map(chr, range(1, 127))) | frozenset("éλ。，（）“”年９٣ \u3000😀−–✓")
BACKTRACKING = (constants.MAX_REPEAT, constants.MIN_REPEAT)
REPEATS = (*BACKTRACKING, constants.POSSESSIVE_REPEAT)


def patterns_in(value: Any) -> Iterator[re.Pattern[str]]:
    """Yield the patterns in a value, or in the tuples, lists and dictionaries that it holds."""
    if isinstance(value, re.Pattern):
        yield value
    elif isinstance(value, dict):
        yield from patterns_in(list(value.values()))
    elif isinstance(value, tuple | list):
        for part in value:
            yield from patterns_in(part)


def all_patterns(folder: str) -> Iterator[tuple[str, re.Pattern[str]]]:
    """Yield the name and the pattern of every pattern of a folder."""
    for path in sorted((ROOT / PACKAGE.replace(".", "/") / folder).glob("*.py")):
        module = import_module(f"{PACKAGE}.{folder}.{path.stem}")
        for name, value in sorted(vars(module).items()):
            for pattern in patterns_in(value):
                yield f"{folder}/{path.stem}.{name}", pattern


def characters(op: Any, argument: Any) -> frozenset[str]:
    """Return the characters of the alphabet that one item may hold."""
    if op in (*REPEATS, constants.SUBPATTERN, constants.ATOMIC_GROUP, constants.BRANCH, constants.ASSERT):
        return frozenset().union(*(characters(*item) for body in bodies(op, argument) for item in body))
    if op in (constants.AT, constants.ASSERT_NOT, constants.GROUPREF):
        return frozenset() if op is not constants.GROUPREF else ALPHABET
    item = parser.SubPattern(parser.State(), [(op, argument)])
    return frozenset(sign for sign in ALPHABET if _matches(item, sign))


def _matches(item: Any, sign: str) -> bool:
    op, argument = item[0]
    if op is constants.LITERAL:
        return ord(sign) == argument or sign.lower() == chr(argument).lower()
    if op is constants.NOT_LITERAL:
        return ord(sign) != argument
    if op is constants.ANY:
        return True
    if op is constants.IN:
        denies = argument[0][0] is constants.NEGATE
        return denies != any(_in(one, sign) for one in argument[denies:])
    return True


def _in(one: Any, sign: str) -> bool:
    op, argument = one
    if op is constants.LITERAL:
        return ord(sign) == argument or sign.lower() == chr(argument).lower()
    if op is constants.RANGE:
        return any(
            argument[0] <= ord(letter) <= argument[1]
            for letter in {sign, sign.lower(), sign.upper()}
            if len(letter) == 1
        )
    kind = str(argument).rpartition("_")[2]
    found = re.fullmatch({"DIGIT": r"\d", "SPACE": r"\s", "WORD": r"\w"}[kind], sign) is not None
    return found != ("NOT" in str(argument))


def bodies(op: Any, argument: Any) -> Iterable[Any]:
    """Return the sequences inside an item."""
    if op in REPEATS:
        return (argument[2],)
    if op is constants.SUBPATTERN:
        return (argument[3],)
    if op is constants.ATOMIC_GROUP:
        return (argument,)
    if op is constants.BRANCH:
        return tuple(argument[1])
    return (argument[1],) if op in (constants.ASSERT, constants.ASSERT_NOT) else ()


def first(items: Any, after: frozenset[str] | None) -> frozenset[str] | None:
    """Return the characters that a sequence may begin with, before those of `after`; None if nothing need follow."""
    found: frozenset[str] = frozenset()
    for op, argument in items:
        if op in (constants.AT, constants.ASSERT, constants.ASSERT_NOT):
            continue
        if op in REPEATS:
            inside = first(argument[2], frozenset())
            found |= inside or frozenset()
            if argument[0] > 0:
                return found
        elif op in (constants.SUBPATTERN, constants.ATOMIC_GROUP, constants.BRANCH):
            for body in bodies(op, argument):
                found |= first(body, frozenset()) or frozenset()
            if all(_width(body) for body in bodies(op, argument)):
                return found
        else:
            return found | characters(op, argument)
    return None if after is None else found | after


def _width(items: Any) -> int:
    return int(items.getwidth()[0])


def faults(items: Any, after: frozenset[str] | None, only_nested: bool, in_repeat: bool = False) -> Iterator[str]:
    """Yield the repeats of a sequence that may backtrack over a run without a bound."""
    for i, (op, argument) in enumerate(items):
        follows = first(items[i + 1 :], after)
        if any(item[0] in (constants.AT, constants.ASSERT, constants.ASSERT_NOT) for item in items[i + 1 : i + 2]):
            follows = ALPHABET if follows is None else follows  # a condition may fail behind the run
        if op in BACKTRACKING and argument[1] is constants.MAXREPEAT:
            run = characters(op, argument)
            if in_repeat and not run.isdisjoint(follows or ALPHABET):
                yield f"a repeat in a repeat: {_shown(run)}"
            elif not only_nested and follows is not None and not run.isdisjoint(follows):
                yield f"a run of {_shown(run)} before {_shown(run & follows)}"
        if op is constants.ATOMIC_GROUP or op is constants.POSSESSIVE_REPEAT:
            continue
        repeats = op in BACKTRACKING and argument[1] is constants.MAXREPEAT
        for body in bodies(op, argument):
            inner = (first(body, frozenset()) or frozenset()) | (follows or frozenset()) if repeats else follows
            yield from faults(body, inner, only_nested, in_repeat or repeats)


def _shown(signs: frozenset[str]) -> str:
    return repr("".join(sorted(signs))[:12])


def faults_of(pattern: str, flags: int = 0, only_nested: bool = False) -> list[str]:
    """Return the faults of a pattern."""
    return list(faults(parser.parse(pattern, flags & ~re.DEBUG), None, only_nested))


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    found = [
        f"{name}: {fault}"
        for folder in ("extraction", "canonical")
        for name, pattern in all_patterns(folder)
        for fault in faults_of(pattern.pattern, pattern.flags, only_nested=folder == "canonical")
    ]
    if found:
        sys.exit("\n".join([*dict.fromkeys(found), "bound these repeats, or make them possessive"]))
