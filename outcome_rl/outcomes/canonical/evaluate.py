r"""Values and keys of expression trees.

Variables stand for fixed pseudo-random numbers near 1 and -1, derived from their names. Two analytic formulas are equal
everywhere if they agree at `POINTS` such points. Absolute values, floors, roots, logarithms and inverse functions join
several analytic functions, which no set of points separates with certainty. Each of them stands for an unknown number
that is known only by its operand (`Evaluator._unknown`): two formulas have one key if they agree **whatever these
numbers are**, and then they agree everywhere. Work is counted in units of about a microsecond and bounded by
`MAX_WORK`, before it is done and never by the clock.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from fractions import Fraction
from functools import lru_cache, reduce
from hashlib import blake2b
from typing import Any

from outcome_rl.outcomes.canonical.arithmetic import (
    FUNCTIONS,
    OPERATORS,
    Number,
    bits,
    bounded,
    divide,
    inexact,
    is_real,
    mp,
    number_key,
    rounded,
    simplified,
)
from outcome_rl.outcomes.canonical.lexer import TooLarge
from outcome_rl.outcomes.canonical.trees import Apply, Call, Constant, Name, Rational, Tree, call, names_in, nodes

MAX_WORK = 12_000
POINTS = 4
MAX_TURNS = 1 << 12
_ONE = Fraction(1)
_I = Constant("i")


Values = list[Number]
"""The values of an expression at all points, or the one value of a number."""


class Evaluator:
    """Evaluate the expressions of one answer, as long as its work allows.

    The methods raise `Undefined` where an expression has no value, and `TooLarge` before a bound is exceeded.
    """

    def __init__(self, renamed: str | None = None) -> None:
        self._renamed = renamed  # to n: k and n in `k\\pi` are one
        self._work = 0
        self._powers: dict[Tree, Values] = {}  # an exponent is read more than once

    def key(self, tree: Tree) -> str:
        """Return the key of an expression: of its value if it has no variables or is constant, else of the function."""
        values = self.values(tree)
        return number_key(values[0]) if _is_constant(values) else function_key("f", _profile(values))

    def values(self, tree: Tree) -> Values:
        """Return the values at all points; one value of an expression without variables."""
        match tree:
            case Rational(value):
                return [bounded(value)]
            case Name(name):
                return [variable("n" if name == self._renamed else name, point) for point in range(POINTS)]
            case Constant(name):
                context = mp()
                return [{"i": context.j, "pi": context.pi, "e": context.e}[name] * 1]
            case Call("^", (base, exponent)):
                if tree not in self._powers:
                    self._powers[tree] = self._power(tree, base, exponent)
                return self._powers[tree]
            case Call("*" | "/") if names_in(tree):
                return self._product(tree)
            case Call("+" | "*" | "/", operands):
                return self._work_on(tree.name, *map(self.values, operands))
            case Call("-", (part,)):
                return [-value for value in self.values(part)]
            case Call("ceil", (part,)):
                return self.values(call("-", call("floor", call("-", part))))
            case Call(name, operands):
                if name in _JOINED and names_in(operands[0]):
                    return self._joined(name, operands[0])
                return self._apply(name, *map(self.values, operands))
            case Apply(name, operands):
                texts = [_profile(self.values(operand)) for operand in operands]
                return self._unknown(name, _columns(texts, POINTS))

    def _work_on(self, operator: str, *vectors: Values) -> Values:
        work, function = OPERATORS[operator]
        results = []
        for operands in _columns(vectors):
            exact = all(type(operand) is Fraction for operand in operands)
            self._spend((2 + sum(map(bits, operands)) // 16 if exact else work) * (len(operands) - 1))
            results.append(reduce(function, operands))
        return results

    def _apply(self, name: str, *vectors: Values) -> Values:
        work, function = FUNCTIONS[name]
        columns = _columns(vectors)
        self._spend(work * len(columns))
        return [function(*column) for column in columns]

    def _unknown(self, name: str, operands: list[list[str]]) -> Values:
        """Return an unknown number at each point that depends on the operands there: f(x) of an unknown f."""
        self._spend(30 * POINTS)
        return [variable(f"{name}({';'.join(texts)})", point) for point, texts in enumerate(operands)]

    def _spend(self, work: int) -> None:
        self._work += work
        if self._work > MAX_WORK:
            raise TooLarge("more work than a formula needs")

    # Functions that are analytic in pieces, such as |u|. Each rule below holds at all real numbers at which the
    # function has a value; a function that no rule rewrites is an unknown number.

    def _joined(self, name: str, tree: Tree) -> Values:
        values = self.values(tree)
        if name in ("ln", "log"):
            return self._logarithm(values)
        if _is_constant(values):
            return self._apply(name, values)
        if name == "abs":  # that of -3u is three times that of u
            unknown = self._unknown("abs", [_profile(values, values[0])] * POINTS)
            return self._work_on("*", [abs(values[0])], unknown)
        return self._unknown(name, [_profile(values)] * POINTS)

    def _logarithm(self, values: Values) -> Values:
        """ln u: any of the logarithms of u, so that e^{ln u} = u, but ln x + ln y is not ln(xy)."""
        scale = abs(values[0])
        profile = ";".join(_profile(values, scale))
        logarithms = []
        for point, value in enumerate(values):
            self._spend(150)
            digest = blake2b(f"{point}:ln({profile})".encode(), digest_size=8).digest()
            turns = 1 + int.from_bytes(digest, "little") % MAX_TURNS
            logarithms.append(mp().ln(inexact(divide(value, scale))) + 2 * mp().pi * mp().j * turns)
        return self._work_on("+", self._apply("ln", [scale]), logarithms)

    def _exponent(self, tree: Tree) -> Fraction | None:
        """Return the rational exponent of a power of a variable; None of anything else."""
        if not isinstance(tree, Call) or tree.name != "^" or not names_in(tree.parts[0]) or names_in(tree.parts[1]):
            return None
        exponent = simplified(self.values(tree.parts[1])[0])
        return exponent if type(exponent) is Fraction else None

    def _power(self, tree: Tree, base: Tree, exponent: Tree) -> Values:
        if self._exponent(tree) is not None:
            return self._product(tree)
        bases, exponents = self.values(base), self.values(exponent)
        if _is_constant(bases):
            return self._work_on("^", bases, exponents)
        return self._apply("exp", self._work_on("*", exponents, self._logarithm(bases)))

    def _product(self, tree: Tree) -> Values:
        """Return a product, in which the exponents of equal factors are added: `1/\\sqrt x` is `\\sqrt x/x`."""
        exponents: dict[Tree, Fraction] = {}
        for base, exponent in self._factors(tree, _ONE):
            exponents[base] = exponents.get(base, Fraction(0)) + exponent
        factors = [self._factor(self.values(base), exponent) for base, exponent in exponents.items() if exponent]
        product = self._work_on("*", *factors) if factors else [_ONE]
        return product * (POINTS // len(product))

    def _factors(self, tree: Tree, exponent: Fraction) -> Iterator[tuple[Tree, Fraction]]:
        """Return the factors of a power and their exponents, by the rules that hold for all real numbers."""
        inner = self._exponent(tree)
        match tree:
            case Call("*", parts) if exponent.denominator == 1:
                for part, times in Counter(parts).items():
                    yield from self._factors(part, exponent * times)
            case Call("/", (top, bottom)) if exponent.denominator == 1:
                yield from self._factors(top, exponent)
                yield from self._factors(bottom, -exponent)
            case Call("^", (base, _)) if inner is not None and (exponent == 1 or _I not in nodes(tree)):
                is_absolute = inner.numerator % 2 == 0 and exponent.denominator % 2 == 0  # the root of a square
                yield from self._factors(call("abs", base) if is_absolute else base, inner * exponent)
            case Call("abs", (base,)) if exponent.numerator % 2 == 0 and _I not in nodes(tree):
                yield from self._factors(base, exponent)
            case _:
                yield tree, exponent

    def _factor(self, values: Values, exponent: Fraction) -> Values:
        if exponent == 1:
            return values
        if exponent == -1:
            return self._work_on("/", [_ONE], values)
        if exponent.denominator == 1 or _is_constant(values):
            return self._work_on("^", values, [exponent])
        return self._root(values, exponent)

    def _root(self, values: Values, exponent: Fraction) -> Values:
        """u^(k + p/q), as u^k and the p-th power of the q-th root of u over its first value: an unknown number."""
        scale = values[0] if exponent.denominator % 2 and is_real(values[0]) else abs(values[0])
        whole = exponent.numerator // exponent.denominator
        part = exponent - whole
        root = self._unknown(f"root {part.denominator}", [_profile(values, scale)] * POINTS)
        factors = [self._work_on("^", [scale], [part]), self._work_on("^", root, [Fraction(part.numerator)])]
        if whole:
            factors.append(self._work_on("^", values, [Fraction(whole)]))
        return self._work_on("*", *factors)


def _columns(vectors: Sequence[list[Any]], points: int = 0) -> list[list[Any]]:
    """Return the operands at each point; a number is the same at all of them."""
    points = points or max(map(len, vectors))
    return [[vector[point % len(vector)] for vector in vectors] for point in range(points)]


def _is_constant(values: Values) -> bool:
    return len(values) == 1 or len(set(map(rounded, values))) == 1


def _profile(values: Values, scale: Number = _ONE) -> list[str]:
    """Return the values at all points, divided by `scale`, as text; equal functions have equal ones."""
    return [rounded(value if scale is _ONE else divide(value, scale)) for value in values]


def ratio_key(tag: str, values: Values) -> str:
    """Return the key of a function over its first value."""
    return function_key(tag, _profile(values, values[0]))


_JOINED = frozenset(("abs", "floor", "ln", "log", "arcsin", "arccos", "arctan"))


def function_key(tag: str, keys: list[str]) -> str:
    """Return the key of a function with these keys at the points."""
    return f"{tag}:{blake2b(';'.join(keys).encode(), digest_size=16).hexdigest()}"


@lru_cache(maxsize=4096)
def variable(name: str, point: int) -> Number:
    """Return the value of a variable at a point.

    Its size lies in (0.93, 0.99): there x^2000 + 1 still differs from x^2001 + 1. All variables are positive at point 0
    and negative at 1.
    """
    digest = blake2b(f"{point}:{name}".encode("utf-8", "surrogatepass"), digest_size=64).digest()
    context = mp()
    size = context.mpf(93) / 100 + context.ldexp(int.from_bytes(digest, "little"), -512) * 6 / 100
    is_negative = (False, True, ord(name[-1]) & 1, ord(name[-1]) & 2)[point]
    return -size if is_negative else size
