"""Generate pairs of equal and of unequal answers, and measure how often their keys say so.

    python tests/helpers/outcome_pairs.py --pairs 200000 --seed 1 --record

An answer is an expression tree, or a list, tuple, interval, matrix, equation, relation or date made of such trees. An
equal pair is a tree and its rewriting by an identity, each written in a spelling of its own: several LaTeX dialects,
plain text, computer-algebra style. An unequal pair is a tree and a near miss of it: one sign, exponent, bracket, shift,
function or domain moved. Neither label is taken on trust: an oracle evaluates both trees with mpmath, on its own and
without the library, at negative, small, large and integer points. Equal pairs must agree at all of them, unequal pairs
differ at one; a pair that the oracle cannot decide is dropped.

The oracle's conventions are those of `docs/outcomes.md`: functions of real variables, intermediate values on the
principal branch, an odd root of a negative number is real, a result that is not real is undefined.
"""

import argparse
import json
import math
import random
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import Any

import mpmath

from outcome_rl.outcomes.keys import OUTCOME_RULE, canonical_text

RECORD = Path(__file__).resolve().parents[2] / "bench" / "results" / "outcome-pairs.json"
Tree = tuple[Any, ...]
mp = mpmath.MPContext()
mp.dps = 40


# Trees ---------------------------------------------------------------------------------------------------------------


def num(value: int | Fraction) -> Tree:
    return ("num", Fraction(value))


ONE, TWO = num(1), num(2)
VARIABLES = ("x", "y", "n", "a", "b", "t", "theta", "x_1")
UNARY = ("sin", "cos", "tan", "sec", "exp", "ln", "sqrt", "arctan", "sinh", "tanh", "cot", "csc", "arcsin", "log2")


def number(rng: random.Random) -> Tree:
    kind = rng.random()
    if kind < 0.6:
        return num(rng.randint(1, 12))
    if kind < 0.8:
        return num(Fraction(rng.randint(1, 9), rng.choice((2, 3, 4, 5, 7, 8))))
    if kind < 0.9:
        return num(rng.randint(13, 2024))
    return ("pi",) if kind < 0.96 else ("e",)


def constant(rng: random.Random, depth: int) -> Tree:
    """A number: with roots, powers and functions."""
    if depth == 0 or rng.random() < 0.15:
        return number(rng)
    kind = rng.randrange(11)
    inner = [constant(rng, depth - 1) for _ in range(2)]
    if kind < 2:
        return ("add", inner[0], inner[1])
    if kind == 2:
        return ("add", inner[0], ("neg", inner[1]))
    if kind < 5:
        return ("mul", inner[0], inner[1])
    if kind == 5:
        return ("div", inner[0], inner[1])
    if kind < 8:
        return ("sqrt", num(rng.randint(2, 60)))
    if kind == 8:
        return ("pow", inner[0], num(rng.choice((2, 2, 3, -1, Fraction(1, 3), Fraction(3, 2)))))
    if kind == 9:
        return rng.choice((
            ("fact", num(rng.randint(2, 9))), ("dfact", num(rng.randint(3, 9))),
            ("binom", num(rng.randint(4, 12)), num(rng.randint(1, 4))), ("log2", num(rng.randint(3, 9))),
            ("gcd", num(rng.randint(6, 60)), num(rng.randint(6, 60))),
        ))  # fmt: skip
    return ("fn", rng.choice(("sin", "cos", "ln", "exp", "arctan", "tanh")), inner[0])


def formula(rng: random.Random, depth: int, names: Sequence[str], piecewise: bool) -> Tree:
    """An expression in these variables; with absolute values, floors and roots of squares if `piecewise`."""
    if depth == 0 or rng.random() < 0.12:
        return ("var", rng.choice(names)) if rng.random() < 0.65 else number(rng)
    inner = [formula(rng, depth - 1, names, piecewise) for _ in range(2)]
    if piecewise and rng.random() < 0.4:
        a = ("add", inner[0], rng.choice((num(rng.randint(1, 12)), ("neg", num(rng.randint(1, 12))))))
        return rng.choice((
            ("abs", a), ("abs", inner[0]), ("floor", ("div", inner[0], num(rng.randint(2, 5)))),
            ("ceil", ("div", inner[0], num(rng.randint(2, 5)))), ("sqrt", ("pow", a, TWO)), ("floor", a),
            ("max", inner[0], inner[1]), ("min", inner[0], inner[1]), ("sqrt", a), ("fn", "ln", ("pow", a, TWO)),
            ("fn", "arctan", ("fn", "tan", inner[0])), ("sign", a),
        ))  # fmt: skip
    kind = rng.randrange(13)
    if kind < 3:
        return ("add", inner[0], inner[1])
    if kind < 5:
        return ("add", inner[0], ("neg", inner[1]))
    if kind < 7:
        return ("mul", inner[0], inner[1])
    if kind == 7:
        return ("div", inner[0], inner[1])
    if kind == 8:
        return ("pow", inner[0], num(rng.choice((2, 2, 3, 4, -1, -2))))
    if kind == 9:
        return ("sqrt", inner[0]) if piecewise or rng.random() < 0.5 else ("pow", TWO, inner[0])
    if kind == 10:
        name = ("var", rng.choice(names))
        return rng.choice((
            ("fact", name), ("binom", name, num(rng.randint(2, 3))),
            ("app", rng.choice(("f", "g", "P", "phi")), inner[0]),
        ))  # fmt: skip
    return ("fn", rng.choice(UNARY[:6] + UNARY[7:]), inner[0])


def parts(tree: Tree) -> Iterator[tuple[tuple[int, ...], Tree]]:
    """Every node with its path."""
    yield (), tree
    for index, part in enumerate(tree):
        if isinstance(part, tuple):
            for path, node in parts(part):
                yield (index, *path), node


def replaced(tree: Tree, path: tuple[int, ...], new: Tree) -> Tree:
    if not path:
        return new
    return (*tree[: path[0]], replaced(tree[path[0]], path[1:], new), *tree[path[0] + 1 :])


# Oracle --------------------------------------------------------------------------------------------------------------


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
        if kind == "sign":
            return context.sign(first)
        if kind in ("max", "min"):
            return (max if kind == "max" else min)(values)
        if kind in ("floor", "ceil"):
            return getattr(context, kind)(self.snapped(first))
        if kind == "gcd":
            return context.mpf(math.gcd(*(round(v) for v in values)))
        if kind == "dfact":
            return context.mpf(math.prod(range(round(first), 0, -2)))
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


# Spellings -----------------------------------------------------------------------------------------------------------


@dataclass
class Style:
    """One way of writing: LaTeX, plain text or computer algebra, with its habits."""

    rng: random.Random
    latex: bool
    algebra: bool  # computer algebra: every product and power has its sign
    times: str
    tight: bool
    sized: bool
    fraction: str

    def bracket(self, text: str) -> str:
        if self.sized:
            return rf"\left({text}\right)"
        return f"({text})"


def style(rng: random.Random) -> Style:
    latex = rng.random() < 0.65
    algebra = not latex and rng.random() < 0.6
    times = rng.choice(("", "", r"\cdot ", r"\times ")) if latex else "*" if algebra else rng.choice(("", "*"))
    return Style(rng, latex, algebra, times, rng.random() < 0.5, latex and rng.random() < 0.4,
                 rng.choice((r"\frac", r"\frac", r"\dfrac", r"\tfrac", "/")) if latex else "/")  # fmt: skip


ALGEBRA_NAMES = {"ln": "log", "arctan": "atan", "arcsin": "asin", "arccos": "acos"}
SUM, PRODUCT, POWER, ATOM = range(4)


def write(tree: Tree, s: Style) -> tuple[str, int]:
    """The text of a tree, and how tightly it holds together."""
    kind = tree[0]
    if kind == "num":
        return write_number(tree[1], s)
    if kind == "var":
        return (("\\" if s.latex and len(tree[1]) > 3 else "") + tree[1], ATOM)
    if kind == "pi":
        return (r"\pi" if s.latex else "pi", ATOM)
    if kind == "e":
        return ("E" if s.algebra and s.rng.random() < 0 else "e", ATOM)
    if kind == "add":
        text = write(tree[1], s)[0]
        for term in tree[2:]:
            sign, term = ("-", term[1]) if term[0] == "neg" else ("+", term)
            shown, tightness = write(term, s)
            if (sign == "-" and tightness == SUM) or shown.startswith("-"):
                shown = s.bracket(shown)
            text += f"{sign}{shown}" if s.tight else f" {sign} {shown}"
        return text, SUM
    if kind == "neg":
        shown, tightness = write(tree[1], s)
        return "-" + (s.bracket(shown) if tightness == SUM or shown.startswith("-") else shown), SUM
    if kind == "mul":
        return write_product(tree[1:], s), PRODUCT
    if kind == "div":
        if s.fraction != "/":
            return f"{s.fraction}{{{write(tree[1], s)[0]}}}{{{write(tree[2], s)[0]}}}", POWER
        return f"{held(tree[1], PRODUCT, s)}/{held(tree[2], ATOM, s)}", PRODUCT
    if kind == "pow":
        return write_power(tree[1], tree[2], s)
    if kind == "sqrt":
        inside = write(tree[1], s)[0]
        if s.latex:
            return (
                (f"\\sqrt{{{inside}}}", ATOM) if len(inside) > 1 or s.rng.random() < 0.7 else (f"\\sqrt {inside}", ATOM)
            )
        return f"sqrt({inside})", ATOM
    if kind in ("fn", "app", "log2"):
        return write_call(tree, s)
    if kind == "abs":
        inside = write(tree[1], s)[0]
        if s.algebra:
            return f"{s.rng.choice(('Abs', 'abs'))}({inside})", ATOM
        if s.latex and s.rng.random() < 0.7:
            return s.rng.choice((r"\left|{}\right|", r"\lvert {} \rvert", r"\left\lvert {}\right\rvert")).format(
                inside
            ), ATOM
        return (f"|{inside}|" if "|" not in inside else f"abs({inside})"), ATOM
    if kind in ("floor", "ceil"):
        inside = write(tree[1], s)[0]
        if s.latex:
            left = s.rng.choice((r"\left", "")) if s.sized else ""
            right = r"\right" if left else ""
            return f"{left}\\l{kind} {inside} {right}\\r{kind}", ATOM
        return f"{'ceiling' if kind == 'ceil' and s.algebra else kind}({inside})", ATOM
    if kind in ("fact", "dfact"):
        marks = "!" if kind == "fact" else "!!"
        if s.algebra:
            return f"{'factorial' if kind == 'fact' else 'factorial2'}({write(tree[1], s)[0]})", ATOM
        return held(tree[1], ATOM, s) + marks, POWER
    if kind == "binom":
        top, bottom = write(tree[1], s)[0], write(tree[2], s)[0]
        return (
            (f"{s.rng.choice(('', 'd', 't')) if False else ''}\\binom{{{top}}}{{{bottom}}}", ATOM)
            if s.latex
            else (f"binomial({top}, {bottom})", ATOM)
        )
    assert kind in ("max", "min", "gcd", "sign"), kind
    inside = ", ".join(write(part, s)[0] for part in tree[1:])
    name = {"max": "Max", "min": "Min"}.get(kind, kind) if s.algebra else kind
    if kind == "sign":
        return (rf"\operatorname{{sgn}}({inside})" if s.latex else f"sign({inside})"), ATOM
    return (f"\\{name}{s.bracket(inside)}" if s.latex else f"{name}({inside})"), ATOM


def write_number(q: Fraction, s: Style) -> tuple[str, int]:
    if q < 0:
        return "-" + write_number(-q, s)[0], SUM
    if q.denominator == 1:
        return str(q.numerator), ATOM
    if q.denominator in (2, 4, 5, 8) and s.rng.random() < 0.3:
        decimal = f"{float(q):g}"
        return (decimal[1:] if decimal.startswith("0.") and s.rng.random() < 0.2 else decimal), ATOM
    if s.fraction == "/":
        return f"{q.numerator}/{q.denominator}", PRODUCT
    if max(q.numerator, q.denominator) < 10 and s.rng.random() < 0.3:
        return f"{s.fraction}{q.numerator}{q.denominator}", POWER
    return f"{s.fraction}{{{q.numerator}}}{{{q.denominator}}}", POWER


def held(tree: Tree, tightness: int, s: Style) -> str:
    text, own = write(tree, s)
    return s.bracket(text) if own < tightness else text


def write_product(factors: Sequence[Tree], s: Style) -> str:
    shown = []
    for factor in factors:
        text, own = write(factor, s)
        if own == SUM or (own == PRODUCT and "/" in text) or (own == PRODUCT and text.startswith("-")):
            text, own = s.bracket(text), ATOM
        shown.append(text)
    text = shown[0]
    for before, factor, after in zip(factors, factors[1:], shown[1:], strict=False):
        sign = s.times
        # Without a sign only what everybody reads as a product: 2x, 2(x+1), (x+1)(x-1), 2\sqrt3, x\sqrt3.
        plain = text[-1].isdigit() if before[0] == "num" else text.endswith(")") and before[0] == "add"
        ahead = factor[0] in ("var", "pi", "sqrt", "fn", "add") and not after[0].isdigit()
        if not sign and not (plain and ahead):
            sign = r"\cdot " if s.latex else "*"
        if not sign and not s.latex and text[-1].isdigit() and after[0] == "e":
            sign = "*"
        text += (f" {sign} " if sign == "*" and not s.tight else sign) + after
    return text


def write_power(base: Tree, exponent: Tree, s: Style) -> tuple[str, int]:
    top = write(exponent, s)[0]
    sign = "**" if s.algebra and s.rng.random() < 0.7 else "^"
    short = len(top) == 1
    if s.latex:
        shown = f"^{top}" if short and s.rng.random() < 0.5 else f"^{{{top}}}"
    else:
        shown = f"{sign}{top}" if short else f"{sign}({top})"
    natural = exponent[0] == "num" and exponent[1] > 1 and exponent[1].denominator == 1
    if s.latex and base[0] == "fn" and natural and base[1] in ("sin", "cos", "tan", "sec", "ln", "csc", "cot", "sinh"):
        inside = write(base[2], s)[0]
        kind = s.rng.randrange(4)
        if kind == 0 and base[2][0] == "var":
            return f"\\{base[1]}{shown} {inside}", PRODUCT
        if kind == 1:
            return f"\\{base[1]}{shown}{s.bracket(inside)}", POWER
        if kind == 2:
            return f"\\{base[1]}{s.bracket(inside)}{shown}", POWER
    if not s.latex and base[0] == "fn":
        return held(base, ATOM, s) + shown, POWER
    text = write(base, s)[0]
    alone = base[0] in ("var", "pi", "e") or (base[0] == "num" and text.isdigit()) or base[0] in ("abs", "sqrt")
    return (text if alone else s.bracket(text)) + shown, POWER


def write_call(tree: Tree, s: Style) -> tuple[str, int]:
    name, argument = ("log2", tree[1]) if tree[0] == "log2" else tree[1:]
    inside = write(argument, s)[0]
    if tree[0] == "app":
        return (f"\\{name}" if s.latex and len(name) > 1 else name) + s.bracket(inside), ATOM
    if name == "exp":
        if s.algebra or s.rng.random() < 0.3:
            return ("\\exp" if s.latex else "exp") + s.bracket(inside), ATOM
        return write_power(("e",), argument, s)
    if name == "log2":
        if s.latex:
            return f"\\log_{s.rng.choice(('2', '{2}'))}{s.bracket(inside)}", ATOM
        return f"log({inside})/log(2)", PRODUCT
    if s.latex:
        if argument[0] == "var" and s.rng.random() < 0.6:
            return f"\\{name} {inside}", PRODUCT
        return rf"\{name}{s.bracket(inside)}", ATOM
    shown = ALGEBRA_NAMES.get(name, name) if s.algebra else name
    return f"{shown}({inside})", ATOM


# Identities and near misses -------------------------------------------------------------------------------------------


def rewritten(tree: Tree, rng: random.Random) -> Tree:
    """The tree with an identity applied at one of its nodes."""
    path, node = rng.choice(list(parts(tree)))
    return replaced(tree, path, rng.choice(identities(node, rng) or [node]))


def identities(node: Tree, rng: random.Random) -> list[Tree]:
    kind = node[0]
    if kind == "num":
        q = node[1]
        k = rng.randint(2, 5)
        options = [("div", num(q * k), num(k)), ("add", num(q + k), ("neg", num(k)))]
        return [*options, ("sqrt", num(q * q))] if 0 < q < 20 else options
    if kind in ("add", "mul"):
        shuffled = list(node[1:])
        rng.shuffle(shuffled)
        options = [(kind, *shuffled), (kind, *reversed(node[1:]))]
        if kind == "add" and len(node) == 3:
            a, b = node[1:]
            options.append(("neg", ("add", ("neg", a), ("neg", b))))
        if kind == "mul" and node[2][0] == "add":
            options.append(("add", *(("mul", node[1], term) for term in node[2][1:])))
        return options
    if kind == "neg":
        return [("mul", num(-1), node[1])]
    if kind == "div":
        options = [("mul", node[1], ("pow", node[2], num(-1)))]
        if node[1][0] == "add":
            options.append(("add", *(("div", term, node[2]) for term in node[1][1:])))
        return options
    if kind == "pow":
        if node[2] == TWO:
            options = [("mul", node[1], node[1])]
            if node[1][0] == "add" and len(node[1]) == 3:
                a, b = node[1][1:]
                options.append(("add", ("pow", a, TWO), ("mul", TWO, a, b), ("pow", b, TWO)))
            return options
        if node[2][0] == "num" and node[2][1] < 0:
            return [("div", ONE, ("pow", node[1], num(-node[2][1])))]
        return []
    if kind == "sqrt":
        options = [("pow", node[1], num(Fraction(1, 2)))]
        if node[1][0] == "num":
            options += [("div", ("sqrt", num(4 * node[1][1])), TWO), ("div", node[1], ("sqrt", node[1]))]
        if node[1][0] == "pow" and node[1][2] == TWO:
            options.append(("abs", node[1][1]))
        return options
    if kind == "abs":
        options = [("sqrt", ("pow", node[1], TWO)), ("abs", ("neg", node[1])), ("max", node[1], ("neg", node[1]))]
        if node[1][0] == "mul":
            options.append(("mul", *(("abs", part) for part in node[1][1:])))
        return options
    if kind == "fn":
        return function_identities(node[1], node[2])
    if kind == "floor":
        return [("neg", ("ceil", ("neg", node[1]))), ("add", ("floor", ("add", node[1], ONE)), num(-1))]
    if kind == "ceil":
        return [("neg", ("floor", ("neg", node[1]))), ("add", ("ceil", ("add", node[1], TWO)), num(-2))]
    if kind == "fact" and node[1][0] == "var":
        return [("mul", node[1], ("fact", ("add", node[1], num(-1))))]
    if kind == "binom" and node[2] == TWO:
        return [("div", ("mul", node[1], ("add", node[1], num(-1))), TWO)]
    if kind == "max":
        a, b = node[1:]
        return [("div", ("add", a, b, ("abs", ("add", a, ("neg", b)))), TWO), ("max", b, a)]
    if kind == "log2":
        return [("div", ("fn", "ln", node[1]), ("fn", "ln", TWO))]
    return []


def function_identities(name: str, u: Tree) -> list[Tree]:
    sin, cos = ("fn", "sin", u), ("fn", "cos", u)
    half = ("div", u, TWO)
    if name == "sin":
        return [("neg", ("fn", "sin", ("neg", u))), ("mul", TWO, ("fn", "sin", half), ("fn", "cos", half)),
                ("fn", "cos", ("add", ("div", ("pi",), TWO), ("neg", u)))]  # fmt: skip
    if name == "cos":
        return [("fn", "cos", ("neg", u)), ("add", ONE, ("neg", ("mul", TWO, ("pow", ("fn", "sin", half), TWO))))]
    if name == "tan":
        return [("div", sin, cos)]
    if name == "sec":
        return [("div", ONE, cos)]
    if name == "csc":
        return [("div", ONE, sin)]
    if name == "cot":
        return [("div", cos, sin)]
    if name == "exp":
        return [("mul", ("fn", "exp", half), ("fn", "exp", half)), ("div", ONE, ("fn", "exp", ("neg", u)))]
    if name == "ln":
        return [("add", ("fn", "ln", ("mul", TWO, u)), ("neg", ("fn", "ln", TWO)))]
    if name == "sinh":
        return [("div", ("add", ("fn", "exp", u), ("neg", ("fn", "exp", ("neg", u)))), TWO)]
    if name == "arctan":
        return [("neg", ("fn", "arctan", ("neg", u)))]
    if name == "arcsin":
        return [("add", ("div", ("pi",), TWO), ("neg", ("fn", "arccos", u)))]
    return []


def near_miss(tree: Tree, rng: random.Random) -> Tree:
    """The tree with one thing moved."""
    path, node = rng.choice(list(parts(tree)))
    return replaced(tree, path, rng.choice(misses(node, rng)))


def misses(node: Tree, rng: random.Random) -> list[Tree]:
    kind = node[0]
    options: list[Tree] = [("neg", node)]
    if kind == "num":
        q = node[1]
        options += [
            num(q + 1),
            num(q * 10),
            num(1 / q) if q else ONE,
            num(q - 1),
            ("add", node, num(Fraction(1, 10**6))),
        ]
    elif kind == "var":
        options += [("var", rng.choice(VARIABLES)), ("add", node, ONE), ("pow", node, TWO), ("abs", node)]
    elif kind == "add":
        flipped = list(node[1:])
        flipped[-1] = flipped[-1][1] if flipped[-1][0] == "neg" else ("neg", flipped[-1])
        options += [("add", *flipped), ("mul", *node[1:]), node[1]]
    elif kind == "mul":
        options += [("add", *node[1:]), ("div", node[1], node[2]), node[1]]
        if node[1][0] != "num":
            options.append(("pow", node[1], node[2]))
    elif kind == "div":
        options += [("div", node[2], node[1]), ("mul", *node[1:])]
    elif kind == "pow":
        options += [("mul", node[1], node[2]), ("pow", node[1], ("add", node[2], ONE)), node[1]]
        if node[1][0] in ("fn", "app", "sqrt"):  # f(x)^2 and f(x^2)
            options += [(*node[1][:-1], ("pow", node[1][-1], node[2]))] * 2
        if node[1][0] == "add":
            options.append(("add", *node[1][1:-1], ("pow", node[1][-1], node[2])))
    elif kind in ("fn", "app", "sqrt", "abs", "floor", "ceil", "fact", "sign"):
        u = node[-1]
        options += [u, (*node[:-1], ("neg", u)), (*node[:-1], ("add", u, ONE)), ("mul", u, (*node[:-1], u))]
        if u[0] == "add":  # the bracket closed too early
            options += [("add", (*node[:-1], u[1]), *u[2:]), ("add", *((*node[:-1], part) for part in u[1:]))]
        if u[0] == "mul":
            options.append(("mul", (*node[:-1], u[1]), *u[2:]))
        if kind == "fn":
            options.append(("fn", rng.choice(UNARY[:6] + UNARY[7:-1]), u))
        if kind == "app":
            options += [("mul", ("var", "a"), u), ("app", rng.choice(("f", "g", "P", "phi")), u)]
        if kind in ("floor", "ceil"):
            other, step = ("ceil", -1) if kind == "floor" else ("floor", 1)
            options += [(other, u), ("add", (other, u), num(step))]  # the latter differs at whole numbers alone
        if kind == "fact":
            options.append(("dfact", u) if u[0] == "num" else u)
        if kind == "sqrt" and u[0] == "pow":
            options += [u[1], u[1], ("neg", u[1])]
    elif kind == "dfact":
        options.append(("fact", ("fact", node[1])) if node[1][1] < 7 else ("fact", node[1]))
    elif kind in ("binom", "gcd", "max", "min"):
        options += [(kind, node[1], ("add", node[2], ONE)), node[1], node[2], ("mul", *node[1:])]
        options += [({"max": "min", "min": "max"}[kind], *node[1:])] if kind in ("max", "min") else []
    return options


# Answers of every kind -----------------------------------------------------------------------------------------------

Pair = tuple[str, str, bool]


def expression_pair(rng: random.Random, make: Callable[[], Tree], equal: bool) -> Pair | None:
    tree = make()
    other = tree
    for _ in range(rng.randint(0, 3) if equal else 1):
        other = (rewritten if equal else near_miss)(other, rng)
    if not equal and rng.random() < 0.3:
        other = rewritten(other, rng)
    if agree(tree, other) is not equal:
        return None
    texts = [write(one, style(rng))[0] for one in (tree, other)]
    if max(map(len, texts)) > 220:
        return None
    return decorated(texts[0], rng), decorated(texts[1], rng), equal


def decorated(text: str, rng: random.Random) -> str:
    kind = rng.random()
    if kind < 0.7:
        return text
    return rng.choice(("${}$", r"\({}\)", r"\boxed{{{}}}", r"\displaystyle {}", "{}.")).format(text)


def small(rng: random.Random) -> Fraction:
    return Fraction(rng.randint(-12, 12), rng.choice((1, 1, 1, 2, 3)))


def shown(q: Fraction, rng: random.Random) -> str:
    return write(num(q), style(rng))[0]


def distinct(rng: random.Random, count: int) -> list[Fraction]:
    values: list[Fraction] = []
    while len(values) < count:
        q = small(rng)
        if q not in values:
            values.append(q)
    return values


def list_pair(rng: random.Random, equal: bool) -> Pair:
    values = distinct(rng, rng.randint(2, 4))
    other = rng.sample(values, len(values))
    if not equal:
        other = rng.choice(
            (other[1:], [other[0] + 1000, *other[1:]], [-other[0] - 99, *other[1:]], [*other, Fraction(55)])
        )
    forms = (r"\{{{}\}}", "{}", r"\left\{{{}\right\}}", "x = {}")

    def text(values: list[Fraction]) -> str:
        parts = [shown(q, rng) for q in values]
        form = rng.choice(forms)
        joint = (
            rng.choice((", ", ",\\ ", ", "))
            if len(parts) > 2 or form != "{}"
            else rng.choice((", ", r" \text{ and } ", " and ", r" \text{ or } "))
        )
        return form.format(joint.join(parts))

    return text(values), text(other), equal


def tuple_pair(rng: random.Random, equal: bool) -> Pair:
    values = distinct(rng, rng.randint(2, 3))
    other = list(values)
    opening = rng.choice(("(", r"\left(", "("))
    brackets = "()"
    if not equal:
        kind = rng.randrange(3)
        if kind == 0:
            other[0] += rng.choice((1, -1, 7))
        elif kind == 1:
            other[0], other[1] = other[1], other[0]
        else:
            brackets = "[]" if len(values) == 2 and values[0] < values[1] else "{}"

    def text(values: list[Fraction], brackets: str) -> str:
        inside = rng.choice((", ", ",")).join(shown(q, rng) for q in values)
        if brackets == "{}":
            return rf"\{{{inside}\}}"
        if brackets == "()" and rng.random() < 0.25:
            names = "xyz"[: len(values)]
            return rf"({','.join(names)}) = ({inside})"
        if brackets == "()" and rng.random() < 0.2:
            return ", ".join(f"{name} = {shown(q, rng)}" for name, q in zip("xyz", values, strict=False))
        return (
            f"{opening}{inside}\\right)"
            if opening == r"\left(" and brackets == "()"
            else f"{brackets[0]}{inside}{brackets[1]}"
        )

    # `(1,234)` is a pair, but `1,234` a number: keep a space or a bracket
    return text(values, "()"), text(other, brackets), equal


def interval_pair(rng: random.Random, equal: bool) -> Pair:
    low, high = sorted(distinct(rng, 2))
    ends = [rng.random() < 0.5, rng.random() < 0.5]
    unbounded = rng.random() < 0.3
    one = (low, None if unbounded else high, ends[0], ends[1] and not unbounded)
    two = one
    if not equal:
        kind = rng.randrange(3)
        if kind == 0:
            two = (low - 1, *one[1:])
        elif kind == 1:
            two = (one[0], one[1], not one[2], one[3])
        else:
            two = (high + 1, None, one[2], False) if unbounded else (low, high + 2, one[2], one[3])

    def text(interval: tuple[Fraction, Fraction | None, bool, bool]) -> str:
        low, high, has_low, has_high = interval
        a, b = shown(low, rng), r"\infty" if high is None else shown(high, rng)
        name = rng.choice(("x", "x", "t"))
        kind = rng.randrange(5)
        brackets = f"{'[' if has_low else '('}{a}, {b}{']' if has_high else ')'}"
        le = rng.choice((r"\leq", r"\le", "<=", r"\leqslant", "≤"))
        lt = rng.choice((r"\lt ", "<"))
        if kind == 0:
            return brackets
        if kind == 1:
            return rf"{name} \in {brackets}"
        first, second = (le if has_low else lt), (le if has_high else lt)
        ge, gt = rng.choice((r"\geq", r"\ge", ">=")), rng.choice((r"\gt ", ">"))
        if high is None:
            relation = f"{name} {ge if has_low else gt} {a}" if rng.random() < 0.6 else f"{a} {first} {name}"
        elif kind == 4:
            return rf"{name} {ge if has_low else gt} {a} \text{{ and }} {name} {second} {b}"
        else:
            relation = f"{a} {first} {name} {second} {b}"
        if kind == 2:
            return relation
        return rf"\{{{name} {rng.choice(('|', ':', chr(92) + 'mid'))} {relation}\}}"

    return text(one), text(two), equal


def domain_pair(rng: random.Random, equal: bool) -> Pair:
    """Sets of integers written by a condition: they are no intervals."""
    low = rng.randint(-6, 6)
    high = low + rng.randint(2, 5)
    z = rng.choice((r"\mathbb{Z}", r"\mathbb Z", r"\Z"))
    strict = rf"\{{x \in {z} \mid {low - 1} < x < {high + 1}\}}"
    loose = rf"\{{n \in {z} : {low} \leq n \leq {high}\}}"
    listed = rf"\{{{', '.join(map(str, range(low, high + 1)))}\}}"
    ray = rf"\{{x \in {z} \mid x > {low}\}}"
    if equal:
        return *rng.choice(((strict, loose), (loose, listed), (ray, rf"\{{k \in {z} : k \geq {low + 1}\}}"))), True
    reals = rng.choice((
        f"[{low}, {high}]", f"({low - 1}, {high + 1})", rf"\{{x : {low} \leq x \leq {high}\}}",
        rf"\{{x \in \mathbb{{Q}} \mid {low} \leq x \leq {high}\}}", listed.replace(str(high), str(high + 9)),
    ))  # fmt: skip
    return *rng.choice(((loose, reals), (strict, reals), (ray, rf"({low}, \infty)"), (ray, rf"x > {low}"))), False


def matrix_pair(rng: random.Random, equal: bool) -> Pair:
    rows, columns = rng.randint(2, 3), rng.randint(2, 3)
    cells = [[small(rng) for _ in range(columns)] for _ in range(rows)]
    other = [list(row) for row in cells]
    if not equal:
        kind = rng.randrange(2)
        if kind == 0:
            other[rng.randrange(rows)][rng.randrange(columns)] += rng.choice((1, -2))
        else:
            other = [list(row) for row in zip(*other, strict=True)]
            if other == cells:
                other[0][0] += 1

    def text(cells: list[list[Fraction]]) -> str:
        kind = rng.randrange(4)
        if kind == 3:
            return f"Matrix([{', '.join('[' + ', '.join(shown(q, rng) for q in row) + ']' for row in cells)}])"
        inside = r" \\ ".join(" & ".join(shown(q, rng) for q in row) for row in cells)
        if kind == 2:
            return rf"\left[\begin{{array}}{{{'c' * len(cells[0])}}} {inside} \end{{array}}\right]"
        return rf"\begin{{{'pb'[kind]}matrix}} {inside} \end{{{'pb'[kind]}matrix}}"

    return text(cells), text(other), equal


def equation_pair(rng: random.Random, equal: bool) -> Pair | None:
    names = rng.choice((("x", "y"), ("a", "b"), ("x", "t")))
    degree = rng.choice((1, 1, 2))
    coefficients = [small(rng) or Fraction(1) for _ in range(3)]
    other = list(coefficients)
    if not equal:
        at = rng.randrange(3)
        other[at] = other[at] + 1 or Fraction(5)
    factor = small(rng) or Fraction(2)
    if [q / other[0] for q in other] == [q / coefficients[0] for q in coefficients] and not equal:
        return None

    def text(c: list[Fraction], factor: Fraction) -> str:
        u, v = (("pow", ("var", name), num(degree)) if degree > 1 else ("var", name) for name in names)
        terms = [("mul", num(factor * c[0]), u), ("mul", num(factor * c[1]), v)]
        s = style(rng)
        kind = rng.randrange(4)
        if kind == 0:
            return f"{write(('add', *terms), s)[0]} = {write(num(factor * c[2]), s)[0]}"
        if kind == 1:
            return f"{write(('add', *terms, num(-factor * c[2])), s)[0]} = 0"
        if kind == 2:
            return f"{write(terms[0], s)[0]} = {write(('add', num(factor * c[2]), ('neg', terms[1])), s)[0]}"
        return f"0 = {write(('add', num(factor * c[2]), ('neg', terms[0]), ('neg', terms[1])), s)[0]}"

    def lone(c: list[Fraction], factor: Fraction) -> bool:  # `x = 3 - y` is a labelled value
        return factor * c[0] in (1, -1) or factor * c[1] in (1, -1)

    if lone(coefficients, Fraction(1)) or lone(other, factor):
        return None
    return text(coefficients, Fraction(1)), text(other, factor), equal


def condition_pair(rng: random.Random, equal: bool) -> Pair:
    """Conditions with an absolute value or a square, and their solutions."""
    middle, radius = rng.randint(-9, 9), rng.randint(1, 9)
    inside = f"x - {middle}" if middle >= 0 else f"x + {-middle}"
    sign, solution = rng.choice((
        ("<", f"({middle - radius}, {middle + radius})"), (r"\leq", f"[{middle - radius}, {middle + radius}]"),
        ("=", f"{middle - radius}, {middle + radius}"),
        (">", rf"(-\infty, {middle - radius}) \cup ({middle + radius}, \infty)"),
    ))  # fmt: skip
    if not equal:
        solution = rng.choice((
            f"{middle - radius}", f"{middle + radius}", f"x > {middle - radius}", f"x < {middle + radius}",
            f"[{middle - radius - 1}, {middle + radius}]", rf"x \geq {middle + radius}",
        ))  # fmt: skip
    kind = rng.randrange(5)
    if kind < 3:
        bars = ("|{}|", r"\left|{}\right|", r"\lvert {}\rvert")[kind]
        return f"{bars.format(inside)} {sign} {radius}", solution, equal
    if kind == 3:
        return f"({inside})^{{2}} {sign} {radius**2}", solution, equal
    factor = rng.randint(1, 4)
    terms = factor, -2 * factor * middle, factor * (middle**2 - radius**2)
    return f"{terms[0]}x^2 {terms[1]:+}x {terms[2]:+} {sign} 0", solution, equal


_MONTHS = "January February March April May June July August September October November December"
MONTHS = _MONTHS.split()


def date_pair(rng: random.Random, equal: bool) -> Pair:
    year, month, day = rng.randint(1900, 2099), rng.randint(1, 12), rng.randint(1, 28)
    other = (year, month, day)
    if not equal:
        other = rng.choice(((year + 1, month, day), (year, month % 12 + 1, day), (year, month, day % 28 + 1)))
        if rng.random() < 0.3:
            return f"{year}-{month:02}-{day:02}", str(year - month - day), False

    def text(year: int, month: int, day: int) -> str:
        return rng.choice((
            f"{year}-{month:02}-{day:02}", f"{MONTHS[month - 1]} {day}, {year}", f"{day} {MONTHS[month - 1]} {year}",
            rf"\text{{{MONTHS[month - 1]} {day}, {year}}}",
        ))  # fmt: skip

    return text(year, month, day), text(*other), equal


def notation_pair(rng: random.Random, equal: bool) -> Pair:
    """Notations that look like one another."""
    n, m = rng.randint(2, 9), rng.randint(2, 9)
    letter = rng.choice("xyabn")
    if equal:
        return *rng.choice((
            (rf"\frac{{d{letter}}}{{dt}}", rf"\dfrac{{d{letter}}}{{dt}}"), (f"f'({n})", rf"f'\left({n}\right)"),
            (r"\vec{a} \cdot \vec{b}", r"\vec a\cdot\vec b"), (f"{letter}_{{{n}}}", f"{letter}_{n}"),
            (f"{n}^{{{m}}}{{{letter}}}", rf"{letter} \cdot {n}^{m}"),
            (f"{n}{m} \\text{{ cm}}", f"{n}{m}"), (rf"{n}\frac{{1}}{{{m}}}", f"{n * m + 1}/{m}"),
            (rf"{n}{m},\!000", f"{n}{m}000"), (rf"\frac{{{n}}}{{{m}}}\pi", rf"\frac{{{n}\pi}}{{{m}}}"),
            (f"{n} sec({letter})", rf"{n}\sec {letter}"), (rf"P({n})", rf"P \left( {n} \right)"),
            (rf"0.\overline{{{n}}}", f"{n}/9"), (rf"{n}^\circ", rf"{n}^{{\circ}}"),
            (rf"{letter} \neq {n}", f"{letter} != {n}"), (rf"\tfrac{n}{m} {letter}", rf"\frac{{{n}{letter}}}{{{m}}}"),
        )), True  # fmt: skip
    return *rng.choice((
        (rf"\frac{{d{letter}}}{{dt}}", rf"\frac{{{letter}}}{{t}}"), (f"f'({letter})", f"{letter} f'"),
        (r"\vec{a} \cdot \vec{b}", r"\vec{a} \times \vec{b}"), (f"{n}^{{{m}}}{{{n}}}", f"{n}^{{{m}{n}}}"),
        (rf"\sqrt{{{n}}}{{{m}}}", rf"\sqrt{{{n}{m}}}"), (f"{letter}_{{{n}}}{{{m}}}", f"{letter}_{{{n}{m}}}"),
        (f"{n} sec({letter})", f"{n}{letter}"), (f"{n}sec^2({letter})", f"{n}{letter}"), (f"P({n})", f"{n}P"),
        (rf"\phi({letter})", rf"{letter}\phi"), (f"f^{{-1}}({letter})", rf"\frac{{{letter}}}{{f}}"),
        (f"F({letter}) - F(c)", f"F({letter}-c)"), (rf"\gcd({letter}, c)", "1"), (rf"\sigma({n})", rf"{n}\sigma"),
        (rf"\Gamma({letter})", rf"{letter}\Gamma"), (rf"\zeta({n})", rf"{n}\zeta"),
        (f"{n}min({letter})", f"{n}{letter}"),
        (rf"\tanh {n}00", "1"), (rf"\cos(10^{{-{n}0}})", "1"), (f"{letter}'", letter), (f"{n}_{m}", f"{n}"),
        (rf"{n}\text{{ hours }}{m}\text{{ minutes}}", f"{n * m}"), (rf"{n}^\circ {m}0", f"{n * m}0"),
        (rf"\cos({letter})^2", rf"\cos({letter}^2)"), (rf"\log_{n} {letter}", rf"\log({n}{letter})"),
    )), False  # fmt: skip


KINDS: dict[str, tuple[float, Callable[[random.Random, bool], Pair | None]]] = {
    "numbers": (0.2, lambda rng, equal: expression_pair(rng, lambda: constant(rng, rng.randint(1, 3)), equal)),
    "formulas": (
        0.25,
        lambda rng, equal: expression_pair(
            rng, lambda: formula(rng, rng.randint(1, 3), rng.sample(VARIABLES, rng.choice((1, 2))), False), equal
        ),
    ),
    "piecewise": (
        0.25,
        lambda rng, equal: expression_pair(
            rng, lambda: formula(rng, rng.randint(1, 3), rng.sample(VARIABLES, rng.choice((1, 1, 2))), True), equal
        ),
    ),
    "lists": (0.04, list_pair),
    "tuples": (0.04, tuple_pair),
    "intervals": (0.05, interval_pair),
    "sets with a domain": (0.03, domain_pair),
    "matrices": (0.03, matrix_pair),
    "equations": (0.04, equation_pair),
    "conditions": (0.03, condition_pair),
    "dates": (0.02, date_pair),
    "notations": (0.02, notation_pair),
}


def pairs(seed: int) -> Iterator[tuple[str, Pair]]:
    """An endless stream of (kind, pair)."""
    rng = random.Random(seed)
    names, weights = list(KINDS), [weight for weight, _ in KINDS.values()]
    while True:
        kind, equal = rng.choices(names, weights)[0], rng.random() < 0.5
        for _ in range(50):  # the same label until one is found: the shares of kinds and labels stay
            pair = KINDS[kind][1](rng, equal)
            if pair is not None:
                yield kind, pair
                break


@dataclass
class Tally:
    """Verdicts on the pairs of one kind."""

    equal: int = 0
    missed: int = 0
    unequal: int = 0
    wrong: int = 0
    examples: list[tuple[str, str]] = field(default_factory=list)


def measure(count: int, seed: int, report: Callable[[str, Pair], None] = lambda kind, pair: None) -> dict[str, Tally]:
    """Judge pairs until `count` equal and `count` unequal ones were seen; `report` gets every wrong verdict."""
    tallies = {kind: Tally() for kind in KINDS}
    seen: Counter[bool] = Counter()
    for kind, (a, b, equal) in pairs(seed):
        if seen[equal] >= count:
            if min(seen[True], seen[False]) >= count:
                break
            continue
        seen[equal] += 1
        tally = tallies[kind]
        same = canonical_text(a) == canonical_text(b)
        if equal:
            tally.equal += 1
            tally.missed += not same
        else:
            tally.unequal += 1
            tally.wrong += same
        if same != equal:
            report(kind, (a, b, equal))
    return tallies


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pairs", type=int, default=5000, help="equal pairs, and as many unequal ones")
    parser.add_argument("--seed", type=int, default=0, help="seed of the first chunk; the next ones follow")
    parser.add_argument("--chunk", type=int, default=5_000, help="pairs of each label for one seed")
    parser.add_argument(
        "--record", action="store_true", help=f"write {RECORD.name} after every chunk, and go on from it"
    )
    parser.add_argument("--show", type=int, default=20, help="missed pairs of each kind to print")
    options = parser.parse_args()
    start, printed = time.perf_counter(), Counter[str]()
    chunk = min(options.chunk, options.pairs)
    rows = {kind: dict.fromkeys(("equal", "missed", "unequal", "wrong"), 0) for kind in KINDS}
    seed = options.seed
    if options.record and RECORD.exists():
        record = json.loads(RECORD.read_text())
        if (record["rule"], record["seeds"][0], record["chunk"]) == (OUTCOME_RULE, options.seed, chunk):
            rows, seed = record["kinds"], record["seeds"][1] + 1

    def report(kind: str, pair: Pair) -> None:
        printed[kind] += pair[2]
        if printed[kind] <= options.show or not pair[2]:
            print(f"{'missed' if pair[2] else 'WRONG'} {kind}: {pair[0]}  |  {pair[1]}", flush=True)

    while sum(row["equal"] for row in rows.values()) < options.pairs:
        for kind, tally in measure(chunk, seed, report).items():
            for name in rows[kind]:
                rows[kind][name] += getattr(tally, name)
        if options.record:
            record = {"rule": OUTCOME_RULE, "seeds": [options.seed, seed], "chunk": chunk, "kinds": rows}
            RECORD.write_text(json.dumps(record, indent=1) + "\n")
        seed += 1
    for kind, row in rows.items():
        rate = row["missed"] / max(row["equal"], 1)
        print(
            f"{kind:22} {row['equal']:7} equal, {row['missed']:6} missed ({rate:.2%}); "
            f"{row['unequal']:7} unequal, {row['wrong']} wrong"
        )
    print(f"{time.perf_counter() - start:.0f} s")


if __name__ == "__main__":
    main()
