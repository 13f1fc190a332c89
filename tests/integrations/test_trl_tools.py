"""Tools that TRL calls itself: outcomes, answer mask and loss of episodes whose tokens are partly a tool's."""

import re
from pathlib import Path
from typing import Any

import pytest
import trl
from tiny_models import byte_tokenizer
from transformers import PreTrainedTokenizerFast
from trl import GRPOConfig
from trl_runs import NUM_QUESTIONS, generate, make_trainer, questions, save_policy

from outcome_rl import extract_answer
from outcome_rl.integrations.trl import OutcomeGRPOTrainer

CALL = '<tool_call>\n{"name": "add", "arguments": {"a": 3, "b": %d}}\n</tool_call><|im_end|>'


def qwen3_tokenizer() -> PreTrainedTokenizerFast:
    template = Path(trl.__file__).with_name("chat_templates").joinpath("qwen3.jinja").read_text()
    tokens = {"eos_token": "<|im_end|>", "pad_token": "<|endoftext|>", "additional_special_tokens": ["<|im_start|>"]}
    return byte_tokenizer(template, **tokens)


def add(a: int, b: int) -> int:
    """Add two numbers.

    Args:
        a: the first.
        b: the second.
    """
    return a + b


def right(completions: list[Any], answer: list[str], **_: Any) -> list[float]:
    found = [extract_answer(messages[-1]["content"]) for messages in completions]
    return [float(f is not None and f.text == gold) for f, gold in zip(found, answer, strict=True)]


def says(history: str, number: int) -> str:
    """Sample of this number in a group: one answers at once, the others say what the tool returns."""
    returned = re.search(r"<tool_response>\n(\d+)", history)
    if number == 0 or returned:
        return rf"so \boxed{{{returned[1] if returned else 9}}}<|im_end|>"
    return CALL % number


def test_the_answer_is_that_of_the_turn_after_the_tool(tmp_path: Path) -> None:
    """It is counted, and masked; the fused loss is TRL's."""
    policy = save_policy(tmp_path / "policy", qwen3_tokenizer(), positions=2048)
    data = questions(prompt=[[{"role": "user", "content": f"{number} + 1?"}] for number in range(NUM_QUESTIONS)])
    losses = []
    for fused_loss in (False, True):
        trainer = make_trainer(
            policy,
            tmp_path,
            fused_loss=fused_loss,
            data=data,
            rollout_func=None,
            tools=[add],
            reward_funcs=right,
            max_completion_length=200,
        )
        words, turns = trainer.processing_class, iter(([0, 1, 2, 3] * 2, [1, 2, 3] * 2))

        def sample(prompts: Any, *_: Any, words: Any = words, turns: Any = turns, **__: Any) -> Any:
            said = map(says, words.batch_decode(prompts), next(turns))
            return [words(text)["input_ids"] for text in said], None

        trainer._generate_single_turn = sample
        inputs = generate(trainer, 1, 4)  # the golds are 5 and 9
        assert sorted(trainer.explorer.seen(data[1]["id"])) == [("4", 1), ("5", 1), ("6", 1), ("9", 1)]
        written = (inputs["completion_mask"] * inputs["tool_mask"]).bool()
        masked = written & (inputs["advantages"] == 0)
        assert words.batch_decode([row[m] for row, m in zip(inputs["completion_ids"], masked, strict=True)]) == [
            *("9", "4", "5", "6"),
            *("9", "4", "5", "6"),
        ]
        trainer.current_gradient_accumulation_steps = 1
        losses.append(trainer._compute_loss(trainer.model, inputs).item())
    assert losses[1] == pytest.approx(losses[0], rel=1e-4)


class Sums:
    """An environment with tasks of its own."""

    def reset(self, **_: Any) -> str:
        return "1 + 1?"

    def add(self, a: int, b: int) -> int:
        """Add two numbers.

        Args:
            a: the first.
            b: the second.
        """
        return a + b


def test_an_environment_needs_no_data(tmp_path: Path) -> None:
    policy = save_policy(tmp_path / "policy", qwen3_tokenizer(), positions=2048)
    trainer = OutcomeGRPOTrainer(
        model=str(policy),
        reward_funcs=lambda completions, **_: [float(len(one) % 2) for one in completions],
        environment_factory=Sums,
        args=GRPOConfig(
            output_dir=str(tmp_path),
            per_device_train_batch_size=4,
            num_generations=2,
            max_completion_length=8,
            max_steps=1,
            save_strategy="no",
            report_to=[],
            use_cpu=True,
            bf16=False,
        ),
    )
    trainer.train()
    assert trainer.explorer.counts.total() == 4
