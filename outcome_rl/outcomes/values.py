r"""Values and keys of expression trees.

Variables stand for fixed pseudo-random numbers near 1 and -1, derived from their names: two formulas have one key if
they agree at `POINTS` such points, in practice if they are the same function on the reals. Work is counted in units
of about a microsecond and bounded by `MAX_WORK`, before it is done and never by the clock.
"""

from fractions import Fraction
from functools import lru_cache
from hashlib import blake2b

from outcome_rl.outcomes.arithmetic import (
    Number,
    Undefined,
    add,
    bits,
    bounded,
    divide,
    inexact_fraction,
    is_real,
    mp,
    multiply,
    negative,
    number_key,
    power,
    rounded,
)
from outcome_rl.outcomes.functions import FUNCTIONS
from outcome_rl.outcomes.syntax import Tree, names_in
from outcome_rl.outcomes.tokens import TooLarge

MAX_WORK = 20_000
POINTS = 3


def evaluate(tree: Tree, point: int, pm: int = 1) -> Number:
    """Return the value of a tree at one of the points, with `\\pm` read as the sign `pm`.

    Raises:
        Undefined: it has no value there.
        TooLarge: a bound was exceeded.
    """
    return _Evaluation(point, pm).value(tree)


def key_of_tree(tree: Tree, pm: int = 1) -> str:
    """Return the key of an expression: of its value if it has no variables or is constant, else of the function."""
    if not names_in(tree):
        return number_key(evaluate(tree, 0, pm))
    value = evaluate(tree, 0, pm)
    keys = [rounded(value)] + [_rounded_or_undefined(tree, point, pm) for point in range(1, POINTS)]
    return number_key(value) if len(set(keys)) == 1 else function_key("f", keys)


def _rounded_or_undefined(tree: Tree, point: int, pm: int) -> str:
    """The key at a point with negative variables, where a root may leave the reals: its branch there says nothing."""
    try:
        value = evaluate(tree, point, pm)
    except Undefined:
        return "undefined"
    return rounded(value) if is_real(value) or _has_i(tree) else "undefined"


def function_key(tag: str, keys: list[str]) -> str:
    return f"{tag}:{blake2b(';'.join(keys).encode(), digest_size=16).hexdigest()}"


@lru_cache(maxsize=4096)
def variable(name: str, point: int) -> Number:
    """The value of a variable at a point: positive at point 0, negative at 1, of either sign at 2."""
    digest = blake2b(f"{point}:{name}".encode("utf-8", "surrogatepass"), digest_size=64).digest()
    negative_there = point == 1 or (point == 2 and digest[0] & 1)
    # In (0.93, 0.99): x^2000 + 1 still differs from x^2001 + 1, and arcsin, ln(1 - x), sqrt(1 - x^2) are real.
    fraction = int.from_bytes(digest, "little")
    value = inexact_fraction(Fraction(93, 100) + Fraction(6, 100) * Fraction(fraction, 1 << 512))
    return -value if negative_there else value


def _has_i(tree: Tree) -> bool:
    return tree == ("constant", "i") or any(_has_i(part) for part in tree[1:] if isinstance(part, tuple))


class _Evaluation:
    """One walk over a tree, which counts its work."""

    def __init__(self, point: int, pm: int) -> None:
        self.point, self.pm = point, pm
        self.work = 0

    def value(self, tree: Tree) -> Number:
        operator = tree[0]
        if operator == "number":
            return bounded(tree[1])
        if operator == "name":
            return variable(tree[1], self.point)
        if operator == "constant":
            context = mp()
            return context.j * 1 if tree[1] == "i" else (context.pi if tree[1] == "pi" else context.e) * 1
        if operator == "neg":
            return negative(self.value(tree[1]))
        if operator == "pm":
            value = self.value(tree[2])
            return value if tree[1] == self.pm else negative(value)
        if operator == "call":
            return self.call(tree[1], [self.value(part) for part in tree[2:]])
        a, b = self.value(tree[1]), self.value(tree[2])
        exact = isinstance(a, Fraction) and isinstance(b, Fraction)
        self.spend(1 + (bits(a) + bits(b)) // 16 if exact else 50 if operator == "^" else 5)
        return _OPERATORS[operator](a, b)

    def call(self, name: str, operands: list[Number]) -> Number:
        if name not in FUNCTIONS:  # f(x), of an unknown f: an unknown number that depends on x
            return variable(f"{name}({rounded(operands[0])})", self.point)
        work, function = FUNCTIONS[name]
        self.spend(work)
        return function(*operands)

    def spend(self, work: int) -> None:
        self.work += work
        if self.work > MAX_WORK:
            raise TooLarge("more work than a formula needs")


_OPERATORS = {"+": add, "*": multiply, "/": divide, "^": power}
