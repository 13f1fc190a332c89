"""Outcome functions in TRL and verl: data rows, correctness, whole episodes."""

from pathlib import Path
from typing import Any

import outcome_functions
import pytest
import torch
from trl_runs import Make, N, generate, is_right, saying, tokenizer
from verl_runs import EXPLORE, Queue, make_trainer, put_group, verl_config

from outcome_rl import Batch, ExplorationConfig, Explorer
from outcome_rl.integrations.adapter import outcome_turn
from outcome_rl.integrations.trl.advantages import add_exploration
from outcome_rl.outcomes.answer_mask import decode_completion


def test_trl_passes_rows_to_a_kind_that_decides(make: Make) -> None:
    config = ExplorationConfig(outcome=outcome_functions.Divisors, bonus="ucb_con", answer_mask_mode="none")
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


def test_the_response_of_an_agent_is_its_whole_episode() -> None:
    """All turns and what the environment wrote; a final answer is read from the last turn alone."""
    words = tokenizer()
    ids = words("1 + 1 = 7 + 1 = 5", add_special_tokens=False)["input_ids"]
    written = [1] * 3 + [0] * 3 + [1] * (len(ids) - 6)
    seen = []
    for outcome in ("outcome_functions:episode", "outcome_functions:last_word"):
        explorer = Explorer(outcome=outcome, bonus="ucb", coef=1.0, answer_mask_mode="none")
        output = {"completion_ids": torch.tensor([ids] * N), "advantages": torch.zeros(N)}
        turns = [outcome_turn(explorer, ids, written)] * N
        texts = [decode_completion(words, turn.ids) for turn in turns]
        batch = Batch(["q"] * N, texts, None, torch.zeros(N), correct=[False] * N, rows=[{"id": "row 3"}] * N)
        add_exploration(output, batch, turns, explorer=explorer, tokenizer=words, scale="std")
        assert output["advantages"].tolist() == [1.0] * N  # for all tokens of the policy: TRL's tool_mask has the rest
        seen.append(explorer.seen("q"))
    assert seen == [[("('row 3', 9)", N)], [("5", N)]]


def test_verl_rows_reach_both_functions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    queue, metrics = Queue().install(monkeypatch), {}
    settings = ["outcome=outcome_functions:OfSource", "bonus=ucb"]
    trainer = make_trainer(verl_config(tmp_path, *(EXPLORE + setting for setting in settings)))
    batch = put_group(queue, trainer, "a", "q1", ["27", "5", "5", "2"], extra_info={"wanted": "dialect"})
    trainer._compute_advantage(batch, metrics)
    assert metrics["outcomes/correct_rate"] == 1
