"""Our `accuracy_reward` in place of TRL's: the same columns, and rewards that differ where docs/math-verify.md says."""

from typing import Any

from trl.rewards import accuracy_reward as of_trl

from outcome_rl.math_verify import accuracy_reward

# Completion, gold answer, and the rewards of both.
ROWS = [
    (r"My answer is \boxed{\frac{1}{3}}", r"\frac{1}{3}", 1, 1),
    (r"My answer is \boxed{\frac{1}{2}}", r"\frac{1}{3}", 0, 0),
    (r"The final answer is $7$. I hope it is correct.", "7", 1, 1),
    ("The answer is 7", "7", 1, 0),  # no LaTeX
    (r"first \boxed{4}, then \boxed{5}", "$5$", 1, 0),  # the last box
    (r"\boxed{\frac12}", r"$\frac{1}{2}$", 1, 0),  # braces are missing
    (r"\boxed{x = 5}", "5", 1, 1),
    (r"\boxed{0.333333}", "1/3", 0, 1),  # a fraction is exact
    (r"\boxed{no}", "no", 1, None),  # a word
]


def test_rewards_and_columns() -> None:
    texts, golds, expected, of_theirs = map(list, zip(*ROWS, strict=True))
    completions = [[{"role": "assistant", "content": text}] for text in texts]
    columns: dict[str, dict[str, list[Any]]] = {"ours": {}, "theirs": {}}
    assert accuracy_reward(completions, golds, log_extra=columns["ours"].__setitem__) == expected
    assert of_trl(completions, golds, log_extra=columns["theirs"].__setitem__) == of_theirs
    assert columns["ours"].keys() == columns["theirs"].keys()
    assert {len(column) for column in columns["ours"].values()} == {len(ROWS)}
