"""Identities that leave a tree the same function, and near misses that do not: one thing of it moved."""

import random
from fractions import Fraction

from answer_trees import ONE, TWO, UNARY, VARIABLES, Tree, num, parts, replaced


def rewritten(tree: Tree, rng: random.Random) -> Tree:
    """The tree with an identity applied at one of its nodes."""
    path, node = rng.choice(list(parts(tree)))
    return replaced(tree, path, rng.choice(identities(node, rng) or [node]))


def identities(node: Tree, rng: random.Random) -> list[Tree]:
    kind = node[0]
    if kind == "num":
        q = node[1]
        k = rng.randint(2, 5)
        options = [("div", num(q * k), num(k)), ("add", num(q + k), ("neg", num(k)))]
        return [*options, ("sqrt", num(q * q))] if 0 < q < 20 else options
    if kind in ("add", "mul"):
        shuffled = list(node[1:])
        rng.shuffle(shuffled)
        options = [(kind, *shuffled), (kind, *reversed(node[1:]))]
        if kind == "add" and len(node) == 3:
            a, b = node[1:]
            options.append(("neg", ("add", ("neg", a), ("neg", b))))
        if kind == "mul" and node[2][0] == "add":
            options.append(("add", *(("mul", node[1], term) for term in node[2][1:])))
        return options
    if kind == "neg":
        return [("mul", num(-1), node[1])]
    if kind == "div":
        options = [("mul", node[1], ("pow", node[2], num(-1)))]
        if node[1][0] == "add":
            options.append(("add", *(("div", term, node[2]) for term in node[1][1:])))
        return options
    if kind == "pow":
        if node[2] == TWO:
            options = [("mul", node[1], node[1])]
            if node[1][0] == "add" and len(node[1]) == 3:
                a, b = node[1][1:]
                options.append(("add", ("pow", a, TWO), ("mul", TWO, a, b), ("pow", b, TWO)))
            return options
        if node[2][0] == "num" and node[2][1] < 0:
            return [("div", ONE, ("pow", node[1], num(-node[2][1])))]
        return []
    if kind == "sqrt":
        options = [("pow", node[1], num(Fraction(1, 2)))]
        if node[1][0] == "num":
            options += [("div", ("sqrt", num(4 * node[1][1])), TWO), ("div", node[1], ("sqrt", node[1]))]
        if node[1][0] == "pow" and node[1][2] == TWO:
            options.append(("abs", node[1][1]))
        return options
    if kind == "abs":
        return [("sqrt", ("pow", node[1], TWO)), ("abs", ("neg", node[1]))]
    if kind == "fn":
        return function_identities(node[1], node[2])
    if kind == "floor":
        return [("neg", ("ceil", ("neg", node[1])))]
    if kind == "ceil":
        return [("neg", ("floor", ("neg", node[1])))]
    if kind == "fact" and node[1][0] == "var":
        return [("mul", node[1], ("fact", ("add", node[1], num(-1))))]
    if kind == "binom" and node[2] == TWO:
        return [("div", ("mul", node[1], ("add", node[1], num(-1))), TWO)]
    if kind == "log2":
        return [("div", ("fn", "ln", node[1]), ("fn", "ln", TWO))]
    return []


def function_identities(name: str, u: Tree) -> list[Tree]:
    sin, cos = ("fn", "sin", u), ("fn", "cos", u)
    half = ("div", u, TWO)
    if name == "sin":
        return [("neg", ("fn", "sin", ("neg", u))), ("mul", TWO, ("fn", "sin", half), ("fn", "cos", half)),
                ("fn", "cos", ("add", ("div", ("pi",), TWO), ("neg", u)))]  # fmt: skip
    if name == "cos":
        return [("fn", "cos", ("neg", u)), ("add", ONE, ("neg", ("mul", TWO, ("pow", ("fn", "sin", half), TWO))))]
    if name == "tan":
        return [("div", sin, cos)]
    if name == "sec":
        return [("div", ONE, cos)]
    if name == "csc":
        return [("div", ONE, sin)]
    if name == "cot":
        return [("div", cos, sin)]
    if name == "exp":
        return [("mul", ("fn", "exp", half), ("fn", "exp", half)), ("div", ONE, ("fn", "exp", ("neg", u)))]
    if name == "ln":
        return [("add", ("fn", "ln", ("mul", TWO, u)), ("neg", ("fn", "ln", TWO)))]
    if name == "sinh":
        return [("div", ("add", ("fn", "exp", u), ("neg", ("fn", "exp", ("neg", u)))), TWO)]
    if name == "arcsin":
        return [("add", ("div", ("pi",), TWO), ("neg", ("fn", "arccos", u)))]
    return []


def near_miss(tree: Tree, rng: random.Random) -> Tree:
    """The tree with one thing moved."""
    path, node = rng.choice(list(parts(tree)))
    return replaced(tree, path, rng.choice(misses(node, rng)))


def misses(node: Tree, rng: random.Random) -> list[Tree]:
    kind = node[0]
    options: list[Tree] = [("neg", node)]
    if kind == "num":
        q = node[1]
        options += [
            num(q + 1),
            num(q * 10),
            num(1 / q) if q else ONE,
            num(q - 1),
            ("add", node, num(Fraction(1, 10**6))),
        ]
    elif kind == "var":
        options += [("var", rng.choice(VARIABLES)), ("add", node, ONE), ("pow", node, TWO), ("abs", node)]
    elif kind == "add":
        flipped = list(node[1:])
        flipped[-1] = flipped[-1][1] if flipped[-1][0] == "neg" else ("neg", flipped[-1])
        options += [("add", *flipped), ("mul", *node[1:]), node[1]]
    elif kind == "mul":
        options += [("add", *node[1:]), ("div", node[1], node[2]), node[1]]
        if node[1][0] != "num":
            options.append(("pow", node[1], node[2]))
    elif kind == "div":
        options += [("div", node[2], node[1]), ("mul", *node[1:])]
    elif kind == "pow":
        options += [("mul", node[1], node[2]), ("pow", node[1], ("add", node[2], ONE)), node[1]]
        if node[1][0] in ("fn", "app", "sqrt"):  # f(x)^2 and f(x^2)
            options += [(*node[1][:-1], ("pow", node[1][-1], node[2]))] * 2
        if node[1][0] == "add":
            options.append(("add", *node[1][1:-1], ("pow", node[1][-1], node[2])))
    elif kind in ("fn", "app", "sqrt", "abs", "floor", "ceil", "fact"):
        u = node[-1]
        options += [u, (*node[:-1], ("neg", u)), (*node[:-1], ("add", u, ONE)), ("mul", u, (*node[:-1], u))]
        if u[0] == "add":  # the bracket closed too early
            options += [("add", (*node[:-1], u[1]), *u[2:]), ("add", *((*node[:-1], part) for part in u[1:]))]
        if u[0] == "mul":
            options.append(("mul", (*node[:-1], u[1]), *u[2:]))
        if kind == "fn":
            options.append(("fn", rng.choice(UNARY[:6] + UNARY[7:-1]), u))
        if kind == "app":
            options += [("mul", ("var", "a"), u), ("app", rng.choice(("f", "g", "P", "phi")), u)]
        if kind in ("floor", "ceil"):
            other, step = ("ceil", -1) if kind == "floor" else ("floor", 1)
            options += [(other, u), ("add", (other, u), num(step))]  # the latter differs at whole numbers alone
        if kind == "sqrt" and u[0] == "pow":
            options += [u[1], u[1], ("neg", u[1])]
    elif kind == "binom":
        options += [(kind, node[1], ("add", node[2], ONE)), node[1], node[2], ("mul", *node[1:])]
    return options
