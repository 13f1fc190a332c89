"""Nothing that a reader drops tells two answers apart; `tests/helpers/dropped_things.py` has the reasons."""

import pytest
from dropped_things import RULES, Rule

from outcome_rl.outcomes.keys import canonical_text, equivalent


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.dropped)
def test_what_is_dropped_and_what_is_not(rule: Rule) -> None:
    assert rule.why
    assert equivalent(rule.a, rule.b)
    assert not canonical_text(rule.a).startswith("s:")
    assert [pair for pair in rule.unlike if equivalent(*pair)] == []
