"""Requests and weights on their way to vLLM, an engine of this machine or servers."""

import fcntl
import shutil
import time
from pathlib import Path
from tempfile import TemporaryDirectory, gettempdir
from typing import Any

from outcome_rl.grpo.config.schema import SamplingConfig
from outcome_rl.grpo.model.policy import Policy
from outcome_rl.grpo.rollout.sampling import sample_seeds
from outcome_rl.grpo.types import Prompts
from outcome_rl.sampler.vllm_kept import kept_limit

SHARED_MEMORY = Path("/dev/shm")
_PREFIX = "outcome-rl-weights-"


def vllm_requests(
    policy: Policy, prompts: Prompts, sampling: SamplingConfig, max_tokens: int, seed: int
) -> tuple[list[list[int]], list[dict[str, Any]]]:
    """Return the prompt of each response, and its settings under vLLM's names."""
    common = {
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "top_k": sampling.top_k,
        "max_tokens": max_tokens,
        "stop_token_ids": policy.end_token_ids,
        "logprobs": kept_limit_of(policy, sampling),  # in addition to the sampled token
    }
    repeated = [prompt for prompt in map(list, prompts) for _ in range(sampling.n)]
    return repeated, [common | {"seed": own_seed} for own_seed in sample_seeds(prompts, sampling.n, seed)]


def kept_limit_of(policy: Policy, sampling: SamplingConfig) -> int:
    """Return how many log-probabilities vLLM must return with a token: 0 if the loss needs no kept ones."""
    return kept_limit(sampling.top_k, policy.head.weight.shape[0]) if sampling.keeps_support else 0


class Handover:
    """The folder for handing over weights, in shared memory if they fit; a container often has only 64 MiB.

    A kill of trainer and engine at once leaves the folder. Its lock ends with the trainer, and the next start removes
    folders without one.
    """

    def __init__(self, policy: Policy) -> None:
        size = sum(parameter.numel() * policy.dtype.itemsize for parameter in policy.model.parameters())
        parent = SHARED_MEMORY if SHARED_MEMORY.is_dir() else Path(gettempdir())
        _remove_left_folders(parent)
        if shutil.disk_usage(parent).free <= 1.1 * size:
            parent = Path(gettempdir())
        self._folder = TemporaryDirectory(prefix=_PREFIX, dir=parent)
        self.name = self._folder.name
        self._lock = Path(self.name, "lock").open("w")  # noqa: SIM115 - held until this process ends
        fcntl.flock(self._lock, fcntl.LOCK_EX)

    def cleanup(self) -> None:
        self._lock.close()
        self._folder.cleanup()


def _remove_left_folders(parent: Path) -> None:
    for lock in parent.glob(f"{_PREFIX}*/lock"):
        try:
            with lock.open("r+") as file:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                is_new = time.time() - lock.stat().st_mtime < 60  # perhaps made just now, and not locked yet
                if not is_new:
                    shutil.rmtree(lock.parent, ignore_errors=True)
        except OSError:  # in use, removed, or another user's
            continue
