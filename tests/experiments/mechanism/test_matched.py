"""The model at the settings of the language-model study."""

import json

import numpy as np
import torch

from experiments.mechanism import matched
from experiments.mechanism.calibration import calibrate
from experiments.mechanism.policy import Rates
from experiments.mechanism.splits import setting
from experiments.mechanism.training import Method, advantages, train
from experiments.paper.measures import Results
from experiments.paper.plan import CONFIRM
from outcome_rl_kernels.advantages.api import group_advantages

RATES = Rates(3.0, 2.0, 0.012)


def test_the_fit_sees_grpo_alone() -> None:
    records = json.loads(matched.CONFIRM_RECORDS.read_text())
    curves = matched.language_model_curves(Results(records))
    assert curves["steps"] == [16, 32, 48, 64, 80, 96]
    assert [cell["instance"] for cell in curves["cells"]] == list(CONFIRM.instances)
    only = Results(records | {"runs": [run for run in records["runs"] if run["method"] == "none"]})
    assert matched.language_model_curves(only) == curves
    grid = {name: (value,) for name, value in RATES._asdict().items()}
    (fit,) = calibrate(grid, curves | {"cells": curves["cells"][:1]}, matched.BETA, (0,), questions=64, test=32)
    assert fit.rates == RATES
    assert 0 < fit.error < 5


def test_estimators_are_the_librarys() -> None:
    rng = np.random.default_rng(0)
    correct, answers = rng.random((3, 5, 8)) < 0.4, rng.integers(0, 4, (3, 5, 8))
    found = advantages(correct, answers, ["grpo", "maxrl", "pkpo(k=4)"])
    for run, name in enumerate(("grpo", "maxrl", "pkpo(k=4)")):
        rewards, keys = torch.from_numpy(correct[run] * 1.0), torch.from_numpy(answers[run] + 1)
        expected = group_advantages(rewards, torch.arange(5), keys, bonus="none", adv_estimator=name).advantages
        np.testing.assert_allclose(found[run], expected.numpy(), atol=1e-12)


def test_divided_steps_do_not_depend_on_the_scale_of_the_advantages() -> None:
    """RLOO's advantages are Dr. GRPO's times n / (n - 1)."""
    table, questions, exams = setting(3, "medium", 64, 16, 32)

    def last(beta: float | None) -> np.ndarray:
        runs = [(Method(RATES, estimator=name, beta=beta), 0) for name in ("dr_grpo", "rloo")]
        return train(table, questions, exams, runs, steps=8, batch=32, n=4, evaluate_at=(0, 8)).test[:, :, -1]

    divided, plain = last(0.999), last(None)
    np.testing.assert_allclose(divided[:, 0], divided[:, 1], rtol=1e-6)
    assert not np.allclose(plain[:, 0], plain[:, 1], rtol=1e-6)
