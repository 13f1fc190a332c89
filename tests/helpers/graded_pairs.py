"""Gold answers and answers, with the verdicts of the one grader: with tolerance, and strictly."""

PAIRS = [
    ("180.67", r"\frac{542}{3}", True, False),
    ("5", r"5\text{ apples}", True, False),
    (r"1.5\text{ hours}", "90 minutes", True, False),
    (r"\frac38", r"37.5\%", True, False),
    ("3,4", "p=3,f(2)=4", True, False),
    ("0.333333", r"\frac13", True, False),
    ("x=5", "5", True, True),
    ("(1,2)", "[1,2]", False, False),
    (r"\{1,2\}", "1,2", True, True),
    ("10", "1010_2", False, False),
    ("5", "5 dozen", False, False),
    (r"2\sqrt{2}", r"\sqrt{8}", True, True),
    (r"\sin^2 x+\cos^2 x", "1", True, True),
    ("B", "(B)", True, True),
    ("f(n)=2n", "f(m)=2m", True, False),
    ("1000.99", "1000,99", True, False),
    ("75", "75\\%", True, True),
    ("0.75", "75\\%", True, False),
]
