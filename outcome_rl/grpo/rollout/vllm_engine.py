"""vLLM rollout engine: it samples in its own processes, on the trainer's device, with a copy of the weights.

    start:    wake up -> send new weights, if any (`weight_transfer.py`) -> empty the prefix cache -> queue the requests
    generate: start -> wait for the responses -> sleep

Samples are functions of weights, prompts and seed: every response has its own seed, no cached prefix outlives a call,
and sampling starts when all requests are queued, so that batches do not depend on timing.
"""

import logging
import os
import re
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, wait
from contextlib import contextmanager
from functools import cache
from multiprocessing import active_children, resource_tracker
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeVar

import torch

from outcome_rl.environment import package_versions
from outcome_rl.grpo import distributed
from outcome_rl.grpo.config.schema import SamplingConfig, TrainConfig
from outcome_rl.grpo.model.lora import save_adapters
from outcome_rl.grpo.model.policy import Policy
from outcome_rl.grpo.rollout.engine import RolloutEngine
from outcome_rl.grpo.rollout.handover import Handover, kept_limit_of, vllm_requests
from outcome_rl.grpo.rollout.vllm_reaper import MARK, start_reaper
from outcome_rl.grpo.types import Prompts, Rollout
from outcome_rl.sampler.vllm_kept import kept_tokens

logger = logging.getLogger(__name__)
T = TypeVar("T")
OLDEST, NEWEST = (0, 28), (0, 33)  # 0.28 is the first whose backends all have a sender for the trainer
LORA_RANKS = (1, 8, 16, 32, 64, 128, 256, 320, 512)  # those that vLLM can be started with
DEATH = (
    "vLLM's engine process ended while it sampled; its messages above say why. The same command continues the run from "
    "its last checkpoint"
)


def check_vllm() -> None:
    """Check, without importing vLLM, that a version is installed whose interfaces this module knows.

    Raises:
        ValueError: vLLM is missing, or has another version.
    """
    version = package_versions()["vllm"]
    wanted = f">={OLDEST[0]}.{OLDEST[1]},<{NEWEST[0]}.{NEWEST[1] + 1}"
    numbers = re.match(r"(\d+)\.(\d+)", version)
    if numbers is None:
        obstacle = ", but vLLM is not installed here"
    elif not OLDEST <= (int(numbers[1]), int(numbers[2])) <= NEWEST:
        obstacle = f" works with vLLM {wanted}, and {version} is installed"
    else:
        return
    raise ValueError(
        f"rollout.engine=vllm{obstacle}: pip install 'vllm{wanted}', or choose rollout.engine=transformers"
    )


class VllmEngine(RolloutEngine):
    """A running vLLM with the weights of a policy."""

    needs_gpu = shards_model = takes_adapters = returns_support = needs_top_k = True

    @classmethod
    def check(cls, config: TrainConfig) -> None:
        check_vllm()
        if config.rollout.merge_adapters is False and not config.model.lora_rank:
            raise ValueError("rollout.merge_adapters=false sends LoRA adapters; it needs model.lora_rank > 0")
        size, wanted = config.rollout.tensor_model_parallel_size, "rollout.tensor_model_parallel_size"
        if size == 1:
            return
        if distributed.world_size() > 1:
            raise ValueError(
                f"{wanted}={size} needs a trainer of one process, because each of {distributed.world_size()} has a GPU "
                "for its vLLM; use 1"
            )
        if distributed.choose_device(config.model.device).type == "cuda" and torch.cuda.device_count() < size:
            raise ValueError(f"{wanted}={size} needs as many GPUs; this process sees {torch.cuda.device_count()}")

    @classmethod
    def open(cls, policy: Policy, config: TrainConfig) -> RolloutEngine:
        if config.model.lora_rank and config.model.dtype != "float32" and not sends_adapters(config):
            logger.warning(
                "vLLM gets %s weights with the adapters merged, whose rounding at first loses most of what these "
                "change: it samples from nearly the initial model. Use "
                "rollout.merge_adapters=false, or model.dtype=float32",
                config.model.dtype,
            )
        return cls(policy, config)

    @classmethod
    def memory(cls, config: TrainConfig) -> str:
        freed = ", given back between rollouts" if config.rollout.free_cache_engine else ""
        return f"vLLM in addition: {config.rollout.gpu_memory_utilization:.0%} of the GPU's memory{freed}"

    def __init__(self, policy: Policy, config: TrainConfig) -> None:
        """Start the engine; it loads its weights before the first rollout.

        Raises:
            ValueError: vLLM refuses the model or the settings.
        """
        # vLLM reads these variables when it is imported. Its processes must not be forks of this one: a fork inherits
        # the lock of the run's folder, and would keep it when this process is killed.
        os.environ.setdefault("VLLM_WORKER_MULTIPROC_METHOD", "spawn")
        os.environ.setdefault("VLLM_LOGGING_LEVEL", "WARNING")
        if policy.device.type == "cuda":
            # Handles to GPU memory are pickled, for sockets in a folder that only this user can read.
            os.environ.setdefault("VLLM_ALLOW_INSECURE_SERIALIZATION", "1")
        from vllm import LLM
        from vllm.platforms import current_platform

        from outcome_rl.grpo.rollout.weight_transfer import LocalClient, open_sender

        rollout, data = config.rollout, config.data
        self._can_sleep = rollout.free_cache_engine and current_platform.is_sleep_mode_available()
        self._asleep = False
        self._in_work: Callable[[], object] = lambda: None
        others = set(active_children())
        self._handover = Handover(policy)
        self._reaper = start_reaper(self._handover.name)
        # vLLM's sockets are in the folder; without SPT_NOENV its process titles overwrite the mark.
        variables = {"VLLM_RPC_BASE_PATH": self._handover.name, MARK: self._handover.name, "SPT_NOENV": "1"}
        with _hidden_from_ctrl_c(), distributed.isolated_environment(**variables):
            try:
                self._llm = LLM(
                    model=policy.model.name_or_path,
                    trust_remote_code=config.model.trust_remote_code,
                    dtype=config.model.dtype,
                    max_model_len=data.max_length,
                    max_num_seqs=rollout.micro_batch_size,
                    gpu_memory_utilization=rollout.gpu_memory_utilization,
                    tensor_parallel_size=rollout.tensor_model_parallel_size,
                    enforce_eager=rollout.enforce_eager,
                    # After a part of a prompt vLLM takes the draw back, which generators of the CPU cannot: it fails.
                    enable_chunked_prefill=False if current_platform.is_cpu() else None,
                    enable_sleep_mode=self._can_sleep,
                    logprobs_mode="processed_logprobs",  # of the distribution after temperature, top-k and top-p
                    max_logprobs=kept_limit_of(policy, rollout),
                    generation_config="vllm",  # ignore the model's own settings: the loss does not model them
                    **_weights_of(policy, config),
                )
            except (RuntimeError, ValueError) as error:
                self._clean_up()
                raise ValueError(
                    f"rollout.engine=vllm did not start with model.path={config.model.path!r}: {error}. Its messages "
                    "above say why; if memory is short, change rollout.gpu_memory_utilization = "
                    f"{rollout.gpu_memory_utilization}"
                ) from error
        self._processes = set(active_children()) - others
        self.update_weights(policy)
        self._adapter: Any = None  # of all requests, where only adapters are sent
        self._sends_adapters = sends_adapters(config)
        if not self._sends_adapters:
            self._sender = open_sender(
                LocalClient(self._llm),
                lambda: self._policy.published_weights(),
                _carrier(policy, config),
                self._handover.name,
            )

    def close(self) -> None:
        """End the engine's processes, and remove its files and sockets."""
        self._llm.llm_engine.engine_core.shutdown()
        self._clean_up()

    def _clean_up(self) -> None:
        self._handover.cleanup()
        self._reaper.communicate()

    def update_weights(self, policy: Policy) -> None:
        self._policy = policy
        self._has_old_weights = True

    def generate(self, prompts: Prompts, sampling: SamplingConfig, max_tokens: int, seed: int) -> list[Rollout]:
        return self.start(prompts, sampling, max_tokens, seed)()

    def start(
        self, prompts: Prompts, sampling: SamplingConfig, max_tokens: int, seed: int
    ) -> Callable[[], list[Rollout]]:
        """Send new weights and queue the requests, which vLLM's process then works on."""
        from vllm import SamplingParams

        self._in_work()
        repeated, settings = vllm_requests(self._policy, prompts, sampling, max_tokens, seed)
        parameters = [SamplingParams(**own, flat_logprobs=True, detokenize=False) for own in settings]
        self._while_alive(lambda: self._queue(repeated, parameters))
        tokenizer = self._policy.tokenizer

        def finish() -> list[Rollout]:
            outputs = self._while_alive(self._outputs)
            return [
                Rollout.decoded(tokenizer, prompt, list(output.token_ids), *_logps_and_kept(output.logprobs, sampling))
                for prompt, output in zip(repeated, outputs, strict=True)
            ]

        self._in_work = cache(finish)
        return self._in_work

    def _queue(self, prompts: list[list[int]], settings: list[Any]) -> None:
        """Send new weights, and queue a request for each prompt."""
        if self._asleep:
            self._llm.wake_up()
            self._asleep = False
        if self._has_old_weights:
            with torch.accelerator.device_index(self._policy.device.index):  # threads begin with the first GPU
                self._send()
            self._has_old_weights = False
        self._llm.reset_prefix_cache()
        self._llm.sleep(level=0)  # queues requests without starting them
        self._llm.enqueue([{"prompt_token_ids": ids} for ids in prompts], settings, self._adapter, use_tqdm=False)
        self._llm.wake_up(tags=["scheduling"])

    def _send(self) -> None:
        """Give vLLM the weights of the policy: all of them, or only the adapters."""
        if not self._sends_adapters:
            self._sender.send_weights()
            return
        from vllm.lora.request import LoRARequest

        with TemporaryDirectory(dir=self._handover.name) as folder:
            save_adapters(self._policy.adapters, Path(folder))
            self._llm.llm_engine.add_lora(LoRARequest("policy", 1, folder, load_inplace=True))
            self._adapter = LoRARequest("policy", 1, folder)  # which is not read again

    def _outputs(self) -> list[Any]:
        """Wait for vLLM's output of each prompt."""
        requests = self._llm.wait_for_completion(use_tqdm=False)
        if self._can_sleep:
            self._llm.sleep(level=1)
            self._asleep = True
        return [request.outputs[0] for request in requests]

    def _while_alive(self, call: Callable[[], T]) -> T:
        """Run calls of vLLM in a thread and return their result; calls would wait forever for a killed process."""
        from vllm.v1.engine.exceptions import EngineDeadError

        future: Future[T] = Future()

        def run() -> None:
            try:
                future.set_result(call())
            except BaseException as error:  # noqa: BLE001 - raised again by future.result()
                future.set_exception(error)

        threading.Thread(target=run, name="vLLM", daemon=True).start()
        while not wait([future], timeout=0.2).done:
            if not all(process.is_alive() for process in self._processes):
                raise ChildProcessError(DEATH)
        try:
            return future.result()
        except EngineDeadError as error:
            raise ChildProcessError(DEATH) from error


def _logps_and_kept(flat: Any, sampling: SamplingConfig) -> tuple[list[float], list[list[int]] | None]:
    """Return the log-probability of each sampled token, and those that top-k and top-p kept, if the loss needs them.

    Args:
        flat: vLLM's `FlatLogprobs`: for each position the sampled token, then the most likely ones.
        sampling: of the request.

    Raises:
        ValueError: more tokens were kept than vLLM was asked for.
    """
    logps = [flat.logprobs[start] for start in flat.start_indices]
    if not sampling.keeps_support:
        return logps, None
    kept = [
        kept_tokens(
            flat.token_ids[start], zip(flat.token_ids[start:end], flat.logprobs[start:end], strict=True), sampling.top_k
        )
        for start, end in zip(flat.start_indices, flat.end_indices, strict=True)
    ]
    return logps, kept


def sends_adapters(config: TrainConfig) -> bool:
    """Return whether vLLM gets only the adapters, of a model whose dtype is chosen; see `rollout.merge_adapters`."""
    rollout, model = config.rollout, config.model
    merges = model.dtype == "float32"
    return model.lora_rank > 0 and not (merges if rollout.merge_adapters is None else rollout.merge_adapters)


def _carrier(policy: Policy, config: TrainConfig) -> torch.device:
    """Return the device that holds weights on their way: main memory if several of vLLM's GPUs take parts of them."""
    return policy.device if config.rollout.tensor_model_parallel_size == 1 else torch.device("cpu")


def _weights_of(policy: Policy, config: TrainConfig) -> dict[str, Any]:
    """Return vLLM's settings for the weights: it gets all of them later, or reads those that adapters leave frozen.

    Raises:
        ValueError: the adapters' rank is larger than vLLM's largest.
    """
    if not sends_adapters(config):
        from outcome_rl.grpo.rollout.weight_transfer import backend

        return {
            "load_format": "dummy",
            "weight_transfer_config": {"backend": backend(_carrier(policy, config))},
            "worker_extension_cls": "outcome_rl.grpo.rollout.vllm_worker.PolicyWorker",
        }
    rank = next((size for size in LORA_RANKS if size >= config.model.lora_rank), None)
    if rank is None:
        raise ValueError(
            f"model.lora_rank must be at most {LORA_RANKS[-1]} with rollout.engine=vllm; got {config.model.lora_rank}"
        )
    return {"enable_lora": True, "max_lora_rank": rank}


@contextmanager
def _hidden_from_ctrl_c() -> Iterator[None]:
    """Block SIGINT in processes started here.

    A terminal sends it to the whole process group, but the trainer finishes its step, and needs the engine for that.
    """
    resource_tracker.ensure_running()  # starting it later would unblock the signal
    previous_mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, previous_mask)
