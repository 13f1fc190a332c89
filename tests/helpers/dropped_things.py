r"""Everything that a reader drops or rewrites, with the reason why it never tells two answers to one question apart.

A rule without such a reason is not allowed: its text is not read (`s:`), and equals the same text or what math-verify
says. Each row has two spellings that are equal because something is dropped, and pairs that look alike and differ.
"""

from typing import NamedTuple


class Rule(NamedTuple):
    """A thing that is dropped, two spellings, why it never distinguishes, and look-alikes that it must not merge."""

    dropped: str
    a: str
    b: str
    why: str
    unlike: tuple[tuple[str, str], ...] = ()


RULES = [
    # Characters
    Rule(
        "delimiters and sizes", r"$\big(\dfrac{1}{2}, \left. 3\right.\big)$", r"(\frac12,3)",
        "typesetting; TeX sets the same formula",
    ),
    Rule("fonts", r"\mathbf{x}+\mathrm{y}", "x+y", "one question does not use a letter in two fonts"),
    Rule("fonts of numbers", r"\textbf{12}", r"\bm{12}", "a digit has one meaning", ((r"\text{1}2", "3"),)),
    Rule("sizes", r"{\large 5}", "5", "typesetting"),
    Rule(
        "spaces", r"x\,+ \; 1", "x+1", "TeX ignores them; between digits, and after a comma before a digit, they stay",
        ((r"1, 234", "1,234"), ("1 2", "12"), (r"x = 1 \quad y = 2", "x = 2")),
    ),
    Rule(
        "a tilde after something", r"5~\text{cm}", "5 cm",
        "a space of TeX there; at the start it negates or means about",
        (("~p", "p"), (r"p \land ~q", r"p \land q"), ("~5", "5")),
    ),
    Rule(
        "braces of one token", "x^{2}", "x^2", "TeX reads both alike",
        (("x^{2}3", "x^{23}"), (r"\sqrt{2}3", r"\sqrt{23}")),
    ),
    Rule("a final full stop", r"\text{No solution.}", "no solution", "it ends the sentence", ((r"0.33...", "0.33"),)),
    Rule("currency signs", r"\$5", "¥5", "a question asks for an amount in one currency", ((r"\$5", r"\$6"),)),
    Rule(
        "variants of a sign", "x ≤ −½", r"x \leqslant -\frac12",
        "one sign of Unicode and one of TeX, both defined as the same",
        ((r"5–10", "-5"), (r"a \ast b", "ab"), (r"f \asymp g", "f")),
    ),
    Rule("raised digits", "x²³ + y₁", "x^{23}+y_1", "defined by Unicode as exponents and indices", (("x²", "x2"),)),
    Rule("digits of a script", "１٢．५", "12.5", "defined by Unicode as these digits", (("十", "10"),)),
    Rule(
        "how a letter with an accent is stored", "été", "e\u0301te\u0301", "defined by Unicode as the same",
        (("été", "ete"),),
    ),
    Rule(
        "text around a whole quantity or list", r"\text{5, 6}", "5, 6", "typesetting",
        ((r"\text{5 or more}", "5"), (r"\text{A or B}", r"\text{A, B}"), (r"\text{4 July}", "4")),
    ),
    Rule("the second of two backslashes", r"\\frac12", r"\frac12", "escaped twice; in matrices it ends a row"),
    Rule("Markdown emphasis", "**12**", "12", "typesetting"),
    # Numbers
    Rule(
        "leading and final zeros", "025.50", "25.5", "a decimal is its value",
        (("0x1F", "0x2F"), ("0b11", "0b10"), ("0x1F", "0"), ("025", "205")),
    ),
    Rule(
        "separators of thousands", "1,234", "1 234", "groups of three after a first that is not 0 are one number",
        (("0,123", "123"), ("1,23", "123"), ("12,34,567", "1234567"), ("1,05", "1,5"), ("1,0001,000", "1,1,000")),
    ),
    Rule(
        "notation of periods", r"0.\overline{3}", r"0.\bar3", "both are exactly 1/3",
        (("0.(3)", "0.(6)"), ("0.(3)", "0.3"), ("1.(3)", "3"), ("0.1(6)", "0.6"), ("2.5(3)", "7.5")),
    ),
    Rule(
        "the dots behind a period", "0.1666...", r"0.1\overline{6}", "a period seen three times goes on",
        (("0.33...", "1/3"), ("0.333...", "0.333"), ("2.718281828...", r"2.7\overline{1828}"), ("3.14...", "3.14"),
         ("0.1, 0.11, 0.111, ...", "1/9"), ("0.1010010001...", "0.101")),
    ),
    Rule(
        "the x of a power of ten", "1.5 x 10^3", "1500", "no variable stands between two numbers",
        (("5 x 3", "15"), ("2x10", "20"), ("2e-3", "0.002")),
    ),
    Rule(
        "one unit at the end", r"5\text{ cm}", "5",
        "a question asks for its answer in one unit, and the list of units is closed: none compares, orders or divides",
        ((r"5\text{ million}", "5"), (r"5\text{K}", "5"), ("5 s^{-1}", "5"), (r"5\text{ s}^{-1}", "1/5"),
         (r"5\text{ m} + 3\text{ cm}", "8"), ("2 hours 30 minutes", "60"), (r"\sin 30\text{ degrees}", r"\sin 30"),
         ("5 minutes ago", "5 minutes"), ("5th grade", "5")),
    ),
    Rule(
        "Chinese and Japanese units", "5个", "5", "as above, from a closed list",
        (("5以上", "5以下"), ("5以上", "5"), ("5分之一", "5"), ("18岁以下", "18岁以上"), ("3年前", "3年后"),
         ("5的平方", "5"), ("5倍", "5"), ("5万", "5"), ("3月", "3"), ("第5", "5"), ("5人中3人", "5"), ("9成", "9"),
         ("3位", "3")),
    ),
    Rule(
        "a percent sign at the end", r"50\%", "50",
        "a question asks for a share or for percents; inside a formula the sign counts",
        ((r"20\% \cdot 50", "1000"), (r"100 + 50\%", "150"), (r"50\%", "0.5")),
    ),
    Rule(
        "the sign of degrees", r"90^\circ", "90",
        "a question asks for an angle in degrees or in radians; inside trigonometric functions it counts",
        ((r"\sin 90^\circ", r"\sin 90"), (r"90^\circ", r"\frac\pi2"), ("3^\\circ 5'", "15")),
    ),
    # Names
    Rule(
        "a label", "x = 5", "5",
        "it repeats what the question asks for; the label of an angle says which one is meant",
        ((r"\angle ABC = 90^\circ", r"\angle ACB = 90^\circ"), ("x = 2x - 4", "2x - 4"), ("y = x", "z = x"),
         ("a_n = a_{n-1} + 2", "b_n = a_{n-1} + 2"), (r"\sin x = 1", "1"), ("AB = CD", "EF = CD"), ("AB = CD", "CD")),
    ),
    Rule(
        "labels of a tuple", "x = 1, y = 2", "(x, y) = (1, 2)",
        "the tuple is in the order of its labels, where there is one: words and Greek letters keep theirs",
        (("(x, y) = (1, 2)", "(y, x) = (1, 2)"), ("x=1, y=2", "x=2, y=1"), ("x_1 = 1, x_2 = 2", "x_1 = 2, x_2 = 1"),
         (r"\theta = 1, r = 2", "(1, 2)"), (r"\theta = 1, \phi = 2", "(1, 2)"), (r"\theta = 1, \phi = 2", "(2, 1)"),
         (r"\text{Dogs} = 2, \text{Cats} = 1", "(2, 1)"), (r"\text{Dogs} = 2, \text{Cats} = 1", "(1, 2)"),
         (r"\text{Dogs} = 2, \text{Cats} = 1", r"\text{Dogs} = 1, \text{Cats} = 2")),
    ),
    Rule(
        "all sides but the last of a chain", r"x = \frac12 = 0.5", "0.5", "they are checked to be equal",
        (("x = 1 = 2", "2"), ("x = 3 = 2", "x = 1 = 2")),
    ),
    Rule(
        "the rounded side", r"\sqrt2 \approx 1.41", r"\sqrt2", "the other side is the exact value",
        (("1.41", r"\sqrt2"),),
    ),
    Rule(
        "the name of the variable of a condition", "x > 5", "y > 5", "it is the set of its solutions",
        (("x > y", "y > x"), (r"x > 5, x \in \mathbb{Z}", "x > 5"), ("x > 5, 3", "y > 5, 3")),
    ),
    Rule(
        "the integers k, m, n next to pi", r"k\pi", r"n\pi",
        "a period of a trigonometric equation stands for all integers",
        ((r"k\pi, k \in \mathbb{N}", r"k\pi"), ("2k", "2n"), (r"2k, k \in \mathbb{Z}", "2k"),
         (r"k\pi + m", r"k\pi + k"), (r"a\pi", r"b\pi")),
    ),
    Rule(
        "a choice's value and brackets", "C) 12", "(C)", "the letter names the value",
        (("(C)", "(D)"), ("C", "c"), ("A: B", "A"), ("A:B", "A"), ("C.5", "C"), ("C(2)", "C"), ("(A) or (B)", "(A)"),
         ("A) 5, B) 6", "A) 5, B) 7")),
    ),
    Rule(
        "a choice's value in an equation or brackets", r"\text{A. }x=2,\ y=-3", r"A\text{（6）}",
        "the letter names the value",
        (("C(5, 2)", "C"), ("F (x)", "F"), ("A: B = 2", "A"), (r"D.\ 5", r"E.\ 5")),
    ),
    Rule(
        "commas between choices", "A, C and D", r"\text{A、C、D}",
        "a question with several choices asks for all of them, in any order",
        (("A, C", "A"), ("A, C", "A or C"), ("CAD", "ACD"), ("A, A", "A"), ("A, x", "Ax"), ("(A, C)", "AC")),
    ),
    # Words
    Rule(
        "a first capital, and capitals of common words", "Evelyn", "evelyn",
        "sentences and titles begin with it; other capitals may be points or variables",
        (("MGH", "mgh"), ("XYZ", "xyz"), ("AaBb", "aabb"), (r"\text{AaBb}", r"\text{aabb}"), ("X", "x"),
         ("Abc", "abc")),
    ),
    Rule(
        "the signs of a product", "mgh", r"m \cdot g \cdot h", "no word is without a vowel",
        (("cat", "act"), ("mgh", "mgH"), ("cat, dog", "act, god"), ("II, IV", "II, VI"), ("iv", "vi"),
         ("I and III", "I and II"), ("x2", "2x"), ("x2", "x^2"), ("A1", "A"), ("f'2", "2f'"), ("a1b2", "2ab"),
         (r"\pi2", r"2\pi"), ("3x2", "6x"), ("(x+1)2", "2(x+1)"), (r"2 \mid n \mid 12", "24|n|"), ("a|b|c", "ac|b|"),
         ("5 tea", "5 eat"), ("John: 5", "Hojn: 5"), (r"A \times B", r"B \times A"), ("A^T B", "B A^T"),
         ("AB^{-1}", "B^{-1}A"), ("CH_3COOH", "HCOOCH_3")),
    ),
    # Collections
    Rule(
        "the order of a list", "3, 1", r"\{1, 3\}", "a list of values without labels is a set",
        (("(3, 1)", "(1, 3)"),),
    ),
    Rule(
        "and, or between values", "1 and 3", "x = 1 or x = 3",
        "a number is not two numbers, so both list solutions; of conditions, names and pairs they are told apart",
        ((r"p \land q", r"p \lor q"), (r"p \land q", "p, q"), ("x=1 and y=2", "x=1 or y=2"),
         (r"x=1 \land y=2", r"x=1 \lor y=2"), ("x < 1 and x > 3", "x < 1 or x > 3"), ("A or B", "A, B"),
         ("$5$ or $$", "5")),
    ),
    Rule(
        "braces of a single value", r"\{5\}", "5",
        "the set of solutions and its one element; not inside another collection",
        ((r"\{\emptyset\}", r"\emptyset"), (r"\{\{1\},\{2\}\}", r"\{\{1,2\}\}"), (r"\{\{1,2\}\}", r"\{1,2\}"),
         (r"(1, \{2\})", "(1, 2)"), (r"\{1\}, \{2\}", "1, 2"), (r"\{\{\emptyset\}\}", r"\{\emptyset\}"),
         (r"\{x\}", "x"), ("[x]", "x"), (r"[\frac n2]", r"\frac n2"), (r"[x]", r"\{x\}")),
    ),
    Rule(
        "a common factor of a ratio", "2:3", "4:6", "a ratio is a quotient; what a clock may show is no ratio",
        (("2:30", "1:15"), ("t = 2:30", "t = 1:15"), ("2:30, 3:15", "1:15, 1:5"), ("1:10:20", "2:20:40")),
    ),
    Rule(
        "words for a set", "no solution", r"\emptyset", "the set of solutions is empty",
        (("no real solutions", r"\emptyset"), ("all real numbers except 0", r"\mathbb{R}"), ("no solution", "0")),
    ),
    Rule(
        "the form of a date", "2024/7/4", "2024-07-04",
        "a year of four digits before two numbers is followed by its month",
        (("2024-7-4", "2013"), ("7/4/2024", "4/7/2024"), ("May 4", "4"), ("Jun 4", "Jul 4")),
    ),
    Rule("repeats in a set", r"\{5, 5, 6\}", r"\{5, 6\}", "a set has none", (("5, 5", "5"),)),
    Rule(
        "brackets of a matrix, and of a column", r"\begin{bmatrix} 1 \\ 2 \end{bmatrix}",
        r"\begin{pmatrix} 1 \\ 2 \end{pmatrix}", "two ways to set one matrix; a row is no column",
        ((r"\begin{pmatrix} 1 & 2 \end{pmatrix}", r"\begin{pmatrix} 1 \\ 2 \end{pmatrix}"),
         (r"\begin{vmatrix} 1 & 2 \\ 3 & 4 \end{vmatrix}", r"\begin{pmatrix} 1 & 2 \\ 3 & 4 \end{pmatrix}")),
    ),
    Rule(
        "a factor of an equation", "2x + 2y = 4", "x + y = 2", "it has the same solutions",
        (("x + y = 2", "x + y = 3"),),
    ),
    # Formulas
    Rule(
        "brackets of exponents of numbers", "2^{(3)}", "2^3", "a number has no derivative; of a name they are one",
        (("f^{(3)}(0)", "f^3(0)"), ("y^{(4)}", "y^4"), ("x^{(n)}", "x^n"), ("f^(4)(x)", "f^4(x)")),
    ),
    Rule(
        "the call that a bracket after a fraction is not", r"\frac{bx}{h}(h-x)", r"\frac{bx(h-x)}{h}",
        "a fraction ends with its denominator",
        (("h(h-x)", "h^2-hx"), (r"\frac{f(x)}{2}", r"\frac{fx}{2}")),
    ),
]  # fmt: skip
