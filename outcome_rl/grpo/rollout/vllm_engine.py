"""vLLM rollout engine: vLLM in the trainer's process, an engine for each process of a run.

    generate: wake up -> load new weights from memory, if any -> empty the prefix cache -> sample -> sleep

Samples are functions of weights, prompts and seed: every response has its own seed, no cached prefix outlives a call,
and all requests are queued before the first step, so that batches do not depend on timing. `start_vllm` and
`load_weights` are for your own loops too: `examples/grpo_vllm.py` is one.
"""

import logging
import os
import sys
from collections.abc import Iterable
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from outcome_rl.extras import install
from outcome_rl.grpo.config.schema import ModelConfig, RolloutConfig, SamplingConfig
from outcome_rl.grpo.model.lora import adapts_parameters, save_adapters
from outcome_rl.grpo.model.policy import Policy
from outcome_rl.grpo.rollout.engine import RolloutEngine
from outcome_rl.grpo.rollout.sampling import sample_seeds
from outcome_rl.grpo.types import Prompts, Rollout
from outcome_rl.sampler.vllm_kept import kept_limit, kept_tokens

LORA_RANKS = (1, 8, 16, 32, 64, 128, 256, 320, 512)  # those that vLLM can be started with


def start_vllm(model: str, **options: Any) -> Any:
    """Start vLLM in this process, on its device; under torchrun each process starts its own, all of them together.

    Args:
        model: folder or hub name.
        options: of `vllm.LLM`, in addition to those that on-policy training needs; `enable_sleep_mode` has no effect
            where the platform cannot sleep.

    Returns:
        The `vllm.LLM`. It samples from the model's own distribution, without the model's generation settings, and its
        log-probabilities are those after temperature, top-k and top-p.
    """
    os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"  # so that weights go from memory to memory
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "WARNING")
    if not dist.is_initialized():  # or vLLM makes a process group by a file, which a kill would leave
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo" if sys.platform == "linux" else "lo0")
        dist.init_process_group(store=dist.HashStore(), rank=0, world_size=1)  # type: ignore[attr-defined]
    from vllm import LLM
    from vllm.platforms import current_platform

    # It warns at every update of layers that have no weights, such as rotary embeddings and a tied head.
    logging.getLogger("vllm.model_executor.model_loader.reload.layerwise").setLevel(logging.ERROR)
    if dist.get_world_size() > 1:
        options["distributed_executor_backend"] = "external_launcher"
    if not current_platform.is_sleep_mode_available():
        options.pop("enable_sleep_mode", None)
    return LLM(
        model,
        # After a part of a prompt vLLM takes the draw back, which generators of the CPU cannot: it fails.
        enable_chunked_prefill=False if current_platform.is_cpu() else None,
        logprobs_mode="processed_logprobs",
        generation_config="vllm",
        **options,
    )


def load_weights(llm: Any, weights: Iterable[tuple[str, Tensor]]) -> None:
    """Let vLLM sample from these weights, of which it keeps a copy, from now on.

    Args:
        llm: of `start_vllm`.
        weights: the tensors of the model, by the names that Hugging Face publishes; a tied one occurs once.
    """
    llm.collective_rpc("reload_weights", kwargs={"weights_iterator": iter(weights)})
    llm.apply_model(_repack_head)
    llm.reset_prefix_cache()  # its keys and values are of the old weights


def _repack_head(model: torch.nn.Module) -> None:
    """Repack a head that is tied to the embedding: on a CPU, vLLM keeps the old one when weights are reloaded."""
    from vllm.model_executor.layers.vocab_parallel_embedding import ParallelLMHead, UnquantizedEmbeddingMethod

    for layer in model.modules():
        if isinstance(layer, ParallelLMHead) and isinstance(layer.quant_method, UnquantizedEmbeddingMethod):
            layer.quant_method.process_weights_after_loading(layer)


class VllmEngine(RolloutEngine):
    """A running vLLM with the weights of a policy."""

    @classmethod
    def check(cls, rollout: RolloutConfig) -> None:
        if rollout.top_p < 1 and rollout.top_k < 1:
            raise ValueError(
                f"rollout.engine=vllm cannot train with rollout.top_p={rollout.top_p} alone: set rollout.top_k too, "
                "the largest number of kept tokens that it returns"
            )
        if find_spec("vllm") is None:
            raise ValueError(f"rollout.engine=vllm needs vLLM: {install('vllm')}, or set rollout.engine=transformers")

    def __init__(self, policy: Policy, rollout: RolloutConfig, model: ModelConfig, max_length: int) -> None:
        """Start the engine; it loads its weights before the first rollout.

        Raises:
            ValueError: vLLM refuses the model or the settings.
        """
        self._adapter: Any = None  # of all requests, where only adapters are sent
        self._sends_adapters = sends_adapters(model)
        self._asleep = False
        if self._sends_adapters and adapts_parameters(policy.model):
            raise ValueError(
                f"rollout.engine=vllm takes no adapters on the experts of {type(policy.model).__name__}; set "
                "model.dtype=float32, in which they are merged, leave the experts out of model.target_modules, or set "
                "rollout.engine=transformers"
            )
        self.update_weights(policy)
        try:
            self._llm = start_vllm(
                policy.model.name_or_path,
                trust_remote_code=model.trust_remote_code,
                dtype=model.dtype,
                max_model_len=max_length,
                max_num_seqs=rollout.micro_batch_size,
                max_logprobs=kept_limit_of(policy, rollout),
                gpu_memory_utilization=rollout.gpu_memory_utilization,
                enforce_eager=rollout.enforce_eager,
                enable_sleep_mode=rollout.free_cache_engine,
                **weights_of(model),
            )
        except (RuntimeError, ValueError) as error:
            raise ValueError(
                f"rollout.engine=vllm did not start with model.path={model.path!r}: {error}. Its messages above "
                "say why; if memory is short, change rollout.gpu_memory_utilization = "
                f"{rollout.gpu_memory_utilization}"
            ) from error
        self.sleeps = self._llm.llm_engine.model_config.enable_sleep_mode

    def close(self) -> None:
        """End vLLM and, because it does, every process group of this process."""
        self._llm.llm_engine.engine_core.shutdown()

    def update_weights(self, policy: Policy) -> None:
        self._policy = policy
        self._has_old_weights = True

    def generate(self, prompts: Prompts, sampling: SamplingConfig, max_tokens: int, seed: int) -> list[Rollout]:
        from vllm import SamplingParams

        if self._asleep:
            torch.cuda.empty_cache()  # of the update; vLLM's memory is outside PyTorch's cache
            self._llm.wake_up()
        if self._has_old_weights:
            self._send()
        self._llm.reset_prefix_cache()
        settings = [
            SamplingParams(
                temperature=sampling.temperature,
                top_p=sampling.top_p,
                top_k=sampling.top_k,
                max_tokens=max_tokens,
                stop_token_ids=self._policy.end_token_ids,
                logprobs=kept_limit_of(self._policy, sampling),  # in addition to the sampled token
                seed=own_seed,
                flat_logprobs=True,
                detokenize=False,
            )
            for own_seed in sample_seeds(prompts, sampling.n, seed)
        ]
        requests = [{"prompt_token_ids": list(prompt)} for prompt in prompts for _ in range(sampling.n)]
        outputs = self._llm.generate(requests, settings, lora_request=self._adapter, use_tqdm=False)
        if self.sleeps:
            self._llm.sleep(level=1)  # weights move to main memory, the cache is dropped
        self._asleep = self.sleeps
        return [self._rollout(request, sampling) for request in outputs]

    def _send(self) -> None:
        """Give vLLM the weights of the policy: all of them, or only the adapters."""
        if self._sends_adapters:
            from vllm.lora.request import LoRARequest

            with TemporaryDirectory(prefix="outcome-rl-adapters-") as folder:
                save_adapters(self._policy.adapters, Path(folder))
                self._llm.llm_engine.add_lora(LoRARequest("policy", 1, folder, load_inplace=True))
            self._adapter = LoRARequest("policy", 1, folder)  # which is not read again
        else:
            load_weights(self._llm, self._policy.published_weights().items())
        self._has_old_weights = False

    def _rollout(self, request: Any, sampling: SamplingConfig) -> Rollout:
        (output,) = request.outputs
        logps, kept = logps_and_kept(output.logprobs, sampling)
        return Rollout.decoded(self._policy.tokenizer, request.prompt_token_ids, list(output.token_ids), logps, kept)


def sends_adapters(model: ModelConfig) -> bool:
    """Return whether vLLM gets only the adapters, of a model whose dtype is chosen.

    A merged weight of 16 bits is as before until its change exceeds half a unit in the last place: vLLM would sample
    from nearly the initial model.
    """
    return model.lora_rank > 0 and model.dtype != "float32"


def weights_of(model: ModelConfig) -> dict[str, Any]:
    """Return vLLM's options for the weights: it gets all of them later, or reads those that adapters leave frozen."""
    if not sends_adapters(model):
        return {"load_format": "dummy"}
    rank = min((size for size in LORA_RANKS if size >= model.lora_rank), default=model.lora_rank)
    return {"enable_lora": True, "max_lora_rank": rank}


def kept_limit_of(policy: Policy, sampling: SamplingConfig) -> int:
    """Return how many log-probabilities vLLM must return with a token: 0 if the loss needs no kept ones."""
    return kept_limit(sampling.top_k, policy.head.weight.shape[0]) if sampling.keeps_support else 0


def logps_and_kept(flat: Any, sampling: SamplingConfig) -> tuple[list[float], list[list[int]] | None]:
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
