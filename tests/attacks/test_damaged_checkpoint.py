"""Damage of a run's files: it is refused in one line, or the run ends with the same bytes."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from command_line import Result, invoke
from grpo_runs import assert_same_run

from outcome_rl import cli

SETTINGS = (
    "data.train_batch_size=4",
    "data.train_files=toy:train[:16]",
    "data.val_files=toy:validation[:2]",
    "data.test_files=[]",
    "rollout.n=2",
    "rollout.val_kwargs.n=2",
    "actor.optim.lr_scheduler_type=constant",
    "trainer.save_freq=2",
    "trainer.test_freq=2",
)
NEWEST = Path("checkpoints/global_step_4")
WEIGHTS = NEWEST / "model" / "model.safetensors"


def train(run: Path, steps: int) -> Result:
    place = (f"trainer.default_local_dir={run.parent}", f"trainer.experiment_name={run.name}")
    length = f"trainer.total_training_steps={steps}"
    return invoke(cli.main, "train", "--config", "toy", *SETTINGS, *place, length)


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with checkpoints of its steps 2 and 4."""
    run = tmp_path_factory.mktemp("base") / "run"
    assert train(run, 4).exit_code == 0
    return run


@pytest.fixture(scope="module")
def continued(base: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same run, continued to step 5 without damage."""
    run = shutil.copytree(base, tmp_path_factory.mktemp("continued") / "run")
    assert train(run, 5).exit_code == 0
    return run


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def flip(name: Path) -> Callable[[Path], object]:
    def change(run: Path) -> None:
        content = bytearray((run / name).read_bytes())
        content[len(content) // 2] ^= 64
        (run / name).write_bytes(content)

    return change


def write(name: Path | str, content: bytes) -> Callable[[Path], object]:
    return lambda run: (run / name).write_bytes(content)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (flip(WEIGHTS), "remove this checkpoint to continue from global_step_2"),
        (flip(NEWEST / "exploration" / "explorer.safetensors"), "exploration/explorer.safetensors is damaged"),
        (write(NEWEST / "optimizer.pt", b"cos\nsystem\n(S'true'\ntR."), "optimizer.pt is damaged"),
        (write(NEWEST / "state.json", b"[]"), "state.json is damaged"),
        (lambda run: shutil.rmtree(run / NEWEST / "model"), "is missing"),
        (write("metrics.jsonl", b"\0\n"), "metrics.jsonl has lost rows"),
        (write("evaluations.jsonl", b"[]\n"), "evaluations.jsonl has lost rows"),
        (write("samples.jsonl", b"{}\n"), "samples.jsonl has lost rows"),
    ],
)
def test_a_damaged_run_is_refused_in_one_line(
    change: Callable[[Path], object], named: str, base: Path, tmp_path: Path
) -> None:
    run = shutil.copytree(base, tmp_path / "run")
    change(run)
    before = contents(run)
    result = train(run, 5)
    assert result.exit_code == 2
    assert result.stderr.startswith("error: ")
    assert result.stderr.count("\n") == 1
    assert named in result.stderr
    assert {name: content for name, content in contents(run).items() if name in before} == before


@pytest.mark.parametrize(
    "changes",
    [
        [write("checkpoints/best.json", b"[]"), write("config.yaml", b"model:\n  pa")],
        [write("checkpoints/best.json", b"{"), flip(Path("checkpoints/global_step_2/model/model.safetensors"))],
        [lambda run: (run / "checkpoints" / "best.json").unlink()],
    ],
)
def test_damage_of_files_that_a_run_writes_again_leaves_no_trace(
    changes: list[Callable[[Path], object]], base: Path, continued: Path, tmp_path: Path
) -> None:
    run = shutil.copytree(base, tmp_path / "run")
    for change in changes:
        change(run)
    result = train(run, 5)
    assert result.exit_code == 0, result.stderr
    assert_same_run(run, continued)


@pytest.mark.parametrize("command", ["eval", "export"])
def test_a_damaged_model_is_not_sampled_or_exported(command: str, base: Path, tmp_path: Path) -> None:
    run = shutil.copytree(base, tmp_path / "run")
    flip(WEIGHTS)(run)
    more = ["--out", tmp_path / "out"] if command == "eval" else [tmp_path / "out"]
    result = invoke(cli.main, command, run, *more)
    assert result.exit_code == 2
    assert "model/model.safetensors is damaged" in result.stderr
    assert "continue from global_step_2" in result.stderr
    assert not (tmp_path / "out").exists()
