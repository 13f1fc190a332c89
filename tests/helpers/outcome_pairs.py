"""Generate pairs of equal and of unequal answers, and measure how often their keys say so.

    python tests/helpers/outcome_pairs.py --pairs 200000 --seed 1 --record
    python tests/helpers/outcome_pairs.py --pairs 20000 --kinds bumps

An answer is an expression tree, or a list, tuple, interval, matrix, equation, relation or date made of such trees. An
equal pair is a tree and its rewriting by an identity, each written in a spelling of its own: several LaTeX dialects,
plain text, computer-algebra style. An unequal pair is a tree and a near miss of it: one sign, exponent, bracket, shift,
function or domain moved. Neither label is taken on trust: an oracle evaluates both trees with mpmath, on its own and
without the library, at negative, small, large and integer points. Equal pairs must agree at all of them, unequal pairs
differ at one; a pair that the oracle cannot decide is dropped. Look-alikes have their own oracles (`look_alikes`).
"""

import argparse
import json
import random
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path

from answer_oracle import agree
from answer_rewrites import near_miss, rewritten
from answer_spellings import style, write
from answer_trees import VARIABLES, Tree, constant, formula, num
from look_alikes import look_alike_pair

from outcome_rl.outcomes.keys import OUTCOME_RULE, canonical_text

RECORD = Path(__file__).resolve().parents[2] / "bench" / "results" / "outcome-pairs.json"

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
        kind = rng.randrange(3)
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
    """Conditions on an absolute value, and their solutions."""
    middle, radius = rng.randint(-9, 9), rng.randint(1, 9)
    inside = f"x - {middle}" if middle >= 0 else f"x + {-middle}"
    sign, solution = rng.choice((
        ("<", f"({middle - radius}, {middle + radius})"), (r"\leq", f"[{middle - radius}, {middle + radius}]"),
        (">", rf"(-\infty, {middle - radius}) \cup ({middle + radius}, \infty)"),
    ))  # fmt: skip
    if not equal:
        solution = rng.choice((
            f"{middle - radius}", f"{middle + radius}", f"x > {middle - radius}", f"x < {middle + radius}",
            f"[{middle - radius - 1}, {middle + radius}]", rf"x \geq {middle + radius}",
        ))  # fmt: skip
    bars = rng.choice(("|{}|", r"\left|{}\right|", r"\lvert {}\rvert"))
    return f"{bars.format(inside)} {sign} {radius}", solution, equal


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


def shift(rng: random.Random) -> tuple[str, str]:
    """A variable and a number to compare it with: of any size, and of both signs."""
    size = rng.choice((1, 10, 100, 10**4, 10**7, 10**12, 10**30))
    value = Fraction(rng.randint(2, 99) * size, rng.choice((1, 1, 1, 7, 1000))) * rng.choice((1, -1))
    return rng.choice(("x", "t", "n", r"\theta")), shown_fraction(value)


def shown_fraction(value: Fraction) -> str:
    return str(value.numerator) if value.denominator == 1 else rf"\frac{{{value.numerator}}}{{{value.denominator}}}"


def bump_pair(rng: random.Random, equal: bool) -> Pair:
    """Functions that differ on a short stretch, far from 1, or at a single number; and the same in other words.

    They differ by construction: in the height, the place, the width or the form of a bump that is not 0 somewhere.
    """
    name, at = shift(rng)
    width = shown_fraction(Fraction(rng.randint(1, 9), rng.choice((1, 1, 10, 10**6))))
    height, other = rng.sample(range(2, 30), 2)
    gap = f"|{name} - ({at})|"
    end = f"({at} + {width})"
    kind = rng.choice(list(BUMPS))
    values = {"h": height, "w": width, "g": gap, "x": name, "a": at, "e": end}
    one, two = (form.format(**values) for form in BUMPS[kind])
    if equal:
        return one, two, True
    moved = f"{at} + 10^{{-9}}"
    place = {"a": moved, "g": f"|{name} - ({moved})|", "e": f"({moved} + {width})"}
    changed = values | (place if kind != "scale" and rng.random() < 0.4 else {"h": other})
    again = rng.choice((
        rng.choice(BUMPS[kind]).format(**changed), f"{other}({one})", f"({one})^5",
        rf"{one} + |{gap} - 10^{{40}}|", rf"{one} + \lfloor \frac{{{name}}}{{10^{{41}}}} \rfloor",
    ))  # fmt: skip
    return one, again, False


# Two spellings each: of a bump of height h and width w at a, where g is the distance from a, and e the end.
BUMPS = {
    "tent": (
        r"{h} - \frac{{{h}}}{{{w}}}{g} + Abs({h} - \frac{{{h}}}{{{w}}}{g})",
        r"Abs({h} - \frac{{{h}{g}}}{{{w}}}) - \frac{{{h}}}{{{w}}}{g} + {h}",
    ),
    "root": (r"\sqrt{{({h}({x} - ({a})))^2}} + {h}({x} - ({a}))", r"{h}|{x} - ({a})| + {h}({x} - ({a}))"),
    "step": (r"\lfloor {h}({x} - ({a})) + {w} \rfloor + 3", r"3 - \lceil {h}(({a}) - {x}) - {w} \rceil"),
    "ceiling": (r"\lceil \frac{{{x} - ({a})}}{{{h}}} \rceil", r"-\lfloor \frac{{({a}) - {x}}}{{{h}}} \rfloor"),
    "scale": (
        r"\lfloor \frac{{{x}}}{{{h} \cdot 10^{{20}}}} \rfloor",
        r"-\lceil \frac{{-{x}}}{{{h} \cdot 10^{{20}}}} \rceil",
    ),
}


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
    "matrices": (0.03, matrix_pair),
    "equations": (0.04, equation_pair),
    "conditions": (0.03, condition_pair),
    "notations": (0.02, notation_pair),
    "bumps": (0.05, bump_pair),
    "look-alikes": (0.1, look_alike_pair),
}


def pairs(seed: int, kinds: Sequence[str] = ()) -> Iterator[tuple[str, Pair]]:
    """An endless stream of (kind, pair), of some kinds or of all."""
    rng = random.Random(seed)
    names = list(kinds or KINDS)
    weights = [KINDS[name][0] for name in names]
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


def measure(
    count: int,
    seed: int,
    report: Callable[[str, Pair], None] = lambda kind, pair: None,
    kinds: Sequence[str] = (),
) -> dict[str, Tally]:
    """Judge pairs until `count` equal and `count` unequal ones were seen; `report` gets every wrong verdict."""
    tallies = {kind: Tally() for kind in KINDS}
    seen: Counter[bool] = Counter()
    for kind, (a, b, equal) in pairs(seed, kinds):
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
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=[], help="kinds of pairs; all by default")
    options = parser.parse_args()
    if options.kinds and options.record:
        parser.error("--record needs pairs of all kinds; leave out --kinds")
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
        for kind, tally in measure(chunk, seed, report, options.kinds).items():
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
