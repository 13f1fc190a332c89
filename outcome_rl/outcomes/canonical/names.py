r"""Names in formulas: indices and primes, corners, derivatives, vectors, and capitals that may be sets or matrices."""

from outcome_rl.outcomes.canonical.lexer import TokenReader
from outcome_rl.outcomes.canonical.numbers import ONE
from outcome_rl.outcomes.canonical.trees import Tree

DECORATIONS = ("vec", "overrightarrow", "overline", "bar", "hat", "widehat", "tilde")
_VECTORS = (r"\vec", r"\overrightarrow", r"\hat")


class NameReader(TokenReader):
    """Reads the parts of names; every method but `is_derivative` consumes what it returns."""

    def subscript(self) -> str:
        """Subscript and primes, as text: `x_{1}'` has `_1'`."""
        text = ""
        while mark := self.accept("_", "'"):
            text += mark
            if mark == "_":
                tokens = self.group()
                if not tokens or tokens[0].kind not in ("number", "name", "text", "command", "word", "symbol"):
                    raise self.refusal()
                text += "".join(token.text.replace(" ", "") for token in tokens)
        return text

    def corners(self, name: str) -> str:
        """Consume the corners of an angle or a triangle: ABC and CBA are one angle, a triangle is in any order."""
        tokens = list(self.group())
        while self.next.kind == "name" and self.peek(-1).text.isupper() and self.next.text.isupper():
            tokens.append(self.take())
        if not tokens or any(token.kind not in ("name", "command") for token in tokens):
            raise self.refusal()
        if len(tokens) > 1 and (self.next.text in ("'", "_") or any(token.kind != "name" for token in tokens)):
            raise self.refusal()
        text = "".join(token.text for token in tokens)
        if len(tokens) > 1 and name == "triangle":
            return "".join(sorted(text))
        return min(text, text[::-1]) if len(tokens) == 3 else text

    def is_derivative(self) -> bool:
        is_quotient = self.next.kind == "name" and (self.peek(1).text, self.peek(2).text) == ("/", "d")
        return is_quotient and self.peek(3).kind in ("name", "end")  # the end will be refused


def holds_vector(tree: object) -> bool:
    return isinstance(tree, tuple) and bool(tree) and (is_vector(tree) or any(map(holds_vector, tree)))


def is_vector(tree: Tree) -> bool:
    return bool(tree[0] == "name" and tree[1].startswith(_VECTORS))


def is_of_capital(tree: Tree) -> bool:
    """Whether a factor is a name with a capital, its inverse, or any name's transpose."""
    if tree[0] == "neg":
        return is_of_capital(tree[1])
    if tree[0] == "^" and tree[1][0] == "name":
        return tree[2] in (("name", "T"), (r"name", r"\top")) or (tree[2] == ("neg", ONE) and is_of_capital(tree[1]))
    return bool(tree[0] == "name" and tree[1][0].isupper())
