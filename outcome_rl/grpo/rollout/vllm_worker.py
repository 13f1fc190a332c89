"""vLLM worker extension (`worker_extension_cls`): it adds the backend for weights without a GPU.

vLLM's worker imports this module before it loads anything.
"""

import logging

import outcome_rl.grpo.rollout.weight_transfer  # noqa: F401 - registers the backend

# vLLM warns of every layer without weights, such as rotary embeddings; the backend reports parameters without weights.
logging.getLogger("vllm.model_executor.model_loader.reload.layerwise").setLevel(logging.ERROR)


class PolicyWorker:
    """The extension itself: its module is what vLLM's worker needs."""
