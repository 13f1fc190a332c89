"""Names of files in reports and pictures."""

from outcome_rl.tools.sample_report import short_names


def test_labels_are_the_ends_that_tell_files_apart() -> None:
    assert short_names(["data/before.jsonl", "data/after.jsonl"]) == ["before.jsonl", "after.jsonl"]
    assert short_names(["runs/grpo/test.jsonl", "runs/pkpo/test.jsonl"]) == ["grpo/test.jsonl", "pkpo/test.jsonl"]
    assert short_names(["runs/grpo/test.jsonl"]) == ["test.jsonl"]
    assert short_names(["-", "a/test.jsonl"]) == ["-", "test.jsonl"]
