"""Files of runs that were forged or damaged are refused by name, whatever stands in them."""

import shutil
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from outcome_rl.files.jsonl import read_rows, write_rows
from outcome_rl.tools.runs import ROWS, Settings, read_run

ANYTHING = st.none() | st.booleans() | st.text(max_size=3) | st.lists(st.integers(), max_size=2)


def forged(finished: Path, folder: Path, stream: str, change: Any) -> Path:
    folder.mkdir(exist_ok=True)
    for name in ("config.yaml", *(f"{one}.jsonl" for one in ROWS)):
        shutil.copy(finished / name, folder)
    path = folder / f"{stream}.jsonl"
    rows = [*read_rows(path)]
    change(rows[-1])
    write_rows(path, rows)
    return folder


def test_a_finished_run_is_read(finished: Path) -> None:
    run = read_run(finished)
    assert len(run.metrics) == 6
    assert run.comparisons


@pytest.mark.parametrize(
    ("stream", "field"), [(stream, field) for stream, row in ROWS.items() for field in row.__annotations__]
)
def test_a_row_without_a_field_is_named(stream: str, field: str, finished: Path, tmp_path: Path) -> None:
    folder = forged(finished, tmp_path / "run", stream, lambda row: row.pop(field))
    with pytest.raises(ValueError, match=rf"{stream}\.jsonl, row .*{field}"):
        read_run(folder)


@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_a_field_of_another_type_is_refused(data: st.DataObject, finished: Path, tmp_path: Path) -> None:
    stream = data.draw(st.sampled_from(["metrics", "evaluations"]))
    more = ["exploration/solved_fraction"] if stream == "metrics" else []
    field = data.draw(st.sampled_from([*ROWS[stream].__annotations__, *more]))
    value = data.draw(ANYTHING.filter(lambda value: not (isinstance(value, str) and field == "dataset")))
    folder = tmp_path / "run"
    forged(finished, folder, stream, lambda row: row.update({field: value}))
    with pytest.raises(ValueError, match=rf"{stream}\.jsonl, row .* must (be|fit)"):
        read_run(folder)


@pytest.mark.parametrize("change", [{}, {"2": 0.5}, {"1": 0.5, "x": 0.5}])
def test_evaluations_of_other_k_are_refused(change: dict[str, float], finished: Path, tmp_path: Path) -> None:
    folder = forged(finished, tmp_path / "run", "evaluations", lambda row: row.update(pass_at_k=change))
    with pytest.raises(ValueError, match="must have the same k"):
        read_run(folder)


@pytest.mark.parametrize("text", ["[", "- a", "data: 3", *(f"{section}: null" for section in Settings.__annotations__)])
def test_a_forged_configuration_is_refused(text: str, finished: Path, tmp_path: Path) -> None:
    folder = forged(finished, tmp_path / "run", "metrics", lambda row: None)
    (folder / "config.yaml").write_text(text)
    with pytest.raises(ValueError, match=r"config\.yaml"):
        read_run(folder)
