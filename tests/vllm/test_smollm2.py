"""vLLM samples from a pretrained language model, with the log-probabilities of the policy."""

from contextlib import closing

import pytest
from vllm_samples import largest_difference

from experiments.smollm2.model import SHORT_POLICY
from experiments.smollm2.task import problems
from outcome_rl.grpo.config.load import load_config
from outcome_rl.grpo.config.schema import SamplingConfig
from outcome_rl.grpo.model.policy import Policy
from outcome_rl.grpo.rollout.vllm_engine import VllmEngine
from outcome_rl.outcomes.extraction.response import extract_answer

pytestmark = pytest.mark.skipif(not SHORT_POLICY.is_dir(), reason=f"make test-smollm2 makes {SHORT_POLICY}")


def test_a_pretrained_model_is_sampled_by_vllm() -> None:
    settings = ["rollout.engine=vllm", "rollout.enforce_eager=true", "model.device=cpu", "data.max_prompt_length=64"]
    config = load_config("toy", [*settings, f"model.path={SHORT_POLICY}", "data.max_response_length=24"])
    policy = Policy.load(config.model)
    prompts = [
        policy.tokenizer.apply_chat_template(
            [{"role": "user", "content": row["problem"]}], add_generation_prompt=True, return_dict=True
        )["input_ids"]
        for row in problems("test", 2)
    ]
    with closing(VllmEngine(policy, config.rollout, config.model, config.data.max_length)) as engine:
        rollouts = engine.generate(prompts, SamplingConfig(n=4), 24, seed=0)
        # More tokens of prompts than vLLM takes in a step: it must not cut a prompt, see the engine's setting.
        many = engine.generate(prompts, SamplingConfig(n=128), 1, seed=0)
    assert len(many) == 256
    assert largest_difference(policy, rollouts, 1.0) < 1e-3
    answers = [extract_answer(rollout.text) for rollout in rollouts]
    assert sum(answer is not None for answer in answers) >= 6  # after ten warm steps it boxes an answer
    assert len({rollout.text for rollout in rollouts}) > 2
