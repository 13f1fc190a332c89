"""Checkpoints are complete or absent, whatever interrupts the writing."""

import errno
import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from outcome_rl.grpo.run.checkpoint import (
    check_same_run,
    latest_checkpoint,
    mark_best,
    read_state,
    write_checkpoint,
)
from outcome_rl.tools.find_model import find_model


def fill_with(text: str):
    def fill(folder: Path) -> None:
        (folder / "model").mkdir()
        (folder / "model" / "weights").write_text(text)
        (folder / "state.json").write_text(json.dumps(state(text)))

    return fill


def state(text: str) -> dict[str, Any]:
    return {"run": {"step": 1}, "identity": {"text": text}, "start": {}, "log": {}, "made with": {}}


def names(root: Path) -> list[str]:
    return sorted(path.name for path in root.iterdir())


def read_best(root: Path) -> dict[str, dict[str, float]]:
    best: dict[str, dict[str, float]] = json.loads((root / "best.json").read_text())
    return best


def test_the_newest_are_kept_by_number_and_other_folders_too(tmp_path: Path) -> None:
    (tmp_path / "global_step_3_mine").mkdir()
    (tmp_path / "notes").touch()
    for step in (8, 9, 10, 11):
        write_checkpoint(tmp_path, step, fill_with(str(step)), keep=2)
    assert names(tmp_path) == ["global_step_10", "global_step_11", "global_step_3_mine", "notes"]


def test_a_checkpoint_is_found_and_never_overwritten(tmp_path: Path) -> None:
    assert latest_checkpoint(tmp_path / "none") is None
    place = write_checkpoint(tmp_path, 1, fill_with("old"), keep=2)
    assert place == latest_checkpoint(tmp_path) == tmp_path / "global_step_1"
    assert (place / "model" / "weights").read_text() == "old"
    with pytest.raises(OSError, match=r"step 1 failed: .*global_step_1 exists, and nothing is overwritten"):
        write_checkpoint(tmp_path, 1, fill_with("new"), keep=2)
    assert names(tmp_path) == ["global_step_1"]
    assert read_state(tmp_path / "global_step_1") == state("old")


NO_SPACE = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.parametrize("error", [ValueError("cannot be saved"), TypeError("cannot be saved"), NO_SPACE])
def test_contents_that_cannot_be_written_leave_nothing_behind(error: Exception, tmp_path: Path) -> None:
    def refused(folder: Path) -> None:
        fill_with("two")(folder)
        raise error

    with pytest.raises(OSError, match=r"step 1 failed: .*; no earlier checkpoint exists"):
        write_checkpoint(tmp_path, 1, refused, keep=1)
    assert names(tmp_path) == []
    write_checkpoint(tmp_path, 1, fill_with("one"), keep=1)
    with pytest.raises(OSError, match=r"step 2 failed: .*; the last good one is .*global_step_1$") as caught:
        write_checkpoint(tmp_path, 2, refused, keep=1)
    assert caught.value.__cause__ is error
    assert str(error) in str(caught.value)
    assert names(tmp_path) == ["global_step_1"]


def test_a_kill_while_an_old_one_is_removed_leaves_no_half_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_checkpoint(tmp_path, 1, fill_with("one"), keep=1)

    remove = shutil.rmtree

    def killed(path: Path, *, ignore_errors: bool = False) -> None:
        if ignore_errors:  # a scratch folder, there or not
            return remove(path, ignore_errors=True)
        (path / "state.json").unlink()
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("outcome_rl_kernels.whole_files.shutil.rmtree", killed)
        with pytest.raises(KeyboardInterrupt):
            write_checkpoint(tmp_path, 2, fill_with("two"), keep=1)
    assert latest_checkpoint(tmp_path) == tmp_path / "global_step_2"
    assert not (tmp_path / "global_step_1").exists()
    write_checkpoint(tmp_path, 3, fill_with("three"), keep=2)
    assert names(tmp_path) == ["global_step_2", "global_step_3"]


def test_a_damaged_checkpoint_says_what_to_do(tmp_path: Path) -> None:
    place = write_checkpoint(tmp_path, 1, fill_with("one"), keep=1)
    (place / "state.json").write_text("{")
    with pytest.raises(ValueError, match=r"state\.json is damaged.*remove this checkpoint to start again"):
        read_state(place)


def test_every_difference_is_named(tmp_path: Path) -> None:
    saved = {"actor.optim.lr": 1e-6, "rollout.n": 8, "same": [1], "gone": None, "dropped": 1}
    current = {"actor.optim.lr": 2e-6, "rollout.n": 8, "same": [1], "gone": None, "added": "x"}
    with pytest.raises(ValueError, match="global_step_7 belongs to another run") as caught:
        check_same_run(saved, current, tmp_path / "global_step_7")
    message = str(caught.value)
    for part in (
        "actor.optim.lr: 1e-06 before, 2e-06 now",
        "dropped: 1 before, None now",
        "added: None before, 'x' now",
        "trainer.experiment_name",
    ):
        assert part in message
    assert "rollout.n" not in message
    check_same_run(saved, saved, tmp_path)


def test_the_best_are_kept(tmp_path: Path) -> None:
    for step in (1, 2, 3):
        write_checkpoint(tmp_path, step, fill_with(str(step)), keep=2)
    for step in (4, 5, 6):
        write_checkpoint(tmp_path, step, fill_with(str(step)), keep=1, best=[2, 3])
    assert names(tmp_path) == ["global_step_2", "global_step_3", "global_step_6"]
    assert latest_checkpoint(tmp_path) == tmp_path / "global_step_6"
    write_checkpoint(tmp_path, 7, fill_with("7"), keep=1, best=[6, 3])
    assert names(tmp_path) == ["global_step_3", "global_step_6", "global_step_7"]
    mark_best(tmp_path, {"pass@1": (6, 0.6), "pass@8": (3, 0.75)})
    assert read_best(tmp_path)["pass@1"] == {"checkpoint": "global_step_6", "step": 6, "value": 0.6}


def test_a_checkpoint_removed_by_hand_is_not_the_best(tmp_path: Path) -> None:
    write_checkpoint(tmp_path, 2, fill_with("two"), keep=1)
    mark_best(tmp_path, {"pass@1": (1, 0.9), "pass@8": (2, 0.5)})
    assert list(read_best(tmp_path)) == ["pass@8"]
    shutil.rmtree(tmp_path / "global_step_2")
    mark_best(tmp_path, {"pass@8": (2, 0.5)})
    assert read_best(tmp_path) == {}


def test_a_model_is_found_by_run_checkpoint_or_folder(finished: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    newest = finished / "checkpoints" / "global_step_6"
    for place in (finished, newest, newest / "model"):
        assert find_model(str(place)) == (str(newest / "model"), finished / "config.yaml")
    monkeypatch.chdir(newest)
    assert find_model("model")[1] == finished / "config.yaml"
    monkeypatch.chdir(finished)
    assert find_model("Qwen/Qwen2.5-7B") == ("Qwen/Qwen2.5-7B", None)
    assert find_model("toy") == ("toy", None)


def test_a_run_without_a_checkpoint_has_no_model(finished: Path, tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text((finished / "config.yaml").read_text())
    with pytest.raises(ValueError, match="is a run without a checkpoint, so it holds no model yet"):
        find_model(str(tmp_path))
