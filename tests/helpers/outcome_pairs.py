"""Generate pairs of equal and of unequal answers, and measure how often their keys say so.

    python tests/helpers/outcome_pairs.py --pairs 1000 --seed 10000 --record
    python tests/helpers/outcome_pairs.py --pairs 20000 --kinds bumps

An answer is an expression tree. An equal pair is a tree and its rewriting by an identity, each written in a spelling
of its own: several LaTeX dialects, plain text, computer-algebra style. An unequal pair is a tree and a near miss of
it: one sign, exponent, bracket, shift, function or domain moved. Neither label is taken on trust: an oracle evaluates
both trees with mpmath, on its own and without the library, at negative, small, large and integer points. Equal pairs
must agree at all of them, unequal pairs differ at one; a pair that the oracle cannot decide is dropped. Lists, tuples,
sets, matrices, dates and words are families of `look_alikes`, whose meanings are exact.
"""

import argparse
import json
import random
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from pathlib import Path

from answer_oracle import agree
from answer_rewrites import near_miss, rewritten
from answer_spellings import style, write
from answer_trees import VARIABLES, Tree, constant, formula
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


def measure(
    count: int,
    seed: int,
    report: Callable[[str, Pair], None] = lambda kind, pair: None,
    kinds: Sequence[str] = (),
) -> dict[str, dict[str, int]]:
    """Count equal pairs and those missed, unequal pairs and those wrong, of each kind, up to `count` of both labels.

    `report` gets every pair whose keys say the opposite of its label.
    """
    rows = {kind: dict.fromkeys(("equal", "missed", "unequal", "wrong"), 0) for kind in kinds or KINDS}
    seen: Counter[bool] = Counter()
    for kind, (a, b, equal) in pairs(seed, kinds):
        if min(seen[True], seen[False]) >= count:
            break
        if seen[equal] >= count:
            continue
        seen[equal] += 1
        failed = (canonical_text(a) == canonical_text(b)) != equal
        rows[kind]["equal" if equal else "unequal"] += 1
        rows[kind]["missed" if equal else "wrong"] += failed
        if failed:
            report(kind, (a, b, equal))
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pairs", type=int, default=5000, help="equal pairs, and as many unequal ones")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--record", action="store_true", help=f"write {RECORD.name}")
    parser.add_argument("--show", type=int, default=20, help="missed pairs of each kind to print")
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=[], help="kinds of pairs; all by default")
    options = parser.parse_args()
    if options.kinds and options.record:
        parser.error("--record needs pairs of all kinds; leave out --kinds")
    start, printed = time.perf_counter(), Counter[str]()

    def report(kind: str, pair: Pair) -> None:
        printed[kind] += pair[2]
        if printed[kind] <= options.show or not pair[2]:
            print(f"{'missed' if pair[2] else 'WRONG'} {kind}: {pair[0]}  |  {pair[1]}", flush=True)

    rows = measure(options.pairs, options.seed, report, options.kinds)
    if options.record:
        record = {"rule": OUTCOME_RULE, "seed": options.seed, "pairs": options.pairs, "kinds": rows}
        RECORD.write_text(json.dumps(record, indent=1) + "\n")
    for kind, row in rows.items():
        rate = row["missed"] / max(row["equal"], 1)
        print(
            f"{kind:22} {row['equal']:7} equal, {row['missed']:6} missed ({rate:.2%}); "
            f"{row['unequal']:7} unequal, {row['wrong']} wrong"
        )
    print(f"{time.perf_counter() - start:.0f} s")


if __name__ == "__main__":
    main()
