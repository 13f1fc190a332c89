"""The spellings of a tree: several LaTeX dialects, plain text, computer-algebra style."""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from answer_trees import Tree


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
        return "e", ATOM
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
    if kind == "fact":
        if s.algebra:
            return f"factorial({write(tree[1], s)[0]})", ATOM
        return held(tree[1], ATOM, s) + "!", POWER
    assert kind == "binom", kind
    top, bottom = write(tree[1], s)[0], write(tree[2], s)[0]
    return (rf"\binom{{{top}}}{{{bottom}}}" if s.latex else f"binomial({top}, {bottom})"), ATOM


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
