"""Questions have one split each, and the answer that Python computes."""

from itertools import islice

from experiments.smollm2.task import SPLITS, problems, questions
from outcome_rl.outcomes.extraction.response import extract_answer
from outcome_rl.outcomes.keys import outcome_key


def test_splits_share_no_question() -> None:
    texts = [{question.text for question in islice(questions(split), 200)} for split in dict.fromkeys(SPLITS)]
    assert all(len(split) == 200 for split in texts)
    assert len(set.union(*texts)) == 200 * len(texts)


def test_answers_are_those_of_python_and_demonstrations_are_correct() -> None:
    for question in islice(questions("train"), 200):
        assert question.value == eval(question.expression)
        answer = extract_answer(question.demonstration)
        assert outcome_key(answer.text) == outcome_key(str(question.value))


def test_problems_are_rows_of_a_data_file_and_more_only_append() -> None:
    rows = problems("test", 5)
    assert [row["id"] for row in rows] == [f"test-{index}" for index in range(5)]
    assert problems("test", 3) == rows[:3]
