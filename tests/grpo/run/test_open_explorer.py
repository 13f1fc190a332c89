"""Explorers of runs that begin, with and without the counts of another run."""

from collections.abc import Sequence
from pathlib import Path

import pytest
import torch

from outcome_rl import Explorer
from outcome_rl.exploration.config import ExplorationConfig
from outcome_rl.grpo.run.open_explorer import check_counts, open_explorer
from outcome_rl.grpo.types import Problem, ProblemSet

SETTINGS, CPU = ExplorationConfig(), torch.device("cpu")
PROBLEMS = ProblemSet("two", (Problem("a", "?", "1"), Problem("b", "?", "2")), "f" * 64, id_source="the column 'id'")


def saved(folder: Path, question_ids: Sequence[str], id_source: str = "") -> str:
    with Explorer() as explorer:
        explorer.score(question_ids, [r"\boxed{1}" for _ in question_ids], ["1" for _ in question_ids])
        explorer.id_source = id_source
        explorer.save(folder)
    return str(folder)


def test_a_run_begins_with_the_counts_of_another_that_shares_a_question(tmp_path: Path) -> None:
    with open_explorer(SETTINGS, CPU, saved(tmp_path / "other", ["b", "c"]), PROBLEMS) as explorer:
        check_counts(explorer, "other", PROBLEMS)
        assert explorer.seen("c") == [("1", 1)]
        assert explorer.id_source == "the column 'id'"


def test_the_origin_of_saved_ids_stays(tmp_path: Path) -> None:
    with open_explorer(SETTINGS, CPU, "", PROBLEMS) as explorer:
        assert explorer.id_source == "the column 'id'"
        assert explorer.solved == {}
    with open_explorer(SETTINGS, CPU, saved(tmp_path / "other", ["a"], "SkyRL's uids"), PROBLEMS) as explorer:
        assert explorer.id_source == "SkyRL's uids"


def test_counts_that_no_question_would_find_are_refused(tmp_path: Path) -> None:
    folder = saved(tmp_path / "other", ["gsm8k:7", "gsm8k:8"])
    message = r"its 2 questions have ids such as 'gsm8k:7', and this run's like 'a', from the column 'id'"
    with open_explorer(SETTINGS, CPU, folder, PROBLEMS) as explorer:
        assert len(explorer.solved) == 2
        with pytest.raises(ValueError, match=message):
            check_counts(explorer, folder, PROBLEMS)
