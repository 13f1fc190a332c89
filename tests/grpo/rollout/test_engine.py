"""Samples depend on prompts, settings and seed alone, and end with their end tokens; users may bring an engine."""

import math
import re
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
from foreign_engine import NAME as FOREIGN
from grpo_runs import MakeConfig, MakeOverrides, invoke, rows

from outcome_rl.grpo.config.schema import SamplingConfig
from outcome_rl.grpo.model.policy import Policy
from outcome_rl.grpo.rollout.engine import check_complete, check_engine, checked
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


OWN_ENGINE = r"""
from outcome_rl.grpo.rollout.engine import RolloutEngine
from outcome_rl.grpo.types import Rollout


class Parrot(RolloutEngine):
    def __init__(self, policy, config):
        self.policy = policy

    def update_weights(self, policy):
        self.policy = policy

    def generate(self, prompts, sampling, max_tokens, seed):
        tokens = self.policy.tokenizer(r"\boxed{ 5 }", add_special_tokens=False)["input_ids"]
        tokens = tokens + self.policy.end_token_ids
        logps = [None, float("nan")] + [-1.0] * (len(tokens) - 2)
        return [
            Rollout.decoded(self.policy.tokenizer, prompt, tokens * (number % 2), logps * (number % 2))
            for prompt in prompts
            for number in range(sampling.n)
        ]
"""


def test_an_engine_of_the_user_is_named_by_its_path(small: MakeOverrides, tmp_path: Path) -> None:
    """Empty responses, and tokens without a log-probability, neither end a run nor correct it. vLLM returns NaN, and
    JSON null, late in training for tokens of probability near 1.
    """
    path = tmp_path / f"engine_of_{tmp_path.name}.py"  # Python imports each name once
    path.write_text(OWN_ENGINE)
    settings = ("rollout.importance_cap=2.0", "trainer.total_training_steps=2")
    result = invoke("--config", "toy", *small(tmp_path, f"rollout.engine={path}:Parrot", *settings))
    assert result.exit_code == 0, result.stderr
    assert {row["completion"] for row in rows(tmp_path / "run", "samples")} <= {"", r"\boxed{ 5 }"}
    for row in rows(tmp_path / "run", "metrics"):
        assert row["outcomes/distinct_in_group"] == 1
        assert math.isfinite(row["actor/grad_norm"])
        assert 0 < row.get("rollout/logp_missing", 1) < 1


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (("rollout.merge_adapters=false", "model.lora_rank=4"), "which rollout.engine=transformers cannot take"),
        (("rollout.tensor_model_parallel_size=2",), "over GPUs, which rollout.engine=transformers cannot. Leave the"),
        (("rollout.importance_cap=2",), "samples with the trained weights themselves"),
        (
            (f"rollout.engine={FOREIGN}", "rollout.top_p=0.8"),
            "cannot train with rollout.top_p=0.8 and rollout.top_k=",
        ),
        (("rollout.engine=vllm", "rollout.top_p=0.9"), "top_p=0.9 alone: set rollout.top_k too"),
        (("rollout.engine=sglang",), "or your own as module:Class; got 'sglang'"),
        (("rollout.engine=json:JSONDecoder",), "must be a subclass of"),
        (("rollout.engine=no_such_module:Engine",), "No module named"),
    ],
)
def test_settings_that_do_not_fit_the_engine_are_refused(
    settings: tuple[str, ...], message: str, small_config: MakeConfig, tmp_path: Path
) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        check_engine(small_config(tmp_path, *settings))


ONE = Rollout([1], [5, 6], "", [-1.0, -2.0])


@pytest.mark.parametrize(
    ("other", "setting", "message"),
    [
        ([], "rollout.n=2", "must return 2 rollouts for each of 1 prompts, 2 in all; got 1"),
        ([ONE._replace(logps=[-1.0])], "rollout.n=2", "a log-probability for each token"),
        ([ONE._replace(logps=None)], "rollout.n=2", "for all rollouts or for none"),
        ([ONE], "rollout.top_p=0.8", "must return the tokens that rollout.top_p=0.8 and rollout.top_k="),
    ],
)
def test_responses_that_lack_something_are_refused(
    other: list[Rollout], setting: str, message: str, shared_policy: Policy, small_config: MakeConfig
) -> None:
    """Else the run would go on without the effect of the setting, or score responses for another question."""
    engine = TransformersEngine(shared_policy, 64)
    with pytest.raises(ValueError, match=f"rollout.engine: TransformersEngine .*{message}"):
        check_complete(engine, checked(engine, [ONE, *other], 1, 2), small_config(Path("unused"), setting))


def test_importance_weights_need_log_probabilities(shared_policy: Policy, small_config: MakeConfig) -> None:
    setting = "rollout.importance_cap=2.0"
    engine, config = TransformersEngine(shared_policy, 64), small_config(Path("unused"), setting)
    check_complete(engine, [ONE], config)
    with pytest.raises(ValueError, match=f"must return logps, which {setting} reads; got None"):
        check_complete(engine, [ONE._replace(logps=None)], config)
