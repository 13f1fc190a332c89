r"""Read plain LaTeX as an expression tree, without evaluating anything.

A closed grammar over the output of `plain_latex`: numbers, variables with subscripts, `+ - \pm \cdot / ^ !`, fractions,
roots, binomials, absolute values, floors, elementary functions and implicit products. Whatever is outside it raises
`NotUnderstood`, whatever is larger than the bounds raises `TooLarge`; both bounds count tokens and nesting, never time,
so that every machine reads a text alike.

A tree is a tuple `(operator, *operands)`: `("number", Fraction)`, `("name", "x_1")`, `("constant", "pi")`,
`("+", a, b, ...)`, `("*", a, b, ...)`, `("/", a, b)`, `("^", a, b)`, `("neg", a)`, `("pm", sign, a)`,
`("call", "sin", a)`.
"""

from fractions import Fraction
from functools import reduce
from typing import Any

from outcome_rl.outcomes.canonical.lexer import (
    FUNCTION_NAMES,
    GREEK,
    Incomparable,
    NotUnderstood,
    Token,
    Tokens,
    TooLarge,
    Words,
)

MAX_DEPTH = 24
TRIGONOMETRIC = ("sin", "cos", "tan", "cot", "sec", "csc")
_DECORATIONS = ("vec", "overrightarrow", "overline", "bar", "hat", "widehat", "tilde", "angle", "triangle")

Tree = tuple[Any, ...]
_ONE: Tree = ("number", Fraction(1))
_TWO: Tree = ("number", Fraction(2))


def parse_expression(tokens: Tokens) -> Tree:
    """Return the tree of an expression.

    Raises:
        NotUnderstood: not an expression of the grammar; `Words` if it holds prose.
        Incomparable: ambiguous; `TooLarge` if it is nested deeper than `MAX_DEPTH`.
    """
    parser = _Parser(tokens)
    tree = parser.sum()
    if parser.position != len(tokens):
        raise parser.refusal()
    return tree


def names_in(tree: Tree) -> frozenset[str]:
    """The variables of a tree."""
    if tree[0] == "name":
        return frozenset((tree[1],))
    return frozenset().union(*(names_in(part) for part in tree[1:] if isinstance(part, tuple)))


_END = Token("end", "")


class _Parser:
    """Recursive descent; every method consumes what it returns."""

    def __init__(self, tokens: Tokens) -> None:
        self.tokens = list(tokens)
        self.position = 0
        self.depth = 0
        self.in_bars = 0
        self.in_trigonometric = 0

    @property
    def next(self) -> Token:
        return self.tokens[self.position] if self.position < len(self.tokens) else _END

    def take(self) -> Token:
        token = self.next
        self.position += 1
        return token

    def accept(self, *texts: str) -> str | None:
        kind, text = self.next
        if text not in texts or kind in ("text", "end"):
            return None
        self.position += 1
        return text

    def expect(self, text: str) -> None:
        if self.accept(text) is None:
            raise self.refusal()

    def refusal(self) -> NotUnderstood:
        kind, text = self.next
        return (Words if kind in ("word", "text") else NotUnderstood)(f"{kind} {text!r}")

    def descend(self) -> None:
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise TooLarge(f"nested deeper than {MAX_DEPTH}")

    def sum(self) -> Tree:
        """Terms; a sum or product is one node, however long, so that trees are no deeper than texts are nested."""
        terms = [self.term(self.accept("+", "-", r"\pm", r"\mp") or "+")]
        while sign := self.accept("+", "-", r"\pm", r"\mp"):
            terms.append(self.term(sign))
        return terms[0] if len(terms) == 1 else ("+", *terms)

    def term(self, sign: str) -> Tree:
        return _signed(sign, self.product())

    def product(self) -> Tree:
        factors = [self.signed_power()]
        while True:
            if self.accept(r"\cdot", r"\times", "*", "×", "·"):
                factors.append(self.signed_power())
            elif self.accept("/", r"\div", ":", "÷"):
                factors.append(("/", _ONE, self.signed_power()))
            elif self.begins_factor():
                self.accept(" ")
                factors.append(self.power())
            elif len(factors) == 2 and factors[1][:2] == ("/", _ONE):
                return ("/", factors[0], factors[1][2])
            else:
                return factors[0] if len(factors) == 1 else ("*", *factors)

    def begins_factor(self) -> bool:
        """Whether the next token begins a factor without a sign of multiplication."""
        kind, text = self.next
        if kind == "space":
            # Between two numbers; after a power it is a product, after a bare number nobody's.
            before = self.tokens[self.position - 2] if self.position > 1 else _END
            return before.text in ("^", "_", r"\sqrt", "]")
        if kind == "command":
            return text[1:] in _FACTOR_COMMANDS
        if text == "|":
            return not self.in_bars
        return kind in ("number", "name") or text in ("(", "{")

    def signs(self) -> str:
        """Consume signs in a row; return the one that they make."""
        sign = "+"
        while text := self.accept("+", "-"):
            sign = sign if text == "+" else "-" if sign == "+" else "+"
        return sign

    def signed_power(self) -> Tree:
        self.accept(" ")
        return _signed(self.signs(), self.power())

    def power(self) -> Tree:
        tree = self.primary()
        depth = self.depth
        while True:
            if self.accept("!"):
                self.descend()
                tree = ("call", "factorial", tree)
            elif self.accept("%") or self.next.kind == "unit":
                self.position += self.next.kind == "unit"
            elif self.accept("^"):
                if self.accept(r"\circ"):
                    if self.in_trigonometric:
                        self.descend()
                        tree = ("*", tree, ("/", ("constant", "pi"), ("number", Fraction(180))))
                elif not self.ordinal():
                    exponents = [self.argument()]
                    if tree[0] == "name":  # `v^2_0`
                        tree = ("name", tree[1] + self.subscript())
                    self.descend()
                    while self.accept("^"):  # `2^3^2` is 2^9
                        self.descend()
                        exponents.append(self.argument())
                    tree = ("^", tree, reduce(lambda top, base: ("^", base, top), reversed(exponents)))
            else:
                self.depth = depth
                return tree

    def ordinal(self) -> bool:
        """Consume the rest of `12^{\text{th}}`, which is 12."""
        start = self.position
        braced = self.accept("{")
        if self.accept("th", "st", "nd", "rd") and (not braced or self.accept("}")):
            return True
        self.position = start
        return False

    def argument(self) -> Tree:
        """What follows `^` or `\\sqrt`: a group, or one token, where all digits of a number are one."""
        if self.accept("{"):
            tree = self.sum()
            self.expect("}")
            return tree
        return _signed(self.signs(), self.primary())

    def digit_argument(self) -> Tree:
        """What follows `\\frac`: a group, or one token, where a digit is one, as in TeX."""
        kind, text = self.next
        if kind == "number" and len(text) > 1:
            if not text.isdigit():
                raise self.refusal()
            self.tokens[self.position] = Token("number", text[1:])
            return ("number", _number(text[0]))
        return self.argument()

    def last_argument(self) -> Tree:
        """The last argument of `\\frac`. `\\frac919` is 81 to TeX, but 9/19 to whoever writes it: nobody's."""
        kind, text = self.next
        if kind == "number" and len(text) > 1:
            raise Incomparable(f"digits without braces after a fraction: {text}")
        return self.argument()

    def primary(self) -> Tree:
        self.accept(" ")
        self.descend()
        kind, text = self.take()
        if kind == "number":
            tree = self.number(text)
        elif kind == "name":
            tree = self.name(text)
        elif kind == "command":
            tree = self.command(text[1:])
        elif text in ("(", "{"):
            tree = self.closed({"(": ")", "{": "}"}[text])
        elif text == "|":
            self.in_bars += 1
            tree = ("call", "abs", self.closed("|"))
            self.in_bars -= 1
        else:
            self.position -= 1
            raise self.refusal()
        self.depth -= 1
        return tree

    def closed(self, closing: str) -> Tree:
        in_bars, self.in_bars = self.in_bars, self.in_bars if closing == "|" else 0
        tree = self.sum()
        self.expect(closing)
        self.in_bars = in_bars
        return tree

    def number(self, text: str) -> Tree:
        """A number, a mixed number, or a repeating decimal `0.1\\overline{6}`."""
        if self.next.text == r"\overline" and "." in text:
            self.take()
            period = self.tokens[self.position : self.position + 3]
            digits = period[1].text if len(period) == 3 and period[0].text == "{" else period[0].text if period else ""
            if not (digits.isascii() and digits.isdigit()):
                raise self.refusal()
            self.position += 3 if period[0].text == "{" else 1
            scale = 10 ** len(text.partition(".")[2])
            return ("number", _number(text) + Fraction(int(digits), (10 ** len(digits) - 1) * scale))
        value = ("number", _number(text))
        before = self.tokens[self.position - 2] if self.position > 1 else _END
        if text.isdigit() and before.kind in ("end", "symbol") and before.text not in ("^", "_", "]", "/", ")"):
            start, tokens = self.position, self.tokens.copy()
            fraction = self.proper_fraction() if self.next.text in (" ", r"\frac") else None
            if fraction is not None:
                return ("+", value, fraction)
            self.position, self.tokens = start, tokens
        return value

    def proper_fraction(self) -> Tree | None:
        """The fraction of a mixed number: `1\\frac12`, `1 1/2`."""
        spaced = self.accept(" ")
        if not spaced and not self.accept(r"\frac"):
            return None
        top, bottom = self.integer(one_digit=not spaced), None
        if not spaced or self.accept("/"):
            bottom = self.integer(one_digit=not spaced)
        if top is None or bottom is None or not 0 <= top < bottom:
            return None
        return ("number", Fraction(top, bottom))

    def integer(self, one_digit: bool) -> int | None:
        braced = self.accept("{")
        kind, text = self.next
        if kind != "number" or not text.isdigit():
            return None
        if one_digit and not braced and len(text) > 1:
            self.tokens[self.position] = Token("number", text[1:])
            return int(text[0])
        self.take()
        if braced and not self.accept("}"):
            return None
        return int(text)

    def name(self, text: str) -> Tree:
        if text in ("e", "i") and self.next.text != "_":
            return ("constant", text)
        name = text + self.subscript()
        if name in ("f", "g", "h") and self.accept("("):  # as a product, f(x+1) = f(x) + f(1) would hold for every f
            return ("call", name, self.closed(")"))
        return ("name", name)

    def subscript(self) -> str:
        """Subscript and primes, as text: `x_{1}'` has `_1'`."""
        text = ""
        while mark := self.accept("_", "'"):
            text += mark
            if mark == "_":
                tokens = self.group() if self.accept("{") else [self.take()]
                if not tokens or tokens[0].kind not in ("number", "name", "text", "command", "word", "symbol"):
                    raise self.refusal()
                text += "".join(token.text.replace(" ", "") for token in tokens)
        return text

    def group(self) -> list[Token]:
        """The tokens up to the closing brace of a group whose opening brace was taken."""
        start, depth = self.position, 1
        while depth:
            if self.next is _END:
                raise self.refusal()
            depth += {"{": 1, "}": -1}.get(self.take().text, 0)
        return self.tokens[start : self.position - 1]

    def command(self, name: str) -> Tree:
        if name == "pi":
            return ("constant", "pi")
        if name in GREEK:
            return ("name", f"\\{name}{self.subscript()}")
        if name == "frac":
            return ("/", self.digit_argument(), self.last_argument())
        if name == "binom":
            return ("call", "binomial", self.digit_argument(), self.last_argument())
        if name == "sqrt":
            return self.root()
        if name in FUNCTION_NAMES:
            return self.function(name)
        if name == "abs":
            return ("call", "abs", self.argument())
        if name in ("lfloor", "lceil"):
            tree = self.closed("\\r" + name[1:])
            return ("call", name[1:], tree)
        if name in _DECORATIONS:
            tokens = self.group() if self.accept("{") else [self.take()]
            if not tokens or any(token.kind not in ("name", "command") for token in tokens):
                raise self.refusal()
            return ("name", f"\\{name} {''.join(token.text for token in tokens)}{self.subscript()}")
        self.position -= 1
        raise self.refusal()

    def root(self) -> Tree:
        degree = _TWO
        if self.accept("["):
            degree = self.closed("]")
        return ("^", self.argument(), ("/", _ONE, degree))

    def function(self, name: str) -> Tree:
        exponent, base = None, None
        while mark := self.accept("^", "_"):
            if mark == "^":
                exponent = self.argument()
            else:
                base = self.argument()
        if base is not None and name != "log":
            raise self.refusal()
        self.in_trigonometric += name in TRIGONOMETRIC
        operand = self.operand()
        self.in_trigonometric -= name in TRIGONOMETRIC
        if exponent == ("neg", _ONE) and name in TRIGONOMETRIC:
            return ("call", f"arc{name}", operand)
        call: Tree = ("call", name, operand)
        if base is not None:
            call = ("/", ("call", "ln", operand), ("call", "ln", base))
        return call if exponent is None else ("^", call, exponent)

    def operand(self) -> Tree:
        """What a function applies to: a bracket, or the product up to a sign, a bracket or another function."""
        sign = self.signs()
        bracketed = self.next.text in ("(", "{", "|")
        factors = [self.power()]
        while not bracketed and self.begins_factor() and self.next.text not in ("(", "{", "|"):
            if self.next.text[1:] in FUNCTION_NAMES:
                break
            self.accept(" ")
            factors.append(self.power())
        return _signed(sign, factors[0] if len(factors) == 1 else ("*", *factors))


_OTHER_COMMANDS = ("pi", "frac", "binom", "sqrt", "abs", "lfloor", "lceil")
_FACTOR_COMMANDS = frozenset((*GREEK, *FUNCTION_NAMES, *_DECORATIONS, *_OTHER_COMMANDS))


def _signed(sign: str, tree: Tree) -> Tree:
    if sign == "+":
        return tree
    return ("neg", tree) if sign == "-" else ("pm", 1 if sign == r"\pm" else -1, tree)


def _number(text: str) -> Fraction:
    return Fraction(int(text) if text.isdigit() else text)
