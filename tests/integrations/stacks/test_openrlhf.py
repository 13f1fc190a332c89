"""The example on OpenRLHF's own experiences and trainer; DeepSpeed, vLLM and FlashAttention, for GPUs, are left out."""

import runpy
import sys
from collections.abc import Iterator
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import pytest
import torch
from transformers import AutoTokenizer

from outcome_rl import Explorer, question_id
from outcome_rl.toy import policy_dir

EXAMPLE = Path(__file__).resolve().parents[3] / "examples" / "stacks" / "openrlhf_grpo.py"
TOKENIZER = AutoTokenizer.from_pretrained(policy_dir())
PROMPTS = {"D12 39 ^ 9 =>": "27", "D12 3 ^ 9 =>": "3"}  # prompt -> label
TEXTS = ["9 \\boxed{ 27 }", "\\boxed{ 5 }", "9 9 \\boxed{ 5 }", "\\boxed{ 3 }", "39 9", "\\boxed{ 3 }"]
N = 3


class Absent(ModuleType):
    """A package that OpenRLHF imports, but does not call here."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.__spec__, self.__path__ = ModuleSpec(name, None), []

    def __getattr__(self, name: str) -> Any:
        return MagicMock()


@pytest.fixture(scope="module")
def example() -> Iterator[dict[str, Any]]:
    absent = ["deepspeed.runtime.zero.partition_parameters", "vllm.inputs", "vllm.utils"]
    absent += ["flash_attn.bert_padding", "flash_attn.utils.distributed"]
    with pytest.MonkeyPatch.context() as patch:
        for path in absent:
            parts = path.split(".")
            for end in range(1, len(parts) + 1):
                name = ".".join(parts[:end])
                patch.setitem(sys.modules, name, Absent(name))
        yield runpy.run_path(str(EXAMPLE), run_name="openrlhf_grpo")


def arguments(folder: Path) -> Any:
    return SimpleNamespace(
        algo=SimpleNamespace(
            advantage=SimpleNamespace(estimator="group_norm", gamma=1.0),
            kl=SimpleNamespace(target=None, init_coef=0.0),
        ),
        actor=SimpleNamespace(policy_loss_type="ppo"),
        rollout=SimpleNamespace(n_samples_per_prompt=N),
        reward=SimpleNamespace(clip_range=None),
        ckpt=SimpleNamespace(path=str(folder), load_enable=True, save_steps=2),
        logger=SimpleNamespace(wandb=SimpleNamespace(key=None), tensorboard_dir=None, logging_steps=1),
        eval=SimpleNamespace(steps=-1),
        data=SimpleNamespace(disable_fast_tokenizer=False),
    )


def step(example: dict[str, Any]) -> list[Any]:
    """Two micro-batches of a step, in which the two prompts' samples are mixed, as a balanced batch has them."""
    samples = []
    for i, text in enumerate(TEXTS):
        prompt, label = list(PROMPTS.items())[i // N]
        asked = TOKENIZER(prompt).input_ids
        ids = torch.tensor([[*asked, *TOKENIZER(text, add_special_tokens=False).input_ids, TOKENIZER.eos_token_id]])
        action = torch.zeros_like(ids)
        action[:, len(asked) :] = 1
        samples.append(
            example["Experience"](
                sequences=ids,
                attention_mask=torch.ones_like(ids),
                action_mask=action[:, 1:],
                rewards=torch.tensor([float(f"{{ {label} }}" in text)]),
                kl=torch.zeros(1, ids.shape[1] - 1),
                index=[i],
                prompts=[prompt],
                labels=[label],
            )
        )
    concat = example["Experience"].concat_experiences
    return [concat([samples[i] for i in rows], TOKENIZER.pad_token_id) for rows in ([4, 0, 2], [1, 3, 5])]


def maker(kind: Any, folder: Path) -> Any:
    return kind(None, None, None, None, SimpleNamespace(value=0.0), SimpleNamespace(args=arguments(folder)), TOKENIZER)


def test_advantages_are_openrlhfs_plus_the_bonus(
    example: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(example["SETTINGS"], "bonus", "ucb_con")
    theirs, ours = (maker(example[name], tmp_path) for name in ("RemoteExperienceMaker", "ExploringExperienceMaker"))
    same = Explorer(**example["SETTINGS"])
    ids = [question_id(prompt) for prompt in PROMPTS for _ in range(N)]
    golds = [gold for gold in PROMPTS.values() for _ in range(N)]
    for _ in range(2):  # the second step meets the counts of the first
        expected = theirs.compute_advantages_and_returns(step(example))
        found = ours.compute_advantages_and_returns(step(example))
        scored = same.score(ids, TEXTS, golds)
        for before, after in zip(expected, found, strict=True):
            for row, index in enumerate(before.index):
                is_action = before.action_mask[row].bool()
                tokens = before.sequences[row, 1:][is_action]
                is_answer = scored.select([index]).answer_mask(TOKENIZER, tokens[None])[0]
                assert is_answer.any() == ("boxed" in TEXTS[index])
                wanted = (before.advantages[row, is_action] + scored.bonuses[index]).masked_fill(is_answer, 0.0)
                torch.testing.assert_close(after.advantages[row, is_action], wanted)
                assert torch.equal(after.advantages[row, ~is_action], before.advantages[row, ~is_action])
    assert scored.bonuses.abs().max() > 0


def test_with_tools_the_last_turn_has_the_answer(example: dict[str, Any]) -> None:
    prompt, label = "D12 39 ^ 9 =>", "27"
    parts = ["\\boxed{ 5 }", "9 \\boxed{ 3 }", "\\boxed{ 27 }"]  # the second one is the tool's
    asked, *said = (TOKENIZER(text, add_special_tokens=False).input_ids for text in (prompt, *parts))
    action = [0] * len(asked) + [1] * len(said[0]) + [0] * len(said[1]) + [1] * (len(said[2]) + 1) + [0]
    ids = torch.tensor([[*asked, *said[0], *said[1], *said[2], TOKENIZER.eos_token_id, TOKENIZER.pad_token_id]])
    experience = example["Experience"](
        sequences=ids.repeat(2, 1),
        action_mask=torch.tensor([action, action])[:, 1:],
        advantages=torch.ones(2, ids.shape[1] - 1),
        index=[0, 1],
        prompts=[prompt] * 2,
        labels=[label] * 2,
    )
    explorer = Explorer(bonus="batch", coef=1.0)
    example["add_bonuses"]([experience], explorer, TOKENIZER, 2)
    assert explorer.seen(question_id(prompt)) == [("27", 2)]
    is_action = torch.tensor(action[1:]).bool()
    found = experience.advantages[0, is_action]
    last = len(said[2]) + 1
    assert (found[:-last] == 0.5).all()  # 1 of the reward and -1/2 of the bonus
    assert (found[-last:] == 0).sum() == 1  # the answer
    assert (experience.advantages[0, ~is_action] == 1).all()


def test_the_trainer_saves_and_loads_the_counts(
    example: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = example["ppo_trainer"]
    monkeypatch.setattr(module, "get_tokenizer", lambda *_, **__: TOKENIZER)
    monkeypatch.setattr(module, "prepare_datasets", lambda *_: (None, None, 10))
    monkeypatch.setattr(module.ray, "get", lambda references: references)
    strategy = SimpleNamespace(args=arguments(tmp_path))
    actors = SimpleNamespace(async_run_method=lambda **_: [])

    def trainer() -> Any:
        return example["ExploringTrainer"]("policy", strategy, actors, None, None, None, [])

    first = trainer()
    first.experience_maker.compute_advantages_and_returns(step(example))
    first.save_logs_and_checkpoints(1)
    assert not (tmp_path / "exploration").exists()
    first.save_logs_and_checkpoints(2)
    again = trainer().experience_maker.explorer
    for prompt in PROMPTS:
        assert again.seen(question_id(prompt)) == first.experience_maker.explorer.seen(question_id(prompt)) != []
