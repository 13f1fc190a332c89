"""Statements: one item of an answer, such as `x = 5`, `x^2 < 4`, `(1, 2]` or `2 + 2 = 4`, as elements."""

from collections.abc import Iterator, Sequence
from fractions import Fraction
from itertools import pairwise
from typing import NamedTuple

from outcome_rl.outcomes.canonical import arithmetic, evaluate, intervals, quadratic
from outcome_rl.outcomes.canonical.arithmetic import Number
from outcome_rl.outcomes.canonical.elements import (
    AND,
    OR,
    Element,
    braced_key,
    joined,
    number_element,
    point_of,
    set_of,
    tuple_key,
    within,
)
from outcome_rl.outcomes.canonical.intervals import INFINITY, RealSet, set_key
from outcome_rl.outcomes.canonical.lexer import (
    Incomparable,
    NotUnderstood,
    Token,
    Tokens,
    Words,
    closing,
    positions,
    split,
    top_level,
    trimmed,
    words_in,
)
from outcome_rl.outcomes.canonical.lhs import (
    ELEMENT,
    EQUAL,
    domain_of,
    holds_label,
    is_angle,
    is_segment,
    label_of,
    place_of_label,
    without_domain,
)
from outcome_rl.outcomes.canonical.notations import clock_key, word_key
from outcome_rl.outcomes.canonical.parser import parse_expression
from outcome_rl.outcomes.canonical.trees import Tree, names_in, nodes, with_sign, with_value

_ABOUT, _CONGRUENT = r"\approx", r"\equiv"
FLIPPED = {"<": ">", ">": "<", r"\leq": r"\geq", r"\geq": r"\leq", r"\neq": r"\neq"}
_RELATIONS = frozenset((EQUAL, _ABOUT, _CONGRUENT, ELEMENT, *FLIPPED))
_SET_SIGNS = (r"\cup", r"\cap", r"\setminus", r"\\")
_SETS = frozenset(("(", "[", r"\{", r"\mathbb", r"\emptyset"))
_SIGNS = (r"\pm", r"\mp")
_TAGS = {">": "gt", r"\geq": "ge", r"\neq": "ne"}
_PI: Tree = ("constant", "pi")


class Parameter(NamedTuple):
    """A letter that stands for any number of a domain: k of `2k, k \\in \\mathbb{Z}`."""

    name: str
    domain: str
    is_declared: bool


def read_item(
    item: Tokens, evaluator: evaluate.Evaluator, parameter: Parameter | None, *, is_alone: bool
) -> list[Element]:
    """Return the values of one item: two if it holds a sign `\\pm` outside of a set."""
    signs = (1, -1) if any(token.text in _SIGNS for token in _outside_of_sets(item)) else (1,)
    if sum(token.text == r"\pm" for token in item) > 1:
        raise NotUnderstood("two values or four")
    has_signs = any(token.text in _SIGNS for token in item)
    readers = [_Reader(evaluator, sign if has_signs else 0, parameter) for sign in signs]
    return [reader.statement(item) if is_alone else reader.member(item) for reader in readers]


def _outside_of_sets(tokens: Tokens) -> Iterator[Token]:
    depth = 0
    for token in tokens:
        depth += (token.text == r"\{") - (token.text == r"\}")
        if not depth:
            yield token


class _Reader:
    """Reads statements, with `\\pm` read as a sign: 1 or -1, and 0 where there is none."""

    def __init__(self, evaluator: evaluate.Evaluator, pm: int, parameter: Parameter | None) -> None:
        self.evaluator = evaluator
        self.pm = pm
        self.parameter = parameter

    def parse(self, tokens: Tokens) -> Tree:
        if words_in(tokens):
            raise Words("a word in a formula")
        tree = parse_expression(tokens)
        return with_sign(tree, self.pm) if self.pm else tree

    def statement(self, tokens: Tokens) -> Element:
        signs = positions(tokens, _RELATIONS)
        if not signs:
            return self.congruence(tokens) if positions(tokens, (r"\pmod",)) else self.value(tokens)
        ends = [-1, *signs, len(tokens)]
        sides = [tokens[start + 1 : end] for start, end in pairwise(ends)]
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
        if operators == [ELEMENT] and label_of(sides[0]) is not None and not _SETS.isdisjoint(t.text for t in sides[1]):
            element = self.value(sides[1])
            if element.key.startswith("f:"):
                raise NotUnderstood("an element of a set with a name")
            return element._replace(label=label_of(sides[0]))
        if operators == [_CONGRUENT] and label_of(sides[0]) is not None:
            return self.congruence(sides[1])._replace(label=label_of(sides[0]))
        if all(operator in FLIPPED for operator in operators):
            return self.inequality([self.parse(side) for side in sides], operators)
        raise NotUnderstood("a chain of different relations")

    def equation(self, sides: list[Tokens]) -> Element:
        label = label_of(sides[0])
        if label is not None and not holds_label(label, sides[1:]) and not self.is_name(label, sides[1:]):
            if label.startswith("("):
                _check_tuple(label, sides[-1])
            values = [self.value(side) for side in sides[1:]]
            if len({value.key for value in values}) > 1:
                raise NotUnderstood("a chain of different values")
            return values[-1]._replace(label=label)
        if any(is_angle(token.text) for side in sides for token in side):
            raise NotUnderstood("an equation of angles, whose names count")
        if len(sides) > 2:
            raise NotUnderstood("a chain of equations")
        left, right = map(self.parse, sides)
        difference = ("+", left, ("neg", right))
        names = names_in(difference)
        at = self.evaluator.values(difference)
        if not any(at):
            return self.expression(left)
        if not names or not all(at):
            raise NotUnderstood("an equation that does not hold, or only sometimes")
        if len(names) == 1:
            if (function := self.quadratic(difference)) is not None:
                return set_of(map(number_element, quadratic.roots(*function)))._replace(label=min(names))
            others = self.solve(left, r"\neq", right)  # of an absolute value
            if others is not None:
                solutions = intervals.complement(others)
                return Element(set_key(solutions), min(names), solutions)
        solved = self.solved_for_y(difference) if names == {"x", "y"} else None
        return Element(self.evaluator.ratio_key("eq", difference, at[0])) if solved is None else self.expression(solved)

    def solved_for_y(self, tree: Tree) -> Tree | None:
        """Return y where a function of x and y is 0, if it is linear in y: `x + y = 2` is `y = 2 - x`."""
        zero, one, two = (with_value(tree, "y", ("number", Fraction(y))) for y in range(3))
        at_zero, at_one, at_two = map(self.evaluator.values, (zero, one, two))  # each evaluated once: work is bounded
        slopes, later = (
            [arithmetic.add(high, -low) for low, high in zip(*pair, strict=True)]
            for pair in ((at_zero, at_one), (at_one, at_two))
        )
        is_bent = any(arithmetic.add(high, -low) for low, high in zip(slopes, later, strict=True))
        if is_bent or not all(slopes) or len(set(map(arithmetic.rounded, slopes))) > 1:
            return None
        solved: Tree = ("/", ("neg", zero), ("+", one, ("neg", zero)))
        return None if self.evaluator.key(solved) == self.evaluator.key(("name", "x")) else solved  # the line `y = x`

    def is_name(self, label: str, sides: list[Tokens]) -> bool:
        """Whether both sides are names, as in the line `y = x` and the lengths `AB = CD`."""
        return (
            len(sides) == 1
            and "(" not in label
            and label_of(sides[0]) is not None
            and (len(names_in(tree := self.parse(sides[0]))) == 1 or is_segment(tree))
        )

    def congruence(self, tokens: Tokens) -> Element:
        cut = next((i for i, token in enumerate(tokens) if token.text in (r"\pmod", r"\bmod", r"\mod")), 0)
        residue, modulus = (self.evaluator.value(self.parse(part), 0) for part in (tokens[:cut], tokens[cut + 1 :]))
        exact = type(residue) is Fraction and type(modulus) is Fraction
        if not exact or residue.denominator != 1 or modulus.denominator != 1 or modulus <= 0:
            raise NotUnderstood("a congruence of numbers that are not integers")
        key = _residues(residue, modulus)
        return Element(key, progression=key)

    def inequality(self, trees: list[Tree], operators: list[str]) -> Element:
        names = frozenset().union(*map(names_in, trees))
        if len(names) == 1:
            solved = []
            for left, operator, right in zip(trees, operators, trees[1:], strict=False):
                part = self.solve(left, operator, right)
                if part is None:
                    raise NotUnderstood("an inequality of one variable that is not solved")
                solved.append(part)
            solutions = intervals.intersection(solved)
            return Element(set_key(solutions), min(names), solutions)
        if len(trees) > 2 or not names:
            keys = [self.evaluator.key(tree) for tree in trees]
            turned = [*keys[::-1], *(FLIPPED[operator] for operator in reversed(operators))]
            return Element(evaluate.function_key("chain", min([*keys, *operators], turned)))
        if operators[0] in ("<", r"\leq"):
            trees, operators = trees[::-1], [FLIPPED[operators[0]]]
        difference = ("+", trees[0], ("neg", trees[1]))
        at = self.evaluator.values(difference)
        if not all(at) or not all(map(arithmetic.is_real, at)):
            raise NotUnderstood("an inequality that is not between real numbers")
        scale = at[0] if operators[0] == r"\neq" else abs(at[0])
        return Element(self.evaluator.ratio_key(_TAGS[operators[0]], difference, scale))

    def solve(self, left: Tree, operator: str, right: Tree) -> RealSet | None:
        """Return the real solutions of a linear or quadratic relation in one variable, or in an absolute value."""
        if right[:2] == ("call", "abs"):
            left, operator, right = right, FLIPPED[operator], left
        if left[:2] == ("call", "abs") and not names_in(right):
            inside, opposite = left[2], ("neg", right)
            bound = self.evaluator.value(right, 0)
            if not arithmetic.is_real(bound):
                return None
            above, below = self.solve(inside, operator, right), self.solve(inside, FLIPPED[operator], opposite)
            if above is None or below is None:
                return None
            if operator == r"\neq":
                return intervals.intersection((above, below)) if bound >= 0 else intervals.REALS
            return (intervals.union if operator in (">", r"\geq") else intervals.intersection)((above, below))
        difference = ("+", left, ("neg", right))
        function = self.quadratic(difference)
        return None if function is None else quadratic.solutions(*function, operator)

    def quadratic(self, tree: Tree) -> tuple[Number, Number, Number] | None:
        """Return the coefficients of a linear or quadratic function of one variable."""
        names = names_in(tree)
        if len(names) != 1:
            return None
        x = [evaluate.variable(min(names), point) for point in range(evaluate.POINTS)]
        function = quadratic.coefficients(x, self.evaluator.values(tree))
        return function if function is not None and any(function[:2]) else None

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
        terms = list(split(tokens, (":",)))
        if len(terms) > 2:
            if all(_is_minutes(term) for term in terms[1:]):
                raise Incomparable("a time or a ratio")
            return self.ratio([self.parse(term) for term in terms])
        return self.expression(self.parse(tokens))

    def ratio(self, terms: list[Tree]) -> Element:
        """`2:3:4`, which is `4:6:8`."""
        keys = (self.evaluator.key(("/", term, terms[0])) for term in terms)
        return Element(tuple_key("ratio(", keys, ")"))

    def expression(self, tree: Tree) -> Element:
        names = names_in(tree)
        if names:
            one = self.parameter
            if one is not None and one.name in names and (one.is_declared or _PI in nodes(tree)):
                progression = self.progression(tree) if one.is_declared and one.domain == "Z" else None
                if "n" not in names:
                    tree = with_value(tree, one.name, ("name", "n"))
                return Element(f"over {one.domain}:{self.evaluator.key(tree)}", progression=progression)
            return Element(self.evaluator.key(tree))
        return number_element(self.evaluator.number(tree))

    def progression(self, tree: Tree) -> str | None:
        """Return the key of the values of a linear function at all integers: `2k + 1` and `2k - 1` share one."""
        function = self.quadratic(tree)
        if function is None or any(type(part) is not Fraction for part in function) or function[0]:
            return None
        _, step, first = function
        if step.denominator == first.denominator == 1:
            return _residues(first, abs(step))
        return f"over Z:{arithmetic.number_key(abs(step))}n+{arithmetic.number_key(first % abs(step))}"

    def bracket(self, opening: str, inside: Tokens, closing: str) -> Element:
        if opening == r"\{":
            return self.set(inside)
        parts = list(split(inside, (",", ";")))
        if len(parts) == 1 and f"{opening}{closing}" in ("()", "[]"):
            element = self.statement(inside)
            # `[n/2]` may be a whole part
            is_function = opening == "[" and element.key.startswith("f:")
            return Element(f"[{element.key}]") if is_function else element
        ends = [_infinity([token.text for token in part]) for part in parts]
        elements = [
            self.member(part) if end is None else Element(intervals.end_key(end))
            for part, end in zip(parts, ends, strict=True)
        ]
        _check_order(elements)
        opening, closing = opening.replace(r"\langle", "("), closing.replace(r"\rangle", ")")
        opening, closing = "(" if ends[0] else opening, ")" if ends[-1] else closing
        key = tuple_key(opening, (element.key for element in elements), closing)
        numbers = [point_of(one.numbers) if end is None else end for end, one in zip(ends, elements, strict=True)]
        low, high = numbers[0], numbers[-1]
        if len(parts) != 2 or low is None or high is None:
            return Element(key)
        return Element(key, numbers=intervals.interval(low, opening == "[", high, closing == "]") or None)

    def set(self, inside: Tokens) -> Element:
        for i in top_level(inside):
            label = label_of(without_domain(inside[:i])) if inside[i].text in ("|", ":") else None
            if label is not None:
                if "(" in label or any(token.text in _SIGNS for token in inside[i:]):
                    raise NotUnderstood("a set of tuples or of values of a function, or a condition with two signs")
                conditions = [self.statement(part) for part in split(inside[i + 1 :], (",", *OR, *AND))]
                if len(conditions) > 1 and positions(inside[i + 1 :], (",", *AND)):
                    raise NotUnderstood("a set with several conditions")
                if len(conditions) > 1:
                    conditions = joined(conditions, OR, are_conditions=True)
                if len(conditions) > 1:
                    raise NotUnderstood("a set of one of several things")
                if conditions[0].label not in (None, label):
                    raise NotUnderstood("a condition on another name")
                return within(domain_of(inside[:i]), conditions[0])._replace(label=None)
        if not inside:
            return Element(set_key(()), numbers=())
        elements = self.elements_of(inside)
        if len({element.label for element in elements if element.label}) > 1:
            raise NotUnderstood("a set whose members have names")
        is_function = len(elements) == 1 and elements[0].key.startswith("f:")  # `\\{x\\}` may be a fractional part
        if is_function or any(map(_is_set, split(inside, (",", ";")))):
            return Element(braced_key(elements))
        return set_of(elements)

    def elements_of(self, inside: Tokens) -> list[Element]:
        parts = split(inside, (",", ";"))
        return [one for part in parts for one in read_item(part, self.evaluator, self.parameter, is_alone=False)]

    def member(self, tokens: Tokens) -> Element:
        """Return a value inside a set, a list, a tuple or a matrix: there a set is no number, not even `\\{5\\}`."""
        if not _is_set(tokens):
            return self.statement(tokens)
        inside = trimmed(tokens)[1:-1]
        return Element(braced_key(self.elements_of(inside) if inside else []))

    def set_operation(self, parts: list[Tokens], sign: str) -> Element:
        if any(_SETS.isdisjoint(token.text for token in part) for part in parts):
            raise NotUnderstood("a set operation on something that is not a set")
        elements = [self.value(part) for part in parts]
        sets = [element.numbers for element in elements if element.numbers is not None]
        if len(sets) < len(elements):
            raise NotUnderstood("a union of sets with unknown ends")
        first, *others = sets
        for other in others:
            if sign == r"\cup":
                first = intervals.union((first, other))
            else:
                first = intervals.intersection((first, other if sign == r"\cap" else intervals.complement(other)))
        return Element(set_key(first), numbers=first)

    def matrix(self, tokens: Tokens) -> Element:
        """`\\begin{pmatrix} 1 & 2 \\\\ 3 & 4 \\end{pmatrix}`; one column is a tuple."""
        end = closing(tokens, 1)
        kind = "".join(token.text for token in tokens[2:end])
        if kind == "cases":  # math-verify takes one piece for the whole
            raise Incomparable("a function in pieces")
        if kind not in ("pmatrix", "bmatrix", "matrix", "array", "smallmatrix"):
            raise NotUnderstood(f"the environment {kind}")
        if kind == "array":
            start, end = end, closing(tokens, end + 1)
            if any(token.text == "|" for token in tokens[start:end]):
                raise NotUnderstood("a matrix in parts")
        stop = next((i for i, token in enumerate(tokens) if token.text == r"\end"), -1)
        if stop < 0 or closing(tokens, stop + 1) != len(tokens) - 1:
            raise NotUnderstood("a matrix in an expression")
        rows = [row for row in split(tokens[end + 1 : stop], ("\\\\",)) if row]
        members = [[self.member(cell) for cell in split(row, ("&",))] for row in rows]
        _check_order([member for row in members for member in row])
        cells = [[member.key for member in row] for row in members]
        if not cells or len({len(row) for row in cells}) > 1:
            raise NotUnderstood("a matrix with rows of different lengths")
        if len(cells[0]) == 1:
            return Element(tuple_key("(", (key for row in cells for key in row), ")"))
        return Element(tuple_key("M[", (tuple_key("(", row, ")") for row in cells), "]"))


def _residues(residue: Fraction, modulus: Fraction) -> str:
    return f"mod:{residue % modulus}/{modulus}"


def _notation(tokens: Tokens) -> str | None:
    """Return the key of a word or a time in a list, which is no product or quotient there either."""
    kinds = {token.kind for token in tokens}
    text = "".join(token.text for token in tokens)
    if kinds == {"name"} and len(tokens) > 1:
        return word_key(text)
    return clock_key(text) if kinds == {"number", "symbol"} and len(tokens) == 3 else None


def _is_minutes(tokens: Tokens) -> bool:
    return len(tokens) == 1 and len(tokens[0].text) == 2 and tokens[0].text.isdigit() and tokens[0].text < "60"


def _check_tuple(label: str, side: Tokens) -> None:
    """Refuse `(y, x) = (1, 2)`: if a tuple is not in the order of its labels, its order is ambiguous."""
    names, side = label[1:-1].split(","), trimmed(side)
    is_tuple = len(side) > 0 and side[0].text == "(" and closing(side, 0) == len(side) - 1
    if (
        not is_tuple
        or len(list(split(side[1:-1], (",",)))) != len(names)
        or sorted(set(names), key=place_of_label) != names
    ):
        raise NotUnderstood("a tuple whose labels are in another order, or of another number")


def _check_order(elements: Sequence[Element]) -> None:
    """Refuse `(y = 1, x = 2)`: values with names are a tuple only in the order of their names."""
    labels = [element.label for element in elements if element.label]
    if labels and (len(labels) < len(elements) or sorted(set(labels), key=place_of_label) != labels):
        raise NotUnderstood("members with names in another order, or some without")


def _is_set(tokens: Tokens) -> bool:
    tokens = trimmed(tokens)
    texts = [token.text for token in tokens]
    return texts == [r"\emptyset"] or (texts[:1] == [r"\{"] and closing(tokens, 0) == len(tokens) - 1)


def _infinity(texts: Sequence[str]) -> float | None:
    return {r"\infty": INFINITY, r"+\infty": INFINITY, r"-\infty": -INFINITY}.get("".join(texts))
