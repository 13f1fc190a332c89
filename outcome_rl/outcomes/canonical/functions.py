"""The operators and functions that formulas may hold, each with the work it takes, in about microseconds."""

from collections.abc import Callable
from fractions import Fraction
from math import comb, factorial

from outcome_rl.outcomes.canonical.arithmetic import (
    HIDDEN_BITS,
    ZERO_BITS,
    Number,
    Undefined,
    add,
    bounded,
    divide,
    inexact,
    is_real,
    magnitude,
    mp,
    multiply,
    power,
    simplified,
)
from outcome_rl.outcomes.canonical.lexer import TooLarge

MAX_FACTORIAL = 3000
MIN_MAGNITUDE = 64
MAX_IMAGINARY_MAGNITUDE = 6


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
    argument = inexact(simplified(add(a, Fraction(1))))
    if not is_real(argument):
        raise Undefined("the factorial of a complex number")
    if magnitude(argument) > 10:
        raise TooLarge("the factorial of a number beyond 1024")
    return bounded(mp().gamma(argument))


def _binomial(n: Number, k: Number) -> Number:
    n, k = simplified(n), simplified(k)
    if type(n) is Fraction and type(k) is Fraction and n.denominator == k.denominator == 1 and n >= 0:
        if n > 2 * MAX_FACTORIAL:
            raise TooLarge("a binomial coefficient of too large a number")
        return bounded(Fraction(comb(int(n), int(k)) if k >= 0 else 0))
    return divide(_factorial(n), multiply(_factorial(k), _factorial(add(n, -k))))


def _logarithm(a: Number) -> Number:
    if a == 0:
        raise Undefined("the logarithm of 0")
    return Fraction(0) if a == 1 else bounded(mp().ln(inexact(a)))


def _exponential(a: Number) -> Number:
    return power(mp().e * 1, a)


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
    "ceil": (50, lambda a: -_floor(-a)),
    "factorial": (200, _factorial),
    "binomial": (600, _binomial),
    "ln": (60, _logarithm),
    "log": (60, _logarithm),  # as in sympy, and so in math-verify
    "exp": (130, _exponential),
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
