"""Choice of the data type for `model.dtype` on this machine."""

import logging
from dataclasses import replace

import torch

from outcome_rl.grpo.config.schema import DType, ModelConfig
from outcome_rl.grpo.distributed import choose_device
from outcome_rl_kernels.dtypes import preferred_dtype

logger = logging.getLogger(__name__)


def with_dtype(config: ModelConfig, saved: DType | None = None) -> ModelConfig:
    """Return the section with a data type instead of "auto", and log how it was chosen.

    Args:
        config: the section of a run.
        saved: data type of the checkpoint that the run continues; it stays, whatever this machine prefers.
    """
    if config.dtype == "auto":
        preferred, reason = preferred_dtype(choose_device(config.device))
        name: DType = "bfloat16" if preferred == torch.bfloat16 else "float32"
        if saved is not None and saved != name:
            logger.warning("the run began in %s and continues so; here model.dtype=auto is %s: %s", saved, name, reason)
        else:
            logger.info("model.dtype=auto is %s: %s", name, reason)
        config = replace(config, dtype=saved or name)
    return config
