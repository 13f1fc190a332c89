"""Table of questions: a row for each question of each file of samples."""

import csv
import io
from collections.abc import Mapping, Sequence
from pathlib import Path

from outcome_rl.analyze import QuestionReport
from outcome_rl.files.atomic import write_text
from outcome_rl.files.jsonl import write_rows


def write_questions(files: Mapping[str, Sequence[QuestionReport]], out: Path) -> None:
    """Write JSON lines, or CSV where the file's name ends so; `file` names the file of samples."""
    rows = [{"file": name, **question} for name, questions in files.items() for question in questions]
    if out.suffix != ".csv":
        write_rows(out, rows)
        return
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, list(rows[0]))
    writer.writeheader()
    writer.writerows(rows)
    write_text(out, text.getvalue())
