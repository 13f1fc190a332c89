"""A class of outcomes of the user, as the docstring of `kinds` writes it."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command_line import invoke

from outcome_rl import Explorer, OutcomeKind, Outcomes, cli
from outcome_rl.outcomes.batch import Batch


class Length(OutcomeKind):
    """The outcome is the length; nothing is remembered."""

    rule = "length/1"

    def classify(self, batch: Batch, **limits: Any) -> Outcomes:
        lengths = [len(response) for response in batch.responses]
        golds = [len(gold) for gold in batch.golds or ()] or lengths
        return Outcomes(np.array(lengths), np.equal(lengths, golds), [None] * len(lengths), 0)


def test_a_class_with_a_rule_and_classify_is_enough(tmp_path: Path) -> None:
    with Explorer(outcome=Length, bonus="ucb", coef=1.0, answer_mask_mode="none", no_answer="own_class") as explorer:
        first = explorer.score(["q"] * 3, ["a", "b", "cc"], ["d"] * 3)
        assert first.correct.tolist() == [True, True, False]
        again = explorer.score(["q"] * 3, ["a", "cc", "ccc"], ["d"] * 3)
        assert again.counts.tolist() == [2, 1, 0]
        explorer.save(tmp_path / "state")
    with Explorer.load(tmp_path / "state", explorer.config) as explorer:
        assert explorer.score(["q"], ["a"], ["d"]).counts.tolist() == [3]


def test_analyze_takes_it_by_its_name(tmp_path: Path) -> None:
    samples = [{"id": "q", "gold": "aa", "completion": text} for text in ("b", "bb", "cc", "ddd")]
    (tmp_path / "samples.jsonl").write_text("".join(json.dumps(row) + "\n" for row in samples))
    result = invoke(
        cli.main, "analyze", str(tmp_path / "samples.jsonl"), "--outcome", f"{__file__}:Length", "--json", "-"
    )
    assert result.exit_code == 0, result.stderr
    assert json.loads(result.stdout)["n_samples"] == 4  # the JSON alone


def test_is_correct_is_refused() -> None:
    with pytest.raises(ValueError, match="is_correct"):
        Explorer(outcome=Length, is_correct=lambda value, example: True)
