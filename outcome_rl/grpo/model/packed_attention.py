"""Attention over a packed row of tokens, as an attention implementation of transformers.

Each layer gathers the keys and values of each sequence, its shared prefix included, and attends causally within it.
Only the future is masked: padding on the right is in the future of every token. A token that several sequences share
is a query once, but a key of each, and the gradients of its key and value add up.

The sequences are ragged where flash-attn is installed and can run; otherwise they are padded for PyTorch's
`scaled_dot_product_attention`, and micro-batches of similar lengths waste little.
"""

from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor, nn

from outcome_rl.grpo.model.fsdp import HALF_PRECISION
from outcome_rl.grpo.model.packing import PackedBatch, PaddedSequences, RaggedSequences, take_rows
from outcome_rl_kernels.loss.reference import capped

NAME = "outcome_rl_packed"
_WIDEST = 256  # channels of a head that PyTorch's flash attention takes


def attention_obstacle(model: Any) -> str:
    """Return why a model's attention cannot be replaced by `attend`, in words for parentheses; "" if it can."""
    own = model.config._attn_implementation
    return (
        "" if own == "sdpa" or caps_scores(model) else f"its attention is not scaled_dot_product_attention but {own!r}"
    )


def install(model: Any) -> None:
    """Let a model attend over packed rows; calls without `packed_batch` attend as before."""
    from transformers import AttentionInterface, AttentionMaskInterface
    from transformers.masking_utils import sdpa_mask

    AttentionInterface.register(NAME, attend)
    AttentionMaskInterface.register(NAME, sdpa_mask)
    model.set_attn_implementation(NAME)


def caps_scores(model: Any) -> bool:
    """Return whether attention scores are capped, as in Gemma 2, which transformers' own "sdpa" refuses or ignores."""
    return getattr(model.config.get_text_config(), "attn_logit_softcapping", None) is not None


def can_use_flash_attention(device: torch.device, dtype: torch.dtype) -> bool:
    """Return whether flash-attn is installed and takes tensors of this kind."""
    return device.type == "cuda" and dtype in HALF_PRECISION and find_spec("flash_attn") is not None


def attend(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    *,
    packed_batch: PackedBatch | None = None,
    scaling: float | None = None,
    sliding_window: int | None = None,
    softcap: float | None = None,
    **settings: Any,
) -> tuple[Tensor, None]:
    """Attend in one layer; transformers calls this.

    Args:
        query, key, value: (1, A, U, D) of a packed row; keys and values may have fewer heads.
        attention_mask: for calls without `packed_batch`, which has the placeholder of `Policy.packed_hidden`.
        packed_batch: as given to the model's forward; None is transformers' own attention.
        scaling, sliding_window, softcap: of the architecture.

    Returns:
        (1, U, A, D), and None for the attention weights.

    Raises:
        ValueError: the model made a mask for a packed row.
    """
    if packed_batch is None:
        # With a mask transformers copies keys and values for each query head: 3 to 10 times the attention's time.
        is_masked = attention_mask is not None and settings.get("position_bias") is None
        if softcap is not None or (is_masked and query.device.type == "cpu"):
            is_causal = attention_mask is None and query.shape[2] > 1
            result = dot_product_attention(query, key, value, attention_mask, scaling, softcap, is_causal=is_causal)
            return result.transpose(1, 2), None
        if attention_mask is not None and is_masked and query.shape[2] == attention_mask.shape[1] == 1:
            return attend_with_one_token(query, key, value, attention_mask, scaling).transpose(1, 2), None
        from transformers.integrations.sdpa_attention import sdpa_attention_forward

        settings |= {"scaling": scaling, "sliding_window": sliding_window}
        output: tuple[Tensor, None] = sdpa_attention_forward(module, query, key, value, attention_mask, **settings)
        return output
    if attention_mask is not None and attention_mask.numel() > 1:
        raise ValueError("its layers make masks of their own")
    dtype = query.dtype
    if query.device.type == "cpu" and dtype in HALF_PRECISION:
        # On the CPU the backward pass takes 2 to 5 times as long in half precision, for up to 256 tokens, and gradients
        # of shared tokens would be summed in it.
        query, key, value = query.float(), key.float(), value.float()
    query, key, value = (x[0].transpose(0, 1) for x in (query, key, value))  # (U, A, D)
    if isinstance(packed_batch.attention, RaggedSequences):
        result_UAD = _flash_attention(query, key, value, packed_batch.attention, scaling, sliding_window, softcap)
    else:
        settings_of_layer = (scaling, sliding_window, softcap)
        parts = [_padded_attention(query, key, value, part, *settings_of_layer) for part in packed_batch.attention]
        result_UAD = take_rows(torch.cat(parts), packed_batch.slots_U)
    return result_UAD[None].to(dtype), None


def dot_product_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None,
    scaling: float | None,
    softcap: float | None = None,
    *,
    is_causal: bool = False,
) -> Tensor:
    """Attend as PyTorch's function of this name, with scores capped as `softcap * tanh(scores / softcap)`.

    PyTorch has no fused kernel with a cap. A capped layer then holds its scores, as transformers' "eager" does.

    Args:
        query: (P, A, Q, D).
        key, value: (P, G, L, D); G divides A.
        mask: bool, True where a query sees a key, broadcast to (P, A, Q, L); None is every key.
        scaling: of the scores; None is D ** -0.5.
        softcap: None does not cap.
        is_causal: whether a query sees no later key; `mask` is then None.

    Returns:
        (P, A, Q, D).
    """
    copies = query.shape[1] // key.shape[1]
    # Beside a mask or wide heads, no fused kernel of a GPU takes fewer key heads, and the scores would be held.
    takes_groups = query.device.type == "cpu" or (mask is None and key.shape[-1] <= _WIDEST)
    if copies > 1 and (softcap is not None or not takes_groups):
        key, value = (x.repeat_interleave(copies, dim=1) for x in (key, value))
    if softcap is None:
        return nn.functional.scaled_dot_product_attention(
            query,
            key,
            value,
            attn_mask=mask,
            is_causal=is_causal,
            scale=scaling,
            enable_gqa=copies > 1 and takes_groups,
        )
    scores = capped(query @ key.mT * (query.shape[-1] ** -0.5 if scaling is None else scaling), softcap)
    if is_causal:
        mask = causal_mask(query, key)
    if mask is not None:
        scores = scores.masked_fill(~mask, torch.finfo(scores.dtype).min)  # finite: a padded query sees nothing
    return scores.softmax(dim=-1, dtype=torch.float32).to(value.dtype) @ value


def causal_mask(query: Tensor, key: Tensor) -> Tensor:
    """Return (Q, L) bool: the last query sees all keys, each query before it one fewer."""
    shape = query.shape[2], key.shape[2]
    return torch.ones(shape, dtype=torch.bool, device=query.device).tril(shape[1] - shape[0])


def attend_with_one_token(
    query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor, scaling: float | None
) -> Tensor:
    """Attend with one query a sequence, as decoding does, without a copy of keys and values for each query head.

    The query heads that share a key head become its queries, because no fused kernel of a GPU takes both a mask and
    fewer key heads.

    Args:
        query: (P, A, 1, D).
        key, value: (P, G, L, D); G divides A.
        attention_mask: (P, 1, 1, L).
        scaling: of the scores; None is D ** -0.5.

    Returns:
        (P, A, 1, D).
    """
    (P, A, _, D), G = query.shape, key.shape[1]
    result = nn.functional.scaled_dot_product_attention(
        query.reshape(P, G, A // G, D), key, value, attn_mask=attention_mask.expand(P, G, A // G, -1), scale=scaling
    )
    return result.reshape(P, A, 1, D)


def _padded_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    sequences: PaddedSequences,
    scaling: float | None,
    window: int | None,
    softcap: float | None,
) -> Tensor:
    """Attend in some sequences of a packed row (U, A, D); return the results (P * Q, A, D)."""
    layouts = (sequences.queries_PQ, sequences.keys_PL, sequences.keys_PL)
    query, key, value = (
        take_rows(x, layout.flatten()).view(*layout.shape, *x.shape[1:]).transpose(1, 2)
        for x, layout in zip((query, key, value), layouts, strict=True)
    )
    length, mask_QL = key.shape[2], None
    window = length if window is None else min(window, length)
    if query.shape[2] < length or window < length:
        mask_QL = causal_mask(query, key).triu(length - query.shape[2] - window + 1)
    result = dot_product_attention(query, key, value, mask_QL, scaling, softcap, is_causal=mask_QL is None)
    return result.transpose(1, 2).flatten(0, 1)


def _flash_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    sequences: RaggedSequences,
    scaling: float | None,
    window: int | None,
    softcap: float | None,
) -> Tensor:
    """Attend in the sequences of a packed row (U, A, D); return the results (U, A, D)."""
    from flash_attn import flash_attn_varlen_func

    result: Tensor = flash_attn_varlen_func(
        query,
        take_rows(key, sequences.keys_K),
        take_rows(value, sequences.keys_K),
        cu_seqlens_q=sequences.query_bounds,
        cu_seqlens_k=sequences.key_bounds,
        max_seqlen_q=sequences.max_queries,
        max_seqlen_k=sequences.max_length,
        softmax_scale=scaling,
        causal=True,  # the last query sees all keys
        window_size=(-1, -1) if window is None else (window - 1, 0),
        softcap=softcap or 0.0,
    )
    return result
