"""Feeds generated texts to extraction, keys and the fast path of the matcher, and checks what must hold for every text.

python tests/helpers/fuzz_outcomes.py --cases 1000000

Exits with an error at the first text that raises, has a key outside of int64, a key that depends on the cache, or an
answer that does not stand where its span says; reports the slowest texts. A text may take `--limit-ms` of CPU time.
"""

import argparse
import random
import time
from collections.abc import Iterator

from outcome_rl.outcomes import keys
from outcome_rl.outcomes.extraction.response import extract_answer
from outcome_rl.outcomes.tolerance import within_tolerance

COMMANDS = r"""
\frac \dfrac \sqrt \binom \sin \arcsin \tan \ln \log \exp \lfloor \rfloor \pi \infty \theta \pm \mp \cdot \times \div
\circ \overline \vec \leq \geq \neq \in \cup \cap \setminus \approx \equiv \pmod \mathbb \{ \} \left \right \\ \, \!
\% \$ \boxed \text \mathrm \mid \begin{pmatrix} \end{pmatrix} \begin{array}{cc} \end{array} \langle \rangle \emptyset
"""
WORDS = (
    "and or inf sqrt pi cm degrees p.m. July million True __import__ eval 10_2 9^9 1000000000 1,234 1e9 e99 !! 9! .5"
)
ODD = ["\x00", "\u202e", "\u200b", "\ufeff", "\ud800", *"٣²é中🙂−π≤∪½①ﬁ", " and ", " or ", "1 1/2", "\\ "]
PIECES = [*"0123456789abcefinxyzABCN+-*/^_=<>!,.;:|&%$'\"~(){}[] \n\t", *COMMANDS.split(), *WORDS.split(), *ODD]
ANSWERS = r"""
\frac{1+\sqrt{5}}{2} x^2+2x+1 (-\infty,3)\cup[5,\infty) \{1,2,3\} x=5,\,y=-\frac{3}{2} 3\pm2\sqrt{2} -1<x\leq4 2^{99}+1
\begin{pmatrix}1&2\\3&4\end{pmatrix} \text{(B)} 4:30\text{p.m.} 1{,}234.50\text{dollars} \sin^2\theta+\cos^2\theta
\binom{10}{3} e^{i\pi} x\equiv3\pmod7 12! \log_2(3) \left|x-1\right| \lfloor\pi\rfloor y=2x+3 \sqrt[3]{7} 2:3:5
0.\overline{142857}
"""
WRAPPERS = ["{}", "${}$", "\\boxed{{{}}}", "The answer is {}.", "\\frac{{{}}}{{2}}", "\\text{{{}}}", "#### {}", "({})"]


EXPRESSIONS = r"""
{}+{} {}-{} {}\cdot{} {}/{} ({}){} ({}) -{} {}^{{{}}} ({})! \frac{{{}}}{{{}}} \sqrt{{{}}} \sqrt[3]{{{}}}
\binom{{{}}}{{{}}} \sin({}) \tan({}) \arcsin({}) \ln({}) \log_{{{}}}({}) e^{{{}}} |{}| \lfloor{}\rfloor f({})
"""
STATEMENTS = r"""
{} {} {} {}={} {}<{} {}\leq{}<{} {}\neq{} x\in({},{}] (-\infty,{})\cup[{},{}] ({},{}) [{},{}) \{{{},{}\}} {},{}
x={},y={} {}\pm{} {}:{}:{} x\equiv{}\pmod{{{}}} \begin{{pmatrix}}{}\\{}\end{{pmatrix}} \{{x|{}<x<{}\}}
"""
LEAVES = r"0 1 2 3 7 12 100 0.5 1.25 99999999999 x y n k i e \pi x_1 \theta 30^\circ 1,234 \frac12"


def expression(rng: random.Random, depth: int) -> str:
    """A text that the grammar reads, more often than not."""
    if depth == 0 or rng.random() < 0.2:
        return rng.choice(LEAVES.split())
    return filled(rng.choice(EXPRESSIONS.split()), rng, depth - 1)


def filled(shape: str, rng: random.Random, depth: int) -> str:
    return shape.format(*(expression(rng, depth) for _ in range(shape.count("{}"))))


def texts(seed: int) -> Iterator[str]:
    """An endless stream of texts: of pieces, of formulas, of mutated answers, of nested and of repeated ones."""
    rng = random.Random(seed)
    while True:
        kind = rng.random()
        if kind < 0.2:
            yield "".join(rng.choices(PIECES, k=rng.randint(1, 14)))
        elif kind < 0.6:
            yield filled(rng.choice(STATEMENTS.split()), rng, rng.randint(0, 3))
        elif kind < 0.9:
            text = rng.choice(ANSWERS.split())
            for _ in range(rng.randint(0, 4)):
                at = rng.randrange(len(text) + 1)
                text = text[:at] + rng.choice(PIECES) + text[at + rng.choice((0, 0, 1, 2, 6)) :]
            yield rng.choice(WRAPPERS).format(text)
        elif kind < 0.99:
            text = rng.choice(ANSWERS.split())
            for _ in range(rng.randint(1, 12)):
                text = rng.choice(WRAPPERS).format(text)
            yield text
        else:
            yield "".join(rng.choices(PIECES, k=rng.randint(1, 3))) * rng.choice((10, 100, 330, 10_000))


def check(text: str) -> None:
    """Raise AssertionError, or whatever the library raises, if the text breaks what must hold."""
    canonical = keys.canonical_text(text)
    key = keys.outcome_key(text)
    assert -(2**63) <= key < 2**63
    assert (key == keys.NO_ANSWER) == (canonical == "")
    assert keys.canonical_text(f"  {text}\n") == canonical
    answer = extract_answer(text)
    if answer is not None:
        assert text[answer.start : answer.end] == answer.text != ""
    within_tolerance(text, f"0+{text}")  # the same variables, so that values are compared


def fuzz(cases: int, seed: int) -> list[tuple[float, str]]:
    """Check so many texts; return the slowest ones with their CPU time in seconds."""
    keys.canonical_text(r"\sin x + x! + \ln x + \arctan \sqrt{x}")  # what is computed once is no text's fault
    slowest: list[tuple[float, str]] = []
    for number, text in zip(range(cases), texts(seed), strict=False):
        start = time.process_time()
        try:
            check(text)
        except BaseException as error:
            error.add_note(f"case {number} of seed {seed}: {text[:1000]!r}")
            raise
        seconds = time.process_time() - start
        if len(slowest) < 5 or seconds > slowest[-1][0]:
            slowest = sorted([*slowest, (seconds, text)], reverse=True)[:5]
    return slowest


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cases", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--limit-ms", type=float, default=50.0)
    options = parser.parse_args()
    start = time.perf_counter()
    slowest = fuzz(options.cases, options.seed)
    print(f"{options.cases} texts in {time.perf_counter() - start:.0f} s; the slowest:")
    for seconds, text in slowest:
        print(f"{1e3 * seconds:8.2f} ms  {text[:100]!r}, {len(text)} characters")
    if 1e3 * slowest[0][0] > options.limit_ms:
        raise SystemExit(f"one took more than {options.limit_ms:g} ms")


if __name__ == "__main__":
    main()
