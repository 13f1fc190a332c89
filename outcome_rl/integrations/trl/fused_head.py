"""Our kernels behind the log-probabilities of every TRL trainer that takes them from hidden states."""

import trl.kernels
import trl.trainer.utils

from outcome_rl_kernels.loss.chunked_logprob import ChunkedLogProbFunction


def use_fused_head() -> None:
    """Replace TRL's chunked log-probabilities and entropies by `linear_logprobs`, for all trainers of this process.

    `GRPOTrainer`, `RLOOTrainer`, `AsyncGRPOTrainer`, `KTOTrainer`, `DPOTrainer` and `SFTTrainer` call them at every
    forward pass, so the call may come at any time. Losses and metrics stay TRL's. Not for DeepSpeed ZeRO-3, which
    shards the head again before the backward pass.

    Raises:
        ImportError: this TRL has no `trl.kernels.ChunkedLogProbFunction`, which came with TRL 1.15.
    """
    if not hasattr(trl.kernels, "ChunkedLogProbFunction"):
        raise ImportError(
            f"use_fused_head needs trl.kernels.ChunkedLogProbFunction of TRL 1.15, which TRL {trl.__version__} lacks; "
            "upgrade TRL, or use OutcomeGRPOTrainer(fused_loss=True)"
        )
    trl.trainer.utils._ChunkedLogProbFunction = ChunkedLogProbFunction
