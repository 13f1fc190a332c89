r"""Read plain LaTeX as an expression tree (`trees`), without evaluating anything.

A closed grammar over the output of `plain_latex`: numbers, variables with subscripts, `+ - \pm \cdot / ^ !`, fractions,
roots, binomials, absolute values, floors, elementary functions and implicit products. Whatever is outside it raises
`NotUnderstood`, whatever is larger than the bounds raises `TooLarge`; both bounds count tokens and nesting, never time,
so that every machine reads a text alike.
"""

import re
from fractions import Fraction
from functools import reduce
from itertools import takewhile

from outcome_rl.outcomes.canonical.lexer import (
    CALLED,
    FUNCTION_NAMES,
    GREEK,
    MAX_DEPTH,
    Incomparable,
    NotUnderstood,
    Tokens,
    TooLarge,
    closing,
    positions,
    split,
    top_level,
)
from outcome_rl.outcomes.canonical.names import DECORATIONS, NameReader, holds_vector, is_of_capital, is_vector
from outcome_rl.outcomes.canonical.notations import clock_key
from outcome_rl.outcomes.canonical.numbers import CLOSE, ONE, NumberReader
from outcome_rl.outcomes.canonical.trees import Tree, names_in, nodes, with_value

MAX_TERMS = 100
MAX_SERIES_SIZE = 2000
TRIGONOMETRIC = ("sin", "cos", "tan", "cot", "sec", "csc")
_TWO: Tree = ("number", Fraction(2))


def parse_expression(tokens: Tokens) -> Tree:
    """Return the tree of an expression.

    Raises:
        NotUnderstood: not an expression of the grammar; `Words` if it holds prose.
        Incomparable: ambiguous; `TooLarge` if it is nested deeper than `MAX_DEPTH`.
    """
    parser = _Parser(tokens)
    tree = parser.choice()
    if parser.position != len(tokens):
        raise parser.refusal()
    _check_unit(tokens)
    return tree


def _check_unit(tokens: Tokens) -> None:
    """Refuse units that are not the last thing said: `3 cm + 5 m`, `20\\% \\cdot 50`, `5 s^{-1}`, `100 + 50\\%`.

    A unit or a percent sign is dropped, because a question asks for its answer in one unit. Inside a formula it would
    change the value.
    """
    at = next((i for i, token in enumerate(tokens) if token.kind == "unit" or token.text == "%"), None)
    if at is None:
        return
    if any(token.text not in (")", "}", "]") for token in tokens[at + 1 :]):
        raise NotUnderstood("a unit inside a formula")
    if tokens[at].text == "%" and any(i > 0 for i in positions(tokens, ("+", "-", r"\pm", r"\mp"))):
        raise NotUnderstood("a sum with percents")


class _Parser(NumberReader, NameReader):
    """Recursive descent; every method consumes what it returns."""

    def __init__(self, tokens: Tokens) -> None:
        super().__init__(tokens)
        self.depth = 0
        self.in_bars = 0
        self.in_trigonometric = 0
        self.argument_end = -1  # of the last fraction or binomial coefficient
        self.bound: list[str] = []  # the variables of the series around

    def descend(self) -> None:
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise TooLarge(f"nested deeper than {MAX_DEPTH}")

    def choice(self) -> Tree:
        """Parse a sum, the binomial coefficient `n \\choose k`, or the fraction `a \\over b`."""
        tree = self.sum()
        if self.accept(r"\over"):
            return ("/", tree, self.sum())
        return ("call", "binomial", tree, self.sum()) if self.accept(r"\choose") else tree

    def sum(self) -> Tree:
        """Terms; a sum or product is one node, however long, so that trees are no deeper than texts are nested."""
        terms = [_signed(self.accept("+", "-", r"\pm", r"\mp") or "+", self.product())]
        while sign := self.accept("+", "-", r"\pm", r"\mp"):
            terms.append(_signed(sign, self.product()))
        return terms[0] if len(terms) == 1 else ("+", *terms)

    def product(self) -> Tree:
        start = self.position
        factors = [self.signed_power()]
        may_cross = False
        while True:
            if sign := self.accept(r"\cdot", r"\times", "*"):
                factor = self.signed_power()
                if sign[0] == "\\" and is_vector(factors[-1]) and is_vector(factor):
                    factor = ("apply", sign[1:], factors.pop(), factor)
                else:
                    may_cross = may_cross or sign == r"\times"
                factors.append(factor)
            elif quotient := self.accept("/", r"\div", ":", "÷"):
                if quotient == ":" and clock_key("".join(self.peek(i).text for i in (-2, -1, 0))):
                    raise Incomparable("a time or a ratio")
                factors.append(("/", ONE, self.signed_power()))
            elif self.begins_factor():
                self.accept(" ")
                has_bars = self.next.text in _BARS
                factors.append(self.power())
                if has_bars and self.next.kind == "name":
                    raise Incomparable("bars that may divide")  # `a|b|c`: a divides b, which divides c
            elif may_cross and sum(map(holds_vector, factors)) > 1:
                raise Incomparable("a cross product of more than names")  # `\vec a \times 2 \vec b`
            elif len(factors) == 2 and factors[1][:2] == ("/", ONE):
                return ("/", factors[0], factors[1][2])
            elif len(factors) == 1:
                return factors[0]
            else:
                return self.ordered(factors, start) if any(map(is_of_capital, factors)) else ("*", *factors)

    def ordered(self, factors: list[Tree], start: int) -> Tree:
        """Return a product of what may be sets or matrices, whose order counts: `A \\times B`, `A^T B`, `AB^{-1}`."""
        capitals = list(filter(is_of_capital, factors))
        if len(capitals) > 1 and any(factor[0] == "^" for factor in capitals):
            raise Incomparable("matrices may not commute")
        is_whole = (start, self.position) == (0, len(self.tokens))
        signs = {self.tokens[i].text for i in top_level(self.tokens)} & {r"\times", r"\cdot", "*"} if is_whole else ()
        if signs == {r"\times"} and all(factor[0] == "name" and is_of_capital(factor) for factor in factors):
            return ("apply", "times", *factors)
        return ("*", *factors)

    def begins_factor(self) -> bool:
        """Whether the next token begins a factor without a sign of multiplication."""
        kind, text = self.next
        if kind == "space":
            # Between two numbers; after an argument it is a product, after a bare number ambiguous: refuse.
            return self.position == self.argument_end or self.peek(-2).text in ("^", "_", r"\sqrt", "]")
        before = self.peek(-1)
        if before.kind == kind == "number":  # `1.2.3`
            return False
        if kind == "number" and (before.kind == "name" or before.text in _BEFORE_DIGITS) and not self.begins_power():
            raise Incomparable("digits behind a factor")  # `x2` may be an index, a power or a product, `2|n|12` a chain
        if (before.kind == "unit" or before.text in ("%", r"\circ")) and (kind == "number" or text == r"\frac"):
            raise Incomparable("a quantity in several units")  # `2 hours 30 minutes` is no product
        if before.kind == "number" and self.peek(-2).text not in ("_", "^") and self.is_other_digits(before.text):
            return False
        if kind == "command":
            return text[1:] in FACTOR_COMMANDS
        if text in _BARS:
            return not self.in_bars
        return kind in ("number", "name") or text in ("(", "{")

    def begins_power(self) -> bool:
        """Whether digits behind a factor begin another power: `(n-1)2^n`, `n2^{n-1}`, not `x1^n`."""
        if self.peek(1).text != "^":
            return False
        before, end = self.peek(-1), closing(self.tokens, self.position + 2)
        return before == CLOSE or (before.kind == "name" and before in self.tokens[self.position + 2 : end + 1])

    def signed_power(self) -> Tree:
        self.accept(" ")
        return _signed(self.signs(), self.power())

    def power(self) -> Tree:
        tree = self.primary()
        depth = self.depth
        while True:
            if self.accept("!"):
                self.descend()
                is_double = self.accept("!")
                if self.next.text == "!":
                    raise self.refusal()
                tree = ("call", "factorial2" if is_double else "factorial", tree)
            elif self.accept("%"):
                pass
            elif self.next.kind == "unit":
                if self.in_trigonometric or tree[0] in ("name", "apply"):  # `\sin 30 degrees`, `x_1 cm`
                    raise self.refusal()
                self.position += 1
            elif self.degrees():
                if self.in_trigonometric:
                    self.descend()
                    tree = ("*", tree, _DEGREE)
            elif self.accept("^"):
                if tree[0] in ("name", "apply") and self.is_bracketed_index():  # `y^{(4)}` is a derivative
                    raise self.refusal()
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

    def degrees(self) -> bool:
        """Consume the sign of degrees."""
        has_sign = self.next.text == "^" and self.peek(1).text == r"\circ"
        self.position += 2 * has_sign
        return has_sign

    def is_bracketed_index(self) -> bool:
        """Whether an exponent in braces is wholly in brackets, or one in brackets is a whole number."""
        if self.next.text == "{" and self.peek(1).text == "(":
            return closing(self.tokens, self.position + 1) + 1 == closing(self.tokens, self.position)
        return self.next.text == "(" and self.peek(1).kind == "number" and self.peek(2) == CLOSE

    def argument(self) -> Tree:
        """Read the operand of `^` or `\\sqrt`: a group or one token; all digits of a number are one token."""
        if self.accept("{"):
            tree = self.sum()
            self.expect("}")
            return tree
        sign = self.signs()
        kind, text = self.next
        # The `h` of `\\frac{x}h(y)` is no function: plain LaTeX has no braces around one token.
        if kind == "name" or (kind == "command" and text[1:] in (*GREEK, "pi")):
            self.position += 1
            is_constant = text in ("e", "i", r"\pi") and text not in self.bound
            return _signed(sign, ("constant", text.strip("\\")) if is_constant else ("name", text))
        return _signed(sign, self.primary())

    def digit_argument(self) -> Tree:
        """Parse an argument of `\\frac`: a group or a digit. `\\frac919` is 81 in TeX, but 9/19 is meant: refuse."""
        kind, text = self.next
        if kind == "number" and len(text) > 1:
            raise Incomparable(f"digits without braces in a fraction: {text}")
        tree = self.argument()
        self.argument_end = self.position
        return tree

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
        elif text in _BARS:
            self.in_bars += 1
            tree = ("call", "abs", self.closed(text))
            self.in_bars -= 1
            if text != "|" or (tree[2][:2] == ("call", "abs") and names_in(tree)):  # `||x||` is a norm
                tree = ("apply", f"norm{self.subscript()}", tree[2] if text != "|" else tree[2][2])
        else:
            self.position -= 1
            raise self.refusal()
        self.depth -= 1
        return tree

    def closed(self, end: str) -> Tree:
        in_bars, self.in_bars = self.in_bars, self.in_bars if end in _BARS else 0
        tree = self.choice()
        self.expect(end)
        self.in_bars = in_bars
        return tree

    def name(self, text: str) -> Tree:
        if text in ("e", "i") and self.next.text != "_" and text not in self.bound:
            return ("constant", text)
        if text == "d" and self.is_derivative():  # `dy/dx`
            tokens = self.tokens[self.position - 1 : self.position + 4]
            self.position += 4
            return ("name", "".join(token.text for token in tokens))
        return self.applied(text + self.subscript())

    def applied(self, name: str) -> Tree:
        """Parse a variable, or an unknown function of the arguments that follow in brackets.

        `f(x + 1)` is no product, or f(x + 1) = f(x) + f(1) would hold for every f. Letters that usually name functions
        are functions before every bracket, as are primed ones; others before a bracket that a product would not need:
        `n(n - 1)` is a product, `a(2)` is not.
        """
        start = self.position
        usual = name.partition("_")[0].partition("'")[0] in _FUNCTION_LETTERS or "'" in name
        if usual and self.accept("^"):  # `f^{-1}(x)`, `f^2(x)`
            if self.is_bracketed_index():
                raise self.refusal()
            exponent = self.argument()
            if self.next.text == "(":
                return ("apply", f"{name}^{exponent}", *self.arguments())
            self.position = start
        if self.next.text == "(" and (usual or self.is_bracket_of_atoms()):
            return ("apply", name, *self.arguments())
        return ("name", name)

    def is_bracket_of_atoms(self) -> bool:
        """Whether the bracket that opens next holds one number or variable, or several behind commas."""
        inside = list(takewhile(lambda token: token != CLOSE, self.tokens[self.position + 1 :]))
        is_list = len(inside) % 2 == 1 and all(token == ("symbol", ",") for token in inside[1::2])
        are_atoms = all(kind in ("number", "name") or text[1:] in GREEK for kind, text in inside[::2])
        return is_list and are_atoms and self.peek(len(inside) + 1) == CLOSE

    def arguments(self, opening: str = "(", end: str = ")") -> list[Tree]:
        """Parse the arguments of a function, in brackets."""
        self.expect(opening)
        in_bars, self.in_bars = self.in_bars, 0
        trees = [self.sum()]
        while self.accept(","):
            trees.append(self.sum())
        self.expect(end)
        self.in_bars = in_bars
        return trees

    def command(self, name: str) -> Tree:
        if name == "pi":  # `\pi(x)` counts primes
            counts = self.next.text == "(" and self.peek(1).kind == "name" and self.peek(2) == CLOSE
            return ("apply", "pi", *self.arguments()) if counts else ("constant", "pi")
        if name == "Delta" and (self.next.kind == "name" or self.next.text[1:] in GREEK):
            # `\Delta v / \Delta t` is no quotient of v and t.
            return ("name", f"\\Delta {self.take().text}{self.subscript()}")
        if name in GREEK:
            return self.applied(f"\\{name}{self.subscript()}")
        if name == "frac":
            return _quotient(self.digit_argument(), self.digit_argument())
        if name == "binom":
            return ("call", "binomial", self.digit_argument(), self.digit_argument())
        if name == "sqrt":
            return self.root()
        if name in FUNCTION_NAMES:
            return self.function(name)
        if name == "abs" and self.next.text != "(":
            return ("call", "abs", self.argument())
        if name in CALLED:
            return self.called(CALLED[name])
        if name in _SERIES:
            return self.series(_SERIES[name])
        if name in ("lfloor", "lceil"):
            tree = self.closed("\\r" + name[1:])
            return ("call", name[1:], tree)
        if name in ("angle", "triangle"):
            return ("name", f"\\{name} {self.corners(name)}{self.subscript()}")
        if name in DECORATIONS:
            tokens = self.group()
            if not tokens or any(token.kind not in ("name", "command") for token in tokens):
                raise self.refusal()
            return ("name", f"\\{name} {''.join(token.text for token in tokens)}{self.subscript()}")
        self.position -= 1
        raise self.refusal()

    def called(self, name: str) -> Tree:
        """Parse a function in the notation of computer algebra: `binomial(n, k)`, `\\max(a, b)`, `\\max\\{a, b\\}`."""
        operands = self.arguments(r"\{", r"\}") if self.next.text == r"\{" else self.arguments()
        if name == "root" and len(operands) == 1 and self.next.text == "(":  # `root(3)(2)`, as AsciiMath has it
            operands = [*self.arguments(), *operands]
        least, most = _ARITIES.get(name, (1, 1))
        if not least <= len(operands) <= most:
            raise NotUnderstood(f"{name} of {len(operands)} arguments")
        if name == "cbrt":
            return ("^", operands[0], ("/", ONE, ("number", Fraction(3))))
        if name == "root":
            return ("^", operands[0], ("/", ONE, operands[1]))
        return ("call", name, *operands)

    def series(self, operator: str) -> Tree:
        """Parse a finite sum or product, term by term: `\\sum_{k=1}^{3} k^2`."""
        self.expect("_")
        self.expect("{")
        kind, name = self.take()
        self.expect("=")
        low = self.whole_number()
        self.expect("}")
        self.expect("^")
        braced = self.accept("{")
        high = self.whole_number()
        if braced:
            self.expect("}")
        if kind != "name" or not 0 < high - low + 1 <= MAX_TERMS:
            raise NotUnderstood(f"a series of {high - low + 1} terms")
        self.bound.append(name)
        body = self.product()
        self.bound.pop()
        if any(node[0] in ("name", "apply") and name in _INDEX.split(str(node[1]))[1:] for node in nodes(body)):
            raise NotUnderstood("a series of numbered names")
        if (high - low + 1) * len(list(nodes(body))) > MAX_SERIES_SIZE:
            raise TooLarge("a series of too many terms")
        return (operator, *(with_value(body, name, ("number", Fraction(k))) for k in range(low, high + 1)))

    def root(self) -> Tree:
        degree = _TWO
        if self.accept("["):
            degree = self.closed("]")
        return ("^", self.argument(), ("/", ONE, degree))

    def function(self, name: str) -> Tree:
        exponent, base = None, None
        while mark := self.accept("^", "_"):
            if mark == "^":
                if self.is_bracketed_index():
                    raise self.refusal()
                exponent = self.argument()
            else:
                base = self.argument()
        if base is not None and name != "log":
            raise self.refusal()
        if name == "log" and base is None and exponent is None and self.is_pair():  # `log(8, 2)`
            operand, base = self.arguments()
        else:
            self.in_trigonometric += name in TRIGONOMETRIC
            operand = self.operand()
            self.in_trigonometric -= name in TRIGONOMETRIC
        if exponent == ("neg", ONE):
            if f"arc{name}" not in FUNCTION_NAMES:
                raise NotUnderstood(f"the inverse of {name}, or 1 over it")
            return ("call", f"arc{name}", operand)
        call: Tree = ("call", name, operand)
        if base is not None:
            call = ("/", ("call", "ln", operand), ("call", "ln", base))
        return call if exponent is None else ("^", call, exponent)

    def is_pair(self) -> bool:
        """Whether the bracket that opens next holds a comma."""
        end = closing(self.tokens, self.position) if self.next.text == "(" else -1
        return end > 0 and len(list(split(self.tokens[self.position + 1 : end], (",",)))) == 2

    def operand(self) -> Tree:
        """Read the argument of a function: a bracket, or the product up to a sign, a bracket or another function.

        A power after the bracket is a power of the function: `\\cos(x)^2` is `\\cos^2 x`.
        """
        sign = self.signs()
        opening = self.next.text
        if opening in ("(", "|"):
            tree = self.primary()
            if opening == "|" and self.next.text == "^":
                raise Incomparable("a power behind the bars of a function's argument")
            return _signed(sign, ("*", tree, _DEGREE) if self.degrees() else tree)
        factors = [self.power()]
        while opening != "{" and self.begins_factor() and self.next.text not in ("(", "{", *_BARS):
            if self.next.text[1:] in FUNCTION_NAMES:
                break
            self.accept(" ")
            factors.append(self.power())
        return _signed(sign, factors[0] if len(factors) == 1 else ("*", *factors))


_BARS = ("|", r"\|")
_INDEX = re.compile(r"[_^{}()',]+")
_FUNCTION_LETTERS = frozenset("fghFGHP") | {rf"\{name}" for name in ("phi", "varphi", "psi", "sigma", "Gamma", "zeta")}
_ARITIES = {"max": (2, 99), "min": (2, 99), "gcd": (2, 99), "lcm": (2, 99), "binomial": (2, 2), "root": (2, 2)}
_BEFORE_DIGITS = frozenset((")", "|", "'", r"\pi", *(f"\\{name}" for name in GREEK)))
_DEGREE: Tree = ("/", ("constant", "pi"), ("number", Fraction(180)))
_SERIES = {"sum": "+", "prod": "*"}
_OTHER_COMMANDS = (*_SERIES, "pi", "frac", "binom", "sqrt", "lfloor", "lceil")
FACTOR_COMMANDS = frozenset((*GREEK, *FUNCTION_NAMES, *CALLED, *DECORATIONS, "angle", "triangle", *_OTHER_COMMANDS))


def _quotient(top: Tree, bottom: Tree) -> Tree:
    """Return a fraction; a fraction of differentials, as in Leibniz's derivative, is a name."""
    d = ("name", "d")
    first = top[1] if top[0] == "*" else top
    if bottom[:2] == ("*", d) and (first == d or first[:2] == ("^", d)):
        return ("name", f"{top}/{bottom}")
    return ("/", top, bottom)


def _signed(sign: str, tree: Tree) -> Tree:
    if sign == "+":
        return tree
    return ("neg", tree) if sign == "-" else ("pm", 1 if sign == r"\pm" else -1, tree)
