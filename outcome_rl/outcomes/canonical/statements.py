"""Statements: one item of an answer, such as `x = 5`, `x + 1 < 4`, `(1, 2]` or `2 + 2 = 4`, as elements."""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from outcome_rl.outcomes.canonical import arithmetic, intervals
from outcome_rl.outcomes.canonical.arithmetic import Number, add, divide, is_real, simplified
from outcome_rl.outcomes.canonical.evaluate import POINTS, Evaluator, ratio_key, variable
from outcome_rl.outcomes.canonical.intervals import INFINITY, RealSet, list_key, set_key
from outcome_rl.outcomes.canonical.labels import EQUAL, holds_label, label_of, place_of_label
from outcome_rl.outcomes.canonical.lexer import (
    Incomparable,
    NotUnderstood,
    Token,
    Tokens,
    Words,
    closing,
    names_of,
    positions,
    split,
    top_level,
    trimmed,
    words_in,
)
from outcome_rl.outcomes.canonical.notations import clock_key, folded, is_word
from outcome_rl.outcomes.canonical.parser import parse_expression
from outcome_rl.outcomes.canonical.trees import Call, Constant, Rational, Tree, call, names_in, nodes

_ABOUT, _ELEMENT = r"\approx", r"\in"
FLIPPED = {"<": ">", ">": "<", r"\leq": r"\geq", r"\geq": r"\leq", r"\neq": r"\neq"}
RELATIONS = frozenset((EQUAL, _ABOUT, _ELEMENT, *FLIPPED))
_SET_SIGNS = (r"\cup", r"\cap", r"\setminus", r"\\")
_SETS = frozenset(("(", "[", r"\{", r"\mathbb", r"\emptyset"))
_SIGNS = (r"\pm", r"\mp")
_PI = Constant("pi")
_COORDINATES = frozenset("xyz")


class Element(NamedTuple):
    """One value of an answer."""

    key: str
    label: str | None = None  # `x` of `x = 5`
    numbers: RealSet | None = None  # that it stands for, if any


def tuple_key(opening: str, keys: Iterable[str], closing: str) -> str:
    return f"{opening}{';'.join(keys)}{closing}"


def read_item(item: Tokens, evaluator: Evaluator, integer: str | None, *, is_alone: bool) -> list[Element]:
    """Return the values of one item: two if it holds a sign `\\pm` outside of a set.

    Args:
        integer: the letter that stands for any integer next to `\\pi`, if there is one.
    """
    texts = [token.text for token in item]
    if texts.count(r"\pm") > 1:
        raise NotUnderstood("two values or four")
    has_signs = any(sign in texts for sign in _SIGNS)
    has_two = has_signs and any(token.text in _SIGNS for token in _outside_of_sets(item))
    readers = [_Reader(evaluator, sign, integer) for sign in ((1, -1) if has_two else (int(has_signs),))]
    return [reader.statement(item) if is_alone else reader.member(item) for reader in readers]


def _outside_of_sets(tokens: Tokens) -> Iterator[Token]:
    depth = 0
    for token in tokens:
        depth += (token.text == r"\{") - (token.text == r"\}")
        if not depth:
            yield token


class _Reader:
    """Reads statements, with `\\pm` read as a sign: 1 or -1, and 0 where there is none."""

    def __init__(self, evaluator: Evaluator, pm: int, integer: str | None) -> None:
        self.evaluator = evaluator
        self.pm = pm
        self.integer = integer

    def parse(self, tokens: Tokens) -> Tree:
        if words_in(tokens):
            raise Words("a word in a formula")
        return parse_expression(tokens, self.pm)

    def statement(self, tokens: Tokens) -> Element:
        signs = positions(tokens, RELATIONS)
        if not signs:
            return self.value(tokens)
        sides = list(split(tokens, RELATIONS))
        operators = [tokens[i].text for i in signs]
        if _ABOUT in operators:
            cut = operators.index(_ABOUT)
            if not sides[0] and len(sides) == 2:  # `\approx 3.14`
                return self.statement(sides[1])
            if cut > 0 or label_of(sides[0]) is None:  # `x = \sqrt2 \approx 1.41` is exactly known
                return self.statement(tokens[: signs[cut]])
            operators[0] = EQUAL
        if set(operators) == {EQUAL}:
            return self.equation(sides)
        if operators == [_ELEMENT]:
            label, element = label_of(sides[0]), self.value(sides[1])
            if label is None or element.numbers is None:
                raise NotUnderstood("an element of something that is no set of numbers")
            return element._replace(label=label)
        if all(operator in FLIPPED for operator in operators):
            return self.inequality([self.parse(side) for side in sides], operators)
        raise NotUnderstood("a chain of different relations")

    def equation(self, sides: list[Tokens]) -> Element:
        if len(sides) > 2 and len({self.value(side).key for side in sides[1:]}) > 1:
            raise NotUnderstood("a chain of different values")
        label = label_of(sides[0])
        if label is not None and not holds_label(label, sides[1:]) and not self.is_curve(label, sides[1:]):
            names = label[1:-1].split(",") if label.startswith("(") else []
            if names != sorted(set(names), key=place_of_label):
                raise NotUnderstood("a tuple whose labels are in another order")
            return self.value(sides[-1])._replace(label=label)
        left, right = _without_denominator(self.parse(sides[0]), self.parse(sides[-1]))
        difference = call("+", left, call("-", right))
        at = self.evaluator.values(difference)
        if not any(at):
            return self.expression(left)
        if not names_in(difference) or not all(at):
            raise NotUnderstood("an equation that does not hold, or only sometimes")
        if (zero := self.zero(difference)) is not None:
            return number_element(zero[0])._replace(label=min(names_in(difference)))
        return Element(ratio_key("eq", at))

    def is_curve(self, label: str, sides: list[Tokens]) -> bool:
        """Whether an equation relates names, as `y = x` and `a = b` do, or coordinates: `y = 2x + 3`."""
        if len(sides) > 1:
            return False
        if len(sides[0]) == 1 and names_of(sides[0]) - {"e", "i"}:
            return "(" not in label
        return label in _COORDINATES and not _COORDINATES.isdisjoint(names_of(sides[0]))

    def inequality(self, trees: list[Tree], operators: list[str]) -> Element:
        names = frozenset().union(*map(names_in, trees))
        if len(names) != 1:
            raise NotUnderstood("an inequality that is not of one variable")
        parts = [self.solve(*part) for part in zip(trees, operators, trees[1:], strict=False)]
        solutions = intervals.intersection(parts)
        return Element(set_key(solutions), min(names), solutions)

    def solve(self, left: Tree, operator: str, right: Tree) -> RealSet:
        """Return the real solutions of a linear relation in one variable, or in its absolute value."""
        if isinstance(right, Call) and right.name == "abs":
            left, operator, right = right, FLIPPED[operator], left
        match left:
            case Call("abs", (inside,)) if not names_in(right) and operator != r"\neq":
                sides = self.solve(inside, operator, right), self.solve(inside, FLIPPED[operator], call("-", right))
                return (intervals.union if operator in (">", r"\geq") else intervals.intersection)(sides)
        zero = self.zero(call("+", left, call("-", right)))
        if zero is None or not all(map(is_real, zero)):
            raise NotUnderstood("an inequality that is not linear")
        end, slope = zero
        operator = FLIPPED[operator] if slope < 0 else operator
        below = intervals.interval(-INFINITY, False, end, operator == r"\leq")
        above = intervals.interval(end, operator == r"\geq", INFINITY, False)
        return {"<": below, r"\leq": below, ">": above, r"\geq": above}.get(operator, below + above)

    def zero(self, tree: Tree) -> tuple[Number, Number] | None:
        """Return the zero and the slope of a linear function of one variable; None of any other one."""
        names = names_in(tree)
        if len(names) != 1:
            return None
        x, y = [variable(min(names), point) for point in range(POINTS)], self.evaluator.values(tree)
        steps = [(add(b, -a), add(d, -c)) for a, b, c, d in zip(x, x[1:], y, y[1:], strict=False)]
        slope, *others = [divide(rise, run) for run, rise in steps]
        if not slope or any(add(other, -slope) for other in others):
            return None
        return simplified(add(x[0], -divide(y[0], slope))), slope

    def value(self, tokens: Tokens) -> Element:
        """Return a set, a tuple, an interval, a matrix or an expression."""
        if not tokens:
            raise NotUnderstood("nothing")
        texts = [token.text for token in tokens]
        for sign in _SET_SIGNS:
            if sign in texts and len(parts := list(split(tokens, (sign,)))) > 1:
                return self.set_operation(parts, sign)
        minus = [i for i in top_level(tokens) if i and texts[i : i + 2] == ["-", r"\{"]] if r"\{" in texts else []
        if minus:
            return self.set_operation([tokens[: minus[-1]], tokens[minus[-1] + 1 :]], r"\setminus")
        if texts in ([r"\mathbb", "R"], [r"\mathbb", "{", "R", "}"]):
            return Element(set_key(intervals.REALS), numbers=intervals.REALS)
        if texts == [r"\emptyset"]:
            return Element(set_key(()), numbers=())
        if (infinity := _infinity(texts)) is not None:
            return Element(intervals.end_key(infinity))
        if notation := _notation(tokens):
            return Element(notation)
        if texts[0] == r"\begin":
            return self.matrix(tokens)
        if texts[0] in ("(", "[", r"\{", r"\langle") and closing(tokens, 0) == len(tokens) - 1:
            return self.bracket(texts[0], tokens[1:-1], texts[-1])
        if len(positions(tokens, (":",))) > 1:
            raise Incomparable("a time or a ratio")
        return self.expression(self.parse(tokens))

    def expression(self, tree: Tree) -> Element:
        names = names_in(tree)
        if not names:
            return number_element(self.evaluator.values(tree)[0])
        if self.integer in names and _PI in nodes(tree):
            return Element(f"over Z:{Evaluator(self.integer).key(tree)}")
        return Element(self.evaluator.key(tree))

    def bracket(self, opening: str, inside: Tokens, closing: str) -> Element:
        if opening == r"\{":
            return self.set(inside)
        parts = list(split(inside, (",", ";")))
        if len(parts) == 1 and f"{opening}{closing}" in ("()", "[]"):
            element = self.statement(inside)
            if opening == "[" and element.key.startswith("f:"):
                raise NotUnderstood("a formula, or its whole part")
            return element
        ends = [_infinity([token.text for token in part]) for part in parts]
        elements = [
            self.member(part) if end is None else Element(intervals.end_key(end))
            for part, end in zip(parts, ends, strict=True)
        ]
        if any(element.label for element in elements):
            raise NotUnderstood("members with names")
        opening, closing = opening.replace(r"\langle", "("), closing.replace(r"\rangle", ")")
        opening, closing = "(" if ends[0] else opening, ")" if ends[-1] else closing
        key = tuple_key(opening, (element.key for element in elements), closing)
        numbers = [point_of(one.numbers) if end is None else end for end, one in zip(ends, elements, strict=True)]
        low, high = numbers[0], numbers[-1]
        if len(parts) != 2 or low is None or high is None:
            return Element(key)
        return Element(key, numbers=intervals.interval(low, opening == "[", high, closing == "]") or None)

    def set(self, inside: Tokens) -> Element:
        if not inside:
            return Element(set_key(()), numbers=())
        for i in top_level(inside):
            if inside[i].text in ("|", ":") and (label := label_of(inside[:i])) is not None:
                condition = self.statement(inside[i + 1 :])
                if condition.label != label or "(" in label or any(token.text in _SIGNS for token in inside):
                    raise NotUnderstood("a condition on another name, on a tuple, or with two signs")
                return condition._replace(label=None)
        parts = list(split(inside, (",", ";")))
        members = [read_item(part, self.evaluator, self.integer, is_alone=False) for part in parts]
        elements = [element for member in members for element in member]
        if any(element.label for element in elements):
            raise NotUnderstood("members with names")
        if len(elements) == 1 and elements[0].key.startswith("f:"):
            raise NotUnderstood("a formula, or its fractional part")
        points = [element.numbers for element in elements if point_of(element.numbers) is not None]
        numbers = intervals.union(one for one in points if one is not None) if len(points) == len(elements) else None
        return Element(list_key(list({element.key for element in elements})), numbers=numbers)

    def member(self, tokens: Tokens) -> Element:
        """Return a value inside a set, a list, a tuple or a matrix."""
        tokens = trimmed(tokens)
        if tokens and tokens[0].text in (r"\emptyset", r"\{") and closing(tokens, 0) in (0, len(tokens) - 1):
            raise NotUnderstood("a set in another one, or in a list")  # it is no number, not even `\{5\}`
        return self.statement(tokens)

    def set_operation(self, parts: list[Tokens], sign: str) -> Element:
        if any(_SETS.isdisjoint(token.text for token in part) for part in parts):
            raise NotUnderstood("a set operation on something that is not a set")
        sets = [numbers for part in parts if (numbers := self.value(part).numbers) is not None]
        if len(sets) < len(parts):
            raise NotUnderstood("a union of sets with unknown ends")
        if sign not in (r"\cup", r"\cap"):  # the first without the others
            sets[1:] = map(intervals.complement, sets[1:])
        numbers = (intervals.union if sign == r"\cup" else intervals.intersection)(sets)
        return Element(set_key(numbers), numbers=numbers)

    def matrix(self, tokens: Tokens) -> Element:
        """`\\begin{pmatrix} 1 & 2 \\\\ 3 & 4 \\end{pmatrix}`; one column is a tuple."""
        end = closing(tokens, 1)
        kind = "".join(token.text for token in tokens[2:end])
        if kind == "cases":  # math-verify takes one piece for the whole
            raise Incomparable("a function in pieces")
        if kind not in ("pmatrix", "bmatrix", "matrix", "array", "smallmatrix"):
            raise NotUnderstood(f"the environment {kind}")
        if kind == "array":  # its columns: `{cc}`
            end = closing(tokens, end + 1)
        stop = next((i for i, token in enumerate(tokens) if token.text == r"\end"), -1)
        if stop < 0 or closing(tokens, stop + 1) != len(tokens) - 1:
            raise NotUnderstood("a matrix in an expression")
        rows = [row for row in split(tokens[end + 1 : stop], ("\\\\",)) if row]
        members = [[self.member(cell) for cell in split(row, ("&",))] for row in rows]
        if not rows or len({len(row) for row in members}) > 1 or any(one.label for row in members for one in row):
            raise NotUnderstood("a matrix with names, or rows of different lengths")
        cells = [[member.key for member in row] for row in members]
        if len(rows) == len(members[0]) == 1:
            return members[0][0]
        if len(cells[0]) == 1:
            return Element(tuple_key("(", (key for row in cells for key in row), ")"))
        return Element(tuple_key("M[", (tuple_key("(", row, ")") for row in cells), "]"))


def _without_denominator(left: Tree, right: Tree) -> tuple[Tree, Tree]:
    """Return the sides of `xy = 6` for `y = 6/x`, which has the same solutions."""
    for one, other in ((left, right), (right, left)):
        match one:
            case Call("/", (Rational(value) as top, bottom)) if value and names_in(bottom):
                return call("*", other, bottom), top
    return left, right


def number_element(value: Number) -> Element:
    return Element(arithmetic.number_key(value), numbers=intervals.point(value) if is_real(value) else None)


def point_of(numbers: RealSet | None) -> Number | None:
    return numbers[0].low if numbers is not None and len(numbers) == 1 and intervals.is_point(numbers[0]) else None


def _notation(tokens: Tokens) -> str | None:
    """Return the key of a word or a time in a list, which is no product or quotient there either."""
    text = "".join(token.text for token in tokens)
    if is_word(text) and all(token.kind == "name" for token in tokens):
        return f"t:{folded(text)}"
    return clock_key(text)


def _infinity(texts: Sequence[str]) -> float | None:
    return {r"\infty": INFINITY, r"+\infty": INFINITY, r"-\infty": -INFINITY}.get("".join(texts))
