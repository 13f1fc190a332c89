"""Columns that `OutcomeGRPOTrainer` reads from the data, and errors before training."""

from typing import Any

import pytest
from datasets import Dataset, IterableDataset
from outcome_functions import Divisors
from PIL import Image
from trl_runs import GOLDS, Make, generate, is_right, length, questions

from outcome_rl import ExplorationConfig, question_id
from outcome_rl.integrations.trl.columns import Columns


def test_questions_without_an_id_are_identified_by_their_prompt(make: Make) -> None:
    problems = list(questions()["prompt"])
    chats = [[{"role": "user", "content": problem}] for problem in problems]
    for prompts in (problems, chats):
        trainer = make(data=questions(id=None, prompt=prompts))
        generate(trainer, 0, 1, 2)
        generate(trainer, 2, 0, 1)
        assert set(trainer.explorer.solved) == {question_id(prompt) for prompt in prompts[:3]}


def test_data_may_be_a_stream(make: Make) -> None:
    rows = [dict(row) for row in questions()]
    trainer = make(data=IterableDataset.from_generator(lambda: iter(rows)))
    trainer.train()
    assert int(trainer.explorer.counts.items().counts.sum()) == 2 * 12
    assert set(trainer.explorer.solved) == {row["id"] for row in rows}


@pytest.mark.parametrize(
    ("answers", "columns"), [(None, {}), (["4"] * 6, {"answer_key": "solution"})], ids=["found", "named"]
)
def test_a_solution_serves_as_gold_by_its_final_answer(
    make: Make, answers: list[str] | None, columns: dict[str, str]
) -> None:
    solutions = [f"As 3 + 4 = 7, so it is.\n#### {gold}" for gold in GOLDS]
    data = questions(solution=solutions, answer=answers)
    trainer = make(data=data, columns=columns, reward_funcs=length, exploration=ExplorationConfig(bonus="ucb"))
    generate(trainer, 0, 1, 2)
    by_answer = make()
    generate(by_answer, 0, 1, 2)
    assert trainer.explorer.config == ExplorationConfig(bonus="ucb")
    assert trainer.explorer.solved == by_answer.explorer.solved
    assert any(trainer.explorer.solved.values())


def math_only(completions: list[str], answer: list[str], **_: Any) -> list[float | None]:
    """Scores the questions whose gold answer is 7."""
    return [r if a == "7" else None for r, a in zip(is_right(completions, answer), answer, strict=True)]


def others_only(completions: list[str], answer: list[str], **_: Any) -> list[float | None]:
    return [None if a == "7" else r for r, a in zip(is_right(completions, answer), answer, strict=True)]


def test_rewards_of_several_tasks_decide_together(make: Make) -> None:
    functions = [math_only, length, others_only]
    trainer = make(reward_funcs=functions, columns={"correct_reward": ["math_only", others_only]})
    generate(trainer, 0, 1, 2)
    by_one = make(columns={"correct_reward": is_right})
    generate(by_one, 0, 1, 2)
    assert trainer.explorer.solved == by_one.explorer.solved
    assert any(trainer.explorer.solved.values())
    with pytest.raises(ValueError, match="correct_reward a list"):
        generate(make(reward_funcs=functions, columns={"correct_reward": "math_only"}), 0, 1, 2)


def test_golds_that_contradict_the_rewards_show_in_a_metric(make: Make) -> None:
    found = []
    for golds in (GOLDS, ["4"] * 6):  # the policy never says 4
        data = questions(gold=list(GOLDS), answer=list(golds))

        def by_gold(completions: list[str], gold: list[str], **_: Any) -> list[float]:
            return is_right(completions, gold)

        trainer = make(data=data, reward_funcs=by_gold)
        generate(trainer, 0, 1, 2)
        found.append(trainer._metrics["train"]["exploration/reward_disagrees"])
    assert found[0] == [0.0]
    assert found[1] == [pytest.approx((trainer._rewards > 0).float().mean().item())]
    assert found[1][0] > 0.3


def test_without_golds_outcomes_are_counted_all_the_same(make: Make) -> None:
    trainer = make(data=questions(answer=None), reward_funcs=length, exploration=ExplorationConfig(bonus="ucb"))
    with pytest.warns(UserWarning, match="unknown which"):
        generate(trainer, 0, 1, 2)
    assert int(trainer.explorer.counts.items().counts.sum()) == 12
    assert "exploration/solved_fraction" not in trainer._metrics["train"]


SEQUENCES = {"importance_sampling_level": "sequence", "loss_type": "grpo"}
UNLABELLED: dict[str, Any] = {"reward_funcs": length, "exploration": ExplorationConfig(bonus="ucb_con")}


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"exploration": {"bonus": "ucb"}}, r"exploration .* must be an ExplorationConfig; got dict\. Write"),
        ({"columns": {"fused_loss": "no"}}, "fused_loss must be one of True, False; got 'no'"),
        ({"data": Dataset.from_list([])}, "must have a column 'prompt' .*no row"),
        ({"data": questions().rename_column("prompt", "question")}, "must have a column 'prompt' .*'question'"),
        ({"exploration": ExplorationConfig(outcome=lambda *_: 1), "save_strategy": "steps"}, "has no name"),
        ({"columns": {"id_key": "uid"}}, "id_key .*got 'uid'"),
        ({"data": questions(answer=None), **UNLABELLED}, "bonus='ucb_con' requires correctness labels"),
        ({"remove_unused_columns": True, **UNLABELLED}, "the columns 'prompt' left by remove_unused_columns"),
        (
            {"columns": {"correct_threshold": "1", "correct_reward": is_right}},
            "correct_threshold must be a Python number",
        ),
        ({"columns": {"correct_threshold": 0.5}}, "correct_threshold=0.5 needs correct_reward"),
        (
            {"columns": {"correct_reward": is_right}, "exploration": ExplorationConfig(outcome=Divisors)},
            "correct_reward must be",
        ),
        ({"reward_funcs": [is_right] * 2, "columns": {"correct_reward": "is_right"}}, "'is_right' names 2"),
        ({"columns": {"correct_reward": ["is_right", "x"]}}, "one of the reward functions 'is_right'; got 'x'"),
        (
            {**SEQUENCES, "exploration": ExplorationConfig(answer_mask_mode="policy")},
            "answer_mask_mode='policy' cannot",
        ),
        ({"exploration": ExplorationConfig(adv_estimator="pkpo(k=99)")}, "k of adv_estimator 'pkpo' must be at most"),
        ({"data": questions(answer=["7", "", "7", "3", "9", "5"])}, "field 'answer' .* is empty"),
        ({"data": questions(id=["a", "a", "b", "c", "d", "e"])}, "golds must agree.*'a' .*'7' before; got '5'"),
        ({"data": questions(id=["0", "1", "2", "0", "1", "2"], answer=["7"] * 6)}, "id '0' .*prompt"),
        ({"data": questions(id=None, prompt=["play"] * 6)}, "golds must agree"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_cannot_work_is_refused_before_training(make: Make, settings: dict[str, Any], message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        make(**settings)


def test_by_default_ratios_of_sequences_train_without_a_mask(make: Make) -> None:
    modes = [make(**settings).explorer.config.answer_mask_mode for settings in (SEQUENCES, {})]
    assert modes == ["none", "policy"]


def test_a_gold_that_is_no_text_is_an_error_of_its_row(make: Make) -> None:
    data = questions(answer=["7", None, "7", "3", "9", "5"])
    message = r"'answer' .*got null\. Fill it in"
    with pytest.raises(ValueError, match=message):
        make(data=data, reward_funcs=length)
    stream = make(data=IterableDataset.from_generator(lambda: iter(data)), reward_funcs=length)  # read as it comes
    with pytest.raises(ValueError, match=message):
        stream.train()


def test_a_line_says_what_was_chosen_from_the_data(make: Make, capsys: pytest.CaptureFixture[str]) -> None:
    make()
    make(data=questions(id=None, answer=None), columns={"correct_reward": is_right})
    make(data=questions(data_source=["toy"] * 6), columns={"answer_key": "answer"})
    make(data=questions(answer=None, gt=list("123456")), reward_funcs=[is_right, length])
    make(data=questions(answer=None), reward_funcs=[is_right, length])
    lines = capsys.readouterr().out.splitlines()
    first, second, third, other, none = (line.partition("question ids: ")[2] for line in lines)
    assert first == "the column 'id'; correctness: the column 'answer'"
    assert second == "the hash of the prompt; correctness: is_right"
    assert third == "id with the data source; correctness: the column 'answer'"  # as verl and the trainer say it
    assert "answer_key (gt), or a reward" in other  # neither ids nor prompts are golds
    assert "Name a reward function by correct_reward" in none


def test_rows_of_one_question_may_differ(make: Make) -> None:
    same = {"answer": ["0.5", "1/2", "7", "3", "9", "5"]}
    make(data=questions(id=list("aabcde"), **same), columns={"id_key": "id"})  # prompts of one question, as its id says
    prompts = [*["a"] * 2, *"bcde"]
    make(data=questions(id=None, prompt=prompts, **same))


def test_golds_are_not_read_where_a_reward_decides(make: Make) -> None:
    data = questions(answer=["7", None, "7", "3", "9", "5"])
    for columns in ({"correct_reward": "length"}, {"answer_key": None}):
        trainer = make(data=data, reward_funcs=length, exploration=ExplorationConfig(bonus="batch"), columns=columns)
        generate(trainer, 0, 1, 2)
        assert trainer.explorer.counts.total() == 12


def test_without_ids_questions_about_images_are_told_apart_by_their_rows() -> None:
    columns = Columns(None, "answer", "the hash of the row", more_than_prompt=True)
    red, blue = (Image.new("RGB", (2, 2), colour) for colour in ("red", "blue"))
    rows = [{"prompt": "How many?", "images": [image], "answer": "3"} for image in (red, blue, red.copy())]
    first, second, third = map(columns.id, rows)
    assert first == third != second
