r"""Statements in notations that look alike, for `look_alikes`: relations, bars, dates, bases, matrices, words and more.

Meanings are exact: values at points, sets, or the structure of the notation. What a family cannot decide has its text
as its meaning. Two spellings of one meaning may have two keys, and are then counted as missed.
"""

# fmt: off
import random
import unicodedata
from collections.abc import Callable, Hashable, Sequence
from fractions import Fraction
from itertools import pairwise
from math import comb, factorial, floor

import mpmath

Statement = tuple[Hashable, str]
Family = Callable[[random.Random], list[Statement]]

POINTS = [Fraction(n, 12) for n in range(-40, 41, 3)] + [Fraction(n, 7) for n in (-100, -8, 11, 90)]


def own(*texts: str) -> list[Statement]:
    """Texts that equal only themselves."""
    return [((text,), text) for text in texts]


def of(meaning: Hashable, *texts: str) -> list[Statement]:
    return [(meaning, text) for text in texts]


def relations(rng: random.Random) -> list[Statement]:
    """Chains of names; turned around they say the same."""
    names = rng.sample("abcxyz", 3)
    flipped = {"<": ">", ">": "<", r"\leq": r"\geq", r"\geq": r"\leq", "=": "="}
    statements: list[Statement] = []
    for _ in range(8):
        length = rng.choice((2, 3))
        chain = rng.sample(names, length)
        signs = rng.choices(list(flipped), k=length - 1)
        turned = [*(flipped[sign] for sign in reversed(signs))]
        texts = []
        for terms, operators in ((chain, signs), (chain[::-1], turned)):
            text = terms[0]
            for sign, term in zip(operators, terms[1:], strict=True):
                text += f" {sign} {term}"
            texts.append(text)
        meaning = min((tuple(chain), tuple(signs)), (tuple(chain[::-1]), tuple(turned)))
        statements += [(meaning, text) for text in texts]
        statements += own(*(text.replace(" = ",
            rf" {rng.choice((chr(92) + 'sim', chr(92) + 'cong', ':='))} ") for text in texts if " = " in text))
    return statements


def bars(rng: random.Random) -> list[Statement]:
    """Divisors and chains of them, norms, absolute values, conditional probabilities."""
    a, b, c = rng.sample("abnvxy", 3)
    k, m = rng.randint(2, 9), rng.randint(2, 99)
    statements = own(rf"{k} \mid {a} \mid {b}", rf"{a} \mid {k} \mid {b}", f"{a}|{b}|{c}", f"{a}|{c}|{b}")
    statements += own(rf"{a} \mid {b}", rf"{b} \mid {a}", rf"{a} \nmid {b}", rf"{b} \nmid {a}", rf"{a} \parallel {b}")
    statements += of(("chain", k, c, m), rf"{k} \mid {c} \mid {m}", f"{k}|{c}|{m}", f"{k} ∣ {c} ∣ {m}")
    statements += of((k * m, c), f"{k * m}{c}", rf"{k} \cdot {m}{c}")
    for norm in (a, b):
        for p in ("", "_1", "_2", r"_\infty"):
            statements += of(("norm", norm, p), rf"\|{norm}\|{p}", rf"\lVert {norm} \rVert{p}", f"||{norm}||{p}")
        statements += of(("abs", norm), f"|{norm}|", rf"\left|{norm}\right|", rf"\lvert {norm}\rvert", f"|-{norm}|")
    for n, name in ((k, a), (k, c), (m, c), (k * m, c)):
        statements += of(("abs", n, name), f"{n}|{name}|", rf"|{n}{name}|", rf"|{name}| \cdot {n}", f"{n}|-{name}|")
    statements += of(("abs", frozenset((a, b))), f"|{a}{b}|", rf"|{a}| \cdot |{b}|", rf"|{b}||{a}|")
    statements += own(f"P({a}|{b})", f"P({b}|{a})", rf"P({a} \cap {b})", rf"P({a} \cup {b})", f"P({a})", f"P({a},{b})")
    return [*statements, *own(rf"\{{{a} \mid {b}\}}", f"|{a}|{k}")]


def roman(n: int) -> str:
    text = ""
    for value, sign in ((1000, "M"), (900, "CM"), (500, "D"), (400, "CD"), (100, "C"), (90, "XC"), (50, "L"), (40,
        "XL"), (10, "X"), (9, "IX"), (5, "V"), (4, "IV"), (1, "I")):
        text, n = text + sign * (n // value), n % value
    return text


def numerals(rng: random.Random) -> list[Statement]:
    numbers = [rng.choice((rng.randint(1, 20), rng.randint(21, 3999))) for _ in range(3)] + [4, 6, 9, 11, 40, 60]
    statements: list[Statement] = []
    for _ in range(8):
        chosen = rng.sample(numbers, rng.choice((1, 2, 3)))
        if len(set(chosen)) == len(chosen):
            texts = [joint.join(map(roman, chosen)) for joint in (", ", ",", " and " if len(chosen) == 2 else ", ")]
            texts += [rf"\text{{{texts[0]}}}"] if max(chosen) < 13 else [rf"\{{{texts[0]}\}}"]
            statements += of(("roman", frozenset(chosen)), *texts)
        statements += of(("arabic", frozenset(chosen)), ", ".join(map(str, chosen)))
    return statements


def bases(rng: random.Random) -> list[Statement]:
    names = ["two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve", "thirteen",
        "fourteen", "fifteen", "sixteen"]
    statements: list[Statement] = []
    start = "".join(rng.choices("1", k=1)) + "".join(rng.choices("01", k=rng.randint(1, 4)))
    for digits in (start, start[::-1].lstrip("0"), start + "0", "AD", "DA", "1F", "F1"):
        for base in (2, 3, 8, 10, 16) if digits.isdigit() else (16,):
            meaning = Fraction(int(digits)) if base == 10 else ("base", base, digits)
            texts = [f"{digits}_{{{base}}}", f"({digits})_{{{base}}}", rf"{digits}_{{\text{{{names[base - 2]}}}}}"]
            texts += [f"{digits}_{{({base})}}", rf"{digits}\text{{ (base }}{base})"] if digits.isdigit() else []
            texts += [f"{digits}_{base}", f"{digits} base {base}"] if base < 10 else []
            statements += of(meaning, *texts)
        statements += of(Fraction(int(digits)), digits) if digits.isdigit() else own(digits)
    return [*statements, *own(f"0b{start}", f"0x{start}", f"0o{start}")]


def quantities(rng: random.Random) -> list[Statement]:
    """Mixed numbers, percents, powers of ten, ordinals, and products that look like them."""
    a, c = rng.randint(1, 9), rng.randint(2, 9)
    b = rng.randint(1, c - 1)
    value, part = a + Fraction(b, c), Fraction(b, c)
    mixed = [rf"{a}\frac{{{b}}}{{{c}}}", rf"{a} \frac {b}{c}", f"{a} {b}/{c}", rf"{a}\tfrac{{{b}}}{{{c}}}"]
    statements = of(value, *mixed, rf"{a}+\frac{{{b}}}{{{c}}}", f"{a} + {b}/{c}", rf"{a}\,\dfrac{{{b}}}{{{c}}}")
    statements += of(-value, *(f"-{text}" for text in mixed), f"-({a} + {b}/{c})")
    statements += of(a * part, rf"{a} \cdot \frac{{{b}}}{{{c}}}", rf"\frac{{{a * b}}}{{{c}}}",
        rf"\frac{{{b}}}{{{c}}} {a}")
    statements += of(Fraction(10 * a + b, c), f"{a}{b}/{c}", rf"\frac{{{a}{b}}}{{{c}}}")
    statements += of(a - part, rf"{a}-\frac{{{b}}}{{{c}}}", f"{a} - {b}/{c}") + of(part, f"{b}/{c}", rf"\frac{b}{c}")
    k = rng.randint(2, 12)
    mantissa = Fraction(10 * a + b, 10)
    for sign in (1, -1):
        power = f"{sign * k}"
        texts = [rf"{a}.{b} \times 10^{{{power}}}", rf"{a}.{b}\cdot 10^{{{power}}}", f"{a}.{b}*10^({power})"]
        texts += [f"{a}.{b}e{power}", f"{a}.{b}E{power}", f"{a}.{b} x 10^{{{power}}}", f"{a}.{b}e{sign * k:+03d}"]
        statements += of(mantissa * Fraction(10) ** (sign * k), *texts)
    statements += of(mantissa * 10 * k, rf"{a}.{b} \times 10 \times {k}", rf"{a}.{b} \cdot {10 * k}")
    statements += of(("e", a, k), f"{a}e + {k}",
        f"{k} + {a}e")
    statements += own(f"{a + 1}e-{c}") + of(("e", a + 1, -c), rf"-{c} + {a + 1}e")
    n = rng.randint(2, 40)
    suffix = "th" if n // 10 == 1 else {1: "st", 2: "nd", 3: "rd"}.get(n % 10, "th")
    texts = [f"{n}", f"{n}{suffix}", rf"{n}^{{\text{{{suffix}}}}}", rf"{n}^{{{suffix}}}", rf"\text{{{n}{suffix}}}"]
    statements += of(Fraction(n), *texts, rf"{n}\%", rf"{n} \%", f"{n} percent", rf"{n}\text{{ cm}}", rf"\${n}",
        f"{n} cm")
    statements += own(rf"{n}\text{{th root}}", f"{n}‰", rf"{n}\% of {a}", f"{n} or more", rf"{n} \text{{ per }} {a}")
    statements += of(Fraction(n, 100), f"{n}/100", f"{n / 100:.2f}")
    return statements + own(f"{n} cm by {a} cm", rf"{n} \pm {a}\%", f"({n} cm)^2", f"{n} cm^{{-1}}", f"{n}' {a}\"")


def clocks(rng: random.Random) -> list[Statement]:
    """Times of day, ratios, durations, dates."""
    h, m, s = rng.randint(1, 12), rng.randint(0, 59), rng.randint(10, 59)
    a, b = rng.randint(1, 4), rng.randint(1, 3)
    statements = of(Fraction(a, b), f"{a}:{b}", f"{2 * a} : {2 * b}", f"{3 * a}:{3 * b}", rf"\frac{{{a}}}{{{b}}}")
    for hour, minute in ((h, m), (h % 12 + 1, m), (h, (m + 7) % 60)):
        for half in "ap":
            texts = [f"{hour}:{minute:02} {half.upper()}M", f"{hour}:{minute:02}{half}m",
                rf"{hour}:{minute:02}\text{{ {half}.m.}}", rf"\text{{{hour}:{minute:02} {half.upper()}.M.}}"]
            statements += of((half, hour, minute), *texts, *([f"{hour} {half}m"] if not minute else []))
        statements += of(("clock", hour, minute), f"{hour}:{minute:02}", f"t = {hour}:{minute:02}")
        statements += own(f"{hour}:{minute:02}:{s}", f"{hour}h{minute:02}", f"{hour}:{minute:02}:{s + 1}")
        statements += of(("sum", hour, minute), f"{hour} h {minute} min", f"{hour} hours {minute} minutes")
    year, month, day = rng.randint(1900, 2030), rng.randint(1, 12), rng.randint(1, 28)
    months = ["January", "February", "March", "April", "May", "June", "July", "August", "September", "October",
        "November", "December"]
    for y, o, d in ((year, month, day), (year, day % 12 + 1, month), (year + 1, month, day)):
        name = months[o - 1]
        texts = [f"{y}-{o:02}-{d:02}", f"{y}/{o:02}/{d:02}", f"{y}-{o}-{d}", f"{name} {d}, {y}", f"{d} {name} {y}",
            f"{name[:3]} {d}, {y}", f"{name[:3]}. {d}, {y}", rf"\text{{{d} {name[:3]} {y}}}", f"{name} {d} {y}"]
        statements += of((y, o, d), *texts)
        numbered = (f"{o}/{d}/{y}", f"{d}.{o}.{y}")  # of a day above 12 the order is known
        statements += of((y, o, d), *numbered) if d > 12 else own(*numbered)
        statements += of((o, d), f"{name} {d}", f"{d} {name}", f"{name[:3]} {d}", rf"\text{{{name} {d}th}}")
    return [*statements, *own(f"{year}s"), (Fraction(year), str(year)), *of(Fraction(year - month - day),
        str(year - month - day))]


def matrices(rng: random.Random) -> list[Statement]:
    a, b, c, d = rng.sample(range(-9, 20), 4)
    statements: list[Statement] = []
    for w, x, y, z in ((a, b, c, d), (a, c, b, d), (b, a, d, c), (c, d, a, b)):
        rows = rf"{w} & {x} \\ {y} & {z}"
        texts = [rf"\begin{{{kind}matrix}} {rows} \end{{{kind}matrix}}" for kind in "pb"]
        texts += [rf"\left(\begin{{array}}{{cc}} {rows} \end{{array}}\right)"]
        statements += of(("M", w, x, y, z), *texts) + own(rf"{texts[0]}^T", rf"{texts[0]}^{{-1}}", f"2{texts[0]}")
        statements += own(rf"\begin{{vmatrix}} {rows} \end{{vmatrix}}", f"(({w}, {x}), ({y}, {z}))")
        pairs = [f"({w}, {x})", f"({y}, {z})"]
        statements += of(frozenset(((w, x), (y, z))), ", ".join(pairs), rf"\{{{pairs[1]}, {pairs[0]}\}}")
        statements += of((w, x, y, z), f"({w}, {x}, {y}, {z})", rf"\langle {w}, {x}, {y}, {z} \rangle")
        statements += of(frozenset((w, x, y, z)), rf"\{{{z}, {x}, {y}, {w}\}}")
        statements += of(("nested", frozenset((w, x)), frozenset((y, z))), rf"\{{\{{{w}, {x}\}}, {y}, {z}\}}")
        statements += own(rf"(({w}, {x}), {y}, {z})", rf"({w}, ({x}, {y}), {z})")
        statements += of((w, x), f"({w}, {x})", rf"\begin{{pmatrix}} {w} \\ {x} \end{{pmatrix}}",
            rf"\langle {w},{x} \rangle", rf"({w}, {x})^T")
        statements += own(rf"\begin{{pmatrix}} {w} & {x} \end{{pmatrix}}", f"[[{w}, {x}]]", f"[{w}, {x}, {y}]")
        i, j = (f"{v}\\mathbf{{{n}}}" for v, n in ((w, "i"), (x, "j")))
        statements += of(("ij", w, x), f"{i} + ({j})", f"({j}) + {i}") if w and x else []
    return statements


Ends = tuple[Fraction | float, bool, Fraction | float, bool]


def intervals(rng: random.Random) -> list[Statement]:
    """Unions of intervals with finite and infinite ends."""
    p, q, r = sorted(rng.sample(range(-9, 12), 3))
    statements: list[Statement] = []

    def shown(end: float) -> str:
        return rng.choice((r"\infty", r"+\infty", "∞")) if end > 100 else r"-\infty" if end < -100 else str(end)

    for _ in range(8):
        low, high = rng.choice(((p, q), (q, r), (p, r), (-999, q), (q, 999), (-999, 999), (-999, r)))
        closed = rng.random() < 0.5 and low > -100, rng.random() < 0.5 and high < 100
        brackets = "[" if closed[0] else "(", "]" if closed[1] else ")"
        one = f"{brackets[0]}{shown(low)}, {shown(high)}{brackets[1]}"
        meaning: Hashable = (low, closed[0], high, closed[1])
        first, second = (r"\leq" if end else "<" for end in closed)
        texts = [one, rf"x \in {one}", rf"\left{brackets[0]}{shown(low)},{shown(high)}\right{brackets[1]}"]
        if low > -100 and high < 100:
            texts += [f"{low} {first} x {second} {high}", rf"\{{x : {low} {first} x {second} {high}\}}"]
        elif low > -100:
            texts += [f"x {'>=' if closed[0] else '>'} {low}", f"{low} {first} x"]
        elif high < 100:
            texts += [f"x {second} {high}", rf"\{{t \mid t {second} {high}\}}", f"{high} {'≥' if closed[1] else '>'} y"]
        else:
            texts += [r"\mathbb{R}", "ℝ"]
        statements += of(meaning, *texts)
        if low > -100 and low > p:
            union = rf"(-\infty, {p}{rng.choice(')]')}"
            statements += of((union[-1], p, meaning), rf"{union} \cup {one}", rf"{one} \cup {union}",
                rf"x \in {union}\cup{one}")
            statements += of((",", union[-1], p, meaning), rf"{union}, {one}")
            statements += of((), rf"{union} \cap {one}", r"\emptyset", "∅", r"\{\}")
        statements += of(frozenset((p, q)), f"{p}, {q}", rf"\{{{q}, {p}\}}", f"x = {p} or x = {q}")
    statements += own(r"(0, \infty)^2", r"\mathbb{R}^2", r"\mathbb{R}^+", r"\mathbb{Z}", r"\mathbb{N}", r"\mathbb{R}_+")
    return [*statements, *of(("but", p), rf"\mathbb{{R}} \setminus \{{{p}\}}", rf"x \neq {p}",
        rf"(-\infty,{p})\cup({p},\infty)")]


def evaluated(tries: Sequence[tuple[str, Callable[..., object]]], points: Sequence[object]) -> list[Statement]:
    """Texts with a function each; a meaning is the values, to 40 digits or exact."""
    statements: list[Statement] = []
    for text, function in tries:
        with mpmath.workdps(60):
            values = []
            for point in points:
                value = function(point)
                values.append(value if isinstance(value, Fraction) else mpmath.nstr(mpmath.mpf(value), 40))
        statements.append((tuple(values), text))
    return statements


def factorials(rng: random.Random) -> list[Statement]:
    n, k = "n", rng.randint(2, 4)

    tries: list[tuple[str, Callable[[int], Fraction]]] = [(f"{n}!", lambda v: factorial(v)), (f"({n}!)!",
        lambda v: factorial(factorial(v)) if v < 5 else 0), (f"{k}{n}!",
        lambda v: k * factorial(v)), (f"({k}{n})!", lambda v: factorial(k * v)), (f"{n}!^{k}",
        lambda v: factorial(v) ** k), (f"({n}!)^{k}", lambda v: factorial(v) ** k), (f"({n}^{k})!",
        lambda v: factorial(v**k)), (f"({n}+{k})!", lambda v: factorial(v + k)), (f"{n}+{k}!",
        lambda v: v + factorial(k)), (f"{n}!+{k}", lambda v: factorial(v) + k), (rf"\binom{{{n}}}{{{k}}}",
        lambda v: comb(v, k)), (rf"\frac{{{n}}}{{{k}}}", lambda v: Fraction(v, k)), (rf"\binom{{{n}}}{{{k + 1}}}",
        lambda v: comb(v, k + 1)), (rf"{{{n} \choose {k}}}", lambda v: comb(v, k)), (rf"\binom{{{n}+1}}{{{k}}}",
        lambda v: comb(v + 1, k)), (rf"\binom{{{n}}}{{{k}}}+1", lambda v: comb(v, k) + 1),
        (rf"\binom{{{n}}}{{{k}}} {k}!", lambda v: comb(v, k) * factorial(k)), (f"binomial({n}, {k})", lambda v: comb(v,
        k)), (rf"\frac{{{n}!}}{{{k}!}}", lambda v: Fraction(factorial(v), factorial(k))), (f"{k}^{{{n}}}!",
        lambda v: factorial(k**v)), (rf"\frac{{{n}!}}{{{k}!({n}-{k})!}}", lambda v: comb(v, k)),
        (rf"\binom{{{k}{n}}}{{{n}}}", lambda v: comb(k * v, v)), (f"({n}-1)!", lambda v: factorial(v - 1)), (f"{n}-1!",
        lambda v: v - 1), (f"{n}({n}-1)!", lambda v: factorial(v))]
    return evaluated([(text, lambda v, f=f: Fraction(f(v))) for text, f in tries], [4, 3])


def floors(rng: random.Random) -> list[Statement]:
    """Nested floors and ceilings of one variable."""

    def draw(depth: int) -> tuple[str, Callable[[Fraction], Fraction]]:
        if depth == 0:
            return "x", lambda v: v
        text, f = draw(depth - 1)
        kind, k = rng.randrange(5), rng.randint(2, 5)
        if kind == 0:
            form = rng.choice((r"\lfloor {} \rfloor", "⌊{}⌋", "floor({})"))
            return form.format(text), lambda v: Fraction(floor(f(v)))
        if kind == 1:
            return rng.choice((r"\lceil {} \rceil", "⌈{}⌉")).format(text), lambda v: Fraction(-floor(-f(v)))
        if kind == 2:
            return rf"\frac{{{text}}}{{{k}}}", lambda v: f(v) / k
        if kind == 3:
            return f"{k}({text})", lambda v: k * f(v)
        return f"{text} + {k}", lambda v: f(v) + k

    tries = [draw(rng.randint(1, 4)) for _ in range(16)]
    tries += [("[x]", lambda v: ("bracket",)), (r"\{x\}", lambda v: ("brace",)), ("x - [x]", lambda v: ("fraction",))]
    return [(tuple(f(v) for v in POINTS), text) for text, f in tries]


def logarithms(rng: random.Random) -> list[Statement]:
    a, b, k = rng.sample(range(2, 12), 3)
    ln = mpmath.log
    return evaluated([(rf"\log_{{{a}}} {b}", lambda x: ln(b) / ln(a)), (rf"\log_{{{b}}} {a}",
        lambda x: ln(a) / ln(b)), (rf"\frac{{\ln {b}}}{{\ln {a}}}", lambda x: ln(b) / ln(a)), (rf"\log_{{{a}}}({b})",
        lambda x: ln(b) / ln(a)), (rf"\ln {a}{b}", lambda x: ln(int(f"{a}{b}"))), (rf"\ln({a} \cdot {b})",
        lambda x: ln(a * b)), (rf"\log_{{{a}}}^2 {b}", lambda x: (ln(b) / ln(a)) ** 2), (rf"\log_{{{a}}} {b}^2",
        lambda x: 2 * ln(b) / ln(a)), (rf"(\log_{{{a}}} {b})^2", lambda x: (ln(b) / ln(a)) ** 2),
        (rf"\ln {a} + \ln {b}", lambda x: ln(a * b)), (rf"\log_{{{a}}} {b}x", lambda x: ln(b * x) / ln(a)),
        (rf"\log_{{{a}}}({b}) x", lambda x: x * ln(b) / ln(a)), (rf"\log_{{{a}}} ({b}x)", lambda x: ln(b * x) / ln(a)),
        (r"\ln^2 x", lambda x: ln(x) ** 2), (r"\ln x^2", lambda x: 2 * ln(x)), (r"(\ln x)^2", lambda x: ln(x) ** 2),
        (r"2 \ln |x|", lambda x: 2 * ln(x)), (r"\ln(\ln x)", lambda x: ln(ln(x))), (rf"\ln {k}x", lambda x: ln(k * x)),
        (rf"{k}\ln x", lambda x: k * ln(x)), (rf"\ln x + {k}", lambda x: ln(x) + k), (rf"\ln(x + {k})",
        lambda x: ln(x + k)), (rf"\lg {a}", lambda x: ln(a) / ln(10)), (rf"x \ln {k}", lambda x: x * ln(k)),
        (rf"\ln {k}^x", lambda x: x * ln(k)), (rf"\log_{{10}} {a}", lambda x: ln(a) / ln(10)), (rf"\log_x {k}",
        lambda x: ln(k) / ln(x)), (rf"\log_{k} x", lambda x: ln(x) / ln(k)), (rf"\frac{{\ln x}}{{{k}}}",
        lambda x: ln(x) / k), (rf"e^{{{k}x}}", lambda x: mpmath.e ** (k * x)), (rf"e^{k}x", lambda x: mpmath.e**k * x),
        (rf"{k}^{{\ln x}}", lambda x: k ** ln(x))], [mpmath.mpf(3) / 2, mpmath.mpf(7)])


def trigonometry(rng: random.Random) -> list[Statement]:
    k, (name, other) = rng.randint(2, 5), rng.sample(("sin", "cos", "tan"), 2)
    f, g = getattr(mpmath, name), getattr(mpmath, other)
    inverse = getattr(mpmath, f"a{name}")
    return evaluated([(rf"\{name}^{k} x", lambda x: f(x) ** k), (rf"\{name} x^{k}", lambda x: f(x**k)),
        (rf"(\{name} x)^{k}", lambda x: f(x) ** k), (rf"\{name}(x)^{k}", lambda x: f(x) ** k), (rf"\{name}(x^{k})",
        lambda x: f(x**k)), (rf"\{name}^{{-1}} x", inverse), (rf"\arc{name} x", inverse), (rf"\frac{{1}}{{\{name} x}}",
        lambda x: 1 / f(x)), (rf"(\{name} x)^{{-1}}", lambda x: 1 / f(x)), (rf"\{name} {k}x", lambda x: f(k * x)),
        (rf"{k}\{name} x", lambda x: k * f(x)), (rf"x\{name} {k}", lambda x: x * f(k)), (rf"\{name} x \{other} x",
        lambda x: f(x) * g(x)), (rf"\{name}(x \{other} x)", lambda x: f(x * g(x))), (rf"{name}({k}x)",
        lambda x: f(k * x)), (rf"\{name} \{other} x", lambda x: f(g(x))), (rf"\{name}(x) \cdot x", lambda x: x * f(x)),
        (rf"\{name}(x \cdot x)", lambda x: f(x * x)), (rf"x \{name} x", lambda x: x * f(x)),
        (rf"\frac{{\{name} x}}{{{k}}}", lambda x: f(x) / k), (rf"\{name} \frac{{x}}{{{k}}}", lambda x: f(x / k)),
        (rf"\{name} x + {k}", lambda x: f(x) + k), (rf"\{name}(x + {k})", lambda x: f(x + k)), (rf"\{name} {k}^\circ",
        lambda x: f(k * mpmath.pi / 180)), (rf"\{name} {k}", lambda x: f(k)), (rf"\{name}(\{name} x)",
        lambda x: f(f(x))), (rf"\{name}^2 x", lambda x: f(x) ** 2), (rf"\{name}h x", lambda x: getattr(mpmath,
        f"{name}h")(x)), (rf"e^{{\{name} x}}", lambda x: mpmath.e ** f(x)), (rf"e^x \{name} x",
        lambda x: mpmath.e**x * f(x))], [mpmath.mpf(3) / 7, mpmath.mpf(5) / 9])


def names(rng: random.Random) -> list[Statement]:
    """Indices, derivatives, decorations, integrals: structure that a product would lose."""
    x, y = rng.sample("xyzuvw", 2)
    k, m = rng.sample(range(2, 10), 2)
    statements = (of(("i", x, k), f"{x}_{k}", f"{x}_{{{k}}}") + of(("i", x, m), f"{x}_{m}") + of((x,), x,
        rf"\mathrm{{{x}}}"))
    statements += of(("i", x, k, m), rf"{x}_{{{k}{m}}}") + own(rf"{x}_{{{m}{k}}}", rf"{x}_{{{k},{m}}}",
        rf"{x}_{{{m},{k}}}", f"{x}_{k}^{m}")
    statements += of((frozenset(((x, k), (y, m)))), f"{x}_{k}{y}_{m}", rf"{y}_{m} \cdot {x}_{k}", rf"{x}_{k} {y}_{m}")
    statements += own(rf"{x}_{{n+{k}}}", rf"{x}_n + {k}", rf"{x}_{{n-{k}}}", rf"{x}_{{{k}n}}", rf"{x}_{{n_{k}}}",
        f"{x}{k}")
    for order in (1, 2, 3):
        primes = "'" * order
        statements += of(("d", x, order), f"{x}{primes}",
            rf"{x}^{{{chr(92) + 'prime'}}}" if order == 1 else f"{x}{primes}")
        statements += of(("dx", x, y, order),
            rf"\frac{{d{x}}}{{d{y}}}" if order == 1 else rf"\frac{{d^{order} {x}}}{{d{y}^{order}}}")
        statements += own(rf"{x}^{{({order})}}", rf"(\frac{{d{x}}}{{d{y}}})^{{{order + 1}}}", f"f{primes}({x})",
            f"f^{{({order})}}({y})")
        statements += of(("p", x, order), *([f"{x}^{order}", f"{x}^{{{order}}}"] if order > 1 else []))
    statements += own(rf"\dot{{{x}}}", rf"\ddot{{{x}}}", rf"\bar{{{x}}}", rf"\hat{{{x}}}", rf"\tilde{{{x}}}",
        rf"\vec{{{x}}}", rf"{x}^*", rf"{x}^+")
    statements += own(rf"\frac{{\partial {x}}}{{\partial {y}}}", rf"\frac{{\partial {y}}}{{\partial {x}}}",
        rf"\frac{{d{y}}}{{d{x}}}", rf"\Delta {x}")
    statements += own(rf"\int_{k}^{m} {x} \, d{x}", rf"\int_{m}^{k} {x} \, d{x}", rf"\int {x} \, d{x}",
        rf"\int {x} \, d{y}")
    statements += own(rf"\lim_{{{x} \to {k}}} {x}", rf"\lim_{{{x} \to {k}}} {y}", rf"\nabla {x}", rf"\nabla \cdot {x}",
        rf"\nabla \times {x}")
    statements += own(rf"\mathbb{{E}}[{x}^2]", rf"\mathbb{{E}}[{x}]^2", rf"\text{{Var}}({x})", rf"O({x})",
        rf"O({x}^2)", rf"o({x})", rf"{x} + C")
    statements += of(frozenset(((k + m, x), (k - m, x))), rf"{k} \pm {m}", f"{k + m}, {k - m}", rf"{k} \mp {m}",
        rf"\{{{k - m}, {k + m}\}}")
    return statements + own(rf"{k} \pm {m} \pm {k}", rf"\pm {k}, {m}", rf"{x} \pm {k}", rf"{x} + {k}", rf"\pm {x}",
        rf"\pm {k}")


def algebra(rng: random.Random) -> list[Statement]:
    """Things that do not commute: matrices, sets, logic, molecules, code."""
    a, b = rng.sample("ABMNST", 2)
    statements: list[Statement] = []
    for x, y in ((a, b), (b, a)):
        statements += own(rf"{x} \times {y}", f"{x}^T {y}", f"{x}{y}^T", f"{x}^{{-1}}{y}{x}", f"{x}{y}^{{-1}}",
            f"{x}^{{-1}}{y}", f"{x}{y}")
        statements += own(rf"{x} \setminus {y}", rf"{x} \subset {y}", rf"{x} \subseteq {y}", rf"{x} \to {y}",
            rf"{x} \Rightarrow {y}", f"{x}^c")
        statements += own(rf"{x} \cup {y}", rf"{x} \cap {y}", rf"{x} \triangle {y}", rf"{x} \otimes {y}",
            rf"{x} \circ {y}", rf"{x} \mid {y}")
        statements += own(rf"\neg {x} \lor {y}", rf"{x} \lor \neg {y}", rf"{x} \land {y}", rf"\forall x \, {x}",
            rf"\exists x \, {x}", rf"|{x}|")
        statements += own(rf"\overrightarrow{{{x}{y}}}", rf"\vec{{{x}{y}}}", rf"\angle {x}{y}C",
            rf"{x}{y} \parallel C", rf"{x}{y} \perp C", rf"\|{x}\|")
        statements += own(rf"{x}_2 \times {y}_3", rf"[{x}, {y}]", rf"({x}, {y})", rf"{x}({y})", f"{x} + {y}i",
            rf"{x}/{y}")
    molecules = ["CH_3COOH", "HCOOCH_3", "H_2O", "OH_2", "CO_2", "C_2O", "CH_3OH", "CH_2O", "NO_2", "N_2O", "O_2",
        "O_3", "CO", "Co", "NaCl", "H_2SO_4", "H_2SO_3", "Fe^{2+}", "Fe^{3+}", "Na^+", "Cl^-", "C_2H_5OH", "CH_3OCH_3",
        "2H_2O", "H_4O_2", "^{14}C", "^{12}C", "HCN", "HNC"]
    code = ["a[0]", "a[1]", "x == y", "x != y", "x <= y", "x := y", "x % y", "x // y", "x && y", "x || y", "!x", "~x",
        "x << 2", "x >> 2", "i++", "++i", "i += 1", "f(x)[0]", '"abc"', "'abc'", "'ab'", "[1, 2, 3]", "[3, 2, 1]",
        "(1,)", "{'a': 1}", "{'a': 2}", "x ^ y", "y ^ x", "x & y", "lambda x: x", "print(x)", "not x", "None", "null",
        "a.b", "b.a", "a->b", "a_b", "b_a", "range(5)", "range(6)", "x if y", "y if x", "x is y", "0x1F", "0b11",
        "x or y", "x and y"]
    return statements + own(*rng.sample(molecules, 8), *rng.sample(code, 16))


_WORDS = [
    "sí", "si", "no", "não", "nao", "да", "нет", "oui", "non", "ja", "nein", "是", "否", "对", "错", "偶数", "奇数",
    "はい", "いいえ", "예", "아니요", "pair", "impair", "gerade", "ungerade", "par", "impar", "чётное", "нечётное",
    "été", "ete", "niño", "nino", "Straße", "Strasse", "größer", "kleiner", "mayor", "menor", "vrai", "faux",
    "wahr", "falsch", "verdadero", "falso", "истина", "ложь", "真", "假", "无解", "有解", "jamais", "toujours",
    "año", "ano", "rise", "fall", "always", "never", "sometimes", "increasing", "decreasing", "Alice", "Alicia",
    "Bob", "Rob", "cannot be determined", "prime", "not prime", "one", "two", "red", "blue", "eat", "tea", "ate",
    "dog", "god", "x is odd", "x is even", "at most", "at least", "none of these", "all of these",
]


def words(rng: random.Random) -> list[Statement]:
    """Words in several languages, alone, in lists and behind numbers."""
    statements: list[Statement] = []
    chosen = rng.sample(_WORDS, 8)
    for word in chosen:
        meaning = Fraction({"one": 1, "two": 2}[word]) if word in ("one", "two") else ("word", word)
        texts = [word, rf"\text{{{word}}}",
            f"{word}."] + ([word.capitalize()] if len(word) > 3 or not word.isascii() else [])
        texts.append(unicodedata.normalize("NFD", word))
        statements += of(meaning, *texts)
        statements += own(*(f"{n} {word}" for n in (3, 4)), f"{word}: 3", rf"\text{{{word}}} + 3", f"not {word}")
    lists = [(one, two) for one, two in pairwise(chosen) if not {"one", "two", "no"} & {one,
        two} and " " not in one + two]
    for one, two in lists[:4]:
        statements += own(f"{one} or {two}", f"({one}, {two})", f"{one}-{two}")
        statements += of(frozenset((one, two)), f"{one}, {two}", f"{two}, {one}", f"{one} and {two}")
    return statements


FAMILIES: tuple[Family, ...] = (relations, bars, numerals, bases, quantities, clocks, matrices, intervals,
    factorials, floors, logarithms, trigonometry, names, algebra, words)
