r"""Read plain LaTeX as an expression tree (`trees`), without evaluating anything.

A closed grammar over the output of `plain_latex`: numbers, variables with subscripts, `+ - \pm \cdot / ^ !`, fractions,
roots, binomials, absolute values, floors, elementary functions and implicit products. Whatever is outside it raises
`NotUnderstood`, whatever is larger than the bounds raises `TooLarge`; both bounds count tokens and nesting, never time,
so that every machine reads a text alike.
"""

from fractions import Fraction
from itertools import takewhile

from outcome_rl.outcomes.canonical.lexer import (
    CALLED,
    END,
    FUNCTION_NAMES,
    GREEK,
    MAX_DEPTH,
    Incomparable,
    NotUnderstood,
    Token,
    Tokens,
    TooLarge,
    Words,
    closing,
    positions,
)
from outcome_rl.outcomes.canonical.notations import clock_key
from outcome_rl.outcomes.canonical.trees import Apply, Call, Constant, Name, Rational, Tree, call

ONE = Rational(Fraction(1))
CLOSE = Token("symbol", ")")
TRIGONOMETRIC = ("sin", "cos", "tan", "cot", "sec", "csc")
_TWO = Rational(Fraction(2))


def parse_expression(tokens: Tokens, pm: int = 0) -> Tree:
    """Return the tree of an expression.

    Args:
        tokens: all of its tokens.
        pm: the sign that `\\pm` is read as, 1 or -1, and `\\mp` as the other; 0 reads neither.

    Raises:
        NotUnderstood: not an expression of the grammar; `Words` if it holds prose.
        Incomparable: ambiguous; `TooLarge` if it is nested deeper than `MAX_DEPTH`.
    """
    parser = _Parser(tokens, pm)
    tree = parser.sum()
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


def _number(text: str) -> Fraction:
    """Return the value of a mixed number, `1 1/2`, or of a decimal, which may repeat: `0.1\\overline{6}`."""
    whole, mixed, part = text.partition(" ")
    if mixed:
        return int(whole) + Fraction(part)
    text, mark, period = text.partition("\\")
    if not mark:
        return Fraction(int(text) if text.isdigit() else text)
    digits = "".join(sign for sign in period if sign.isdigit())
    return Fraction(f"0{text}") + Fraction(int(digits), (10 ** len(digits) - 1) * 10 ** len(text.partition(".")[2]))


class _Parser:
    """Recursive descent; every method but `peek` and `next` consumes what it returns."""

    def __init__(self, tokens: Tokens, pm: int) -> None:
        self.tokens = [*tokens, END]
        self.position = 0
        self.pm = pm
        self.depth = 0
        self.in_bars = 0
        self.in_trigonometric = 0
        self.argument_end = -1  # of the last fraction or binomial coefficient

    def peek(self, offset: int) -> Token:
        """Return the token at an offset from the next one, or one of the kind "end" where there is none."""
        at = self.position + offset
        return self.tokens[at] if 0 <= at < len(self.tokens) else END

    @property
    def next(self) -> Token:
        return self.tokens[self.position]

    def take(self) -> Token:
        self.position += 1
        return self.tokens[self.position - 1]

    def accept(self, *texts: str) -> str | None:
        return self.take().text if self.tokens[self.position].text in texts else None

    def expect(self, text: str) -> None:
        if self.accept(text) is None:
            raise self.refusal()

    def group(self) -> Tokens:
        """Return the tokens of a group in braces, or the next one."""
        if self.next is END:
            raise Incomparable("a subscript is missing")
        if not self.accept("{"):
            return [self.take()]
        start, end = self.position, closing(self.tokens, self.position - 1)
        if end < 0:
            raise self.refusal()
        self.position = end + 1
        return self.tokens[start:end]

    def refusal(self) -> NotUnderstood:
        kind, text = self.next
        return (Words if kind in ("word", "text") else NotUnderstood)(f"{kind} {text!r}")

    def signs(self) -> str:
        """Consume signs in a row; return the one that they make."""
        sign = "+"
        while text := self.accept("+", "-"):
            sign = sign if text == "+" else "-" if sign == "+" else "+"
        return sign

    def descend(self) -> None:
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise TooLarge(f"nested deeper than {MAX_DEPTH}")

    def sum(self) -> Tree:
        """Terms; a sum or product is one node, however long, so that trees are no deeper than texts are nested."""
        terms = [_signed(self.sign_of_term() or "+", self.product())]
        while sign := self.sign_of_term():
            terms.append(_signed(sign, self.product()))
        return terms[0] if len(terms) == 1 else Call("+", tuple(terms))

    def sign_of_term(self) -> str | None:
        sign = self.accept("+", "-", r"\pm", r"\mp")
        if sign in (r"\pm", r"\mp"):
            if not self.pm:
                raise NotUnderstood("a sign of two")
            return "+" if (self.pm > 0) == (sign == r"\pm") else "-"
        return sign

    def product(self) -> Tree:
        factors = [self.signed_power()]
        while True:
            if self.accept(r"\cdot", r"\times", "*"):
                factors.append(self.signed_power())
            elif quotient := self.accept("/", r"\div", ":", "÷"):
                if quotient == ":" and clock_key("".join(self.peek(i).text for i in (-2, -1, 0))):
                    raise Incomparable("a time or a ratio")
                factors.append(call("/", ONE, self.signed_power()))
            elif self.begins_factor():
                self.accept(" ")
                factors.append(self.power())
            else:
                break
        match factors:
            case [top, Call("/", (one, bottom))] if one == ONE:
                return call("/", top, bottom)
        return factors[0] if len(factors) == 1 else Call("*", tuple(factors))

    def begins_factor(self) -> bool:
        """Whether the next token begins a factor without a sign of multiplication."""
        kind, text = self.next
        if kind == "space":
            # Between two numbers; after an argument it is a product, after a bare number ambiguous: refuse.
            return self.position == self.argument_end or self.peek(-2).text in ("^", "_", r"\sqrt", "]")
        before = self.peek(-1)
        if before.kind == kind == "number":  # `1.2.3`, but `\\frac n1 3^n`
            return self.position == self.argument_end and self.peek(1).text == "^"
        if kind == "number" and (before.kind == "name" or before.text in _BEFORE_DIGITS):
            if self.peek(1).text == "^" and before.text != "|":  # `(n-1)2^n`
                return True
            raise Incomparable("digits behind a factor")  # `x2` may be an index, a power or a product, `2|n|12` a chain
        if (before.kind == "unit" or before.text in ("%", r"\circ")) and (kind == "number" or text == r"\frac"):
            raise Incomparable("a quantity in several units")  # `2 hours 30 minutes` is no product
        if before.kind == "number" and "." in before.text and self.is_bracket_of_atoms():
            return False  # the digits of `0.1(6)` repeat, or are uncertain
        if kind == "command":
            return text[1:] in FACTOR_COMMANDS
        if text == "|":
            return not self.in_bars
        return kind in ("number", "name") or text in ("(", "{")

    def signed_power(self) -> Tree:
        self.accept(" ")
        return _signed(self.signs(), self.power())

    def power(self) -> Tree:
        tree = self.primary()
        depth = self.depth
        while True:
            if self.accept("!"):
                self.descend()
                if self.next.text == "!":  # `n!!` is no factorial of a factorial
                    raise self.refusal()
                tree = Call("factorial", (tree,))
            elif self.accept("%"):
                pass
            elif self.next.kind == "unit":
                if self.in_trigonometric or isinstance(tree, Name | Apply):  # `\sin 30 degrees`, `x_1 cm`
                    raise self.refusal()
                self.position += 1
            elif self.degrees():
                if self.in_trigonometric:
                    self.descend()
                    tree = call("*", tree, _DEGREE)
            elif self.accept("^"):
                exponent = self.argument()
                if isinstance(tree, Name):  # `v^2_0`
                    tree = Name(tree.name + self.subscript())
                self.descend()
                if self.next.text == "^":  # TeX refuses `2^3^2`
                    raise self.refusal()
                tree = call("^", tree, exponent)
            else:
                self.depth = depth
                return tree

    def degrees(self) -> bool:
        """Consume the sign of degrees."""
        has_sign = self.next.text == "^" and self.peek(1).text == r"\circ"
        self.position += 2 * has_sign
        return has_sign

    def argument(self) -> Tree:
        """Read the operand of `^` or `\\sqrt`: a group or one token; all digits of a number are one token."""
        if self.accept("{"):
            return self.closed("}")[0]
        sign = self.signs()
        if (
            self.next.kind == "name"
        ):  # the `h` of `\\frac{x}h(y)` is no function: plain LaTeX has no braces around one token
            text = self.take().text
            return _signed(sign, Constant(text) if text in ("e", "i") else Name(text))
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
            tree: Tree = Rational(_number(text))
        elif kind == "name":
            tree = self.name(text)
        elif kind == "command":
            tree = self.command(text[1:])
        elif text in ("(", "{"):
            tree = self.closed({"(": ")", "{": "}"}[text])[0]
        elif text == "|":
            if self.next.text == "|":  # `||x||` is a norm
                raise self.refusal()
            self.in_bars += 1
            tree = Call("abs", self.closed(text))
            self.in_bars -= 1
        else:
            self.position -= 1
            raise self.refusal()
        self.depth -= 1
        return tree

    def closed(self, end: str, *separators: str) -> tuple[Tree, ...]:
        """Parse what stands before a closing bracket: one expression, or several between separators."""
        in_bars, self.in_bars = self.in_bars, self.in_bars if end == "|" else 0
        trees = [self.sum()]
        while self.accept(*separators):
            trees.append(self.sum())
        self.expect(end)
        self.in_bars = in_bars
        return tuple(trees)

    def subscript(self) -> str:
        """Subscript and primes, as text: `x_{1}'` has `_1'`."""
        text = ""
        while mark := self.accept("_", "'"):
            text += mark
            if mark == "_":
                text += "".join(token.text.replace(" ", "") for token in self.group())
        return text

    def name(self, text: str) -> Tree:
        if text in ("e", "i") and self.next.text != "_":
            return Constant(text)
        if text == "d" and self.next.kind == "name" and self.is_denominator():  # `dy/dx`
            raise self.refusal()
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
            exponent = self.argument()
            if self.next.text == "(":
                return Apply(f"{name}^{exponent}", self.arguments())
            self.position = start
        if self.next.text == "(" and (usual or self.is_bracket_of_atoms()):
            return Apply(name, self.arguments())
        return Name(name)

    def is_denominator(self) -> bool:
        """Whether the token before the next one begins a denominator."""
        before, opening = self.peek(-3), self.peek(-2).text
        return opening == "/" or (opening == "{" and (before.text == "}" or before.kind in ("name", "number")))

    def is_bracket_of_atoms(self) -> bool:
        """Whether the bracket that opens next holds one number or variable, or several behind commas."""
        inside = list(takewhile(lambda token: token != CLOSE, self.tokens[self.position + 1 :]))
        is_list = len(inside) % 2 == 1 and all(token == ("symbol", ",") for token in inside[1::2])
        are_atoms = all(kind in ("number", "name") or text[1:] in GREEK for kind, text in inside[::2])
        return is_list and are_atoms and self.peek(len(inside) + 1) == CLOSE

    def arguments(self) -> tuple[Tree, ...]:
        """Parse the arguments of a function, in brackets."""
        self.expect("(")
        return self.closed(")", ",")

    def command(self, name: str) -> Tree:
        if name == "pi":
            return Constant("pi")
        if name in GREEK:
            return self.applied(f"\\{name}{self.subscript()}")
        if name == "frac":
            return call("/", self.digit_argument(), self.digit_argument())
        if name == "binom":
            return Call("binomial", (self.digit_argument(), self.digit_argument()))
        if name == "sqrt":
            return self.root()
        if name in FUNCTION_NAMES:
            return self.function(name)
        if name in CALLED:
            return self.called(CALLED[name])
        if name in ("lfloor", "lceil"):
            return Call(name[1:], self.closed("\\r" + name[1:]))
        self.position -= 1
        raise self.refusal()

    def called(self, name: str) -> Tree:
        """Parse a function in the notation of computer algebra: `binomial(n, k)`, `Abs(x)`."""
        operands = self.arguments()
        if name == "root" and self.next.text == "(":  # `root(3)(2)`, as AsciiMath has it
            operands = (*self.arguments(), *operands)
        if len(operands) != (2 if name in ("binomial", "root") else 1):
            raise NotUnderstood(f"{name} of {len(operands)} arguments")
        return call("^", operands[0], call("/", ONE, operands[1])) if name == "root" else Call(name, operands)

    def root(self) -> Tree:
        degree: Tree = _TWO
        if self.accept("["):
            degree = self.closed("]")[0]
        return call("^", self.argument(), call("/", ONE, degree))

    def function(self, name: str) -> Tree:
        exponent: Tree | None = None
        base: Tree | None = Rational(Fraction(10)) if name == "lg" else None
        while mark := self.accept("^", "_"):
            if mark == "^":
                exponent = self.argument()
            else:
                base = self.argument()
        if base is not None and name not in ("log", "lg"):
            raise self.refusal()
        self.in_trigonometric += name in TRIGONOMETRIC
        operand = self.operand()
        self.in_trigonometric -= name in TRIGONOMETRIC
        if exponent == call("-", ONE):
            if f"arc{name}" not in FUNCTION_NAMES:
                raise NotUnderstood(f"the inverse of {name}, or 1 over it")
            return Call(f"arc{name}", (operand,))
        tree = call(name, operand) if base is None else call("/", call("ln", operand), call("ln", base))
        return tree if exponent is None else call("^", tree, exponent)

    def operand(self) -> Tree:
        """Read the argument of a function: a bracket, or the product up to a sign, a bracket or another function.

        A power after the bracket is a power of the function: `\\cos(x)^2` is `\\cos^2 x`.
        """
        sign = self.signs()
        opening = self.next.text
        if opening in ("(", "|"):
            tree = self.primary()
            return _signed(sign, call("*", tree, _DEGREE) if self.degrees() else tree)
        factors = [self.power()]
        while opening != "{" and self.begins_factor() and self.next.text not in ("(", "{", "|"):
            if self.next.text[1:] in FUNCTION_NAMES:
                break
            self.accept(" ")
            factors.append(self.power())
        return _signed(sign, factors[0] if len(factors) == 1 else Call("*", tuple(factors)))


_FUNCTION_LETTERS = frozenset("fghFGHPE") | {rf"\{name}" for name in ("phi", "varphi", "psi", "sigma", "Gamma", "zeta")}
_BEFORE_DIGITS = frozenset((")", "|", "'", r"\pi", *(f"\\{name}" for name in GREEK)))
_DEGREE = call("/", Constant("pi"), Rational(Fraction(180)))
_OTHER_COMMANDS = ("pi", "frac", "binom", "sqrt", "lfloor", "lceil")
FACTOR_COMMANDS = frozenset((*GREEK, *FUNCTION_NAMES, *CALLED, *_OTHER_COMMANDS))


def _signed(sign: str, tree: Tree) -> Tree:
    return tree if sign == "+" else call("-", tree)
