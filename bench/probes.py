"""Conditions of the rules of answers, each switched off in turn: which answers does it decide?

The modules of the rules are imported once more with a probe around every condition: the test of an `if`, each part of
an `and` or `or`, a `case`, and each row of the table of spellings. A first run notes the answers for which a condition
holds. A second one reads some of them again with that condition off, and counts those of another canonical text or
verdict. A condition that changes none decides nothing.
"""

import ast
import importlib.abc
import importlib.machinery
import random
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import ModuleType
from typing import Any, NamedTuple

PROBED = re.compile(r"outcome_rl\.outcomes\.(?:canonical\.\w+|keys|tolerance|refutation)")
SPELLING = "spelling"
MOST = 12
"""Most answers of a source that are read again without a condition."""


class Case(NamedTuple):
    """An answer, or a response that holds one, the gold answer, and whether they are equal, if that is known."""

    answer: str | None
    gold: str
    expected: bool | None = None
    source: str = ""


class Probe(NamedTuple):
    """A condition: its module, its line, its text, and the value that switches it off."""

    module: str
    line: int
    text: str
    off: bool


class Decided(NamedTuple):
    """Answers that a condition decides: by source, those for which it holds, and those that changed without it."""

    probe: Probe
    held: Counter[str]
    changed: Counter[str]
    won: int  # labelled answers that are right because of it
    lost: int


class Probes:
    """The conditions of the probed modules, the answers that they hold for, and the one that is off."""

    def __init__(self) -> None:
        self.all: list[Probe] = []
        self.held: dict[int, set[int]] = defaultdict(set)
        self.case = self.off = -1

    def add(self, *probe: Any) -> int:
        self.all.append(Probe(*probe))
        return len(self.all) - 1

    def seen(self, value: Any, number: int, off: bool) -> Any:
        """Return the value of a condition, or what switches it off."""
        if bool(value) is off or number == self.off:
            return value if bool(value) is off else off
        self.held[number].add(self.case)
        return value


class _Prober(ast.NodeTransformer):
    """Wraps the conditions of functions in calls of `__seen__`."""

    def __init__(self, probes: Probes, module: str) -> None:
        self.probes, self.module, self.inside = probes, module, 0

    def _probed(self, test: ast.expr, text: str, off: bool) -> ast.expr:
        number = self.probes.add(self.module, test.lineno, text[:100], off)
        arguments: list[ast.expr] = [test, ast.Constant(number), ast.Constant(off)]
        return ast.copy_location(ast.Call(ast.Name("__seen__", ast.Load()), arguments, []), test)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        self.inside += 1
        self.generic_visit(node)
        self.inside -= 1
        return node

    def visit_If(self, node: ast.If) -> ast.AST:
        text = ast.unparse(node.test)
        self.generic_visit(node)
        if self.inside:
            node.test = self._probed(node.test, text, off=False)
        return node

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.AST:
        texts = list(map(ast.unparse, node.values))
        self.generic_visit(node)
        if self.inside:
            off = isinstance(node.op, ast.And)
            node.values = [self._probed(one, text, off) for one, text in zip(node.values, texts, strict=True)]
        return node

    def visit_match_case(self, node: ast.match_case) -> ast.AST:
        text = f"case {ast.unparse(node.pattern)}"
        self.generic_visit(node)
        holds = self._probed(ast.copy_location(ast.Constant(value=True), node.pattern), text, off=False)
        node.guard = (
            holds if node.guard is None else ast.copy_location(ast.BoolOp(ast.And(), [holds, node.guard]), holds)
        )
        return node


class _Loader(importlib.machinery.SourceFileLoader):
    def __init__(self, probes: Probes, name: str, path: str) -> None:
        super().__init__(name, path)
        self.probes = probes

    def get_code(self, fullname: str) -> Any:
        tree = _Prober(self.probes, fullname.removeprefix("outcome_rl.outcomes.")).visit(
            ast.parse(self.get_data(self.path))
        )
        return compile(ast.fix_missing_locations(tree), self.path, "exec")

    def exec_module(self, module: ModuleType) -> None:
        vars(module)["__seen__"] = self.probes.seen
        super().exec_module(module)


class _Finder(importlib.abc.MetaPathFinder):
    def __init__(self, probes: Probes) -> None:
        self.probes = probes

    def find_spec(self, name: str, path: Any, target: Any = None) -> Any:
        spec = importlib.machinery.PathFinder.find_spec(name, path)
        if spec and spec.origin and PROBED.fullmatch(name):
            spec.loader = _Loader(self.probes, name, spec.origin)
        return spec


class _Pattern:
    """The pattern of a row of spellings with a probe."""

    def __init__(self, probes: Probes, row: Any) -> None:
        self.probes, self.pattern = probes, row.pattern
        self.number = probes.add(SPELLING, 0, row.example[0], False)

    def sub(self, replacement: Any, answer: str) -> str:
        new: str = self.pattern.sub(replacement, answer)
        return new if new == answer or self.probes.seen(True, self.number, False) else answer


@contextmanager
def probed() -> Iterator[Probes]:
    """Import the rules with probes; the modules without them come back at the end."""
    probes = Probes()
    kept = {name: module for name, module in sys.modules.items() if name.startswith("outcome_rl.outcomes")}
    finder = _Finder(probes)
    for name in kept:
        del sys.modules[name]
    sys.meta_path.insert(0, finder)
    try:
        from outcome_rl.outcomes.canonical import spellings

        patterns: list[Any] = [_Pattern(probes, row) for row in spellings.SPELLINGS]
        rows = zip(spellings.SPELLINGS, patterns, strict=True)
        spellings.SPELLINGS = tuple(row._replace(pattern=pattern) for row, pattern in rows)
        yield probes
    finally:
        sys.meta_path.remove(finder)
        for name in [name for name in sys.modules if name.startswith("outcome_rl.outcomes")]:
            del sys.modules[name]
        sys.modules.update(kept)


def decided(cases: Sequence[Case], pool: Any) -> list[Decided]:
    """Return what each condition decides; `pool` casts the votes on pairs that no rule reads."""
    with probed() as probes:
        from outcome_rl.outcomes.grading import grade
        from outcome_rl.outcomes.keys import canonical_text

        functions = (f for name, m in list(sys.modules.items()) if PROBED.fullmatch(name) for f in vars(m).values())
        caches = {id(f): f for f in functions if hasattr(f, "cache_clear") and f.__name__ not in ("variable", "_table")}

        def reading(number: int) -> tuple[str, ...]:
            probes.case, case = number, cases[number]
            for cache in caches.values():
                cache.cache_clear()
            pair = (case.gold, case.answer or "")
            try:
                return grade([pair], pool, tolerant=True)[pair], canonical_text(pair[1]), canonical_text(pair[0])
            except Exception as error:  # noqa: BLE001 - a condition may guard what the next lines expect
                return (type(error).__name__,)

        base = [reading(number) for number in range(len(cases))]
        held, found = {number: sorted(cases) for number, cases in probes.held.items()}, []
        for off, probe in enumerate(probes.all):
            probes.off, draw = off, random.Random(0)
            by_source: dict[str, list[int]] = defaultdict(list)
            for number in held.get(off, ()):
                by_source[cases[number].source].append(number)
            some = [number for one in by_source.values() for number in draw.sample(one, min(MOST, len(one)))]
            changed = {number: new for number in some if (new := reading(number)) != base[number]}
            right = [
                (cases[number].expected == (base[number][0] == "equal"), cases[number].expected == (new[0] == "equal"))
                for number, new in changed.items()
                if cases[number].expected is not None
            ]
            counts = Counter({source: len(one) for source, one in by_source.items()})
            sources = Counter(cases[number].source for number in changed)
            found.append(Decided(probe, counts, sources, right.count((True, False)), right.count((False, True))))
        probes.off = -1
    return found
