"""Reader and calculator of the toy task, apart from its own."""

import re

# Written apart from the task's own table: what each word of a response computes, before the modulus.
FORMULAS = {
    "+": "v+d",
    "-": "v-d",
    "*": "v*d",
    "r-": "d-v",
    "++": "v+2*d",
    "--": "v-2*d",
    "2+": "2*v+d",
    "2-": "2*v-d",
}


def compute(word: str, v: int, d: int) -> int:
    return int(eval(FORMULAS[word], {"v": v, "d": d})) % 53


def steps_of(problem: str) -> tuple[str, int, list[tuple[str, int]]]:
    match = re.fullmatch(r"(D\d\d) (\d+) (\S) (\d) (\S) (\d) =>", problem)
    assert match, problem
    dialect, start, symbol1, digit1, symbol2, digit2 = match.groups()
    return dialect, int(start), [(symbol1, int(digit1)), (symbol2, int(digit2))]
