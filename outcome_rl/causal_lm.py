"""A causal language model of transformers as a policy: its head, its end tokens, and samples from its own distribution.

The trainer, the plug-ins and your own loops read a model here, so that a loss from hidden states is the loss of the
distribution that was sampled.
"""

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple, cast
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from outcome_rl.outcomes.answer_mask import decode_completion
from outcome_rl.probe import TOKENS, Probe, Prompts, padded, without_dropout
from outcome_rl_kernels.loss.reference import capped

logger = logging.getLogger(__name__)
_sampled: WeakKeyDictionary[Any, set[bool]] = WeakKeyDictionary()  # models that were checked, with padding or not
_SMALL, _LARGE = 2.0**-16, 2.0**20  # logits that a soft cap leaves as they are, and that are far above any


class Head(NamedTuple):
    """The head of a model: `logits = scale * cap(hidden @ weight.T + bias)`, `cap(z) = softcap * tanh(z / softcap)`."""

    module: nn.Module
    softcap: float | None = None
    scale: float = 1.0

    @property
    def weight(self) -> Tensor:
        """The weight, (V, H)."""
        return cast(Tensor, self.module.weight)

    @property
    def bias(self) -> Tensor | None:
        return cast(Tensor | None, getattr(self.module, "bias", None))

    def logits(self, hidden: Tensor) -> Tensor:
        """Return the logits (..., V) of hidden states (..., H), as the model does."""
        return self.scale * capped(nn.functional.linear(hidden, self.weight, self.bias), self.softcap)

    def options(self, temperature: float = 1.0) -> dict[str, Any]:
        """Return the arguments of `linear_policy_loss` and `linear_logprobs` that this head needs at a temperature."""
        return {"bias": self.bias, "softcap": self.softcap, "temperature": temperature / self.scale}


def decoder(model: Any) -> Any:
    """Return the part of a causal language model that computes the hidden states."""
    base = model.get_base_model() if hasattr(model, "get_base_model") else model  # PEFT wraps it
    return base.get_decoder() if hasattr(base, "get_decoder") else base.base_model


@torch.no_grad()
def read_head(model: Any) -> Head:
    """Find the head of a causal language model, with its soft cap and scale, by the logits that the model returns.

    Two passes over four tokens, without dropout; the head's output is replaced by a scale of numbers, and the model's
    logits show what it does to them. No name of an architecture or setting is read. All ranks of a sharded model must
    call it.

    Args:
        model: a causal language model of transformers, or peft's wrapper of one.

    Returns:
        The head. Its `weight` and `bias` are the module's at the time when they are read.

    Raises:
        ValueError: the model has no head, has adapters in it, or changes its logits or hidden states in another way, so
            that a loss from hidden states would not match the policy that samples.
    """
    name = type(model).__name__
    module = getattr(model, "get_output_embeddings", lambda: None)()
    if module is None:
        raise ValueError(f"{name} has no lm_head; a causal language model is needed")
    known = {id(parameter) for parameter in (module.weight, getattr(module, "bias", None))}
    if any(parameter.requires_grad and id(parameter) not in known for parameter in module.parameters()):
        raise ValueError(
            f"{name} has adapters in its lm_head, which hidden @ weight.T lacks; leave the lm_head out of them, or "
            'train all of it by modules_to_save=["lm_head"] of peft'
        )
    device, vocabulary = module.weight.device, len(module.weight)
    ids = torch.arange(4, device=device)[None] % vocabulary
    products = torch.linspace(-100, 100, vocabulary, device=device)
    products[:2] = torch.tensor([_SMALL, _LARGE])
    received: list[Tensor] = []

    def replace(_: nn.Module, inputs: tuple[Tensor, ...], __: Tensor) -> Tensor:
        received.append(inputs[0])
        return products.expand(1, 4, vocabulary)

    try:
        with without_dropout(model):
            with module.register_forward_hook(replace):
                logits = model(input_ids=ids, use_cache=False).logits
            output = decoder(model)(input_ids=ids, attention_mask=torch.ones_like(ids), use_cache=False)
    except Exception as error:  # each architecture has its own
        raise ValueError(
            f"{name} does not compute logits or hidden states from token ids alone ({error}), so it cannot be trained "
            "here; take a causal language model of text"
        ) from error
    hidden = getattr(output, "last_hidden_state", None)  # Llama 4 names its head's module as the decoder
    found = _shape(products, logits) if received and logits.shape[1:] == (4, vocabulary) else None
    factor = _factor(hidden, received[0]) if received and hidden is not None else None
    if found is None or factor is None:
        raise ValueError(
            f"{name} changes its logits after the lm_head by more than a soft cap and a scale, or its hidden states "
            "before it, so a loss from hidden states would not match the policy that samples; use "
            "outcome_rl.policy_loss on its logits in your own loop"
        )
    softcap, scale = found
    return Head(module, softcap if softcap is None else softcap / factor, scale * factor)


def _shape(products_V: Tensor, logits_1LV: Tensor) -> tuple[float | None, float] | None:
    """Return soft cap and scale that turn the products into the logits; None if no such pair does."""
    rounding = 4 * torch.finfo(logits_1LV.dtype).eps
    values_V = logits_1LV[0, -1].double()
    scale, most = float(values_V[0]) / _SMALL, float(values_V[1])
    if not scale > 0:
        return None
    scale = 1.0 if abs(scale - 1) <= rounding else scale
    softcap = None if abs(most / (scale * _LARGE) - 1) <= rounding else most / scale
    expected_V = products_V.double()
    if softcap is not None:
        expected_V = softcap * torch.tanh(expected_V / softcap)
    is_same = torch.allclose(scale * expected_V, values_V, rtol=4 * rounding, atol=0)
    return (softcap, scale) if is_same else None


def _factor(hidden: Tensor, received: Tensor) -> float | None:
    """Return the factor between the decoder's hidden states and what the head receives; None if there is none."""
    hidden, received = hidden.double(), received.double()
    if hidden.shape != received.shape:
        return None
    factor = float((hidden * received).sum() / hidden.square().sum())
    factor = 1.0 if abs(factor - 1) < 1e-3 else factor
    is_same = (received - factor * hidden).abs().max() <= 1e-2 * received.abs().max()
    return factor if is_same and factor > 0 else None


def end_token_ids(model: Any, tokenizer: Any) -> list[int]:
    """Return all tokens that end a response: the model's generation settings', and the tokenizer's.

    Raises:
        ValueError: they are no token ids.
    """
    end = model.generation_config.eos_token_id
    ends = end if isinstance(end, list | tuple) else [] if end is None else [end]
    if any(type(one) is not int for one in ends):
        raise ValueError(f"eos_token_id of generation_config.json must be a token id, or a list of them; got {end!r}")
    return sorted({*ends, tokenizer.eos_token_id} - {None})


def check_token_ids(tokenizer: Any, prompts: Sequence[Sequence[int]], rows: int) -> None:
    """Check that a model with so many rows in its embedding knows the tokens of prompts, padding and ends.

    Raises:
        ValueError: it does not.
    """
    largest = max([*map(max, prompts), tokenizer.pad_token_id or 0, tokenizer.eos_token_id or 0])
    if largest >= rows:
        raise ValueError(
            f"the tokenizer has the token {largest}, but the model's embedding has {rows} rows: take the model's own "
            "tokenizer, or save the model after resize_token_embeddings"
        )


def without_end(prompts: Sequence[Sequence[int]], ends: Sequence[int]) -> list[list[int]]:
    """Drop end tokens that a tokenizer appended to prompts: after one, a model would continue a finished text.

    A warning says how many prompts had one.
    """
    cut = [list(prompt) for prompt in prompts]
    for prompt in cut:
        while len(prompt) > 1 and prompt[-1] in ends:
            prompt.pop()
    changed = sum(len(kept) < len(prompt) for kept, prompt in zip(cut, prompts, strict=True))
    if changed:
        logger.warning("the tokenizer ends %d of %d prompts with an end token, which is dropped", changed, len(cut))
    return cut


class Samples(NamedTuple):
    """N = prompts * n responses, the n responses to each prompt side by side; prompts are padded on the left."""

    ids: Tensor  # (N, P + T) prompts and completions
    attention_mask: Tensor  # (N, P + T)
    completion_ids: Tensor  # (N, T)
    mask: Tensor  # (N, T) bool, True on the tokens of the response, its end token included
    texts: list[str]  # without special tokens

    def hidden(self, model: Any) -> Tensor:
        """Compute the hidden states (N, T, H) that predict the completions, with a gradient.

        Prompts are moved to the left edge: padding on the right is in the future of every token, so that also models
        whose state passes through padding compute what they compute for each sequence.
        """
        width, num_tokens = self.ids.shape[1], self.completion_ids.shape[1]
        gaps_N1 = (self.attention_mask.cumsum(dim=1) == 0).sum(dim=1, keepdim=True)
        columns = torch.arange(width, device=self.ids.device)
        moved = (columns + gaps_N1) % width
        mask = self.attention_mask.gather(1, moved)
        states = decoder(model)(
            input_ids=self.ids.gather(1, moved),
            attention_mask=mask,
            position_ids=(mask.cumsum(dim=1) - 1).clamp(min=0),
            use_cache=False,
        ).last_hidden_state
        predicting = columns[-num_tokens - 1 : -1] - gaps_N1
        return cast(Tensor, states.gather(1, predicting[..., None].expand(-1, -1, states.shape[2])))


@torch.no_grad()
def sample(model: Any, tokenizer: Any, prompts: Sequence[Sequence[int]], *, n: int = 1, max_new_tokens: int) -> Samples:
    """Sample responses with `generate` of transformers from the model's own distribution, at temperature 1.

    The model's generation settings (a temperature, top-p, a repetition penalty, forbidden tokens) have no effect, but
    for their end tokens: a loss over the whole vocabulary would not be that of their samples.

    Args:
        model: a causal language model in evaluation mode: dropout would sample from another policy.
        tokenizer: of the model.
        prompts: token ids; end tokens that the tokenizer appended are dropped, with a warning.
        n: responses to each prompt.
        max_new_tokens: most tokens of a response.

    Raises:
        TypeError: the prompts are texts, empty, or the token ids of only one.
        ValueError: neither model nor tokenizer has an end token, the model lacks a token, or `generate` does not
            continue such prompts as the model computes whole sequences, found at the first call.
    """
    from transformers import GenerationConfig

    if not len(prompts) or any(isinstance(prompt, str | int) or not len(prompt) for prompt in prompts):
        raise TypeError(
            f"prompts must be lists of token ids, one for each prompt and none empty; got {prompts!r:.80}. "
            "Use tokenizer(texts)['input_ids']"
        )
    ends = end_token_ids(model, tokenizer)
    if not ends:
        raise ValueError("the tokenizer has no eos token, so responses would never end; set tokenizer.eos_token")
    pad = tokenizer.pad_token_id if tokenizer.pad_token_id is not None else ends[0]
    rows = without_end(prompts, ends)
    check_token_ids(tokenizer, rows, len(model.get_input_embeddings().weight))
    _check_sampling(model, pad, has_padding=len({*map(len, rows)}) > 1)
    prompt_ids, is_prompt = padded(pad, rows, model.device)
    width = prompt_ids.shape[1]
    sampling = GenerationConfig(
        do_sample=True,
        temperature=1.0,
        top_k=0,
        top_p=1.0,
        max_new_tokens=max_new_tokens,
        num_return_sequences=n,
        eos_token_id=ends,
        pad_token_id=pad,
    )
    with _without_own_settings(model):
        ids = model.generate(prompt_ids, attention_mask=is_prompt, generation_config=sampling)
    completion_ids = ids[:, width:]
    is_end = torch.isin(completion_ids, torch.tensor(ends, device=ids.device)).long()
    mask = is_end.cumsum(dim=1) - is_end == 0
    attention_mask = torch.cat([is_prompt.repeat_interleave(n, dim=0), mask.long()], dim=1)
    lengths = mask.sum(dim=1).tolist()
    texts = [
        decode_completion(tokenizer, row[:length]) for row, length in zip(completion_ids.tolist(), lengths, strict=True)
    ]
    return Samples(ids, attention_mask, completion_ids, mask, texts)


@contextmanager
def _without_own_settings(model: Any) -> Iterator[None]:
    """Hide the model's generation settings, from which `generate` takes what those given to it leave open."""
    from transformers import GenerationConfig

    own, model.generation_config = model.generation_config, GenerationConfig()
    try:
        yield
    finally:
        model.generation_config = own


def _check_sampling(model: Any, pad: int, *, has_padding: bool) -> None:
    """Check, once for a model, that `generate` computes the logits of whole sequences at every token.

    Raises:
        ValueError: it does not.
    """
    from transformers import GenerationConfig

    if has_padding in _sampled.setdefault(model, set()):
        return
    greedy = GenerationConfig(
        max_new_tokens=TOKENS, pad_token_id=pad, do_sample=False, output_logits=True, return_dict_in_generate=True
    )

    def generated(probe: Probe) -> Iterator[tuple[Tensor, Tensor]]:
        prompts: Prompts = probe.prompts if has_padding else [prompt[:2] for prompt in probe.prompts]
        ids, mask = padded(pad, prompts, probe.device)
        with _without_own_settings(model):
            output = model.generate(ids, attention_mask=mask, generation_config=greedy)
        responses = output.sequences[:, ids.shape[1] :].tolist()
        whole = probe.whole([[*prompt, *response] for prompt, response in zip(prompts, responses, strict=True)])
        for found, true in zip(torch.stack(output.logits, dim=1), whole, strict=True):
            yield found, true[-TOKENS - 1 : -1]

    if obstacle := Probe(model).obstacle(generated):
        which, way_out = "a prompt", "sample with vLLM"
        if has_padding:
            which, way_out = "prompts of different lengths", "sample prompts of one length at a time, or with vLLM"
        raise ValueError(
            f"{type(model).__name__} does not continue {which} by transformers' generate as in whole sequences, so it "
            f"would be sampled from another distribution ({obstacle}); {way_out}"
        )
    _sampled[model].add(has_padding)
