"""TRL's asynchronous GRPO: its own `_score_group`, in the example's loop."""

import asyncio
import inspect
from typing import Any

import pytest

pytest.importorskip("aiohttp", reason="TRL's asynchronous GRPO imports it")
import trl_async
from trl.experimental.async_grpo import async_rollout_worker as worker

from outcome_rl import Explorer, question_id

CHAT = [{"role": "user", "content": "2 + 2?"}]


@pytest.fixture(autouse=True, scope="module")
def _state() -> None:
    """TRL's child process makes it for the logger."""
    from accelerate.state import PartialState

    PartialState(cpu=True)


def reward(completions: list[Any], answer: list[str], **_: Any) -> list[float | None]:
    return [
        None if "cut" in chat[-1]["content"] else float(rf"\boxed{{{gold}}}" in chat[-1]["content"])
        for chat, gold in zip(completions, answer, strict=True)
    ]


class Loop(trl_async.ExploringLoop):
    def __init__(self) -> None:
        self.reward_funcs, self.reward_func_names = [reward], ["reward"]
        self._env_reward_types: list[type] = []
        self._provides_rollout_reward = False


def group(*texts: str, forks: int = 1, **columns: str) -> Any:
    sequence = worker.TrainingSequence(**{name: [1] for name in inspect.signature(worker.TrainingSequence).parameters})
    number = len(texts)
    fields: dict[str, Any] = {
        "prompts": [CHAT] * number,
        "reward_kwargs": {name: [value] * number for name, value in columns.items()},
        "completions": [[{"role": "assistant", "content": text}] for text in texts],
        "completions_ids": [[1]] * number,
        "completions_sequences": [[sequence] * forks] * number,
        "tool_call_counts": [0] * number,
        "tool_failure_counts": [0] * number,
        "model_version": 0,
        "group_id": 3,
        "env_rewards": [None] * number,
        "rollout_rewards": [None] * number,
    }
    names = inspect.signature(worker.RolloutGroup).parameters
    return worker.RolloutGroup(**{name: value for name, value in fields.items() if name in names})


def test_it_adds_the_bonus_to_the_advantages_of_a_group() -> None:
    """A conversation of two training rows is one response, and one that no function scores stays at 0."""
    assert worker.AsyncRolloutWorker._loop_cls is trl_async.ExploringLoop
    loop, same = Loop(), Explorer(**trl_async.EXPLORATION)
    texts = [r"\boxed{4}", r"\boxed{5}", r"\boxed{5}", "cut off"]
    samples = asyncio.run(loop._score_group(group(*texts, forks=2, answer="4", id="q1")))
    assert [one.metrics["reward"] for one in samples[:6]] == [1, 1, 0, 0, 0, 0]
    scored = same.score([question_id(CHAT)] * 3, texts[:3], ["4"] * 3)
    wanted = (scored.advantages + scored.bonuses).repeat_interleave(2).tolist()
    assert [one.advantage for one in samples] == pytest.approx([*wanted, 0, 0])
    assert samples[0].metrics["outcomes/correct_rate"] == pytest.approx(1 / 3)
    assert loop.explorer.seen(question_id(CHAT)) == [("5", 2), ("4", 1)]


def test_an_environment_with_several_prompts_needs_ids(monkeypatch: pytest.MonkeyPatch) -> None:
    """Their hashes would make a question, and a group, of each sample, whose advantages are all 0."""
    played = group(r"\boxed{4}", r"\boxed{5}", answer="4", id="q1")
    played.prompts[1] = [{"role": "user", "content": "2 + 2? Go on."}]
    with pytest.raises(ValueError, match="ID_KEY must name a column of stable ids"):
        asyncio.run(Loop()._score_group(played))
    monkeypatch.setattr(trl_async, "ID_KEY", "id")
    first, second = asyncio.run(Loop()._score_group(played))
    assert first.advantage > 0 > second.advantage
