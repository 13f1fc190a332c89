"""Our kernels behind the log-probabilities of every TRL trainer that takes them from hidden states."""

import trl.trainer.utils

from outcome_rl_kernels.loss.chunked_logprob import ChunkedLogProbFunction


def use_fused_head() -> None:
    """Replace TRL's chunked log-probabilities and entropies by `linear_logprobs`, for all trainers of this process.

    `GRPOTrainer`, `RLOOTrainer`, `AsyncGRPOTrainer`, `KTOTrainer`, `DPOTrainer` and `SFTTrainer` call them at every
    forward pass, so the call may come at any time. Losses and metrics stay TRL's. Not for DeepSpeed ZeRO-3, which
    shards the head again before the backward pass.
    """
    trl.trainer.utils._ChunkedLogProbFunction = ChunkedLogProbFunction
