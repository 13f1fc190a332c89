"""The rules that plug-ins share, without a stack."""

import re
from types import SimpleNamespace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from outcome_rl.integrations.adapter import Turn, outcome_turn


def explorer_of(whole_episodes: bool) -> Any:
    return SimpleNamespace(matcher=SimpleNamespace(needs_row=whole_episodes))


@given(st.lists(st.sampled_from([0, 1, False, True, 0.0, 1.0]), max_size=12), st.booleans())
def test_the_last_turn_is_the_last_run_of_written_tokens(written: list[Any], whole_episodes: bool) -> None:
    ids = [*range(100, 100 + len(written))]
    runs = [*re.finditer("1+", "".join(str(int(mark)) for mark in written))]
    start, end = (0, len(ids)) if whole_episodes or not runs else runs[-1].span()
    assert outcome_turn(explorer_of(whole_episodes), ids, written) == Turn(start, ids[start:end])
