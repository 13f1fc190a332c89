"""The oracle of `outcome_pairs.py`: whether two trees are one function, by mpmath and without the library.

Its conventions are those of `docs/outcomes.md`: functions of real variables, intermediate values on the principal
branch, an odd root of a negative number is real, a result that is not real is undefined.
"""

import random
from collections.abc import Callable
from typing import Any

import mpmath
from answer_trees import VARIABLES, Tree, parts

mp = mpmath.MPContext()
mp.dps = 40


class Undefined(ArithmeticError):
    """No value, or none that the oracle is sure of."""


class Oracle:
    """Evaluates trees in one of mpmath's contexts: 40 digits, or double precision, which is ten times as fast."""

    def __init__(self, context: Any, digits: int) -> None:
        self.context = context
        self.lost = 10.0 ** (10 - digits)  # what a sum cancels to, over its terms, if it is 0
        self.snap = 10.0 ** (15 - digits) if digits > 20 else 1e-9
        self.clear, self.same = (1e-12, 1e-22) if digits > 20 else (1e-3, 1e-7)
        self.max_magnitude = 200 if digits > 20 else 60
        self.functions: dict[str, Callable[[Any], Any]] = {
            "exp": context.exp, "ln": context.log, "sin": context.sin, "cos": context.cos, "tan": context.tan,
            "sec": context.sec, "csc": context.csc, "cot": context.cot, "arctan": context.atan,
            "arcsin": context.asin, "arccos": context.acos, "sinh": context.sinh, "cosh": context.cosh,
            "tanh": context.tanh, "log2": lambda z: context.log(z) / context.log(2),
        }  # fmt: skip
        self.environments = [{name: context.mpf(x) for name, x in env.items()} for env in ENVIRONMENTS]

    def value_at(self, tree: Tree, point: int) -> Any:
        """The value at a point, None where it is undefined."""
        try:
            return self.real(self.value(tree, self.environments[point]))
        except (Undefined, ZeroDivisionError, ValueError, OverflowError):
            return None

    def gap(self, a: Tree, b: Tree, point: int) -> float | None:
        """How far two values are apart, relatively: None where both are undefined, infinite where one is."""
        p, q = self.value_at(a, point), self.value_at(b, point)
        if p is None or q is None:
            return None if p is q else float("inf")
        return float(abs(p - q) / max(abs(p), abs(q), 1e-9))

    def real(self, value: Any) -> Any:
        if isinstance(value, self.context.mpc):
            if abs(value.imag) > abs(value.real) * self.lost + 1e-60:
                raise Undefined
            return value.real
        return value

    def snapped(self, value: Any) -> Any:
        """A value that is an integer but for rounding, as that integer: floors must not depend on rounding."""
        nearest = self.context.floor(value + 0.5)
        return nearest if abs(value - nearest) < self.snap * (1 + abs(nearest)) else value

    def power(self, base: Any, exponent: Tree, env: dict[str, Any]) -> Any:
        if exponent[0] == "num":
            q = exponent[1]
            if q.denominator == 1:
                if base == 0 and q <= 0:
                    raise Undefined
                return base ** int(q)
            if q.denominator % 2 == 1 and not isinstance(base, self.context.mpc) and base < 0:
                size = (-base) ** (self.context.mpf(q.numerator) / q.denominator)
                return -size if q.numerator % 2 else size
        top = self.value(exponent, env)
        if base == 0 or abs(top) * (abs(self.context.log(base)) + 1) > 600:
            raise Undefined
        return self.context.power(base, top)

    def value(self, tree: Tree, env: dict[str, Any]) -> Any:
        kind, context = tree[0], self.context
        if kind == "num":
            return context.mpf(tree[1].numerator) / tree[1].denominator
        if kind == "var":
            return env[tree[1]]
        if kind in ("pi", "e"):
            return +getattr(context, kind)
        if kind == "pow":
            return self.power(self.value(tree[1], env), tree[2], env)
        values = [self.value(part, env) for part in tree[1:] if isinstance(part, tuple)]
        first = values[0]
        if any(v and context.mag(v) > self.max_magnitude for v in values):
            raise Undefined  # the digits would not tell
        if kind == "add":
            total = sum(values[1:], first)
            return context.zero if abs(total) < max(map(abs, values)) * self.lost else total
        if kind == "mul":
            for v in values[1:]:
                first = first * v
            return first
        if kind == "neg":
            return -first
        if kind == "div":
            return first / values[1]
        if kind == "sqrt":
            return context.sqrt(first)
        if kind in ("fn", "log2"):
            return self.function(tree[1] if kind == "fn" else "log2", first)
        if kind == "abs":
            return abs(first)
        if kind == "app":
            seed = sum(map(ord, tree[1]))
            return context.cos(first * seed / 97 + seed) + first * first / (seed + 1)
        return self.of_reals(kind, [self.real(v) for v in values])

    def function(self, name: str, argument: Any) -> Any:
        context = self.context
        if name in ("ln", "log2") and argument == 0:
            raise Undefined
        if name in ("exp", "sinh", "cosh", "tanh") and abs(argument) > (40 if name == "tanh" else 600):
            raise Undefined
        poles = name in ("tan", "sec", "csc", "cot")
        if poles and min(abs(context.sin(argument)), abs(context.cos(argument))) < self.same:
            raise Undefined
        result = self.functions[name](argument)
        return context.zero if abs(result) < self.lost < abs(argument) else result

    def of_reals(self, kind: str, values: list[Any]) -> Any:
        context, first = self.context, values[0]
        if kind in ("floor", "ceil"):
            return getattr(context, kind)(self.snapped(first))
        if kind == "fact":
            first = self.snapped(first)
            if (first < 0 and first == int(first)) or abs(first) > 160:
                raise Undefined
            return context.gamma(first + 1)
        assert kind == "binom", kind
        top, result = self.snapped(first), context.one
        for i in range(round(values[1])):
            result = result * (top - i) / (i + 1)
        return result


def environments() -> list[dict[str, float]]:
    """Values of the variables: near 1, small, large, negative, integer, and of mixed signs."""
    rng = random.Random(2024)
    draw: list[Callable[[], float]] = [
        lambda: rng.uniform(0.6, 1.4), lambda: -rng.uniform(0.6, 1.4), lambda: rng.uniform(0.01, 0.3),
        lambda: -rng.uniform(0.01, 0.3), lambda: rng.uniform(1.6, 6), lambda: -rng.uniform(1.6, 6),
        lambda: rng.uniform(6, 15), lambda: -rng.uniform(6, 15), lambda: rng.uniform(40, 90),
        lambda: -rng.uniform(40, 90), lambda: rng.choice((-1, 1)) * rng.uniform(1, 12),
        lambda: rng.choice((-1, 1)) * rng.uniform(1, 12), lambda: rng.randint(20, 60), lambda: -rng.randint(20, 60),
        lambda: rng.uniform(2000, 3000), lambda: -rng.uniform(2000, 3000),
    ]  # fmt: skip
    return [{name: one() for name in VARIABLES} for one in draw]


ENVIRONMENTS = environments()
QUICK, EXACT = Oracle(mpmath.fp, 16), Oracle(mp, 40)


def agree(a: Tree, b: Tree) -> bool | None:
    """Whether two trees are one function; None if the oracle cannot tell.

    A difference counts only if it shows at 40 digits. That trees which an identity connects agree at all points may
    show in double precision.
    """
    has_names = any(node[0] == "var" for tree in (a, b) for _, node in parts(tree))
    points = range(len(ENVIRONMENTS) if has_names else 1)
    least = 3 if has_names else 1
    gaps = [QUICK.gap(a, b, point) for point in points]
    for point, gap in enumerate(gaps):
        if gap is not None and QUICK.clear < gap < float("inf"):
            exact = EXACT.gap(a, b, point)
            if exact is not None and EXACT.clear < exact < float("inf"):
                return False
    for oracle, known in ((QUICK, gaps), (EXACT, None)):
        known = [oracle.gap(a, b, point) for point in points] if known is None else known
        defined = [gap for gap in known if gap is not None]
        if len(defined) >= least and max(defined) <= oracle.same:
            return True
        if oracle is EXACT and any(EXACT.clear < gap < float("inf") for gap in defined):
            return False
    return None
