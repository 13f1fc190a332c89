"""Models loaded as they were trained: merged into bfloat16 weights, most of a small change by LoRA would be lost."""

import warnings
from dataclasses import replace
from pathlib import Path

import torch

from outcome_rl.grpo.config.schema import ModelConfig
from outcome_rl.grpo.model.dtype import with_dtype
from outcome_rl.grpo.model.policy import Policy
from outcome_rl.grpo.run.checkpoint import read_state


def load_model(config: ModelConfig) -> tuple[Policy, ModelConfig]:
    """Load a model; of a checkpoint of LoRA in bfloat16, the run's base model and the adapters, if this base is there.

    Returns:
        The policy, and the settings by which it was loaded: `config` itself, or the same with base model and LoRA.

    Raises:
        ValueError: the model cannot be loaded.
    """
    folder = Path(config.path).resolve()
    if not (folder / "adapter").is_dir():
        return Policy.load(config), config
    try:
        state = read_state(folder.parent, "state.json")
        saved = state["identity"]
        if saved["model.dtype"] != "bfloat16":
            return Policy.load(config), config
        names = ("path", "lora_rank", "lora_alpha", "target_modules")
        base = replace(config, **{name: saved[f"model.{name}"] for name in names})
        policy = Policy.load(replace(base, dtype="bfloat16"))  # as it was trained, also of a base in float32
        if state["start"].get("initial weights") != policy.digest():
            raise ValueError(f"model.path={base.path!r} holds other weights than when the run began")
        policy.load_weights(folder)
        if with_dtype(config).dtype == "float32":
            policy.cast(torch.float32)
    except (OSError, ValueError) as error:
        warnings.warn(
            f"{config.path} is used as it is, without its adapters' base model: {error}. Merged into bfloat16, most of "
            "what adapters change in few steps is lost",
            stacklevel=2,
        )
        return Policy.load(config), config
    return policy, base
