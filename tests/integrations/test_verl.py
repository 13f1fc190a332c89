"""The verl plug-in under verl 0.9.1 itself: its registry and its configuration."""

import os
import re
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path

import numpy as np
import pytest
import torch
import verl
from omegaconf import OmegaConf

LOADED_BY_VERL = "outcome_rl.integrations.verl.plugin" in sys.modules  # before anything here imports it

from hydra import compose, initialize_config_dir  # noqa: E402
from verl.trainer.ppo import core_algos  # noqa: E402
from verl.trainer.ppo.metric_utils import process_validation_metrics  # noqa: E402
from verl.utils.config import validate_config  # noqa: E402
from verl.utils.tracking import FileLogger  # noqa: E402
from verl_runs import EXPLORE, make_trainer, verl_config  # noqa: E402

from experiments.figures.histories import read_histories  # noqa: E402
from outcome_rl import ExplorationConfig  # noqa: E402
from outcome_rl.integrations.verl import algorithms, plugin  # noqa: E402
from outcome_rl.integrations.verl.trainer import prepare, read_settings  # noqa: E402

# --- loading


def test_verl_loads_the_plugin_by_its_entry_point() -> None:
    assert [entry.value for entry in entry_points(group="verl.plugins", name="outcome_rl")] == [plugin.__name__]
    assert LOADED_BY_VERL
    assert plugin.unfit(verl.__version__) is plugin.unfit("0.9.3.dev0") is None
    assert core_algos.get_adv_estimator_fn("outcome_grpo") is algorithms.outcome_grpo


@pytest.mark.parametrize("version", ["0.8.0", "0.10.2"])
def test_an_unfit_verl_says_what_to_install_when_the_plugin_is_used(
    monkeypatch: pytest.MonkeyPatch, version: str
) -> None:
    monkeypatch.setattr(core_algos, "ADV_ESTIMATOR_REGISTRY", {})
    plugin.register(version)
    with pytest.raises(ImportError, match=rf"verl {version}.*pip install 'verl>=0\.9\.1,<0\.10'"):
        core_algos.get_adv_estimator_fn("outcome_grpo")()


def test_outside_of_a_hooked_trainer_the_estimator_says_what_is_missing() -> None:
    with pytest.raises(RuntimeError, match=r"questions and responses.*trainer\.use_v1=true"):
        core_algos.get_adv_estimator_fn("outcome_grpo")(torch.zeros(2, 3), torch.ones(2, 3), config={}, index=None)


# --- logs


def test_logs_are_read_as_verl_writes_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    infos = {"acc": [1.0, 0.0, 0.0, 0.0], "reward": [2.0, 0.0, 0.0, 0.0]}
    found = process_validation_metrics(["math"] * 4, ["a", "a", "b", "b"], infos)["math"]["acc"]
    metrics = {f"val-core/math/acc/{name}": value for name, value in found.items()}
    metrics |= {"training/epoch": 0, "exploration/solved_fraction": np.float64(0.25), "actor/entropy": 1e-06}
    path = tmp_path / "log"
    monkeypatch.setenv("VERL_FILE_LOGGER_PATH", str(path))
    written = FileLogger("project", "experiment")
    written.log(metrics, 1)
    written.finish()
    (history,), _ = read_histories([f"grpo={path}"])
    assert history.pass_at_k[1][1] == 0.25
    assert history.pass_at_k[1][2] == pytest.approx(found["best@2/mean"])
    assert history.by_step("exploration/solved_fraction") == {1: 0.25}
    assert history.by_step("entropy/all") == {1: 1e-06}


# --- settings


@pytest.mark.parametrize(
    ("override", "named", "fix"),
    [
        (EXPLORE + "bonuss=ucb", r"algorithm\.outcome_exploration: unknown setting 'bonuss'", None),
        (EXPLORE + "coef=-1", r"(?s)coef must be.*algorithm\.outcome_exploration", None),
        (EXPLORE + "answer_mask_mode=all", "for verl.*got 'all'", None),
        ("actor_rollout_ref.actor.policy_loss.loss_mode=geo_mean", "loss_mode=geo_mean", "answer_mask_mode=none"),
        (EXPLORE + "adv_estimator='pkpo(k=99)'", "k of adv_estimator 'pkpo' must be at most", None),
        ("algorithm.adv_estimator=grpo", "adv_estimator=grpo does not read it", None),
    ],
)
def test_what_verl_cannot_follow_stops_the_trainer_before_it_makes_workers(
    tmp_path: Path, override: str, named: str, fix: str | None
) -> None:
    chosen = [EXPLORE + "coef=0.1", override]
    with pytest.raises((TypeError, ValueError), match=named):
        make_trainer(verl_config(tmp_path, *chosen))
    if fix is not None:
        prepare(verl_config(tmp_path, *chosen, EXPLORE + fix))


@pytest.mark.slow
def test_the_example_is_a_configuration_that_verl_and_the_plugin_accept() -> None:
    script = Path(__file__).resolve().parents[2] / "examples" / "verl" / "run.sh"
    environment = os.environ | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    printed = subprocess.run(
        [script, "--cfg", "job"], env=environment, capture_output=True, text=True, check=True, timeout=500
    )
    config = OmegaConf.create(printed.stdout[printed.stdout.index("model_engine:") :])
    validate_config(config, use_reference_policy=True, use_critic=False)
    prepare(config)
    core_algos.get_policy_loss_fn(config.actor_rollout_ref.actor.policy_loss.loss_mode)
    assert read_settings(config) == (ExplorationConfig(), "")


def test_the_recipe_for_several_machines_is_a_configuration_that_verl_and_the_plugin_accept() -> None:
    folder = Path(__file__).resolve().parents[2] / "examples" / "verl"
    (line,) = re.findall(r"^RAY_ADDRESS=auto \./run\.sh (.*)$", (folder / "README.md").read_text(), re.MULTILINE)
    with initialize_config_dir(str(folder), version_base=None):
        config = compose("gsm8k", overrides=["hydra.searchpath=[pkg://verl.trainer.config]", *line.split()])
    validate_config(config, use_reference_policy=True, use_critic=False)
    prepare(config)
    assert config.trainer.nnodes * config.trainer.n_gpus_per_node == 16
