"""The share of responses with an answer, from texts that are there."""

import json
from pathlib import Path

from experiments.smollm2.without_boxes import main, prompts
from outcome_rl.files.jsonl import write_rows


def test_shares_are_of_each_kind_and_of_complete_responses(tmp_path: Path) -> None:
    said = [("gsm8k", "The answer is 5.", True), ("gsm8k", "We add 5", False), ("gpqa", "Both are correct.", True)]
    texts = tmp_path / "texts.jsonl"
    write_rows(texts, [{"kind": kind, "response": text, "whole": whole} for kind, text, whole in said])
    main(["--data", str(tmp_path), "--texts", str(texts), "--out", str(tmp_path), "--count", "1"])
    figures = json.loads((tmp_path / "without-boxes.json").read_text())["figures"]
    assert figures["gsm8k"]["with_answer"] == 0.5
    assert figures["gsm8k"]["complete_with_answer"] == 1
    assert figures["gsm8k"]["sources"] == {"phrase": 1}
    assert figures["gpqa"]["complete_with_answer"] == 0


def test_prompts_take_turns_and_ask_for_no_box(tmp_path: Path) -> None:
    for folder in ("generations", "problems"):
        (tmp_path / folder).mkdir()
    write_rows(tmp_path / "generations/gsm8k_14runs.jsonl", [{"question": f"{i} + 1?"} for i in range(4)])
    write_rows(tmp_path / "problems/math500.jsonl", [{"problem": f"{i} + 1?", "answer": str(i + 1)} for i in range(2)])
    asked = list(prompts(tmp_path, 2))
    assert [kind for kind, _ in asked] == ["gsm8k", "mgsm", "gpqa"] * 2
    assert not any("box" in prompt for _, prompt in asked)
    assert all(f"{letter}) " in asked[2][1] for letter in "ABCD")
