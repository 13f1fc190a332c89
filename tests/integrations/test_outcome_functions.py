"""Outcome functions in TRL and verl: data rows, correctness, whole episodes, and hostile functions."""

from typing import Any

import outcome_functions
import pytest
import torch
from transfer_queue import KVBatchMeta
from trl_runs import Make, N, generate, is_right, saying, tokenizer
from verl_runs import EXPLORE, Queue, make_trainer, put_group, verl_config

from outcome_rl import ExplorationConfig
from outcome_rl.integrations.trl import exploration_advantages

BOXED = [rf"1 + 1 = {value} \boxed{{ {value} }}" for value in "7531"]


@pytest.mark.parametrize("outcome", [outcome_functions.digit_isolated, "outcome_functions:digit_isolated"])
def test_trl_goes_on_whatever_a_function_does(make: Make, outcome: Any, caplog: pytest.LogCaptureFixture) -> None:
    trainer = make(exploration=ExplorationConfig(outcome=outcome, answer_mask_mode="none"), rollout_func=saying(*BOXED))
    trainer.train()
    steps = [row for row in trainer.state.log_history if "outcomes/unresolved" in row]
    assert [row["outcomes/unresolved"] for row in steps] == [9.0, 9.0]  # of 12 responses, to three questions
    assert all(row["grad_norm"] > 0 for row in steps)
    for question in trainer.explorer.solved:
        assert {outcome for outcome, _ in trainer.explorer.seen(question)} == {"7", "(crash)", "(timeout)", "(memory)"}
    for kind in ("crash", "timeout", "memory"):
        assert f"ended with {kind}" in caplog.text
    trainer.explorer.close()


def test_trl_passes_rows_and_takes_verdicts_from_the_second_function(make: Make) -> None:
    config = ExplorationConfig(
        outcome=outcome_functions.length, is_correct=outcome_functions.divides, bonus="ucb_con", answer_mask_mode="none"
    )
    data = make().train_dataset.remove_columns("answer").add_column("number", [12] * 6)

    def reward(completions: list[Any], **_: Any) -> list[float]:
        return [0.0] * len(completions)

    trainer = make(exploration=config, data=data, rollout_func=saying("7 + 7", "7 + 7 + 7"), reward_funcs=reward)
    generate(trainer, 0)
    assert trainer._metrics["train"]["outcomes/correct_rate"] == [0.5]  # 3 words divide 12, 5 do not


def test_trl_golds_go_through_the_function(make: Make) -> None:
    config = ExplorationConfig(outcome="outcome_functions:last_word", answer_mask_mode="policy", bonus="ucb", coef=1.0)
    trainer = make(exploration=config, rollout_func=saying("1 + 1 = 7", "1 + 1 = 5"), reward_funcs=is_right)
    output = generate(trainer, 0)  # its gold is 7
    assert trainer._metrics["train"]["outcomes/correct_rate"] == [0.5]
    masked = output["advantages"][0] == 0
    words = tokenizer()
    assert words.decode(output["completion_ids"][0][masked], skip_special_tokens=True).split() == ["7"]


def test_the_response_of_an_agent_is_its_whole_episode(make: Make) -> None:
    """All turns and what the environment wrote; a final answer is read from the last turn alone."""
    words = tokenizer()
    ids = words("1 + 1 = 7 + 1 = 5", add_special_tokens=False, return_tensors="pt")["input_ids"].repeat(N, 1)
    written = torch.ones_like(ids)
    written[:, 3:6] = 0
    seen = []
    for outcome in ("outcome_functions:episode", "outcome_functions:last_word"):
        trainer = make(exploration=ExplorationConfig(outcome=outcome, bonus="ucb", coef=1.0, answer_mask_mode="none"))
        output = {
            "completion_ids": ids,
            "completion_mask": torch.ones_like(ids),
            "tool_mask": written,
            "advantages": torch.zeros(N),
        }
        exploration_advantages(
            output,
            ["q"] * N,
            None,
            explorer=trainer.explorer,
            tokenizer=words,
            num_generations=N,
            correct=[False] * N,
            examples=[{"id": "row 3"}] * N,
        )
        assert output["advantages"].tolist() == [1.0] * N  # for all tokens of the policy: TRL's tool_mask has the rest
        seen.append(trainer.explorer.seen("q"))
    assert seen == [[("('row 3', 9)", N)], [("5", N)]]


@pytest.fixture
def queue(monkeypatch: pytest.MonkeyPatch) -> Queue:
    return Queue().install(monkeypatch)


def advantages_in_verl(
    queue: Queue, folder: Any, *settings: str, **changes: Any
) -> tuple[Any, KVBatchMeta, dict[str, float]]:
    trainer = make_trainer(verl_config(folder, *(EXPLORE + setting for setting in settings)))
    batch = put_group(queue, trainer, "a", "q1", ["27", "5", "5", "2"], **changes)
    metrics: dict[str, float] = {}
    trainer._compute_advantage(batch, metrics)
    return trainer, batch, metrics


def test_verl_functions_by_name(queue: Queue, tmp_path: Any) -> None:
    settings = ["outcome=outcome_functions:digit_isolated", "bonus=ucb", "coef=1", "answer_mask_mode=none"]
    trainer, _, metrics = advantages_in_verl(queue, tmp_path, *settings)
    assert metrics["outcomes/unresolved"] == 2
    assert metrics["outcomes/correct_rate"] == 0.25  # the gold goes through the function, too: it is in no box
    (question,) = trainer._outcome_explorer.solved
    assert dict(trainer._outcome_explorer.seen(question)) == {"(crash)": 2, "27": 1, "2": 1}
    trainer._outcome_explorer.close()


def test_verl_rewards_decide_without_a_gold(queue: Queue, tmp_path: Any) -> None:
    settings = ["outcome=outcome_functions:length", "bonus=ucb_con", "answer_mask_mode=none"]
    _, _, metrics = advantages_in_verl(queue, tmp_path, *settings, reward_model={"style": "function"})
    assert metrics["outcomes/correct_rate"] == 0.25
    assert metrics["exploration/reward_disagrees"] == 0


def test_verl_golds_of_some_rows_are_refused(queue: Queue, tmp_path: Any) -> None:
    """Else a row without one would decide how the others are judged."""
    trainer = make_trainer(verl_config(tmp_path, EXPLORE + "outcome=outcome_functions:length"))
    batch = put_group(queue, trainer, "a", "q1", ["27", "5"])
    queue.fields[batch.keys[0]]["reward_model"] = {"ground_truth": ["27", "28"]}
    with pytest.raises(ValueError, match="ground_truth must be one answer in all rows or in none"):
        trainer._compute_advantage(batch, {})


def test_verl_groups_that_are_dropped_are_judged_like_others(queue: Queue, tmp_path: Any) -> None:
    settings = ["outcome=outcome_functions:length", "bonus=batch", "answer_mask_mode=none"]
    filtering = ["algorithm.filter_groups.enable=true", "data.train_batch_size=1"]
    trainer = make_trainer(verl_config(tmp_path, *(EXPLORE + setting for setting in settings), *filtering))
    for uid, question, answers in (("right", "q1", ["27", "27"]), ("mixed", "q2", ["3", "1"])):
        put_group(queue, trainer, uid, question, answers, reward_model={"style": "function"})
        queue.kv_batch_put([uid], "train", tags=[{"is_prompt": True, "status": "finished", "global_steps": 1}])
    trainer.replay_buffer.poll_interval = 0
    kept, metrics = trainer.replay_buffer.sample(global_steps=1, partition_id="train", batch_size=1)
    assert kept.keys == ["mixed_0_0", "mixed_1_0"]
    assert metrics["training/filter_groups/evicted_samples"] == 1
    (history,) = trainer._outcome_explorer.questions().values()
    assert (history.visits, history.successes) == (2, 2)


def test_verl_rows_reach_both_functions(queue: Queue, tmp_path: Any) -> None:
    settings = ["outcome=outcome_functions:length", "is_correct=outcome_functions:data_source_is", "bonus=ucb"]
    _, _, metrics = advantages_in_verl(queue, tmp_path, *settings, extra_info={"wanted": "dialect"})
    assert metrics["outcomes/correct_rate"] == 1
