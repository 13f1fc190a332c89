"""Our `accuracy_reward` in place of TRL's: the same columns, and rewards that differ where docs/math-verify.md says."""

import json
from typing import Any

from tables import rows
from trl.rewards import accuracy_reward as of_trl

from outcome_rl.math_verify import accuracy_reward

ROWS = [cells for _, *cells in rows(__file__, "rewards")]


def test_rewards_and_columns() -> None:
    texts, golds, *rewards = map(list, zip(*ROWS, strict=True))
    expected, of_theirs = ([*map(json.loads, column)] for column in rewards)
    completions = [[{"role": "assistant", "content": text}] for text in texts]
    columns: dict[str, dict[str, list[Any]]] = {"ours": {}, "theirs": {}}
    assert accuracy_reward(completions, golds, log_extra=columns["ours"].__setitem__) == expected
    assert of_trl(completions, golds, log_extra=columns["theirs"].__setitem__) == of_theirs
    assert columns["ours"].keys() == columns["theirs"].keys()
    assert {len(column) for column in columns["ours"].values()} == {len(ROWS)}
