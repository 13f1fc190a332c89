r"""Numbers in formulas: decimals, periods, mixed numbers, and digits that are no number."""

from fractions import Fraction

from outcome_rl.outcomes.canonical.lexer import Token, TokenReader
from outcome_rl.outcomes.canonical.trees import Rational, Tree, call

ONE = Rational(Fraction(1))
CLOSE = Token("symbol", ")")
BEFORE_NUMBERS = frozenset((r"\pm", r"\mp", r"\times", r"\cdot", r"\div", r"\lfloor", r"\lceil"))


class NumberReader(TokenReader):
    """Reads numbers; every method consumes what it returns."""

    def number(self, text: str) -> Tree:
        """Parse a number or a mixed number."""
        value = Rational(_number(text))
        if not text.isdigit() or self.next.text not in (" ", r"\frac"):
            return value
        before = self.peek(-2)
        is_start = before.kind in ("end", "symbol") and before.text not in ("^", "_", "]", "/", ")")
        if is_start or before.text in BEFORE_NUMBERS:
            start = self.position
            if (fraction := self.proper_fraction()) is not None:
                return call("+", value, fraction)
            self.position = start
        return value

    def proper_fraction(self) -> Tree | None:
        """Parse the fraction of a mixed number: `1\\frac12`, `1 1/2`."""
        spaced = self.accept(" ", r"\frac") == " "
        top = self.integer(one_digit=not spaced)
        bottom = self.integer(one_digit=not spaced) if not spaced or self.accept("/") else None
        return None if top is None or bottom is None or top >= bottom else Rational(Fraction(top, bottom))

    def integer(self, one_digit: bool) -> int | None:
        braced = self.accept("{")
        kind, text = self.next
        if kind != "number" or not text.isdigit():
            return None
        if one_digit and not braced and len(text) > 1:
            return None
        self.take()
        if braced and not self.accept("}"):
            return None
        return int(text)

    def signs(self) -> str:
        """Consume signs in a row; return the one that they make."""
        sign = "+"
        while text := self.accept("+", "-"):
            sign = sign if text == "+" else "-" if sign == "+" else "+"
        return sign


def _number(text: str) -> Fraction:
    """Return the value of a decimal, which may repeat: `0.1\\overline{6}`."""
    text, mark, period = text.partition("\\")
    if not mark:
        return Fraction(int(text) if text.isdigit() else text)
    digits = "".join(sign for sign in period if sign.isdigit())
    return Fraction(f"0{text}") + Fraction(int(digits), (10 ** len(digits) - 1) * 10 ** len(text.partition(".")[2]))
