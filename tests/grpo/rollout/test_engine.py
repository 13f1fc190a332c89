"""Samples depend on prompts, settings and seed alone, and end with their end tokens; users may bring an engine."""

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from command_line import invoke as call
from grpo_runs import MakeOverrides, invoke, rows

from outcome_rl import cli
from outcome_rl.grpo.config.schema import SamplingConfig
from outcome_rl.grpo.model.policy import Policy
from outcome_rl.grpo.rollout.transformers_engine import TransformersEngine
from outcome_rl.grpo.types import Rollout

TEXTS = ("D07 17 @ 5 # 3 =>", "D01", "D12 39 ^ 9 ! 3 =>")
N = 6


@pytest.fixture(scope="module")
def prompts(shared_policy: Policy) -> list[list[int]]:
    ids: list[list[int]] = shared_policy.tokenizer(list(TEXTS))["input_ids"]
    return ids


@pytest.fixture(scope="module")
def rollouts(shared_policy: Policy, prompts: list[list[int]]) -> list[Rollout]:
    return TransformersEngine(shared_policy, 64).generate(prompts, SamplingConfig(n=N), 16, seed=1)


def texts(rollouts: Sequence[Rollout]) -> list[str]:
    return [rollout.text for rollout in rollouts]


def ids(rollouts: Sequence[Rollout]) -> list[Sequence[int]]:
    return [rollout.token_ids for rollout in rollouts]


def test_samples_are_grouped_by_prompt(rollouts: list[Rollout], prompts: list[list[int]]) -> None:
    assert len({len(prompt) for prompt in prompts}) == 2  # the decode loop pads some
    assert [rollout.prompt_ids for rollout in rollouts] == [prompt for prompt in prompts for _ in range(N)]


def test_responses_end_with_the_end_token(rollouts: list[Rollout], shared_policy: Policy) -> None:
    end = shared_policy.tokenizer.eos_token_id
    assert end != shared_policy.tokenizer.pad_token_id
    for rollout in rollouts:
        assert end not in rollout.token_ids[:-1]
        assert rollout.token_ids[-1] == end or len(rollout.token_ids) == 16
    assert len(set(map(len, ids(rollouts)))) > 1
    assert {rollout.logps for rollout in rollouts} == {None}  # the arithmetic is the policy's own


def test_texts_are_the_ids_without_the_end(rollouts: list[Rollout], shared_policy: Policy) -> None:
    for rollout in rollouts:
        assert shared_policy.tokenizer.decode(rollout.token_ids).removesuffix("<eos>").strip() == rollout.text


def test_the_pad_token_may_be_the_end_token(policy: Policy, prompts: list[list[int]], rollouts: list[Rollout]) -> None:
    policy.tokenizer.pad_token = policy.tokenizer.eos_token
    same = TransformersEngine(policy, 64).generate(prompts, SamplingConfig(n=N), 16, seed=1)
    assert same == rollouts


def test_the_seed_decides_and_nothing_else(
    shared_policy: Policy, prompts: list[list[int]], rollouts: list[Rollout]
) -> None:
    engine = TransformersEngine(shared_policy, 64)
    torch.manual_seed(5)
    before = torch.get_rng_state()
    same = engine.generate(prompts, SamplingConfig(n=N), 16, seed=1)
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(6)
    again = engine.generate(prompts, SamplingConfig(n=N), 16, seed=1)
    other = engine.generate(prompts, SamplingConfig(n=N), 16, seed=2)
    assert same == rollouts
    assert again == rollouts
    assert texts(other) != texts(rollouts)
    assert len(set(texts(rollouts[:N]))) > 1  # the samples of one prompt are independent


def test_generation_settings_of_the_model_are_ignored(
    policy: Policy, prompts: list[list[int]], rollouts: list[Rollout]
) -> None:
    """A repetition penalty would sample from another policy than the one whose probabilities the loss takes."""
    own = policy.model.generation_config
    own.update(repetition_penalty=5.0, min_p=0.5, temperature=9.0, top_k=1, no_repeat_ngram_size=1)
    same = TransformersEngine(policy, 64).generate(prompts, SamplingConfig(n=N), 16, seed=1)
    assert same == rollouts
    assert policy.model.generation_config is own
    assert own.repetition_penalty == 5.0  # and they are still there to be saved with the model


OWN_ENGINE = """
from outcome_rl.grpo.rollout.engine import RolloutEngine
from outcome_rl.grpo.types import Rollout


class Parrot(RolloutEngine):
    def __init__(self, policy, config):
        self.policy = policy

    def update_weights(self, policy):
        self.policy = policy

    def generate(self, prompts, sampling, max_tokens, seed):
        tokens = self.policy.tokenizer(r"\\boxed{ 5 }", add_special_tokens=False)["input_ids"]
        tokens = tokens + self.policy.end_token_ids
        logps = [-1.0] * len(tokens)
        return [
            Rollout.decoded(self.policy.tokenizer, prompt, tokens, logps)
            for prompt in prompts
            for _ in range(sampling.n)
        ]
"""


Train = Callable[..., Any]


@pytest.fixture
def train(small: MakeOverrides, tmp_path: Path) -> Train:
    """Trains with the engine of a source."""

    def train(source: str, *settings: str) -> Any:
        path = tmp_path / f"engine_of_{tmp_path.name}.py"  # Python imports each name once
        path.write_text(source)
        return invoke("--config", "toy", *small(tmp_path), f"rollout.engine={path}:Parrot", *settings)

    return train


def test_an_engine_of_the_user_is_named_by_its_path(train: Train, tmp_path: Path) -> None:
    result = train(OWN_ENGINE)
    assert result.exit_code == 0, result.stderr
    assert {row["completion"] for row in rows(tmp_path / "run", "samples")} == {r"\boxed{ 5 }"}
    assert [row["outcomes/distinct_in_group"] for row in rows(tmp_path / "run", "metrics")] == [1.0] * 6


def test_a_token_without_a_log_probability_neither_ends_a_run_nor_corrects(train: Train, tmp_path: Path) -> None:
    """vLLM returns NaN, and JSON null, late in training for tokens of probability near 1."""
    source = OWN_ENGINE.replace("[-1.0] * len(tokens)", "[None, float('nan')] + [-1.0] * (len(tokens) - 2)")
    result = train(source, "rollout.importance_cap=2.0", "exploration.adv_estimator=unlikeliness")
    assert result.exit_code == 0, result.stderr
    for row in rows(tmp_path / "run", "metrics"):
        assert math.isfinite(row["actor/grad_norm"])
        assert 0 < row.get("rollout/logp_missing", 1) < 1


@pytest.mark.parametrize(
    ("old", "new", "setting", "message"),
    [
        ("tokens, logps)", "tokens, logps[1:])", (), "a log-probability for each token"),
        ("tokens, logps)", "tokens, None if prompts[0] is prompt else logps)", (), "for all rollouts or for none"),
        *(
            ("tokens, logps)", "tokens)", (setting,), f"Parrot must return logps, which {setting} reads; got None")
            for setting in ("rollout.importance_cap=2.0", "exploration.adv_estimator=unlikeliness")
        ),
        (
            "def __init__",
            "returns_support = True\n\n    def __init__",
            ("rollout.top_p=0.8",),
            "Parrot must return the tokens that rollout.top_p=0.8 and rollout.top_k=",
        ),
    ],
)
def test_an_engine_that_returns_something_else_is_named(
    old: str, new: str, setting: tuple[str, ...], message: str, train: Train
) -> None:
    """Else the run would go on without the effect of the setting."""
    result = train(OWN_ENGINE.replace(old, new), *setting)
    assert result.exit_code == 2
    assert message in result.stderr


def test_an_empty_response_has_a_mean_log_probability(train: Train) -> None:
    source = OWN_ENGINE.replace("prompt, tokens, logps)", "prompt, tokens * (_ % 2), logps * (_ % 2))")
    result = train(source, "exploration.adv_estimator=unlikeliness")
    assert result.exit_code == 0, result.stderr


def test_an_engine_that_returns_too_few_responses_is_named(train: Train, tmp_path: Path) -> None:
    """Else every later response would be scored for another question."""
    trained = train(OWN_ENGINE.rstrip() + "[1:]\n")
    engine = f"rollout.engine={tmp_path}/engine_of_{tmp_path.name}.py:Parrot"
    evaluated = call(cli.main, "eval", "toy", "--data", "toy:test", "--out", str(tmp_path / "eval"), engine)
    for result in (trained, evaluated):
        assert result.exit_code == 2
        assert "rollout.engine: Parrot must return" in result.stderr
    assert not any(path.stat().st_size for path in (tmp_path / "eval").glob("*.jsonl"))
