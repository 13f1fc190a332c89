"""A kind of outcomes of the user, as the docstring of `kinds` writes it: a rule and two functions."""

import json
from pathlib import Path
from typing import Any

import pytest
from command_line import invoke

from outcome_rl import Explorer, Outcome, OutcomeKind, cli
from outcome_rl.outcomes.batch import Batch, Row


class Words(OutcomeKind):
    """The outcome is the number of words."""

    rule = "words/1"

    def outcome(self, response: str, row: Row) -> Any:
        return len(response.split()) or None

    def is_correct(self, outcome: Outcome, gold: str, row: Row) -> bool:
        return outcome.value == int(gold)


def test_a_rule_and_two_functions_are_enough(tmp_path: Path) -> None:
    with Explorer(outcome=Words, bonus="ucb", coef=1.0, answer_mask_mode="none") as explorer:
        first = explorer.score(["q"] * 4, ["a", "b", "c c", ""], ["1"] * 4)
        assert first.correct.tolist() == [True, True, False, False]
        again = explorer.score(["q"] * 3, ["a", "c c", "c c c"], ["1"] * 3)
        assert again.counts.tolist() == [2, 1, 0]
        assert explorer.seen("q") == [("1", 3), ("2", 2), (None, 1), ("3", 1)]
        explorer.save(tmp_path / "state")
    with Explorer.load(tmp_path / "state", explorer.config) as explorer:
        assert explorer.score(["q"], ["a"], ["1"]).counts.tolist() == [3]


def test_a_kind_may_give_its_own_keys_and_spans() -> None:
    class First(Words):
        rule = "first/1"

        def outcome(self, response: str, row: Row) -> Any:
            return Outcome(response[:1], 0, 1, key=ord(response[0]))

    outcomes = First().classify(Batch(["q", "q"], ["ab", "b"]))
    assert outcomes.keys.tolist() == [97, 98]
    assert [answer and answer[:3] for answer in outcomes.answers] == [("a", 0, 1), ("b", 0, 1)]


def test_a_kind_without_functions_names_them() -> None:
    with pytest.raises(NotImplementedError, match="must define outcome, or classify"):
        OutcomeKind().classify(Batch(["q"], ["a"]))


def test_analyze_takes_it_by_its_name(tmp_path: Path) -> None:
    samples = [{"id": "q", "gold": "2", "completion": text} for text in ("b", "b b", "c c", "d d d")]
    (tmp_path / "samples.jsonl").write_text("".join(json.dumps(row) + "\n" for row in samples))
    result = invoke(
        cli.main, "analyze", str(tmp_path / "samples.jsonl"), "--outcome", f"{__file__}:Words", "--json", "-"
    )
    assert result.exit_code == 0, result.stderr
    assert json.loads(result.stdout)["n_samples"] == 4  # the JSON alone
