r"""Values and keys of expression trees.

Variables stand for fixed pseudo-random numbers near 1 and -1, derived from their names: two formulas have one key if
they agree at `POINTS` such points, in practice if they are the same function on the reals. Work is counted in units
of about a microsecond and bounded by `MAX_WORK`, before it is done and never by the clock.
"""

from fractions import Fraction
from functools import lru_cache, reduce
from hashlib import blake2b

from outcome_rl.outcomes.canonical.arithmetic import (
    Number,
    Undefined,
    bits,
    bounded,
    is_real,
    mp,
    number_key,
    rounded,
)
from outcome_rl.outcomes.canonical.functions import FUNCTIONS, OPERATORS
from outcome_rl.outcomes.canonical.lexer import TooLarge
from outcome_rl.outcomes.canonical.parser import Tree, names_in

MAX_WORK = 12_000
POINTS = 4


class Evaluator:
    """Evaluates the expressions of one answer, as long as its work allows.

    `\\pm` is read as the sign `pm`. The methods raise `Undefined` where an expression has no value, and `TooLarge`
    before a bound is exceeded.
    """

    def __init__(self) -> None:
        self._work = 0

    def key(self, tree: Tree, pm: int = 1) -> str:
        """Return the key of an expression: of its value if it has no variables or is constant, else of the function."""
        value = self.value(tree, 0, pm)
        if not names_in(tree):
            return number_key(value)
        keys = [rounded(value)] + [self._rounded(tree, point, pm) for point in range(1, POINTS)]
        return number_key(value) if len(set(keys)) == 1 else function_key("f", keys)

    def values(self, tree: Tree, pm: int = 1) -> list[Number]:
        """Return the values at all points."""
        return [self.value(tree, point, pm) for point in range(POINTS)]

    def value(self, tree: Tree, point: int, pm: int = 1) -> Number:
        """Return the value at one of the points."""
        operator = tree[0]
        if operator == "number":
            return bounded(tree[1])
        if operator == "name":
            return variable(tree[1], point)
        if operator == "constant":
            context = mp()
            return context.j * 1 if tree[1] == "i" else (context.pi if tree[1] == "pi" else context.e) * 1
        if operator == "pm":
            value = self.value(tree[2], point, pm)
            return value if tree[1] == pm else -value
        operands = [self.value(part, point, pm) for part in tree[1:] if isinstance(part, tuple)]
        if operator == "neg":
            return -operands[0]
        if operator == "call":
            return self._call(tree[1], operands, point)
        work, function = OPERATORS[operator]
        exact = all(type(operand) is Fraction for operand in operands)
        self._spend((2 + sum(map(bits, operands)) // 16 if exact else work) * (len(operands) - 1))
        return reduce(function, operands)

    def _call(self, name: str, operands: list[Number], point: int) -> Number:
        if name not in FUNCTIONS:  # f(x), of an unknown f: an unknown number that depends on x
            self._spend(30)
            return variable(f"{name}({rounded(operands[0])})", point)
        work, function = FUNCTIONS[name]
        self._spend(work)
        return function(*operands)

    def _rounded(self, tree: Tree, point: int, pm: int) -> str:
        """The key at a point with negative variables, where a root may leave the reals: its branch says nothing."""
        try:
            value = self.value(tree, point, pm)
        except Undefined:
            return "undefined"
        return rounded(value) if is_real(value) or _has_i(tree) else "undefined"

    def _spend(self, work: int) -> None:
        self._work += work
        if self._work > MAX_WORK:
            raise TooLarge("more work than a formula needs")


def function_key(tag: str, keys: list[str]) -> str:
    """Return the key of a function with these keys at the points."""
    return f"{tag}:{blake2b(';'.join(keys).encode(), digest_size=16).hexdigest()}"


@lru_cache(maxsize=4096)
def variable(name: str, point: int) -> Number:
    """Return the value of a variable at a point.

    Its size lies in (0.93, 0.99): there x^2000 + 1 still differs from x^2001 + 1, and arcsin x, ln(1 - x) and
    sqrt(1 - x^2) are real. All variables are positive at point 0 and negative at 1; at 2 and 3 neighbours in the
    alphabet differ in sign, so that |ab| is not ab.
    """
    digest = blake2b(f"{point}:{name}".encode("utf-8", "surrogatepass"), digest_size=64).digest()
    context = mp()
    size = context.mpf(93) / 100 + context.ldexp(int.from_bytes(digest, "little"), -512) * 6 / 100
    is_negative = (False, True, ord(name[-1]) & 1, ord(name[-1]) & 2)[point]
    return -size if is_negative else size


def _has_i(tree: Tree) -> bool:
    return tree == ("constant", "i") or any(_has_i(part) for part in tree[1:] if isinstance(part, tuple))
