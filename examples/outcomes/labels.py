"""Labelled free text: the outcome is the label, and an outcome function of your own is three lines.

    python examples/outcomes/labels.py

`label` reads the last line, or the last of the row's `labels`. The second explorer counts how a review argues, whatever
its label is: any rule from text to text, numbers or tuples will do, and rewards may come from elsewhere.
"""

from collections.abc import Mapping
from typing import Any

from outcome_rl import Explorer, outcome_function
from outcome_rl.outcomes.ready import label

responses = ["The food was cold.\nSentiment: Negative", "Great service.\nSentiment: **positive**", "negative"]
rows = [{"labels": ["positive", "negative", "neutral"]}] * 3

explorer = Explorer(outcome=label)
scored = explorer.score(["review 7"] * 3, responses, ["negative"] * 3, rows=rows)
print("correct", scored.correct.tolist(), "seen", explorer.seen("review 7"))


@outcome_function(version="1")  # raise it when the rule changes: counts of the older rule are then refused
def aspects(response: str, example: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the aspects that a review mentions."""
    return tuple(word for word in ("food", "price", "service") if word in response.lower())


explorer = Explorer(outcome=aspects)
scored = explorer.score(["review 7"] * 3, responses, None, rewards=[1.0, 0.0, 1.0], correct=[True, False, True])
print("aspects", explorer.seen("review 7"))
