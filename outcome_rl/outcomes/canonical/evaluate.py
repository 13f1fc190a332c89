r"""Values and keys of expression trees.

Variables stand for fixed pseudo-random numbers near 1 and -1, derived from their names. Two analytic formulas are equal
everywhere if they agree at `POINTS` such points. Absolute values, floors, roots, logarithms and inverse functions join
several analytic functions, which no set of points separates with certainty. Each of them stands for an unknown number
that is known only by its operand (`Evaluator._unknown`): two formulas have one key if they agree **whatever these
numbers are**, and then they agree everywhere. Work is counted in units of about a microsecond and bounded by
`MAX_WORK`, before it is done and never by the clock.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from fractions import Fraction
from functools import lru_cache, reduce
from hashlib import blake2b

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
    multiply,
    number_key,
    power,
    rounded,
    simplified,
)
from outcome_rl.outcomes.canonical.lexer import TooLarge
from outcome_rl.outcomes.canonical.trees import Apply, Call, Constant, Name, Rational, Tree, call, names_in, nodes

MAX_WORK = 12_000
POINTS = 4
MAX_TURNS = 1 << 12
_MAX_EXPONENT_BITS = 20
_HALF = Fraction(1, 2)
_ONE = Fraction(1)
_I, _PI = Constant("i"), Constant("pi")


class Evaluator:
    """Evaluate the expressions of one answer, as long as its work allows.

    The methods raise `Undefined` where an expression has no value, and `TooLarge` before a bound is exceeded.
    """

    def __init__(self, renamed: str | None = None) -> None:
        self._renamed = renamed  # to n: k and n in `k\\pi` are one
        self._work = 0
        self._vectors: dict[Tree, list[Number]] = {}
        self._constants: dict[Tree, Number] = {}  # powers of numbers, which are the same at every point

    def key(self, tree: Tree) -> str:
        """Return the key of an expression: of its value if it has no variables or is constant, else of the function."""
        keys = list(map(rounded, self.values(tree))) if names_in(tree) else []
        return function_key("f", keys) if len(set(keys)) > 1 else number_key(self.value(tree, 0))

    def ratio_key(self, tag: str, tree: Tree, scale: Number) -> str:
        """Return the key of a function over a number."""
        return function_key(tag, self._profile(tree, scale))

    def values(self, tree: Tree) -> list[Number]:
        """Return the values at all points."""
        if tree not in self._vectors:
            self._vectors[tree] = [self.value(tree, point) for point in range(POINTS)]
        return self._vectors[tree]

    def value(self, tree: Tree, point: int) -> Number:
        """Return the value at one of the points."""
        match tree:
            case Rational(value):
                return bounded(value)
            case Name(name):
                return variable("n" if name == self._renamed else name, point)
            case Constant(name):
                context = mp()
                return {"i": context.j, "pi": context.pi, "e": context.e}[name] * 1
            case Call("^", (base, exponent)):
                if names_in(tree):
                    return self._power(tree, base, exponent, point)
                if tree not in self._constants:
                    self._constants[tree] = self._power(tree, base, exponent, point)
                return self._constants[tree]
            case Call("*" | "/") if names_in(tree):
                return self._product(tree, point)
            case Call("+" | "*" | "/", operands):
                return self._work_on(tree.name, [self.value(operand, point) for operand in operands])
            case Call("-", (part,)):
                return -self.value(part, point)
            case Call(name, operands):
                return self._call(name, operands, point)
            case Apply(name, operands):
                return self._unknown(name, [rounded(self.value(operand, point)) for operand in operands], point)

    def _work_on(self, operator: str, operands: list[Number]) -> Number:
        work, function = OPERATORS[operator]
        exact = all(type(operand) is Fraction for operand in operands)
        self._spend((2 + sum(map(bits, operands)) // 16 if exact else work) * (len(operands) - 1))
        return reduce(function, operands)

    def _call(self, name: str, operands: tuple[Tree, ...], point: int) -> Number:
        if name in _JOINED and any(map(names_in, operands)):
            return self._joined(name, operands[0], point)
        return self._apply(name, [self.value(operand, point) for operand in operands])

    def _apply(self, name: str, values: list[Number]) -> Number:
        work, function = FUNCTIONS[name]
        self._spend(work)
        return function(*values)

    def _unknown(self, name: str, operands: list[str], point: int) -> Number:
        """Return an unknown number that depends on the operands: f(x) of an unknown f."""
        self._spend(30)
        return variable(f"{name}({';'.join(operands)})", point)

    def _spend(self, work: int) -> None:
        self._work += work
        if self._work > MAX_WORK:
            raise TooLarge("more work than a formula needs")

    # Functions that are analytic in pieces, such as |u|. Each rule below holds at all real numbers at which the
    # function has a value; a function that no rule rewrites is an unknown number.

    def _joined(self, name: str, tree: Tree, point: int) -> Number:
        if name in _OTHER_FUNCTIONS:  # arccos u = pi/2 - arcsin u
            return self.value(_OTHER_FUNCTIONS[name](tree), point)
        if name in ("ln", "log"):
            return self._logarithm(tree, point)
        if self._is_constant(tree):
            return self._apply(name, [self.value(tree, point)])
        if name == "abs":  # that of -3u is three times that of u
            first = self.values(tree)[0]
            return multiply(abs(first), self._unknown("abs", self._profile(tree, first), point))
        return self._unknown(name, self._profile(tree), point)

    def _is_constant(self, tree: Tree) -> bool:
        return not names_in(tree) or len(set(map(rounded, self.values(tree)))) == 1

    def _profile(self, tree: Tree, scale: Number = _ONE) -> list[str]:
        """Return the values at all points, divided by `scale`, as text; equal functions have equal ones."""
        return [rounded(divide(value, scale)) for value in self.values(tree)]

    def _logarithm(self, tree: Tree, point: int) -> Number:
        """ln u: any of the logarithms of u, so that e^{ln u} = u, but ln x + ln y is not ln(xy)."""
        if self._is_constant(tree):
            return self._apply("ln", [self.value(tree, point)])
        scale = abs(self.values(tree)[0])
        profile = self._profile(tree, scale)
        value = mp().ln(inexact(divide(self.value(tree, point), scale)))
        self._spend(150)
        digest = blake2b(f"{point}:ln({';'.join(profile)})".encode(), digest_size=8).digest()
        turns = 1 + int.from_bytes(digest, "little") % MAX_TURNS
        return self._apply("ln", [scale]) + value + 2 * mp().pi * mp().j * turns

    def _exponent(self, tree: Tree) -> Fraction | None:
        """Return the rational exponent of a power of a variable; None of anything else."""
        if not isinstance(tree, Call) or tree.name != "^" or not names_in(tree.parts[0]) or names_in(tree.parts[1]):
            return None
        exponent = simplified(self.value(tree.parts[1], 0))
        return exponent if type(exponent) is Fraction else None

    def _power(self, tree: Tree, base: Tree, exponent: Tree, point: int) -> Number:
        if self._exponent(tree) is not None:
            return self._product(tree, point)
        if not names_in(base) or self._is_constant(base):
            self._spend(OPERATORS["^"][0])
            return power(self.value(base, point), self.value(exponent, point))
        logarithm = multiply(self.value(exponent, point), self._logarithm(base, point))
        if mp().mag(inexact(logarithm)) > _MAX_EXPONENT_BITS:
            raise TooLarge("a power beyond 2**(2**20)")
        self._spend(OPERATORS["^"][0])
        return bounded(mp().exp(inexact(logarithm)))

    def _product(self, tree: Tree, point: int) -> Number:
        """Return a product, in which the exponents of equal factors are added: `1/\\sqrt x` is `\\sqrt x/x`."""
        exponents: dict[Tree, Fraction] = {}
        for base, exponent in self._factors(tree, _ONE):
            exponents[base] = exponents.get(base, Fraction(0)) + exponent
        return self._work_on("*", [self._factor(*factor, point) for factor in exponents.items() if factor[1]] or [_ONE])

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

    def _factor(self, base: Tree, exponent: Fraction, point: int) -> Number:
        if exponent == 1:
            return self.value(base, point)
        if exponent == -1:
            return self._work_on("/", [_ONE, self.value(base, point)])
        if exponent.denominator == 1 or self._is_constant(base):
            return self._work_on("^", [self.value(base, point), exponent])
        return self._root(base, exponent, point)

    def _root(self, base: Tree, exponent: Fraction, point: int) -> Number:
        """u^(k + p/q), as u^k and the p-th power of the q-th root of u over its first value: an unknown number."""
        first = self.values(base)[0]
        scale = first if exponent.denominator % 2 and is_real(first) else abs(first)
        whole = exponent.numerator // exponent.denominator
        part = exponent - whole
        root = self._unknown(f"root {part.denominator}", self._profile(base, scale), point)
        factors = [self._work_on("^", [scale, part]), self._work_on("^", [root, Fraction(part.numerator)])]
        if whole:
            factors.append(self._work_on("^", [self.value(base, point), Fraction(whole)]))
        return self._work_on("*", factors)


_JOINED = frozenset(("abs", "floor", "ceil", "ln", "log", "arcsin", "arccos", "arctan"))
_OTHER_FUNCTIONS: dict[str, Callable[[Tree], Tree]] = {
    "ceil": lambda u: call("-", call("floor", call("-", u))),
    "arccos": lambda u: call("+", call("*", Rational(_HALF), _PI), call("-", call("arcsin", u))),
}


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
