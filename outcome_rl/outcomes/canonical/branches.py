r"""Tell functions apart that agree near 1 and differ elsewhere: `|x|` and `x`, `\lfloor x \rfloor` and 0.

An analytic function is known from a few values near 1. Absolute values, floors, maxima, roots, logarithms and inverse
functions join several analytic functions, so a formula that holds one is evaluated at `POINTS` further points, of sizes
from 0.1 to 10^9 and both signs. These values only ever separate: the key of `evaluate`, at full precision, has to
agree as well. `PRECISION` bits are therefore enough, of which a key takes `KEY_BITS`.
"""

from collections.abc import Callable
from fractions import Fraction
from functools import lru_cache, reduce
from hashlib import blake2b
from typing import Any

from outcome_rl.outcomes.canonical.arithmetic import Number, first_bits, mp, multiply
from outcome_rl.outcomes.canonical.functions import SYMMETRIC, is_integer
from outcome_rl.outcomes.canonical.trees import Tree, names_in, nodes, subtrees

PRECISION = 192
KEY_BITS = 48
_LOST_BITS = 120  # a sum that cancels to so many bits is 0
_MAX_EXPONENT = 1 << 14
_WHOLE = (0, 1, 2, 3, 7, 12, -1, -2, -5, -8)
_JUMPS = frozenset(("floor", "ceil", "sign"))
_SIZES = (0.12, 0.29, 0.53, 0.76, 1.4, 2.6, 3.5, 4.5, 5.5, 6.5, 7.6, 9.4, 12.7, 31.0, 1030.0, 4.7e4, 2.1e6, 3.7e9)
POINTS = 2 * len(_SIZES)

_JOINED = frozenset(("abs", "floor", "ceil", "max", "min", "sign", "ln", "log", "lg"))
Value = Any
"""An `mpf` or `mpc` of `mp(PRECISION)`."""


class _NoValue(ArithmeticError):
    """A pole, a floor of a complex number, or a number too large to be worth its time."""


def has_branches(tree: Tree, constant: Callable[[Tree], Number]) -> bool:
    """Whether a formula joins several analytic functions; `constant` is the value of a subtree without variables."""
    if tree[0] == "call" and (tree[1] in _JOINED or tree[1].startswith("arc")) and names_in(tree):
        return True
    if tree[0] == "^" and names_in(tree[1]):
        if names_in(tree[2]) or not is_integer(constant(tree[2])):
            return True
        base = tree[1]  # the square of a root is none
        if base[0] == "^" and not names_in(base[2]) and is_integer(multiply(constant(base[2]), constant(tree[2]))):
            return has_branches(base[1], constant)
    return any(has_branches(part, constant) for part in subtrees(tree))


def branch_values(tree: Tree, constant: Callable[[Tree], Number], is_complex: bool) -> list[Value | None]:
    """Return the values of a formula at all points, None where it is undefined or not real.

    Args:
        tree: the formula.
        constant: the value of a subtree without variables.
        is_complex: whether the formula holds `i`, so that values off the reals count.
    """
    function = _compiled(tree, constant)
    # At whole and half numbers a floor and a ceiling less 1 differ, and nowhere else.
    jumps = any(node[0] == "call" and node[1] in _JUMPS for node in nodes(tree))
    last = POINTS + 2 * len(_WHOLE) if jumps else POINTS
    return [_value(function, point, is_complex) for point in range(last)]


def branch_key(value: Value | None) -> str:
    """Return the first 48 bits of a value as text."""
    if value is None:
        return "-"
    context = mp(PRECISION)
    if isinstance(value, context.mpc):
        return f"{branch_key(value.real)}i{branch_key(value.imag)}"
    return first_bits(value, KEY_BITS)


def as_branch_value(number: Number) -> Value:
    """Return an exact or a long number at this module's precision."""
    context = mp(PRECISION)
    if type(number) is Fraction:
        return context.mpf(number.numerator) / number.denominator
    return +context.convert(number)


def _value(function: Callable[[int], Value], point: int, is_complex: bool) -> Value | None:
    try:
        value = function(point)
        if not mp(PRECISION).isfinite(value):
            return None
        return value if is_complex and not _is_nearly_real(value) else _real(value)
    except (ArithmeticError, ValueError):
        return None


@lru_cache(maxsize=1024)
def _variable(name: str) -> tuple[Value, ...]:
    """Return the values of a variable: every size with both signs, then whole and half numbers, in its own order."""
    digests = [blake2b(f"{name}:{i}".encode("utf-8", "surrogatepass"), digest_size=16).digest() for i in range(POINTS)]
    whole = [mp(PRECISION).mpf(_WHOLE[i]) for i in sorted(range(len(_WHOLE)), key=digests.__getitem__)]
    return (
        *(_jittered(i, digests[i]) for i in sorted(range(POINTS), key=digests.__getitem__)),
        *whole,
        *(value + 0.5 for value in whole),
    )


def _compiled(tree: Tree, constant: Callable[[Tree], Number]) -> Callable[[int], Value]:
    """Return a function from a point to the value there."""
    operator = tree[0]
    if operator == "name":
        values = _variable(tree[1])
        return lambda point: values[point]
    if not names_in(tree):
        number = as_branch_value(constant(tree))
        return lambda point: number
    parts = [_compiled(part, constant) for part in subtrees(tree)]
    if operator == "^" and not names_in(tree[2]) and type(exponent := constant(tree[2])) is Fraction:
        return lambda point: _rational_power(parts[0](point), exponent)
    function = None if operator == "apply" else _OPERATORS.get(operator) or _FUNCTIONS.get(tree[1])
    if function is None:
        return lambda point: _unknown(tree[1], point, [part(point) for part in parts])
    return lambda point: function(*[part(point) for part in parts])


def _sum(*terms: Value) -> Value:
    context = mp(PRECISION)
    total = reduce(lambda a, b: a + b, terms)
    if total and context.mag(total) < max(context.mag(term) for term in terms if term) - _LOST_BITS:
        return context.zero
    return total


def _quotient(*operands: Value) -> Value:
    if not all(operands[1:]):
        raise _NoValue
    return reduce(lambda a, b: a / b, operands)


def _power(base: Value, exponent: Value) -> Value:
    context = mp(PRECISION)
    if not base or context.mag(exponent) + context.mag(context.log(base)) > _MAX_EXPONENT.bit_length():
        raise _NoValue
    return context.power(base, exponent)


def _rational_power(base: Value, exponent: Fraction) -> Value:
    context = mp(PRECISION)
    if not base:
        if exponent <= 0:
            raise _NoValue
        return context.zero
    if abs(exponent) > _MAX_EXPONENT:
        raise _NoValue
    if exponent.denominator == 1:
        return base ** int(exponent)
    if exponent.denominator == 2:
        return context.sqrt(base) ** exponent.numerator
    if exponent.denominator % 2 and not isinstance(base, context.mpc) and base < 0:
        root = _rational_power(-base, exponent)
        return -root if exponent.numerator % 2 else root
    return context.power(base, context.mpf(exponent.numerator) / exponent.denominator)


def _real(value: Value) -> Value:
    if not _is_nearly_real(value):
        raise _NoValue
    return value.real


def _is_nearly_real(value: Value) -> bool:
    context = mp(PRECISION)
    return not isinstance(value, context.mpc) or context.mag(value.imag) < context.mag(value.real) - _LOST_BITS


def _floor(value: Value) -> Value:
    """Return the floor of a real number; a number that is an integer but for rounding is that integer."""
    context, value = mp(PRECISION), _real(value)
    if context.mag(value) > _LOST_BITS // 2:
        raise _NoValue
    nearest = context.nint(value)
    return nearest if context.mag(value - nearest) < -_LOST_BITS else context.floor(value)


def _logarithm(value: Value) -> Value:
    if not value:
        raise _NoValue
    return mp(PRECISION).log(value)


def _factorial(value: Value) -> Value:
    value = _real(value)
    if mp(PRECISION).mag(value) > 8:
        raise _NoValue
    return mp(PRECISION).gamma(value + 1)


def _binomial(n: Value, k: Value) -> Value:
    k = _real(k)
    if k != int(k) or not 0 <= k <= 64:
        return _factorial(n) / (_factorial(k) * _factorial(n - k))
    return reduce(lambda product, i: product * (n - i) / (i + 1), range(int(k)), mp(PRECISION).one)


def _of_mpmath(name: str) -> Callable[..., Value]:
    def function(value: Value) -> Value:
        context = mp(PRECISION)
        if context.mag(value) > 12:
            raise _NoValue
        return getattr(context, name)(value)

    return function


def _unknown(name: str, point: int, operands: list[Value]) -> Value:
    """Return a function of which nothing is known: at every point it may take another size and sign."""
    keys = list(map(branch_key, operands))
    if name in SYMMETRIC:
        keys.sort()
    digest = blake2b(f"{point}:{name}({';'.join(keys)})".encode("utf-8", "surrogatepass"), digest_size=16).digest()
    return _jittered(digest[0] % POINTS, digest)


def _jittered(index: int, digest: bytes) -> Value:
    """One of the sizes with a sign, and with last digits of its own."""
    context = mp(PRECISION)
    size = context.mpf(_SIZES[index // 2]) * (1 + context.ldexp(int.from_bytes(digest, "little"), -132))  # below 1/16
    return -size if index % 2 else size


_OPERATORS: dict[str, Callable[..., Value]] = {
    "+": _sum,
    "*": lambda *operands: reduce(lambda a, b: a * b, operands),
    "/": _quotient,
    "^": _power,
    "neg": lambda value: -value,
}
_FUNCTIONS: dict[str, Callable[..., Value]] = {
    "abs": abs,
    "floor": _floor,
    "ceil": lambda value: -_floor(-value),
    "max": lambda *values: max(map(_real, values)),
    "min": lambda *values: min(map(_real, values)),
    "sign": lambda value: mp(PRECISION).sign(_real(value)),
    "ln": _logarithm,
    "log": _logarithm,
    "lg": lambda value: _logarithm(value) / mp(PRECISION).ln(10),
    "factorial": _factorial,
    "binomial": _binomial,
    **{name: _of_mpmath(name) for name in ("exp", "sin", "cos", "tan", "cot", "sec", "csc")},
    **{name: _of_mpmath(name) for name in ("sinh", "cosh", "tanh", "coth", "sech", "csch")},
    **{f"arc{name}": _of_mpmath(f"a{name}") for name in ("sin", "cos", "tan", "sec", "csc", "sinh", "cosh", "tanh")},
    "arccot": lambda value: mp(PRECISION).atan(_quotient(mp(PRECISION).one, value)),
}
