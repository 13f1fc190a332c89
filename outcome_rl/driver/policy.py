"""A causal language model split where the policy loss wants it: the body gives hidden states, the head is a weight."""

import copy
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, Self, cast

import torch
from torch import Tensor, nn

from outcome_rl.driver.config import ModelConfig
from outcome_rl.embedded import policy_dir


def choose_device(device: str) -> torch.device:
    """The device of `ModelConfig.device`; "auto" takes a GPU where there is one."""
    if device == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    chosen = torch.device(device)
    if chosen.type == "cuda" and not torch.cuda.is_available():
        raise ValueError(f"model.device={device!r}, but PyTorch sees no GPU; use model.device=cpu or auto")
    return chosen


class Policy:
    """A model and its tokenizer.

    Dropout stays off: the log-probabilities of the update must be those of the policy that sampled. Weights are in
    float32 whatever `compute_dtype` is: bfloat16 has 8 bits of mantissa, and a step of 1e-6 would be rounded away.
    """

    def __init__(self, model: Any, tokenizer: Any, compute_dtype: torch.dtype = torch.float32) -> None:
        self.model = model.eval()
        self.tokenizer = tokenizer
        self.compute_dtype = compute_dtype
        self._body: nn.Module = model.get_decoder() if hasattr(model, "get_decoder") else model.base_model
        head = model.get_output_embeddings()
        if head is None:
            raise ValueError(f"{type(model).__name__} has no lm_head; model.path must hold a causal language model")
        self._head: nn.Module = head

    @classmethod
    def load(cls, config: ModelConfig) -> Self:
        """Read model and tokenizer, and check that hidden states times lm_head are this architecture's logits.

        Raises:
            ValueError: there is no such model, its tokenizer lacks what generation needs, its generation settings
                cannot be saved, or its logits are processed after the head (soft-capped or scaled), which a loss from
                hidden states would miss.
        """
        from transformers import AutoModelForCausalLM, AutoTokenizer

        path = str(policy_dir()) if config.path == "embedded" else config.path
        device = choose_device(config.device)
        try:
            tokenizer = AutoTokenizer.from_pretrained(path, trust_remote_code=config.trust_remote_code)
            model = AutoModelForCausalLM.from_pretrained(
                path, dtype=torch.float32, trust_remote_code=config.trust_remote_code
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
        policy = cls(model.to(device), tokenizer, getattr(torch, config.dtype))
        policy._check_head()
        return policy

    def frozen_copy(self) -> Self:
        """A copy that is never trained: the reference policy."""
        return type(self)(copy.deepcopy(self.model).requires_grad_(False), self.tokenizer, self.compute_dtype)

    def precision(self) -> AbstractContextManager[None]:
        """Where every forward pass belongs, to generate as well as to learn: arithmetic is then of `compute_dtype`."""
        if self.compute_dtype == torch.float32:
            return nullcontext()
        return torch.autocast(self.device.type, self.compute_dtype)

    @property
    def device(self) -> torch.device:
        return cast(torch.device, self.model.device)

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
        output = self._body(input_ids=input_ids, attention_mask=attention_mask, position_ids=positions, use_cache=False)
        return cast(Tensor, output.last_hidden_state)

    def save(self, folder: Path) -> None:
        """Write model and tokenizer as a Hugging Face folder."""
        self.model.save_pretrained(folder)
        self.tokenizer.save_pretrained(folder)

    def load_weights(self, folder: Path) -> None:
        """Replace the weights by those of a folder that `save` wrote."""
        saved = type(self.model).from_pretrained(folder, dtype=self.model.dtype)
        self.model.load_state_dict(saved.state_dict())

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

        with self.precision():
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
