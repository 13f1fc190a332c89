r"""Values and keys of expression trees.

Variables stand for fixed pseudo-random numbers near 1 and -1, derived from their names. Two analytic formulas have one
key if they agree at `POINTS` such points; others have to agree at those of `branches` as well. Work is counted in units
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
    divide,
    is_real,
    mp,
    number_key,
    rounded,
)
from outcome_rl.outcomes.canonical.branches import POINTS as BRANCH_POINTS
from outcome_rl.outcomes.canonical.branches import Value, as_branch_value, branch_key, branch_values, has_branches
from outcome_rl.outcomes.canonical.breaks import breaks
from outcome_rl.outcomes.canonical.functions import FUNCTIONS, OF_INTEGERS, OPERATORS, SYMMETRIC, is_integer
from outcome_rl.outcomes.canonical.lexer import TooLarge
from outcome_rl.outcomes.canonical.trees import Tree, names_in, nodes, subtrees

MAX_WORK = 12_000
POINTS = 4
UNDEFINED = "undefined"
_I: Tree = ("constant", "i")


class Evaluator:
    """Evaluate the expressions of one answer, as long as its work allows.

    The methods raise `Undefined` where an expression has no value, and `TooLarge` before a bound is exceeded.
    """

    def __init__(self) -> None:
        self._work = 0

    def key(self, tree: Tree) -> str:
        """Return the key of an expression: of its value if it has no variables or is constant, else of the function."""
        if not names_in(tree):
            return number_key(self.value(tree, 0))
        is_complex = _I in nodes(tree)
        keys = [self._rounded(tree, point, point == 0 or is_complex) for point in range(POINTS)]
        if not self.has_branches(tree):
            if keys[0] == UNDEFINED:
                raise Undefined("no value where a formula without branches has one")
            return number_key(self.value(tree, 0)) if len(set(keys)) == 1 else function_key("f", keys)
        further, breaks = self.further_values(tree), self.break_keys(tree)
        if set(keys) == {UNDEFINED} and not any(value is not None for value in further):
            raise Undefined("no value at any point")
        if len(set(keys)) == 1 and keys[0] != UNDEFINED and not breaks:
            value = self.value(tree, 0)
            if {branch_key(one) for one in further} == {branch_key(as_branch_value(value))}:
                return number_key(value)
        return function_key("f", keys + [branch_key(value) for value in further] + breaks)

    def values(self, tree: Tree) -> list[Number]:
        """Return the values at the points near 1."""
        return [self.value(tree, point) for point in range(POINTS)]

    def further_values(self, tree: Tree) -> list[Value | None]:
        """Return the values at points of all sizes, for a formula that they may tell from others; else none."""
        if not self.has_branches(tree):
            return []
        self._spend(3 * BRANCH_POINTS * len(list(nodes(tree))))
        return branch_values(tree, self._constant, _I in nodes(tree))

    def break_keys(self, tree: Tree) -> list[str]:
        """Return the keys of the functions at whose zeros and whole values a formula breaks."""
        zeros, wholes = breaks(tree, self._constant)
        distinct = {self._ratio_key(zero): zero for zero in zeros}
        keys = {self._ratio_key(("*", *distinct.values()))} if zeros else set()
        near = [[self._rounded(whole, point, is_complex=True) for point in range(POINTS)] for whole in wholes]
        return sorted(keys.union(map(";".join, near)))

    def _ratio_key(self, tree: Tree) -> str:
        """Return the key of a function up to a factor."""
        try:
            values = self.values(tree)
        except Undefined:
            return self.key(tree)
        if not values[0]:
            return UNDEFINED
        return ";".join(rounded(divide(value, values[0])) for value in values[1:])

    def has_branches(self, tree: Tree) -> bool:
        return has_branches(tree, self._constant)

    def _constant(self, tree: Tree) -> Number:
        return self.value(tree, 0)

    def value(self, tree: Tree, point: int) -> Number:
        """Return the value at one of the points near 1."""
        operator = tree[0]
        if operator == "number":
            return bounded(tree[1])
        if operator == "name":
            return variable(tree[1], point)
        if operator == "constant":
            context = mp()
            return context.j * 1 if tree[1] == "i" else (context.pi if tree[1] == "pi" else context.e) * 1
        operands = [self.value(part, point) for part in subtrees(tree)]
        if operator == "neg":
            return -operands[0]
        if operator == "apply":
            return self._unknown(tree[1], [rounded(operand) for operand in operands], point)
        if operator == "call":
            return self._call(tree[1], operands, point)
        work, function = OPERATORS[operator]
        exact = all(type(operand) is Fraction for operand in operands)
        self._spend((2 + sum(map(bits, operands)) // 16 if exact else work) * (len(operands) - 1))
        return reduce(function, operands)

    def _call(self, name: str, operands: list[Number], point: int) -> Number:
        if name in OF_INTEGERS and not all(map(is_integer, operands)):
            keys = [rounded(operand) for operand in operands]
            return self._unknown(name, sorted(keys) if name in SYMMETRIC else keys, point)
        work, function = FUNCTIONS[name]
        self._spend(work)
        return function(*operands)

    def _unknown(self, name: str, operands: list[str], point: int) -> Number:
        """Return an unknown number that depends on the operands: f(x) of an unknown f."""
        self._spend(30)
        return variable(f"{name}({';'.join(operands)})", point)

    def _rounded(self, tree: Tree, point: int, is_complex: bool) -> str:
        """Return the key at a point; where a root leaves the reals, at negative points, its branch says nothing."""
        try:
            value = self.value(tree, point)
        except Undefined:
            return UNDEFINED
        return rounded(value) if is_real(value) or is_complex else UNDEFINED

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
