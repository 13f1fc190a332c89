"""Files of a run that are damaged at random are read, or refused in one line that names them."""

import json
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from command_line import invoke
from written_runs import evaluation, write_run

from outcome_rl import cli
from outcome_rl.files.jsonl import write_rows
from outcome_rl.files.run_rows import STREAMS

VALUES = [None, True, -1, 10**400, 0.5, "", "a", [], [["a"]], {}, {"1": "a"}, {"1": 0.5, "x": 0.5}]
SAMPLE = {"step": 1, "question": "q", "gold": "1", "completion": "c", "outcome": None, "reward": 1.0}
SAMPLE |= {"count": 0, "bonus": 0.1, "advantage": -1.0}


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("damaged") / "run"
    evaluations = [evaluation(step, "toy:test", 0.2, 0.8) for step in (0, 1)]
    write_run(folder, ["trainer.experiment_name=run"], evaluations, [{"step": 1, "entropy/all": 0.5}])
    write_rows(folder / "samples.jsonl", [SAMPLE])
    return folder


def damaged(text: str, loads: Callable[[str], Any], draw: random.Random) -> str:
    """Return a row or a file with a random field dropped, of another type or deep."""
    tree = loads(text)
    inside = tree
    name = draw.choice([*inside])
    while isinstance(inside[name], dict) and inside[name] and draw.random() < 0.7:
        inside = inside[name]
        name = draw.choice([*inside])
    inside[name] = draw.choice([*VALUES, "DEEP"])
    if draw.random() < 0.3:
        del inside[name]
    return json.dumps(tree).replace('"DEEP"', "[" * 5000 + "]" * 5000)


@pytest.mark.parametrize("name", ["config.yaml", "metrics.jsonl", "evaluations.jsonl", "samples.jsonl"])
def test_a_damaged_run_is_read_or_refused(
    name: str, written: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("outcome_rl.tools.plot.svg", lambda panels: "")
    shutil.copytree(written, tmp_path / "run")
    path, text, draw, refused = tmp_path / "run" / name, (written / name).read_text(), random.Random(name), 0
    for _ in range(40):
        if draw.random() < 0.2:
            path.write_text(text[: draw.randrange(len(text))])
        elif name == "config.yaml":
            path.write_text(damaged(text, yaml.safe_load, draw))  # JSON is YAML
        else:
            first, *rest = text.splitlines()
            path.write_text("\n".join([damaged(first, json.loads, draw), *rest, ""]))
        for command in ("report", "compare"):
            result = invoke(cli.main, command, tmp_path / "run")
            assert result.exit_code in (0, 2), result.output
            if result.exit_code:
                refused += 1
                assert result.stderr.startswith("error: ")
                assert result.stderr.count("\n") == 1
                assert name in result.stderr or name == "evaluations.jsonl"  # cut, it holds fewer evaluations
    assert refused > 5


@pytest.mark.parametrize(
    ("stream", "field"),
    [
        *(
            ("evaluations", field)
            for field in ("step", "dataset", "n_questions", "pass_at_k", "diff_at_k", "no_answer_rate")
        ),
        *(("samples", field) for field in SAMPLE),
        ("metrics", "step"),
    ],
)
def test_a_row_that_lacks_a_field_is_named(stream: str, field: str, written: Path, tmp_path: Path) -> None:
    run = shutil.copytree(written, tmp_path / "run")
    *before, last = [json.loads(line) for line in (run / f"{stream}.jsonl").read_text().splitlines()]
    del last[field]
    write_rows(run / f"{stream}.jsonl", [*before, last])
    result = invoke(cli.main, "report", run)
    assert result.exit_code == 2
    for named in (f"{stream}.jsonl, row {len(before) + 1}", field, "restore the file from a copy"):
        assert named in result.stderr


@pytest.mark.parametrize("stream", STREAMS)
@pytest.mark.parametrize("damage", ["lost", "changed", "moved", "no file"])
def test_rows_that_the_newest_checkpoint_counts_are_missed(
    stream: str, damage: str, finished: Path, tmp_path: Path
) -> None:
    run = shutil.copytree(finished, tmp_path / "run")
    path = run / f"{stream}.jsonl"
    first, *rest = path.read_bytes().splitlines(keepends=True)
    changed = {"lost": rest, "changed": [first.replace(b"0", b"1", 1), *rest], "moved": [*rest[:1], first, *rest[1:]]}
    if damage == "no file":
        path.unlink()
    else:
        path.write_bytes(b"".join(changed[damage]))
    result = invoke(cli.main, "report", run)
    assert result.exit_code == 2
    assert f"{stream}.jsonl" in result.stderr
    assert "Restore the file from a copy" in result.stderr
