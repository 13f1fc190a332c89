"""The rules that plug-ins share, without a stack."""

import re
from itertools import product
from types import SimpleNamespace
from typing import Any

import pytest

from outcome_rl.integrations.adapter import Turn, outcome_turn


@pytest.mark.parametrize("whole_episodes", [False, True])
def test_the_last_turn_is_the_last_run_of_written_tokens(whole_episodes: bool) -> None:
    explorer: Any = SimpleNamespace(matcher=SimpleNamespace(needs_row=whole_episodes))
    for size in range(8):
        ids = [*range(100, 100 + size)]
        for written in product([0, 1], repeat=size):
            runs = [*re.finditer("1+", "".join(map(str, written)))]
            start, end = (0, 0) if not runs else (0, size) if whole_episodes else runs[-1].span()
            assert outcome_turn(explorer, ids, written) == Turn(start, ids[start:end])
            assert outcome_turn(explorer, ids, [bool(mark) for mark in written]) == Turn(start, ids[start:end])
