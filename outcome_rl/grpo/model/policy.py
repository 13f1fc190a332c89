"""Causal language model split for the policy loss: the body computes hidden states, the lm_head is a weight."""

import copy
import hashlib
import logging
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, Self, cast

import torch
from torch import Tensor, nn

from outcome_rl.causal_lm import Head, decoder, end_token_ids, read_head
from outcome_rl.grpo.config.schema import ModelConfig
from outcome_rl.grpo.distributed import choose_device
from outcome_rl.grpo.model.dtype import with_dtype
from outcome_rl.grpo.model.fsdp import ShardedModel, shard_like
from outcome_rl.grpo.model.lora import add_adapters, load_adapters, merged_state_dict, save_adapters
from outcome_rl.grpo.model.packed_attention import NAME as PACKED
from outcome_rl.grpo.model.packed_attention import attention_obstacle, can_use_flash_attention, caps_scores, install
from outcome_rl.grpo.model.packing import Layout, PackedBatch, PackingPlan, pack, take_rows, to_device
from outcome_rl.grpo.model.source import load_tokenizer, load_whole, make_savable, model_path, read_shape
from outcome_rl.grpo.model.weight_layout import (
    WeightLayout,
    check_layout,
    layout_of,
    published,
    published_layout,
    read_layout,
    with_dtype_of,
)
from outcome_rl.grpo.types import Rollout
from outcome_rl.probe import Probe

logger = logging.getLogger(__name__)


class Policy:
    """A model and its tokenizer.

    Dropout stays off: the update must compute the log-probabilities of the policy that sampled.

    Attributes:
        probe: of the weights as `load` loaded them; None as soon as they may be others.
    """

    def __init__(
        self,
        model: Any,
        tokenizer: Any,
        adapters: Any = None,
        head: Head | None = None,
        layout: WeightLayout | None = None,
    ) -> None:
        """Wrap a causal language model of transformers, and peft's wrapper of it if it is trained by LoRA.

        Without `head`, which is that of this model or of its copy, logits are hidden states times the weight. Without
        `layout`, which is that of the source, the model's weights are saved as they are.
        """
        self.model = model.eval()
        self.sharded: ShardedModel | None = None
        self.tokenizer = tokenizer
        self.adapters = adapters
        self._body: nn.Module = decoder(model)
        self._forward: Any = self._body
        module = model.get_output_embeddings()
        self.head = Head(module) if head is None else head._replace(module=module)
        self.layout = published_layout(model) if layout is None else layout
        self.probe: Probe | None = None

    @classmethod
    def load(cls, config: ModelConfig, tokenizer: Any = None) -> Self:
        """Load model and tokenizer, and find how this architecture's logits come from its hidden states.

        Args:
            config: the section of a run.
            tokenizer: the model's, if it is loaded already.

        Raises:
            ValueError: there is no such model, its tokenizer has no end token, its generation settings cannot be saved,
                it changes its logits after the head by more than a soft cap and a scale, or a sequence's logits depend
                on the others in its batch.
        """
        from transformers import AutoModelForCausalLM

        path = model_path(config)
        tokenizer = tokenizer or load_tokenizer(config)
        device = choose_device(config.device)
        dtype = with_dtype(config).dtype
        try:
            read_shape(config)
            model, unknown = load_whole(
                AutoModelForCausalLM,
                path,
                dtype=getattr(torch, dtype),
                trust_remote_code=config.trust_remote_code,
            )
        except Exception as error:  # each library that a config.json may ask for raises its own
            raise ValueError(f"model.path={config.path!r} cannot be loaded: {error}") from error
        if unknown:
            logger.warning("model.path=%r holds tensors that its model lacks; they are not saved: %s", path, unknown)
        make_savable(model, config.path)
        if caps_scores(model):
            model.set_attn_implementation("eager")
        if config.enable_gradient_checkpointing:
            model.gradient_checkpointing_enable({"use_reentrant": False})
        model = model.to(device)
        layout = published_layout(model)
        adapters = add_adapters(model, config) if config.lora_rank else None
        policy = cls(model, tokenizer, adapters, read_head(model), layout)
        policy.choose_rows(packs=config.use_remove_padding)
        return policy

    def digest(self) -> str:
        """Return a digest of up to 1024 numbers of each weight, without adapters and names."""
        weights = [weight for weight in self.model.parameters() if self.adapters is None or not weight.requires_grad]
        samples = [
            weight.detach().flatten()[:: max(1, weight.numel() // 1024)].cpu().contiguous() for weight in weights
        ]
        digests = sorted(hashlib.sha256(one.view(torch.uint8).numpy().tobytes()).hexdigest() for one in samples)
        return hashlib.sha256("".join(digests).encode()).hexdigest()[:16]

    def frozen_copy(self) -> Self:
        """Return a copy without gradients: the reference policy."""
        frozen = copy.deepcopy(self.model).requires_grad_(False)
        return type(self)(frozen, self.tokenizer, head=self.head, layout=self.layout)

    def cast(self, dtype: torch.dtype) -> None:
        """Cast the weights, to compute or to be saved in another dtype."""
        self.probe = None
        self.model.to(dtype)
        self.layout = with_dtype_of(self.layout, dtype)

    def merged(self) -> Self:
        """Return the policy with its adapters merged into the weights, in place."""
        if self.adapters is None:
            return self
        return type(self)(self.adapters.merge_and_unload(), self.tokenizer, head=self.head, layout=self.layout)

    def shard(self, device: torch.device) -> None:
        """Shard the weights over the processes; all of them hold this policy, and must enter every pass from now on.

        Raises:
            ValueError: the trained weights have several dtypes.
        """
        self.sharded = ShardedModel(self.model, self.adapters, self._body, self.layers, device)
        self._forward = self.sharded.forward

    def summon_full_params(self) -> AbstractContextManager[None]:
        """Hold all weights in this process, so that passes need no other process; entering is collective."""
        return nullcontext() if self.sharded is None else self.sharded.summon_full_params()

    def full_copy(self, *, everywhere: bool = False) -> Self:
        """Return this policy if it is not sharded, or else an unsharded copy, to be saved by rank zero or everywhere.

        All processes must call it.
        """
        if self.sharded is None:
            return self
        model, adapters = self.sharded.full_model(everywhere=everywhere)
        return type(self)(model, self.tokenizer, adapters, head=self.head, layout=self.layout)

    @property
    def packs(self) -> bool:
        """Whether the model takes packed rows; if not, `packed_hidden` pads them."""
        return bool(self.model.config._attn_implementation == PACKED)

    @property
    def attention_layout(self) -> Layout:
        """The layout in which `pack` must prepare attention for this policy."""
        if not self.packs:
            return "padded"
        if can_use_flash_attention(self.device, self.dtype):
            return "ragged"
        # On a GPU a mask, which cut sequences need, rules out PyTorch's fast kernels.
        return "cut" if self.device.type == "cpu" else "padded"

    @property
    def device(self) -> torch.device:
        return cast(torch.device, self.model.device)

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of the weights in forward passes."""
        return cast(torch.dtype, self._unsharded_model.dtype)

    @property
    def _unsharded_model(self) -> Any:
        """A model of the class and dtype of this one as it was loaded, possibly without weights."""
        return self.model if self.sharded is None else self.sharded.meta_model

    @property
    def layers(self) -> list[Any]:
        """Layers of the body, in the order in which they compute; empty if the model does not mark them."""
        from transformers.modeling_layers import GradientCheckpointingLayer

        return [module for module in self._body.modules() if isinstance(module, GradientCheckpointingLayer)]

    @property
    def end_token_ids(self) -> list[int]:
        """All tokens that end a response."""
        return end_token_ids(self.model, self.tokenizer)

    def hidden(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        """Compute the last hidden states (S, L, H) of tokens (S, L), padded on either side."""
        positions = (attention_mask.cumsum(dim=1) - 1).clamp(min=0)
        return self._hidden(input_ids=input_ids, attention_mask=attention_mask, position_ids=positions)

    def packed_hidden(self, batch: PackedBatch) -> Tensor:
        """Compute the last hidden states (M, H) of the tokens that predict the response tokens of a packed batch."""
        if self.packs:
            hidden_UH = self._hidden(
                input_ids=batch.input_ids_U[None],
                position_ids=batch.position_ids_U[None],
                attention_mask=batch.input_ids_U.new_empty(1, 1, 1, 1),  # four dimensions: transformers builds no other
                packed_batch=batch,
            )[0]
        else:
            assert isinstance(batch.attention, list)
            (sequences,) = batch.attention  # without shared prefixes there is one part, in the order of the responses
            mask_SL = torch.arange(sequences.keys_PL.shape[1], device=self.device) < batch.lengths_S[:, None]
            ids_SL = batch.input_ids_U[sequences.keys_PL]
            hidden_UH = self.hidden(ids_SL, mask_SL.long()).flatten(0, 1)[batch.slots_U]
        return take_rows(hidden_UH, batch.states_M)

    def save(self, folder: Path) -> None:
        """Write model and tokenizer as a Hugging Face folder with merged adapters, and the adapters in `adapter/`.

        Raises:
            ValueError: the files do not hold the tensors of the source.
        """
        # transformers lets only rank zero write; here every process that calls does.
        self.model.should_save_on_this_rank = lambda is_main_process: is_main_process
        state = None if self.adapters is None else merged_state_dict(self.model)
        self.model.save_pretrained(folder, state_dict=state)
        check_layout(read_layout(folder), self.layout, f"the weights in {folder}")
        self.tokenizer.save_pretrained(folder)
        if self.adapters is not None:
            save_adapters(self.adapters, folder / "adapter")

    def published_weights(self) -> dict[str, Tensor]:
        """Return the tensors that `save` would write, without a copy where the policy holds them so.

        They have the names that Hugging Face publishes and vLLM expects. Adapters are merged, and a tied weight occurs
        once. All processes must call it.

        Raises:
            ValueError: they differ from the source's.
        """
        model = self.full_copy(everywhere=True).model
        state = model.state_dict() if self.adapters is None else merged_state_dict(model)
        weights = published(model, state)
        check_layout(layout_of(weights), self.layout, "the weights for the rollout engine")
        return weights

    def load_weights(self, folder: Path) -> None:
        """Load the weights of a folder that `save` wrote.

        Raises:
            ValueError: the folder lacks tensors of this model.
        """
        self.probe = None
        if self.adapters is not None:
            load_adapters(self.adapters, folder / "adapter")
            return
        model = self._unsharded_model
        loaded, _ = load_whole(type(model), str(folder), config=model.config, dtype=self.dtype)
        saved, own = loaded.state_dict(), self.model.state_dict()
        self.model.load_state_dict({name: shard_like(tensor, own[name]) for name, tensor in saved.items()})

    def _hidden(self, **inputs: Any) -> Tensor:
        # transformers checkpoints the activations of a layer in training mode, in which it may apply dropout. So it is
        # in this mode until it begins, and not in its forward pass and its recomputation.
        layers = [layer for layer in self.layers if layer.gradient_checkpointing] if torch.is_grad_enabled() else []
        begins = [layer.register_forward_pre_hook(_end_training_mode) for layer in layers]
        for layer in layers:
            layer.training = True
        try:
            hidden: Tensor = self._forward(**inputs, use_cache=False).last_hidden_state
            return hidden.to(self.dtype)  # Mamba's are float32
        finally:
            for layer, hook in zip(layers, begins, strict=True):
                layer.training = False
                hook.remove()

    def choose_rows(self, *, packs: bool) -> None:
        """Let the model take packed rows where it keeps their sequences apart, and padded ones otherwise.

        Raises:
            ValueError: its hidden states differ from whole sequences'.
        """

        def rows(probe: Probe) -> Iterable[tuple[Tensor, Tensor]]:
            return zip(self._rows(probe.sequences), probe.logits, strict=True)

        self.probe = probe = Probe(self.model)
        name = type(self.model).__name__
        before, obstacle = self.model.config._attn_implementation, ""
        if packs:
            obstacle = attention_obstacle(self.model)
            if not obstacle:
                install(self.model)
                obstacle = probe.obstacle(rows)
            if not obstacle:
                return
            self.model.set_attn_implementation(before)
        if wrong := probe.obstacle(rows):
            raise ValueError(
                f"{name} has other logits in a padded batch than for a sequence alone ({wrong}), so it cannot be "
                "trained; take another model"
            )
        if obstacle:
            logger.info("%s is trained on padded rows, because it cannot be packed (%s)", name, obstacle)

    def _rows(self, sequences: Sequence[Sequence[int]]) -> Sequence[Tensor]:
        """Compute the logits (L, V) of sequences as an update does, in one pass over all of them."""
        # The last token of a response is not computed, so there is one more.
        rollouts = [Rollout(ids[:1], [*ids[1:], ids[0]], "") for ids in sequences]
        plan = PackingPlan.of(rollouts, share_prefixes=self.packs)
        row = to_device(pack(plan, range(len(rollouts)), self.attention_layout), self.device)
        logits_MV = self.head.logits(self.packed_hidden(row))
        return logits_MV.split_with_sizes([len(ids) for ids in sequences])


def _end_training_mode(layer: nn.Module, _: Any) -> None:
    layer.training = False
