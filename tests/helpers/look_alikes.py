r"""Pairs of answers that look alike, each with the mathematics that made it.

A family draws statements from one small set of numbers and letters, so that they look alike. A statement is a meaning
and a text. The meaning is computed exactly by the family itself: a Fraction, a set, ends with their brackets, values
of a function at several points. Texts with two readings (`x2`, `2:30`, `0.1(6)`) have a meaning of their own: they
equal themselves only. Two texts with one meaning are an equal pair, and two with different meanings an unequal one.
"""

import random
from collections.abc import Callable, Hashable
from fractions import Fraction
from math import isqrt

from notation_families import FAMILIES as NOTATIONS
from notation_families import Family, Statement, of

_POINTS = [Fraction(n, d) for n, d in ((-7, 2), (-1, 1), (1, 3), (2, 1), (11, 1))]


def look_alike_pair(rng: random.Random, equal: bool) -> tuple[str, str, bool] | None:
    family = rng.choice(FAMILIES)
    statements = family(rng)
    (a, text), (b, other) = rng.choice(statements), rng.choice(statements)
    return None if (a == b) is not equal or text == other else (text, other, equal)


def adjacency(rng: random.Random) -> list[Statement]:
    """A letter and a digit: a product, a power, an index, or unknown."""
    x, d, e = rng.choice("xyabntAR"), rng.randint(2, 9), rng.randint(2, 9)

    def values(f: Callable[[Fraction], Fraction]) -> Hashable:
        return (x, *map(f, _POINTS))

    groups: list[tuple[Hashable, list[str]]] = [
        (values(lambda v: d * v), [f"{d}{x}", rf"{d} \cdot {x}", rf"{x} \times {d}", f"{{{d}}}{{{x}}}"]),
        (values(lambda v: v**d), [f"{x}^{d}", f"{x}^{{{d}}}", f"{x}{'⁰¹²³⁴⁵⁶⁷⁸⁹'[d]}", f"{x}**{d}"]),
        (values(lambda v: e * v**d), [f"{e}{x}^{d}", rf"{x}^{{{d}}} \cdot {e}"]),
        (values(lambda v: (v + 1) ** d), [f"({x}+1)^{d}", rf"\left(1+{x}\right)^{{{d}}}"]),
        (values(lambda v: d * (v + 1)), [f"{d}({x}+1)", rf"({x}+1) \cdot {d}"]),
        (values(lambda v: d * e * v), [f"{d * e}{x}", rf"{d} \cdot {e}{x}", rf"{d}{x} \cdot {e}"]),
        (("index", x, d), [f"{x}_{d}", f"{x}_{{{d}}}", f"{x}{'₀₁₂₃₄₅₆₇₈₉'[d]}"]),
        (("index", x, (d, e)), [f"{x}_{{{d}{e}}}"]),
    ]
    unknown = [f"{x}{d}", f"{e}{x}{d}", f"({x}+1){d}", f"{x}{d}{e}", f"{x}^{e}+{x}{d}"]
    return [(meaning, text) for meaning, texts in groups for text in texts] + [((text,), text) for text in unknown]


def periods(rng: random.Random) -> list[Statement]:
    whole, before = rng.randint(0, 3), "".join(rng.choices("0123456789", k=rng.randint(0, 2)))
    statements: list[Statement] = []
    for period in dict.fromkeys("".join(rng.choices("0123456789", k=k)) for k in (1, 1, 2, 3)):  # in the order drawn
        value = Fraction(f"{whole}.{before}0") + Fraction(int(period), (10 ** len(period) - 1) * 10 ** len(before))
        dotted = rf"\dot{period}" if len(period) == 1 else rf"\dot{period[0]}{period[1:-1]}\dot{period[-1]}"
        texts = [rf"{whole}.{before}\overline{{{period}}}", f"{whole}.{before}{dotted}"]
        bracketed = f"{whole}.{before}({period})"  # behind other digits, as in 0.1(6), it may be an uncertainty
        statements.append(((bracketed,) if before else value, bracketed))
        texts += [f"{whole}.{before}{period * n}{dots}" for n in (3, 4) for dots in ("...", r"\ldots", "…")]
        statements += [(value, text) for text in (*texts, rf"\frac{{{value.numerator}}}{{{value.denominator}}}")]
        statements.append((Fraction(f"{whole}.{before}{period * 3}"), f"{whole}.{before}{period * 3}"))
        statements.append((Fraction(f"{whole}.{before}{period}"), f"{whole}.{before}{period}"))
    return statements


def parameters(rng: random.Random) -> list[Statement]:
    a, b = rng.randint(0, 5), rng.randint(2, 7)
    statements: list[Statement] = []
    for start, step in ((a, b), (a + 1, b), (a, b + 1)):
        for unit in ("", r"\pi"):
            k = rng.choice("kn")
            value = f"{step}{k}{unit} + {start}" if start else f"{step}{k}{unit}"
            for domain, letter in (("integers", "Z"), ("naturals", "N"), ("reals", "R")):
                texts = [
                    rf"{value}, {k} \in \mathbb{{{letter}}}", rf"x = {value}, {k}\in\mathbb {letter}",
                ]  # fmt: skip
                if letter == "Z":
                    texts += [rf"{value}, {k} \in Z"]
                statements += [((domain, unit, start, step), text) for text in texts]
            statements.append(((unit, "odd", start, step), rf"{value}\text{{ for any odd integer }}{k}"))
            if not unit:
                statements.append((("formula", k, start, step), value))
    return statements


def systems(rng: random.Random) -> list[Statement]:
    a, b = rng.sample(range(-9, 20), 2)
    statements: list[Statement] = []
    for x, y in ((a, b), (b, a), (a, b + 1)):
        texts = [
            rf"\begin{{cases}} x = {x} \\ y = {y} \end{{cases}}", f"x = {x}, y = {y}", f"y = {y}, x = {x}",
            rf"\left\{{\begin{{array}}{{l}} y = {y}, \\ x = {x}. \end{{array}}\right.", f"({x}, {y})",
            rf"\left\{{\begin{{aligned}} x &= {x} \\ y &= {y} \end{{aligned}}\right.", f"(x, y) = ({x}, {y})",
        ]  # fmt: skip
        statements += [((x, y), text) for text in texts]
        pieces = rf"\begin{{cases}} {x} & x = {x} \\ {y} & x \neq {x} \end{{cases}}"
        statements.append((("pieces", x, y), pieces))
    return [*statements, (frozenset((a, b)), f"{a}, {b}"), (frozenset((a, b)), rf"\{{{b}, {a}\}}")]


def choices(rng: random.Random) -> list[Statement]:
    a, b = rng.sample("ABCDE", 2)
    n = rng.randint(2, 60)
    one = [f"({a})", a, f"{a}) {n}", f"{a}. {n}", f"{a}: {n}", rf"\textbf{{({a})}}\ {n}", f"({a}) {n}"]
    other = [f"({b})", b, f"{b}) {n}", f"({b}) {n}"]
    both = [f"({a}) and ({b})", f"{a}) {n}, {b}) {n}"]
    return [
        *((a, text) for text in one), *((b, text) for text in other), *((text, text) for text in both),
        ((a, "or", b), f"({a}) or ({b})"), (Fraction(n), str(n)), ((n, a), f"{n}{a}"), ((n, a), f"{a} \\cdot {n}"),
    ]  # fmt: skip


def signs(rng: random.Random) -> list[Statement]:
    """Numbers with Unicode signs in fonts; a surd is its sign and its square."""
    a, b, c = rng.randint(2, 9), rng.randint(2, 12), rng.randint(2, 4)

    def surd(k: int, radicand: int) -> Hashable:
        root = isqrt(radicand)
        return Fraction(k * root) if root * root == radicand else (k > 0, k * k * radicand)

    raised = "".join("⁰¹²³⁴⁵⁶⁷⁸⁹"[int(digit)] for digit in str(c))
    groups: list[tuple[Hashable, list[str]]] = [
        (Fraction(a * b), [f"{a}×{b}", f"{a}⋅{b}", rf"{a} \cdot {b}", f"\\mathbf{{{a * b}}}", f"\\text{{{a * b}}}"]),
        (Fraction(a, b), [f"{a}⁄{b}", f"{a}÷{b}", rf"\frac{{{a}}}{{{b}}}", f"{a}∕{b}"]),
        (surd(a, b), [f"{a}√{b}" if b < 10 else f"{a}√{{{b}}}", rf"{a}\sqrt{{{b}}}", f"{a}sqrt({b})"]),
        (surd(-a, b), [f"−{a}√{{{b}}}", rf"-{a}\sqrt{{{b}}}"]),
        (surd(1, a * b), [f"√{{{a * b}}}", f"√({a * b})"]),
        (Fraction(a**c), [f"{a}{raised}", f"{a}^{c}", f"{a}**{c}", f"\\bm{{{a**c}}}"]),
        (Fraction(1, a**c), [f"{a}⁻{raised}", f"{a}^{{-{c}}}", f"1/{a**c}"]),
        (Fraction(a - c), [f"{a}-{c}", f"{a}−{c}", f"{a - c}"]),
        (Fraction(a) + Fraction(1, 2), [f"{a}½", rf"{a}\frac{{1}}{{2}}", f"{a} 1/2", f"{a}.5"]),
        (Fraction(10 * a + c), [f"{a}{c}", rf"\textcolor{{red}}{{{a}{c}}}", rf"\mathrm{{{a}{c}}}"]),
        (Fraction(a * 10**c), [f"{a} x 10^{c}", f"{a} × 10{raised}", rf"{a}\times 10^{{{c}}}", f"{a}e{c}"]),
        (frozenset((a, -a)), [f"±{a}", rf"\pm {a}", f"{a}, -{a}"]),
        (("cube root", a), [f"∛{a}", rf"\sqrt[3]{{{a}}}"] if a != 8 else []),
    ]
    return [(meaning, text) for meaning, texts in groups for text in texts]


def bounds(rng: random.Random) -> list[Statement]:
    """Bounds, quantifiers, and amounts in several units."""
    a, b = rng.randint(2, 9), rng.choice((10, 15, 30, 45))
    said = ["at least {}", "at most {}", "more than {}", "{} or more", "about {}", "fewer than {}", "{} dozen"]
    statements: list[Statement] = [((say, n), rf"\text{{{say.format(n)}}}") for say in said for n in (a, a + 1)]
    for sign in (">", "<", r"\geq"):
        least = ("integers", sign, a) if sign != ">" else ("integers", r"\geq", a + 1)
        statements.append((least, rf"\{{x \in \mathbb{{Z}} \mid x {sign} {a}\}}"))
        statements += [
            ((sign, a), f"x {sign} {a}"), (("all", sign, a), rf"\forall x, x {sign} {a}"),
            (("some", sign, a), rf"\exists x, x {sign} {a}"),
        ]  # fmt: skip
    statements += [((a, b), rf"{a}\text{{ hours }}{b}\text{{ minutes}}"), ((a, b), rf"{a} hours {b} minutes")]
    statements += [(("sum", a, b), rf"{a}\text{{ m}} + {b}\text{{ cm}}")]
    for n in (a, b, a * b, a + b, 10 * a):
        statements += [(Fraction(n), text) for text in (f"{n}", rf"{n}\text{{ cm}}", rf"{n}\,\mathrm{{cm}}", f"{n} cm")]
    return statements


def collections(rng: random.Random) -> list[Statement]:
    """Lists, sets, tuples and intervals of the same fractions."""
    values = rng.sample(sorted({Fraction(n, d) for n in range(-12, 13) for d in (1, 2, 3)}), 3)

    def spelled(numbers: tuple[Fraction, ...]) -> list[str]:
        return [rng.choice((str(q), rf"\frac{{{q.numerator}}}{{{q.denominator}}}")) for q in numbers]

    statements: list[Statement] = []
    for _ in range(6):
        chosen = tuple(rng.sample(values, rng.choice((2, 3))))
        listed = [", ".join(spelled(chosen)) for _ in range(7)]
        statements += of(frozenset(chosen), listed[0], rf"\{{{listed[1]}\}}", f"x = {listed[2]}")
        statements += of(chosen, f"({listed[3]})", rf"\left( {listed[4]} \right)")
        named = ", ".join(f"{name} = {text}" for name, text in zip("xyz", spelled(chosen), strict=False))
        statements += of(chosen, f"({','.join('xyz'[: len(chosen)])}) = ({listed[5]})", named)
        if len(chosen) == 2:
            statements += of(frozenset(chosen), r" \text{ and } ".join(spelled(chosen)))
            statements += of(("[", *sorted(chosen)), f"[{listed[6]}]") if chosen[0] < chosen[1] else []
    return statements


def conditions(rng: random.Random) -> list[Statement]:
    """Conditions on an absolute value, and their solutions."""
    middle, least = rng.randint(-9, 9), rng.randint(1, 9)
    inside = f"x - {middle}" if middle >= 0 else f"x + {-middle}"
    bars = (f"|{inside}|", rf"\left|{inside}\right|", rf"\lvert {inside}\rvert")
    statements: list[Statement] = []
    for radius in (least, least + 1):
        low, high = middle - radius, middle + radius
        solutions = {"<": f"({low}, {high})", r"\leq": f"[{low}, {high}]"}
        solutions[">"] = rf"(-\infty, {low}) \cup ({high}, \infty)"
        for sign, solution in solutions.items():
            statements += of((sign, low, high), solution, *(f"{bar} {sign} {radius}" for bar in bars))
        statements += of(Fraction(low), f"{low}") + of(Fraction(high), f"{high}") + of((">", low), f"x > {low}")
    return statements


FAMILIES: tuple[Family, ...] = (
    adjacency, periods, parameters, systems, choices, signs, bounds, collections, conditions, *NOTATIONS,
)  # fmt: skip
