"""Memory of one process of a run, without loading weights.

    python -m bench.memory one-gpu model.lora_rank=32 actor.optim.lr=1e-5
    torchrun --nproc-per-node=8 -m bench.memory paper/llama-3.1-8b-instruct-easy

The model is built of fake tensors and passes one micro-batch; the tensors that autograd saves for the backward pass are
summed. PyTorch's CPU kernels save these; GPU kernels save nearly the same.
"""

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

import torch

from outcome_rl.grpo import distributed
from outcome_rl.grpo.config.load import load_config
from outcome_rl.grpo.config.schema import TrainConfig
from outcome_rl.grpo.model.dtype import with_dtype
from outcome_rl.grpo.model.lora import add_adapters
from outcome_rl.grpo.model.policy import Policy
from outcome_rl.grpo.model.source import model_path
from outcome_rl.terminal.text import errors_on_one_line

MAX_LOGITS_BYTES = 2 * 2**30  # workspace of the loss on a GPU, docs/losses.md
FLOAT32 = 4


class Part(NamedTuple):
    """Bytes of one kind, and the phase that holds them."""

    name: str
    num_bytes: int
    phase: str  # "always", or one of two phases that alternate: "update", "rollout"


class MemoryEstimate(NamedTuple):
    """Memory of one process, without the CUDA context and fragmentation."""

    num_parameters: int
    parts: list[Part]

    @property
    def peak(self) -> int:
        """Bytes that are always held, plus the bytes of the larger phase."""
        total = {phase: sum(part.num_bytes for part in self.parts if part.phase == phase) for phase in PHASES}
        return total["always"] + max(total["update"], total["rollout"])


PHASES = ("always", "update", "rollout")


def estimate_memory(config: TrainConfig) -> MemoryEstimate:
    """Estimate the memory of one process, for prompts and responses of maximum length.

    The parts are weights, gradients, optimizer, reference, activations, loss and rollouts.

    Raises:
        OSError, ValueError: the configuration of `model.path` is neither a local folder nor on the hub.
    """
    from torch._subclasses.fake_tensor import FakeTensorMode
    from transformers import AutoConfig, AutoModelForCausalLM

    config = replace(config, model=with_dtype(config.model))
    dtype = getattr(torch, config.model.dtype)
    path = model_path(config.model)
    shape = AutoConfig.from_pretrained(path, trust_remote_code=config.model.trust_remote_code)
    adapts = config.model.lora_rank > 0
    with torch.device("meta"):  # peft moves its adapters, which fake tensors cannot
        model = AutoModelForCausalLM.from_config(shape, dtype=dtype, trust_remote_code=config.model.trust_remote_code)
        num_parameters = sum(parameter.numel() for parameter in model.parameters())
        layers = Policy(model, tokenizer=None).layers
        in_layers = [sum(parameter.numel() for parameter in layer.parameters()) for layer in layers]
        adapters = add_adapters(model, config.model) if adapts else None
    trained = sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad)
    with FakeTensorMode(allow_non_fake_inputs=True):
        policy = Policy(model.to_empty(device="cpu"), None, adapters)
        length = config.data.max_length
        batch = min(config.actor.ppo_max_token_len_per_gpu // length, config.data.train_batch_size * config.rollout.n)
        kept = kept_for_backward(policy, batch, length)
        if config.model.enable_gradient_checkpointing:
            model.gradient_checkpointing_enable({"use_reentrant": False})
            inputs = kept_for_backward(policy, batch, length)
            kept = inputs + (kept - inputs) // shape.num_hidden_layers  # one layer at a time is recomputed
        vocabulary, hidden = policy.head.weight.shape
    size = dtype.itemsize
    responses = batch * config.data.max_response_length
    loss = (
        min(MAX_LOGITS_BYTES, responses * vocabulary * size)
        + 2 * responses * hidden * size
        + (0 if adapts else vocabulary * hidden * FLOAT32)  # the head's gradient, before it is accumulated
    )
    weights = num_parameters * size
    own = trained * FLOAT32 if adapts else 0  # adapters are their own master weights, whatever the model's dtype
    sharded = distributed.shards_policy(config.actor)
    processes = distributed.world_size() if sharded else 1
    masters = trained * FLOAT32 if not adapts and (sharded or dtype != torch.float32) else 0
    reference = weights if config.actor.loss.beta and not adapts else 0
    held = [
        Part(f"weights, {config.model.dtype}", 0 if sharded and masters else weights + own, "always"),
        Part("master weights, float32", masters, "always"),
        Part("AdamW, two moments", 2 * trained * FLOAT32, "always"),
        Part("reference policy", reference, "always"),
        Part("gradients, float32", trained * FLOAT32, "update"),
    ]
    parts = [
        *(part._replace(num_bytes=-(-part.num_bytes // processes)) for part in held),
        Part(f"activations of {batch} x {length} tokens", kept, "update"),
        Part("policy loss, logits a chunk at a time", loss, "update"),
    ]
    samples_here = config.rollout.engine == "transformers"
    if samples_here:
        sequences = min(config.rollout.micro_batch_size, config.data.train_batch_size * config.rollout.n)
        heads = getattr(shape, "num_key_value_heads", None) or shape.num_attention_heads
        width = getattr(shape, "head_dim", None) or shape.hidden_size // shape.num_attention_heads
        cache = 2 * shape.num_hidden_layers * heads * width * size * sequences * length  # keys and values
        parts.append(Part(f"cache of {sequences} x {length} tokens", cache, "rollout"))
    if sharded:
        # With gradients: all that is in no layer, the layer that computes, and the next, which is prefetched.
        gathered = num_parameters - sum(in_layers) + 2 * max(in_layers, default=0)
        parts.append(Part("gathered weights and gradients", (1 if adapts else 2) * gathered * size, "update"))
        if samples_here:
            parts.append(Part("gathered weights", weights, "rollout"))
    return MemoryEstimate(num_parameters, [part for part in parts if part.num_bytes])


def kept_for_backward(policy: Policy, batch: int, length: int) -> int:
    """Return the bytes, without weights, that autograd saves for the hidden states of `batch` sequences."""
    weights = {parameter.untyped_storage()._cdata for parameter in policy.model.parameters()}
    kept: dict[int, torch.UntypedStorage] = {}  # by address; held, so that no address is reused

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage._cdata not in weights:
            kept[storage._cdata] = storage
        return tensor

    ids = torch.zeros(batch, length, dtype=torch.long)
    mask = torch.ones_like(ids)
    mask[:, 0] = 0  # sequences of different lengths are padded, and attention then saves a mask
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        hidden = policy.hidden(ids, mask)
    del hidden
    return sum(storage.nbytes() for storage in kept.values())


def memory_lines(estimate: MemoryEstimate) -> Iterator[str]:
    """Yield the estimate in lines, by phase."""
    yield f"Memory of one process, of {estimate.num_parameters:,} parameters:"
    for phase, heading in zip(PHASES, ("all the time", "during an update", "during rollouts"), strict=True):
        parts = [part for part in estimate.parts if part.phase == phase]
        if parts:
            yield f"  {heading}"
            yield from (f"    {part.name:<40} {_shown(part.num_bytes):>10}" for part in parts)
    yield f"  {'at most at a time':<42} {_shown(estimate.peak):>10}"


def _shown(num_bytes: int) -> str:
    unit, name = (2**30, "GiB") if num_bytes >= 2**30 else (2**20, "MiB")
    return f"{num_bytes / unit:,.1f} {name}"


def main(argv: Sequence[str] | None = None) -> None:
    """Print the estimate for a preset or file, with settings as `outcome-rl train` takes them."""
    parser = argparse.ArgumentParser(prog="python -m bench.memory", description=main.__doc__)
    parser.add_argument("config", help="YAML file or preset")
    parser.add_argument("overrides", nargs="*", metavar="KEY=VALUE")
    options = parser.parse_args(argv)
    with errors_on_one_line():
        estimate = estimate_memory(load_config(options.config, options.overrides))
        if distributed.is_rank_zero():
            print(*memory_lines(estimate), sep="\n")


if __name__ == "__main__":
    main()
