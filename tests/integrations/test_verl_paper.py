"""The paper's experiments under verl: verl and the plug-in accept them, and their numbers are those of our presets."""

import itertools
import runpy
from collections.abc import Callable
from pathlib import Path

import pytest
from hydra import compose, initialize_config_dir
from jinja2 import Template
from verl.trainer.ppo.core_algos import get_policy_loss_fn
from verl.utils.config import validate_config

from outcome_rl.grpo.config.load import load_config
from outcome_rl.integrations.verl.trainer import prepare, read_settings

FOLDER = Path(__file__).resolve().parents[2] / "examples" / "verl" / "paper"
RUN = runpy.run_path(str(FOLDER / "run.py"))
PRESETS = {"llama": "llama-3.1-8b-instruct", "qwen": "qwen-2.5-7b-base"}


def has_preset(model: str, data: str, method: str) -> bool:
    """The paper's hard data are Llama's, and figure 2 has none of them."""
    return data != "hard" or (model == "llama" and method != "sampling")


@pytest.mark.parametrize(
    ("model", "data", "method"),
    [one for one in itertools.product(RUN["MODELS"], RUN["B0"], RUN["METHODS"]) if has_preset(*one)],
)
def test_verl_and_the_plugin_accept_it_and_its_numbers_are_those_of_the_preset(
    model: str, data: str, method: str
) -> None:
    overrides = ["hydra.searchpath=[pkg://verl.trainer.config]", *RUN["overrides"](model, data, method, 3)]
    with initialize_config_dir(str(FOLDER), version_base=None):
        config = compose("paper", overrides=overrides)
    validate_config(config, use_reference_policy=True, use_critic=False)
    prepare(config)
    explored, id_key = read_settings(config)
    name = f"paper/{PRESETS[model]}-{data}"
    vanilla = method in ("grpo", "sampling")
    changed = [] if method == "ucb_con" else [f"exploration.bonus={method}"]
    preset = load_config(f"{name}-{method}") if vanilla else load_config(name, changed)
    assert explored == preset.exploration
    assert id_key == "extra_info.index"
    actor, rollout = config.actor_rollout_ref.actor, config.actor_rollout_ref.rollout
    assert get_policy_loss_fn(actor.policy_loss.loss_mode)
    assert config.actor_rollout_ref.model.path == preset.model.path
    assert (config.data.train_batch_size, actor.ppo_mini_batch_size) == (preset.data.train_batch_size,) * 2
    assert config.data.max_prompt_length == preset.data.max_prompt_length
    assert config.data.max_response_length == preset.data.max_response_length
    assert len(config.data.val_files) == len(preset.data.val_files)
    assert (rollout.n, rollout.temperature) == (preset.rollout.n, preset.rollout.temperature)
    assert (rollout.val_kwargs.n, rollout.val_kwargs.temperature, rollout.val_kwargs.do_sample) == (32, 1.0, True)
    assert (actor.use_kl_loss, actor.kl_loss_coef) == (True, preset.actor.loss.beta)
    assert (actor.entropy_coeff, actor.optim.lr) == (preset.actor.loss.entropy_coef, preset.actor.optim.lr)
    assert (config.trainer.total_training_steps, config.trainer.test_freq) == (700, preset.trainer.test_freq)
    template = config.actor_rollout_ref.model.custom_chat_template
    assert (template is not None) == (not preset.data.apply_chat_template)
    if template is not None:
        assert Template(template).render(messages=[{"role": "user", "content": "{x}?"}]) == "{x}?"


@pytest.mark.parametrize(
    ("response", "gold", "score"), [(r"so \boxed{\frac12}", "0.5", 1.0), (r"\boxed{3}", "4", 0.0), ("none", "4", 0.0)]
)
def test_the_reward_compares_final_answers(response: str, gold: str, score: float) -> None:
    compute_score: Callable[..., float] = runpy.run_path(str(FOLDER / "reward.py"))["compute_score"]
    assert compute_score("math", response, gold, {}) == score


def test_rows_of_verl_hold_the_problems_of_the_trainer() -> None:
    data = load_config("toy", ["data.prompt_template=Solve: {problem}"]).data
    found = runpy.run_path(str(FOLDER / "prepare.py"))["rows"](["toy:train[:3]"], data, training=True)
    assert len(found) == 3
    assert len({row["extra_info"]["index"] for row in found}) == 3
    assert found[0]["prompt"][0]["content"].startswith("Solve: ")
    assert found[0]["reward_model"]["ground_truth"]
