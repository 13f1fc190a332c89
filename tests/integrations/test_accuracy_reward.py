"""Our `accuracy_reward` and TRL's, on the same rows."""

from typing import Any

from trl.rewards import accuracy_reward as of_trl

from outcome_rl.math_verify import accuracy_reward

ROWS = [
    (r"My answer is \boxed{\frac{1}{3}}", r"\frac{1}{3}"),
    (r"My answer is \boxed{\frac{1}{2}}", r"\frac{1}{3}"),
    (r"The final answer is $7$. I hope it is correct.", "7"),
    ("The answer is 7", "7"),  # no LaTeX
    (r"first \boxed{4}, then \boxed{5}", "$5$"),
    (r"\boxed{\frac12}", r"$\frac{1}{2}$"),  # refused: braces are missing
    (r"\boxed{x = 5}", "5"),
    (r"\boxed{0.333333}", "1/3"),
    (r"\boxed{5}", "no mathematics"),
]


def test_rewards_and_columns() -> None:
    completions = [[{"role": "assistant", "content": text}] for text, _ in ROWS]
    golds = [gold for _, gold in ROWS]
    columns: dict[str, dict[str, list[Any]]] = {"ours": {}, "theirs": {}}
    ours = accuracy_reward(completions, golds, log_extra=columns["ours"].__setitem__)
    assert ours == of_trl(completions, golds, log_extra=columns["theirs"].__setitem__)
    assert columns["ours"].keys() == columns["theirs"].keys()
    assert {len(column) for column in columns["ours"].values()} == {len(ROWS)}
