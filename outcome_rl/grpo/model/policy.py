"""A causal language model split where the policy loss wants it: the body gives hidden states, the head is a weight."""

import copy
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any, Self, cast

import torch
from torch import Tensor, nn

from outcome_rl.grpo.config.schema import ModelConfig
from outcome_rl.grpo.distributed import choose_device
from outcome_rl.grpo.model.fsdp import ShardedModel, part_of
from outcome_rl.grpo.model.lora import add_adapters, load_adapters, merged_state_dict
from outcome_rl.grpo.model.packed_attention import NAME as PACKED
from outcome_rl.grpo.model.packed_attention import can_use_flash_attention, install
from outcome_rl.grpo.model.packing import PackedBatch, Sequences, take_rows
from outcome_rl.toy import policy_dir


class Policy:
    """A model and its tokenizer.

    Dropout stays off: the log-probabilities of the update must be those of the policy that sampled.
    """

    def __init__(self, model: Any, tokenizer: Any, adapters: Any = None) -> None:
        """Args:
        model: a causal language model of transformers.
        tokenizer: its tokenizer.
        adapters: peft's wrapper of `model`, where it is trained by LoRA.
        """
        self.model = model.eval()
        self.sharded: ShardedModel | None = None
        self.tokenizer = tokenizer
        self.adapters = adapters
        self._body: nn.Module = model.get_decoder() if hasattr(model, "get_decoder") else model.base_model
        self._forward: Any = self._body
        head = model.get_output_embeddings()
        if head is None:
            raise ValueError(f"{type(model).__name__} has no lm_head; model.path must hold a causal language model")
        self._head: nn.Module = head

    @classmethod
    def load(cls, config: ModelConfig) -> Self:
        """Read model and tokenizer, and check that hidden states times lm_head are this architecture's logits.

        Raises:
            ValueError: there is no such model, its tokenizer lacks what generation needs, its generation settings
                cannot be saved, its logits are processed after the head (soft-capped or scaled), which a loss from
                hidden states would miss, or it does not keep packed sequences apart.
        """
        from transformers import AutoModelForCausalLM, AutoTokenizer

        path = str(policy_dir()) if config.path == "toy" else config.path
        device = choose_device(config.device)
        try:
            tokenizer = AutoTokenizer.from_pretrained(path, trust_remote_code=config.trust_remote_code)
            model = AutoModelForCausalLM.from_pretrained(
                path, dtype=getattr(torch, config.dtype), trust_remote_code=config.trust_remote_code
            )
        except OSError as error:
            raise ValueError(f"model.path={config.path!r} cannot be loaded: {error}") from error
        if tokenizer.eos_token_id is None:
            raise ValueError(
                f"model.path={config.path!r}: the tokenizer has no eos token, so responses would never end"
            )
        if tokenizer.pad_token_id is None:
            tokenizer.pad_token = tokenizer.eos_token
        _make_savable(model, config.path)
        if config.use_remove_padding:
            install(model)
        if config.enable_gradient_checkpointing:
            model.gradient_checkpointing_enable({"use_reentrant": False})
        policy = cls(model.to(device), tokenizer, add_adapters(model, config) if config.lora_rank else None)
        policy._check_head()
        if policy.packs:
            policy._check_packing()
        return policy

    def frozen_copy(self) -> Self:
        """A copy that is never trained: the reference policy."""
        return type(self)(copy.deepcopy(self.model).requires_grad_(False), self.tokenizer)

    def compile(self) -> None:
        """Run forward and backward passes of the update through torch.compile from now on."""
        self._forward = torch.compile(self._body, dynamic=True)

    def shard(self, device: torch.device) -> None:
        """Share the weights out among the processes, which all hold this policy and from now on enter every pass.

        Args:
            device: the kind of device that each process keeps its part on.

        Raises:
            ValueError: the weights are of several dtypes.
        """
        self.sharded = ShardedModel(self.model, self._body, self.layers, device)
        self._forward = self.sharded.forward

    def whole(self) -> AbstractContextManager[None]:
        """All weights are in this process meanwhile, which then needs no other; entering waits for all processes."""
        return nullcontext() if self.sharded is None else self.sharded.whole()

    def gathered(self, *, everywhere: bool = False) -> Self:
        """This policy, or of a sharded one a copy to be saved by the first process, or by all; all must call it."""
        if self.sharded is None:
            return self
        return type(self)(self.sharded.gathered_model(everywhere=everywhere), self.tokenizer)

    @property
    def packs(self) -> bool:
        """Whether the model takes packed rows; otherwise `packed_hidden` pads them."""
        return bool(self.model.config._attn_implementation == PACKED)

    @property
    def pads_attention(self) -> bool:
        """The layout of `pack` that this policy wants."""
        return not (self.packs and can_use_flash_attention(self.device, self.dtype))

    @property
    def device(self) -> torch.device:
        return cast(torch.device, self.model.device)

    @property
    def dtype(self) -> torch.dtype:
        """Of the weights that passes compute with."""
        return cast(torch.dtype, self._outline.dtype)

    @property
    def _outline(self) -> Any:
        """A model of the class and dtype of this one as it was loaded, perhaps without weights."""
        return self.model if self.sharded is None else self.sharded.outline

    @property
    def layers(self) -> list[Any]:
        """Modules of the body that compute one after another; empty where the model does not tell them."""
        from transformers.modeling_layers import GradientCheckpointingLayer

        return [module for module in self._body.modules() if isinstance(module, GradientCheckpointingLayer)]

    @property
    def head_weight(self) -> Tensor:
        """(V, H)"""
        return cast(Tensor, self._head.weight)

    @property
    def head_bias(self) -> Tensor | None:
        return cast(Tensor | None, getattr(self._head, "bias", None))

    @property
    def end_token_ids(self) -> list[int]:
        """Every token that ends a response."""
        end = self.model.generation_config.eos_token_id
        ends = [] if end is None else [end] if isinstance(end, int) else list(end)
        return sorted({*ends, self.tokenizer.eos_token_id})

    def hidden(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        """Last hidden states (B, L, H) of tokens (B, L), padded on either side."""
        positions = (attention_mask.cumsum(dim=1) - 1).clamp(min=0)
        return self._hidden(input_ids=input_ids, attention_mask=attention_mask, position_ids=positions)

    def packed_hidden(self, batch: PackedBatch) -> Tensor:
        """Last hidden states (M, H) of the tokens that predict the response tokens of a packed batch."""
        sequences = batch.sequences
        if self.packs:
            hidden_NH = self._hidden(
                input_ids=batch.input_ids_N[None],
                position_ids=batch.position_ids_N[None],
                attention_mask=batch.input_ids_N.new_empty(1, 1, 1, 1),  # of four dimensions: no other is built
                sequences=sequences,
            )[0]
        else:
            lengths_S1 = sequences.cu_seqlens.diff()[:, None]
            mask_SL = torch.arange(sequences.max_length, device=self.device) < lengths_S1
            ids_SL = batch.input_ids_N[sequences.tokens_K].view(mask_SL.shape)
            hidden_NH = self.hidden(ids_SL, mask_SL.long()).flatten(0, 1)[sequences.places_N]
        return take_rows(hidden_NH, batch.states_M)

    def save(self, folder: Path) -> None:
        """Write model and tokenizer as a Hugging Face folder; adapters are merged there, and by themselves in
        `adapter/`."""
        self.save_weights(folder)
        self.tokenizer.save_pretrained(folder)
        if self.adapters is not None:
            self.adapters.save_pretrained(folder / "adapter", save_embedding_layers=False)

    def save_weights(self, folder: Path) -> None:
        """Write the model, adapters merged, under the names that Hugging Face publishes it by and vLLM expects."""
        # Of several processes transformers lets the first alone write; here, whichever calls.
        self.model.should_save_on_this_rank = lambda is_main_process: is_main_process
        state = None if self.adapters is None else merged_state_dict(self.model)
        self.model.save_pretrained(folder, state_dict=state)

    def load_weights(self, folder: Path) -> None:
        """Replace the weights by those of a folder that `save` wrote."""
        if self.adapters is not None:
            load_adapters(self.adapters, folder / "adapter")
            return
        saved = type(self._outline).from_pretrained(folder, dtype=self.dtype).state_dict()
        own = self.model.state_dict()
        self.model.load_state_dict({name: part_of(tensor, own[name]) for name, tensor in saved.items()})

    def _hidden(self, **inputs: Any) -> Tensor:
        with _checkpointing(self.layers if torch.is_grad_enabled() else []):
            return cast(Tensor, self._forward(**inputs, use_cache=False).last_hidden_state)

    @torch.no_grad()
    def _check_head(self) -> None:
        """Replace what the head puts out by values large enough for any soft-capping to show, and see what comes out of
        the model; and compare what the head receives with `hidden`."""
        vocab = self.head_weight.shape[0]
        ids = torch.arange(4, device=self.device)[None] % vocab
        probe = torch.linspace(-100, 100, vocab, device=self.device).expand(1, 4, vocab)
        received: list[Tensor] = []

        def replace(head: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> Tensor:
            received.append(inputs[0])
            return probe

        with self._head.register_forward_hook(replace):
            logits = self.model(input_ids=ids, use_cache=False).logits
        hidden = self.hidden(ids, torch.ones_like(ids)).float()
        unchanged = bool(received) and torch.equal(logits.float(), probe.float())
        if not unchanged or not (received[0].float() - hidden).abs().max() <= 1e-2 * hidden.abs().max():
            raise ValueError(
                f"{type(self.model).__name__} changes its logits after the lm_head (soft-capping or scaling) or its "
                "hidden states before, so a loss from hidden states would train another policy than the one that "
                "samples; use outcome_rl.policy_loss on its logits instead of this driver"
            )

    @torch.no_grad()
    def _check_packing(self) -> None:
        """Two sequences in one row must not see each other: state-space layers, say, would carry the first into the
        second."""
        ids = torch.arange(12, device=self.device) % self.head_weight.shape[0]
        places = torch.arange(12, device=self.device)
        ends = torch.tensor([0, 6, 12], device=self.device)
        sequences = Sequences(places, places, ends.int(), number=2, max_length=6, padded=self.pads_attention)
        row = PackedBatch(ends[:2] // 6, ids, places % 6, sequences, places, places, ends)
        packed = self.packed_hidden(row).float()
        apart = self.hidden(ids.view(2, 6), torch.ones_like(ids.view(2, 6))).flatten(0, 1).float()
        if not (packed - apart).abs().max() <= 5e-2 * apart.abs().max():
            raise ValueError(
                f"{type(self.model).__name__} does not keep packed sequences apart; set model.use_remove_padding=false"
            )


@contextmanager
def _checkpointing(layers: Sequence[Any]) -> Iterator[None]:
    """Where layers save activations by gradient checkpointing, if they were told to. transformers does so in training
    mode alone, which generation cannot use (it would lose its cache) nor the update (it would get dropout), so it is
    set for the layers without what they are made of."""
    for layer in layers:
        layer.training = layer.gradient_checkpointing
    try:
        yield
    finally:
        for layer in layers:
            layer.training = False


def _make_savable(model: Any, path: str) -> None:
    """Models are published with settings that `save_pretrained` refuses, most often a temperature beside
    do_sample=false; the first checkpoint is too late to find out."""
    settings = model.generation_config
    try:
        settings.validate(strict=True)
    except ValueError:
        settings.do_sample = True
        try:
            settings.validate(strict=True)
        except ValueError as error:
            raise ValueError(
                f"model.path={path!r}: correct or remove its generation_config.json, with which no checkpoint could be "
                f"saved: {error}"
            ) from error
