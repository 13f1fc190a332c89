"""States of version 0.2 and 0.3, and of older outcome rules: they load, and their outcomes are read again."""

import json
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from outcome_rl import Explorer, outcome_function, outcome_key, question_key
from outcome_rl.files.atomic import seal_folder
from outcome_rl.outcomes.keys import OUTCOME_RULE, hash_key
from outcome_rl_kernels.counts.snapshot import sort_entries, write_snapshot
from outcome_rl_kernels.counts.table import CountEntries

Counted = tuple[str, int, int, int]  # question, key, samples, correct samples


def write(folder: Path, rule: str, counted: Sequence[Counted], questions: dict[str, Any], **config: Any) -> None:
    """Write a folder as these versions did: classes of outcomes, and the solved questions."""
    folder.mkdir()
    rows = [(question_key(question_id), *numbers) for question_id, *numbers in counted]
    write_snapshot(
        folder / "counts.safetensors", sort_entries(CountEntries(*torch.tensor(rows).t().contiguous())), rule
    )
    state = {
        "format": "outcome_rl exploration 1",
        "config": {"bonus": "ucb", **config},
        "outcomes": {"rule": rule, "questions": questions, "bad_golds": {}, "doubtful_golds": {}},
        "solved": {question_id: False for question_id, *_ in counted},
        "batches": 7,
        "id_source": "the column 'id'",
    }
    (folder / "state.json").write_text(json.dumps(state, sort_keys=True))
    seal_folder(folder)


def mathematics(gold: str, texts: dict[int, str], *, of_0_2: bool, **key_of: int) -> dict[str, Any]:
    """A question of `OutcomeMatcher`: each class with its key, a canonical text, the first text and a flag."""
    founders: list[list[Any]] = [[key, f"canonical text {key}", text, False] for key, text in texts.items()]
    flat = [value for founder in founders for value in founder]
    return {"gold": ["?", gold, False], "key_of": key_of, "founders": founders if of_0_2 else flat, "apart": []}


@pytest.mark.parametrize("of_0_2", [True, False])
def test_outcomes_of_an_older_rule_are_read_again(
    of_0_2: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Two outcomes of q that are one now, one that keeps its key, "no answer", and the gold, which was not sampled."""
    half, same = outcome_key("1/2"), outcome_key("7")
    texts = {11: "0.5", 12: r"\frac12", same: "7", 13: "3"}
    counted = [("q", 11, 2, 1), ("q", 12, 3, 3), ("q", same, 4, 0), ("q", 0, 5, 0), ("r", 0, 1, 0)]
    write(tmp_path / "old", "canonical/3", counted, {"q": mathematics("3", texts, of_0_2=of_0_2, other=11)})
    with caplog.at_level(logging.WARNING):
        explorer = Explorer.load(tmp_path / "old")
    (record,) = caplog.records
    assert record.args == ("canonical/3", OUTCOME_RULE, 2, 5, 1)  # rules, outcomes with another key of all, added
    assert {count for _, count in explorer.seen("q")} == {5, 4}
    assert explorer.counts.lookup(torch.tensor([question_key("q")]), torch.tensor([half])).tolist() == [5]
    assert explorer.questions() == {"q": (14, 4, 2), "r": (1, 0, 0)}
    assert (explorer.batches, explorer.id_source, explorer.counts.rule) == (7, "the column 'id'", OUTCOME_RULE)
    scored = explorer.score(["q", "q"], [r"\boxed{0.50}", r"\boxed{3}"], None, [0.0, 1.0])
    assert scored.counts.tolist() == [5, 0]
    assert scored.correct.tolist() == [False, True]  # by the gold that was saved
    with pytest.raises(ValueError, match="golds must agree"):
        explorer.score(["q"], ["4"], ["4"])
    explorer.save(tmp_path / "new")
    caplog.clear()
    assert Explorer.load(tmp_path / "new").seen("q") == explorer.seen("q")
    assert caplog.records == []


def test_a_state_in_memory_is_read_again_too() -> None:
    explorer, texts = Explorer(), {1: "1/2", 2: "0.5"}
    rows = CountEntries(*torch.tensor([(question_key("q"), key, 1, 0) for key in texts]).t().contiguous())
    state = {
        "counts": {"rule": "canonical/4", **sort_entries(rows)._asdict()},
        "outcomes": {"rule": "canonical/4", "questions": {"q": mathematics("", texts, of_0_2=False)}, "bad_golds": {}},
        "solved": {"q": False},
        "batches": 1,
        "id_source": "",
    }
    explorer.load_state_dict(state)
    assert explorer.seen("q") == [("1/2", 2)]


def test_values_that_version_0_2_distinguished_are_one(tmp_path: Path) -> None:
    """It told True, 1 and 1.0 apart; a text is no number."""
    old = {hash_key(f"value:{text}"): shown for text, shown in (("true", "True"), ("1", "1"), ('"1.0"', "1.0"))}
    questions = {"q": ["a", 0, [[key, shown] for key, shown in old.items()]]}
    rule = "function/outcome_functions:length/1"
    write(tmp_path / "old", rule, [("q", key, 1, 0) for key in old], questions)

    @outcome_function(name="outcome_functions:length")
    def length(response: str, example: Any) -> Any:
        return response if response == "1.0" else len(response)

    explorer = Explorer.load(tmp_path / "old", outcome=length)
    assert explorer.score(["q"] * 3, ["a", "ab", "1.0"], ["a"] * 3).counts.tolist() == [2, 0, 1]


def test_given_keys_were_hashes(tmp_path: Path) -> None:
    key = hash_key("value:7")
    rule = "function/outcome_rl.outcomes.functions:given/1"
    write(tmp_path / "old", rule, [("q", key, 3, 0)], {"q": [None, 0, [[key, "7"]]]}, outcome="given")
    explorer = Explorer.load(tmp_path / "old")
    assert explorer.score(["q"], ["-"], outcome_keys=[7], correct=[False]).counts.tolist() == [3]


def test_classes_of_math_verify_keep_their_keys(tmp_path: Path) -> None:
    keys = [hash_key("r:1/3"), hash_key("r:2")]
    questions = {"q": mathematics("1/3", dict(zip(keys, ("1/3", "2"), strict=True)), of_0_2=False)}
    counted = [("q", key, 2, 0) for key in keys]
    write(tmp_path / "old", "canonical/5+math_verify", counted, questions, equivalence="math_verify")
    with Explorer.load(tmp_path / "old", workers=1) as explorer:
        assert explorer.seen("q") == [("1/3", 2), ("2", 2)]
        scored = explorer.score(["q"] * 2, [r"\boxed{0.3333333}", r"\boxed{2}"], ["1/3"] * 2)
    assert scored.counts.tolist() == [2, 2]
    assert scored.correct.tolist() == [True, False]


@pytest.mark.parametrize("damage", [["solved"], ["outcomes", "questions"], ["outcomes", "questions", "q", "founders"]])
def test_a_damaged_one_is_refused(damage: list[str], tmp_path: Path) -> None:
    write(tmp_path / "old", "canonical/3", [("q", 11, 1, 0)], {"q": mathematics("1", {11: "1"}, of_0_2=False)})
    state = json.loads((tmp_path / "old" / "state.json").read_text())
    inside = state
    for name in damage[:-1]:
        inside = inside[name]
    del inside[damage[-1]]
    (tmp_path / "old" / "state.json").write_text(json.dumps(state))
    seal_folder(tmp_path / "old")
    with pytest.raises(ValueError, match="exploration state is damaged"):
        Explorer.load(tmp_path / "old")
