"""Export of a checkpoint as a Hugging Face folder."""

from pathlib import Path
from typing import Literal

import torch

from outcome_rl.files import atomic_folder
from outcome_rl.grpo.config.schema import ModelConfig
from outcome_rl.grpo.model.policy import Policy
from outcome_rl.grpo.run.checkpoint import find_model


def export_model(model: str, out: Path, dtype: Literal["bfloat16", "float16", "float32"]) -> int:
    """Write a model that `find_model` finds as a Hugging Face folder, whole or not at all; return its parameter count.

    Raises:
        FileExistsError: there is something at `out`.
        ValueError: there is no such model.
    """
    with atomic_folder(out) as scratch:
        path, _ = find_model(model)
        policy = Policy.load(ModelConfig(path=path, device="cpu"))
        policy.model.to(getattr(torch, dtype))
        policy.save(scratch)
    return sum(parameter.numel() for parameter in policy.model.parameters())
