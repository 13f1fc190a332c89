r"""Bounded arithmetic and functions of exact rationals and 512-bit numbers, and the keys of the results.

Arithmetic on rationals is exact, roots of perfect powers included. Everything else is computed with `BITS` of
precision, and a number's key is the number rounded to `KEY_BITS` (77 digits), so two keys are equal or not: there is no
"close". The distance between the two absorbs what cancellation and different routes to one value lose. A sum that hides
one of its terms, a difference that leaves fewer digits than a key has, and an exact number that would lose digits are
refused with `TooLarge` instead of being keyed by their noise. A number that is a rational to all its bits is that
rational: `\sqrt8 / \sqrt2` has the key of 2. Every operation checks its bounds before it is done.
"""

import threading
from collections.abc import Callable
from fractions import Fraction
from functools import cache
from math import comb, factorial
from typing import Any

from outcome_rl.outcomes.canonical.lexer import NotUnderstood, TooLarge

BITS = 512
KEY_BITS = 256
HIDDEN_BITS = 192  # a sum whose terms differ by more loses the smaller one from the key
ZERO_BITS = 400  # terms that cancel to so many bits are equal
MAX_EXACT_BITS = 1 << 15
MAX_EXPONENT_BITS = 1 << 20
MAX_FACTORIAL = 3000
MIN_MAGNITUDE = 64
MAX_IMAGINARY_MAGNITUDE = 6


_ZERO = Fraction(0)
Number = Any
"""A Fraction, or an mpmath `mpf` or `mpc` of the context below."""


class Undefined(NotUnderstood):
    """A division by zero, a pole, or a function outside of its domain."""


def mp() -> Any:
    """Return a private mpmath context: its precision is set once, and mpmath's global context is unchanged."""
    with _MAKING:  # of two contexts, the numbers of one are no numbers to the other
        return _context()


_MAKING = threading.Lock()


@cache
def _context() -> Any:
    import mpmath

    # mpmath caches its constants without a lock, and only computes them anew for a higher precision.
    for constant in (mpmath.libmp.mpf_pi, mpmath.libmp.mpf_e, mpmath.libmp.mpf_ln2, mpmath.libmp.mpf_ln10):
        constant(1 << 13)
    context = mpmath.MPContext()
    context.prec = BITS
    return context


def number_key(value: Number) -> str:
    """Return the key of a number: `q:n/d` if rational, else `r:` or `c:` and its first 256 bits."""
    if type(value) is Fraction:
        if bits(value) <= 4000:
            return f"q:{value.numerator}/{value.denominator}"
        return f"q:{value.numerator:x}/{value.denominator:x}h"  # hexadecimal: Python refuses long decimal strings
    if not is_real(value):
        return f"c:{number_key(simplified(value.real))},{number_key(simplified(value.imag))}"
    exact = simplified(value)
    return number_key(exact) if type(exact) is Fraction else rounded(value)


def rounded(value: Number) -> str:
    """Return the first 256 bits of a number as text."""
    if not value:
        return "r:0"
    value = inexact(value)
    if not is_real(value):
        return f"c:{rounded(value.real)},{rounded(value.imag)}"
    import mpmath

    sign, mantissa, exponent, _ = mpmath.libmp.mpf_pos(value._mpf_, KEY_BITS, "n")
    return f"r:{'-' if sign else ''}{mantissa:x}p{exponent}"


def simplified(value: Number) -> Number:
    """Return a real number as a Fraction if it is one with a denominator below 2**96, to `ZERO_BITS`."""
    if type(value) is Fraction or not is_real(value):
        return value
    sign, mantissa, exponent, count = value._mpf_
    if not mantissa:
        return Fraction(0)
    if abs(exponent + count) > 2 * KEY_BITS:
        return value
    top, bottom = (mantissa << exponent, 1) if exponent >= 0 else (mantissa, 1 << -exponent)
    cut = max(min(top.bit_length(), bottom.bit_length()) - KEY_BITS, 0)  # enough to find it, and faster
    n, d = top >> cut, bottom >> cut
    quotients: list[int] = []  # of the continued fraction of n / d; denominators of its convergents grow as d shrinks
    least = d.bit_length() - 96
    while d and (count := d.bit_length()) > least:
        quotient, rest = divmod(n, d)
        quotients.append(quotient)
        if not rest or rest.bit_length() + 64 <= count:  # a large quotient follows a convergent so near
            p0, p1, q0, q1 = 0, 1, 1, 0
            for quotient in quotients:
                p0, p1, q0, q1 = p1, quotient * p1 + p0, q1, quotient * q1 + q0
            if abs(p1 * bottom - top * q1) << ZERO_BITS < top * q1:
                return Fraction(-p1 if sign else p1, q1)
        n, d = d, rest
    return value


def is_real(value: Number) -> bool:
    return not hasattr(value, "_mpc_")


def compare(a: Number, b: Number) -> int:
    """Return the sign of a - b, for real numbers or the floats inf and -inf; 0 exactly if they have one key."""
    if a is b:  # the two ends of a point
        return 0
    if isinstance(a, float) or isinstance(b, float):
        a, b = (float(x) if isinstance(x, float) else 0.0 for x in (a, b))
        return int(a > b) - int(a < b)
    difference = add(a, -b)
    return int(difference > 0) - int(difference < 0)


def inexact(value: Number) -> Number:
    """Return the number as one of mpmath's."""
    if type(value) is not Fraction:
        return value
    if bits(value) > KEY_BITS and max(_odd_bits(value.numerator), _odd_bits(value.denominator)) > KEY_BITS:
        raise TooLarge("an exact number of more than 77 digits among inexact ones")
    context = mp()
    return context.mpf(value.numerator) / value.denominator


def bits(value: Fraction) -> int:
    return max(value.numerator.bit_length(), value.denominator.bit_length())


def _odd_bits(value: int) -> int:
    return (value // (value & -value)).bit_length() if value else 0


def magnitude(real: Number) -> int:
    """About log2 of a real number that is not exact."""
    _, mantissa, exponent, count = real._mpf_
    return int(exponent + count) if mantissa else -MAX_EXPONENT_BITS


def bounded(value: Number) -> Number:
    """Return the value, within the bounds; a complex number with a vanishing part loses it."""
    if type(value) is Fraction:
        if bits(value) > MAX_EXACT_BITS:
            raise TooLarge("an exact number of more than 32768 bits")
        return value
    if not is_real(value):
        real, imag = magnitude(value.real), magnitude(value.imag)
        if imag < real - ZERO_BITS:
            return bounded(value.real)
        if real < imag - ZERO_BITS:
            value = mp().mpc(0, value.imag)
        if max(real, imag) > MAX_EXPONENT_BITS:
            raise TooLarge("a number beyond 2**(2**20)")
        return value
    _, mantissa, exponent, count = value._mpf_
    if not mantissa and exponent:
        raise Undefined("not a finite number")
    if mantissa and abs(exponent + count) >= MAX_EXPONENT_BITS:
        raise TooLarge("a number beyond 2**(2**20)")
    return value


def add(a: Number, b: Number) -> Number:
    """Return a + b; exactly 0 where inexact terms cancel."""
    if type(a) is Fraction and type(b) is Fraction:
        return bounded(a + b)
    a, b = inexact(a), inexact(b)
    if not (is_real(a) and is_real(b)):
        context = mp()
        a, b = context.mpc(a), context.mpc(b)
        real, imag = _add_reals(a.real, b.real), _add_reals(a.imag, b.imag)
        return real if not imag else bounded(context.mpc(inexact(real), inexact(imag)))
    return _add_reals(a, b)


def _add_reals(a: Number, b: Number) -> Number:
    if not a or not b:
        return a or b or _ZERO
    larger, smaller = max(magnitude(a), magnitude(b)), min(magnitude(a), magnitude(b))
    if larger - smaller > HIDDEN_BITS:
        raise TooLarge("a sum that hides a term from 77 digits")
    total = a + b
    lost = larger - magnitude(total) if total else BITS
    if lost >= ZERO_BITS:
        return _ZERO
    if lost > HIDDEN_BITS:
        raise TooLarge("a difference that leaves less than 77 digits")
    return total


def multiply(a: Number, b: Number) -> Number:
    if type(a) is Fraction and type(b) is Fraction:
        if bits(a) + bits(b) > 2 * MAX_EXACT_BITS:
            raise TooLarge("an exact product of more than 65536 bits")
        return bounded(a * b)
    return bounded(inexact(a) * inexact(b))


def divide(a: Number, b: Number) -> Number:
    if not b:
        raise Undefined("division by zero")
    if type(b) is Fraction:
        return multiply(a, 1 / b)
    return bounded(inexact(a) / b) if a else _ZERO


def power(a: Number, b: Number) -> Number:
    """Return a ** b: the real root of a negative number where the exponent has an odd denominator, else principal."""
    b = simplified(b)
    if not a or not b:
        if not a and (type(b) is not Fraction or b <= 0):
            raise Undefined("0 to a power that is not positive")
        return a and Fraction(1)
    is_rational = type(b) is Fraction
    if is_rational and type(a) is Fraction and b.denominator == 1:
        if abs(a) != 1 and abs(b) * (bits(a) - 1) > MAX_EXACT_BITS:
            raise TooLarge("a power of more than 32768 bits")
        return a ** (b.numerator if abs(a) != 1 else b.numerator % 2)
    if is_rational and b.denominator % 2 == 1 and b.denominator > 1 and is_real(a) and a < 0:
        root = power(-a, b)
        return -root if b.numerator % 2 else root
    exponent = inexact(b)
    if not -MIN_MAGNITUDE <= mp().mag(exponent) <= MIN_MAGNITUDE:
        raise TooLarge("a power beyond 2**(2**20), or so near to 1 that 77 digits do not tell")
    return bounded(mp().power(inexact(a), exponent))


def _floor(a: Number) -> Number:
    a = simplified(a)
    if not is_real(a):
        raise Undefined("the floor of a complex number")
    if type(a) is Fraction:
        return Fraction(a.numerator // a.denominator)
    if magnitude(a) > HIDDEN_BITS:
        raise TooLarge("the floor of a number beyond 2**192")
    return Fraction(int(mp().floor(a)))


def _factorial(a: Number) -> Number:
    a = simplified(a)
    if type(a) is Fraction and a.denominator == 1:
        if a < 0:
            raise Undefined("the factorial of a negative integer")
        if a > MAX_FACTORIAL:
            raise TooLarge(f"a factorial beyond {MAX_FACTORIAL}!")
        return bounded(Fraction(factorial(int(a))))
    argument = inexact(add(a, Fraction(1)))
    if not is_real(argument) or magnitude(argument) > 10:
        raise Undefined("the factorial of a complex number, or of one beyond 1024")
    return bounded(mp().gamma(argument))


def _binomial(n: Number, k: Number) -> Number:
    n, k = simplified(n), simplified(k)
    if type(n) is Fraction and type(k) is Fraction and n.denominator == k.denominator == 1 and n >= 0:
        if n > 2 * MAX_FACTORIAL:
            raise TooLarge("a binomial coefficient of too large a number")
        return bounded(Fraction(comb(int(n), int(k)) if k >= 0 else 0))
    return divide(_factorial(n), multiply(_factorial(k), _factorial(add(n, -k))))


def _log(a: Number) -> Number:
    if a == 0:
        raise Undefined("the logarithm of 0")
    return Fraction(0) if a == 1 else bounded(mp().ln(inexact(a)))


def _analytic(name: str, max_magnitude: int) -> Callable[[Number], Number]:
    """Return an mpmath function whose vanishing results are an exact 0.

    Arguments beyond the bound, or closer to 0 than 2**-64, are refused: there 77 digits do not separate the function
    from its limit, as tanh 200 from 1 and cos 10^-70 from 1.
    """

    def function(a: Number) -> Number:
        a = inexact(a)
        if not is_real(a) and mp().mag(a.imag) > MAX_IMAGINARY_MAGNITUDE:
            raise Undefined(f"the {name} of a number so far from the reals that it is near a limit")
        if a and not -MIN_MAGNITUDE < mp().mag(a) <= max_magnitude:
            raise TooLarge(f"the {name} of a number beyond 2**{max_magnitude} or below 2**-{MIN_MAGNITUDE}")
        value = getattr(mp(), name)(a)
        if not mp().isfinite(value):
            raise Undefined(f"a pole of {name}")
        value = bounded(value)
        return Fraction(0) if is_real(value) and magnitude(value) < -ZERO_BITS and mp().mag(a) > -8 else value

    return function


_sin, _cos = _analytic("sin", 40), _analytic("cos", 40)
_sinh, _cosh, _tanh = (_analytic(name, 6) for name in ("sinh", "cosh", "tanh"))
_arcsin, _arccos, _arctan = _analytic("asin", 40), _analytic("acos", 40), _analytic("atan", 40)
OPERATORS: dict[str, tuple[int, Callable[..., Number]]] = {  # name: (work on inexact numbers, function)
    "+": (10, add),
    "*": (10, multiply),
    "/": (10, divide),
    "^": (150, power),
}
FUNCTIONS: dict[str, tuple[int, Callable[..., Number]]] = {
    "abs": (10, abs),
    "floor": (50, _floor),
    "factorial": (200, _factorial),
    "binomial": (600, _binomial),
    "ln": (60, _log),
    "log": (60, _log),  # as in sympy, and so in math-verify
    "exp": (130, lambda a: power(mp().e * 1, a)),
    "sin": (60, _sin),
    "cos": (60, _cos),
    "tan": (130, lambda a: divide(_sin(a), _cos(a))),
    "cot": (130, lambda a: divide(_cos(a), _sin(a))),
    "sec": (80, lambda a: divide(Fraction(1), _cos(a))),
    "csc": (80, lambda a: divide(Fraction(1), _sin(a))),
    "arcsin": (150, _arcsin),
    "arccos": (150, _arccos),
    "arctan": (130, _arctan),
    "sinh": (70, _sinh),
    "cosh": (70, _cosh),
    "tanh": (80, _tanh),
}
