"""Answers and golds of public repositories, for the table of rules.

    git clone --depth 1 https://github.com/mathllm/MATH-V CLONES/MATH-V                        # and others, see SOURCES
    python -m bench.public_answers CLONES DATA/public

Writes one file of distinct (answer, gold) rows for each clone. A row of a file gives its gold answer, or the answers of
its responses, under one of the names that such files have.
"""

import ast
import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from outcome_rl import extract_answer

SOURCES = {
    "MATH-V": ("data/test.jsonl", "outputs/closed-source/*/*.jsonl", "outputs/open-source/*/*CoT.jsonl"),
    "simpleRL-reason": ("examples/simplelr_math_eval/data/*/*.jsonl",),
    "PromptPG": ("results/gpt3/*.json", "data/tabmwp/problems_test.json"),
    "scibench": ("dataset/original/*.json",),
    "LIMO": ("eval/data/*/*.jsonl",),
    "AGIEval": ("data/v1/gaokao-mathcloze.jsonl", "data/v1/math.jsonl"),
}
_GOLDS = ("final_answer", "gt", "answer_latex", "answer")
_RESPONSES = ("response", "output", "code", "solution", "prediction")


def rows_of(path: Path) -> Iterator[Mapping[str, Any]]:
    """Yield all objects of a JSON or JSON lines file that hold a gold answer or a response."""
    text = path.read_text("utf-8")
    try:
        found: list[Any] = [json.loads(text)]
    except ValueError:
        found = [json.loads(line) for line in text.split("\n") if line.strip()]
    while found:
        value = found.pop()
        if isinstance(value, dict) and any(name in value for name in (*_GOLDS, *_RESPONSES)):
            yield value
        elif isinstance(value, dict | list):
            found.extend(value.values() if isinstance(value, dict) else value)


def pairs_of(row: Mapping[str, Any], golds: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield the (answer, gold) pairs of a row; a gold answer is an answer, too."""
    values = [row[name] for name in _GOLDS if row.get(name)]
    first = values[0] if values else golds.get(str(row.get("id")), "")
    if isinstance(first, str) and first.startswith("['"):
        first = ast.literal_eval(first)
    if isinstance(first, list):
        first = first[0] if first else ""
    unit = str(row.get("unit") or "")
    gold = f"{first} {unit}".strip()
    if gold and len(gold) < 300:
        yield gold, gold
    for name in _RESPONSES:
        for text in row[name] if isinstance(row.get(name), list) else [row.get(name)]:
            answer = extract_answer(text) if isinstance(text, str) else None
            if answer is not None and len(answer.text) < 300:
                yield answer.text, gold or answer.text


def main(clones: Path, out: Path) -> None:
    out.mkdir(parents=True, exist_ok=True)
    for name, patterns in SOURCES.items():
        found: dict[tuple[str, str], None] = {}
        golds: dict[str, str] = {}
        for path in (path for pattern in patterns for path in sorted((clones / name).glob(pattern))):
            for row in rows_of(path):
                if "id" in row and "answer" in row:
                    golds[str(row["id"])] = str(row["answer"])
                found |= dict.fromkeys(pairs_of(row, golds))
        lines = (json.dumps({"answer": answer, "gold": gold}) + "\n" for answer, gold in found)
        (out / f"{name}.jsonl").write_text("".join(lines), "utf-8")
        print(f"{name}: {len(found)} pairs")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
