"""A check of what a model computes: logits of a few short sequences, against its own passes over each one as a whole.

Padding, a cache, a packed row, and hidden states times the head are ways to compute the same logits faster. Each way is
compared before it is used, so no name of an architecture decides what works.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import torch
from torch import Tensor, nn

PROMPTS = (2, 9, 5)  # lengths, neither equal nor sorted
TOKENS = 4  # of each response: a state that passes on wrongly shows after more than one
_COARSE = 2.0**-20  # rounding of dtypes of 16 bits is larger
_ROUNDING = 32  # how many times the error from rounded embeddings the logits of a token may have

_HALF = (torch.bfloat16, torch.float16)

Prompts = Sequence[Sequence[int]]


class Probe:
    """Sequences of different lengths, the logits of a model for them, and how far rounding moves these.

    Attributes:
        prompts, sequences: token ids, each sequence a prompt and its response; two have the same prompt.
        logits: (L, V) of each sequence, in a pass of its own.
        tolerance: largest relative error of a token's logits. It is that of rounding in the model's dtype: a multiple
            of what an error in the last place of the embeddings becomes.
        exact: the same in float32 of a model in 16 bits, whose rounding hides what one sequence adds to another.
    """

    @torch.no_grad()
    def __init__(self, model: Any) -> None:
        """Take a causal language model of transformers; one in 16 bits is also probed in float32.

        Raises:
            ValueError: it does not compute logits from token ids.
        """
        self.model = model
        embedding = model.get_input_embeddings()
        self.device: torch.device = embedding.weight.device  # of token ids
        vocabulary, generator = len(embedding.weight), torch.Generator().manual_seed(0)

        def draw(length: int) -> list[int]:  # special tokens are mostly in the first half
            ids: list[int] = torch.randint(vocabulary // 2, vocabulary, (length,), generator=generator).tolist()
            return ids

        self.prompts = [draw(length) for length in PROMPTS]
        self.prompts.append(self.prompts[1])
        self.sequences = [prompt + draw(TOKENS) for prompt in self.prompts]
        self.logits = self.whole(self.sequences)
        self._eps = max(torch.finfo(dtype).eps for dtype in (self.logits[0].dtype, embedding.weight.dtype))

        def round_otherwise(_: nn.Module, __: Any, output: Tensor) -> Tensor:
            signs = torch.randint(2, output.shape, generator=generator).to(output.device) * 2 - 1
            return (output * (1 + self._eps * signs)).to(output.dtype)

        with embedding.register_forward_hook(round_otherwise):
            rounded = self.whole(self.sequences)
        errors = torch.cat([_error(*pair) for pair in zip(rounded, self.logits, strict=True)])
        self.tolerance = _ROUNDING * max(float(errors.median()), self._eps)
        self.exact: Probe | None = None
        if self._eps > _COARSE:
            with suppress(ValueError), _in_float32(model):
                self.exact = Probe(model)

    @torch.no_grad()
    def whole(self, sequences: Prompts) -> list[Tensor]:
        """Return the model's logits (L, V) for each sequence, in a pass of its own."""
        rows = [torch.tensor([ids], device=self.device) for ids in sequences]
        try:
            with without_dropout(self.model):
                return [self.model(input_ids=row, use_cache=False).logits[0] for row in rows]
        except Exception as error:  # each architecture has its own
            raise ValueError(
                f"{type(self.model).__name__} does not compute logits from token ids alone: {_first_line(error)}. Take "
                "a causal language model of text"
            ) from error

    @torch.no_grad()
    def obstacle(self, compute: Callable[["Probe"], Iterable[tuple[Tensor, Tensor]]]) -> str:
        """Return why a way to compute logits is wrong, in words for parentheses; "" if it is right.

        Args:
            compute: takes the probe, and returns pairs of logits (T, V), computed in this way and for the sequence as a
                whole.
        """
        if self.exact is not None:
            with _in_float32(self.model):
                if found := self.exact.obstacle(compute):
                    return found
        try:
            with without_dropout(self.model):
                errors = [_error(found, true) for found, true in compute(self)]
        except Exception as error:  # noqa: BLE001 - each architecture has its own
            return _first_line(error)
        # In 16 bits, a router chooses other experts for single tokens. Then most tokens decide.
        share = 0.5 if self._eps > _COARSE else 1.0
        worst = float(torch.stack([error.quantile(share) for error in errors]).max())
        if worst <= self.tolerance:
            return ""
        return f"its logits are wrong by {worst:.1g} of their size; rounding explains {self.tolerance:.1g}"


def padded(pad: int, prompts: Prompts, device: torch.device) -> tuple[Tensor, Tensor]:
    """Return token ids and attention mask (S, L), padded on the left."""
    width = max(map(len, prompts))
    ids = torch.tensor([[pad] * (width - len(row)) + [*row] for row in prompts], device=device)
    mask = torch.tensor([[0] * (width - len(row)) + [1] * len(row) for row in prompts], device=device)
    return ids, mask


@contextmanager
def without_dropout(model: nn.Module) -> Iterator[None]:
    """Hold all modules in evaluation mode."""
    training = [module for module in model.modules() if module.training]  # peft's are, in a model that is not
    model.eval()
    try:
        yield
    finally:
        for module in training:
            module.training = True


@contextmanager
def _in_float32(model: nn.Module) -> Iterator[None]:
    """Compute in float32 with the weights of a model in 16 bits; each layer is copied while it computes."""
    layers = [layer for stack in model.modules() if isinstance(stack, nn.ModuleList) for layer in stack]
    of_layers = {id(tensor) for layer in layers for tensor in (*layer.parameters(), *layer.buffers())}
    held: dict[nn.Module, list[tuple[Tensor, Tensor]]] = {}

    def copy(module: nn.Module, _: Any = None) -> None:
        tensors = (*module.parameters(), *module.buffers())
        chosen = [x for x in tensors if x.dtype in _HALF and (module is not model or id(x) not in of_layers)]
        held[module] = [(x, x.data) for x in chosen]
        for tensor in chosen:
            tensor.data = tensor.data.float()

    def restore(module: nn.Module, *_: Any) -> None:
        for tensor, data in held.pop(module, []):
            tensor.data = data

    hooks = [layer.register_forward_pre_hook(copy) for layer in layers]
    hooks += [layer.register_forward_hook(restore, always_call=True) for layer in layers]
    copy(model)
    try:
        yield
    finally:
        restore(model)
        for hook in hooks:
            hook.remove()


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0] or type(error).__name__


def _error(found: Tensor, true: Tensor) -> Tensor:
    """Return the relative error (T,) of logits (T, V), without a constant that all have in common."""
    found, true = (logits.float() - logits.float().mean(dim=-1, keepdim=True) for logits in (found, true))
    size: Tensor = true.norm(dim=-1).clamp(min=torch.finfo(torch.float32).tiny)
    return torch.div((found - true).norm(dim=-1), size)
