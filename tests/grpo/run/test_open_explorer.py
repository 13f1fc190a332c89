"""Explorers of runs that begin, with and without the counts of another run."""

from collections.abc import Sequence
from pathlib import Path

import pytest
from grpo_runs import MakeConfig

from outcome_rl import Explorer
from outcome_rl.grpo.run.open_explorer import load_explorer, new_explorer
from outcome_rl.grpo.types import Problem, ProblemSet

PROBLEMS = ProblemSet("two", (Problem("a", "?", "1"), Problem("b", "?", "2")), "f" * 64, id_source="the column 'id'")


def saved(folder: Path, question_ids: Sequence[str], id_source: str = "") -> str:
    with Explorer() as explorer:
        explorer.score(question_ids, [r"\boxed{1}" for _ in question_ids], ["1" for _ in question_ids])
        explorer.id_source = id_source
        explorer.save(folder)
    return f"trainer.initial_exploration={folder}"


def test_a_run_begins_with_the_counts_of_another_that_shares_a_question(
    small_config: MakeConfig, tmp_path: Path
) -> None:
    config = small_config(tmp_path, saved(tmp_path / "other", ["b", "c"]))
    with new_explorer(config, PROBLEMS) as explorer:
        assert explorer.seen("c") == [("1", 1)]
        assert explorer.id_source == "the column 'id'"


def test_the_origin_of_saved_ids_stays(small_config: MakeConfig, tmp_path: Path) -> None:
    with new_explorer(small_config(tmp_path), PROBLEMS) as explorer:
        assert explorer.id_source == "the column 'id'"
        assert explorer.solved == {}
    config = small_config(tmp_path, saved(tmp_path / "other", ["a"], "SkyRL's uids"))
    with new_explorer(config, PROBLEMS) as explorer:
        assert explorer.id_source == "SkyRL's uids"


def test_counts_that_no_question_would_find_are_refused(small_config: MakeConfig, tmp_path: Path) -> None:
    config = small_config(tmp_path, saved(tmp_path / "other", ["gsm8k:7", "gsm8k:8"]))
    message = r"its 2 questions have ids such as 'gsm8k:7', and this run's like 'a', from the column 'id'"
    with pytest.raises(ValueError, match=message):
        new_explorer(config, PROBLEMS)
    with load_explorer(config) as explorer:  # what a checkpoint replaces
        assert explorer.solved == {}


def test_a_missing_folder_is_refused(small_config: MakeConfig, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="missing"):
        new_explorer(small_config(tmp_path, f"trainer.initial_exploration={tmp_path / 'missing'}"), PROBLEMS)
