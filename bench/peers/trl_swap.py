"""A pytest plugin: TRL's tests get `OutcomeGRPOTrainer` in place of `GRPOTrainer`, by the variant in SWAP."""

import os
from typing import Any

import torch
import trl
from trl import import_utils

from outcome_rl import ExplorationConfig

torch.set_num_threads(1)
# Liger's kernels need a GPU, and a test that asks for them leaves its models patched for all that follow.
import_utils.is_liger_kernel_available = lambda *args, **kwargs: False
vars(import_utils).setdefault("is_joblib_available", lambda: True)  # a checkout's tests may be newer than TRL
EXPLORATION = {
    "none": ExplorationConfig(adv_estimator="grpo", bonus="none", answer_mask_mode="none"),
    "default": None,
}

if os.environ["SWAP"] in EXPLORATION:
    from outcome_rl.integrations.trl import OutcomeGRPOTrainer

    class GRPOTrainer(OutcomeGRPOTrainer):
        """With the settings of the variant."""

        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **{"exploration": EXPLORATION[os.environ["SWAP"]]} | kwargs)

    trl.GRPOTrainer = GRPOTrainer
