"""Argument checks shared by the public ops: every message names the argument, what was expected, what came, and the
fix."""

import math
from typing import NamedTuple

import torch
from torch import Tensor

from outcome_rl_kernels.loss.reference import TokenBatch

FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


def shape_text(tensor: Tensor) -> str:
    return f"({', '.join(map(str, tensor.shape))}{',' if tensor.dim() == 1 else ''})"


def check_number(name: str, value: object, *, least: float = -math.inf) -> float:
    """`value` if it is a finite Python number, at least `least`."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        fix = f". Use {name}.item()" if isinstance(value, Tensor) else ""
        raise TypeError(f"{name} must be a Python number; got {type(value).__name__}{fix}")
    if not (math.isfinite(value) and value >= least):
        bound = "" if least == -math.inf else f" and >= {least:g}"
        raise ValueError(f"{name} must be finite{bound}; got {value}")
    return value


def check_tensor(
    name: str, value: object, dtypes: tuple[torch.dtype, ...], device: torch.device | None = None
) -> Tensor:
    """`value` if it is a tensor of one of `dtypes`, on `device` where the call has one already."""
    if not isinstance(value, Tensor):
        raise TypeError(f"{name} must be a torch.Tensor; got {type(value).__name__}")
    if hasattr(value, "device_mesh"):  # told by its looks: torch.distributed is a heavy import
        raise TypeError(
            f"{name} must be whole on every rank; got a {type(value).__name__}, which is sharded. Call the loss in the "
            "forward of a module that fully_shard wraps, where the weight is gathered: docs/losses.md has the recipe"
        )
    if value.dtype not in dtypes:
        expected = " or ".join(str(dtype).removeprefix("torch.") for dtype in dtypes)
        raise TypeError(f"{name} must have dtype {expected}; got {str(value.dtype).removeprefix('torch.')}")
    if device is not None and value.device != device:
        raise ValueError(
            f"{name} must be on {device}, like the other tensors; got {value.device}. Use {name}.to({str(device)!r})"
        )
    return value


class TokenLayout(NamedTuple):
    """How the tokens of a call map to sequences: padded (B, T), or packed (N,) with `cu_seqlens` (S + 1,)."""

    shape: tuple[int, ...]
    sequence_ids_N: Tensor
    num_sequences: int
    horizon: int | Tensor

    @classmethod
    def of(cls, labels: Tensor, cu_seqlens: Tensor | None) -> "TokenLayout":
        shape = tuple(labels.shape)
        if cu_seqlens is None:
            if len(shape) != 2:
                raise ValueError(
                    f"labels must have shape (B, T) without cu_seqlens; got {shape_text(labels)}. "
                    "For packed sequences of shape (N,) pass cu_seqlens"
                )
            rows = torch.arange(shape[0], device=labels.device)
            return cls(shape, rows.repeat_interleave(shape[1]), shape[0], shape[1])
        if len(shape) != 1:
            raise ValueError(f"labels must have shape (N,) with cu_seqlens; got {shape_text(labels)}")
        check_tensor("cu_seqlens", cu_seqlens, (torch.int32, torch.int64), labels.device)
        if cu_seqlens.dim() != 1 or cu_seqlens.numel() < 2:
            raise ValueError(
                f"cu_seqlens must have shape (S + 1,): 0, the ends of the S sequences, N; got {shape_text(cu_seqlens)}"
            )
        if cu_seqlens.device.type == "cpu" and not torch.compiler.is_compiling():  # on a GPU, to read is to wait
            starts_and_ends = cu_seqlens.tolist()
            if starts_and_ends[0] != 0 or starts_and_ends[-1] != shape[0] or starts_and_ends != sorted(starts_and_ends):
                raise ValueError(f"cu_seqlens must rise from 0 to N = {shape[0]}; got {starts_and_ends}")
        positions_N = torch.arange(shape[0], device=labels.device)
        sequence_ids_N = torch.bucketize(positions_N, cu_seqlens[1:].to(torch.int64), right=True)
        return cls(shape, sequence_ids_N, cu_seqlens.numel() - 1, cu_seqlens.diff().amax())

    def per_token(self, name: str, value: Tensor) -> Tensor:
        """`value`, one number a sequence or a token, as (N,)."""
        if tuple(value.shape) == self.shape:
            return value.reshape(-1)
        if tuple(value.shape) == (self.num_sequences,):
            return value[self.sequence_ids_N]
        repeat = ""
        if value.dim() == 1 and 0 < value.numel() < self.num_sequences and self.num_sequences % value.numel() == 0:
            n = self.num_sequences // value.numel()
            repeat = f". One value per prompt? Use {name}.repeat_interleave({n}) for {n} samples a prompt"
        raise ValueError(
            f"{name} must have shape ({self.num_sequences},), one a sequence, or {self.shape}, one a token; "
            f"got {shape_text(value)}{repeat}"
        )

    def same_shape(self, name: str, value: Tensor) -> Tensor:
        """`value`, one number a token, as (N,)."""
        if tuple(value.shape) != self.shape:
            raise ValueError(f"{name} must have the shape of labels, {self.shape}; got {shape_text(value)}")
        return value.reshape(-1)


def check_labels(labels_N: Tensor, active_N: Tensor | None, vocab: int) -> None:
    """Labels of active tokens must lie in [0, V); looked at on the CPU only: on a GPU, to look is to wait."""
    if labels_N.device.type != "cpu" or torch.compiler.is_compiling():
        return
    bad_N = (labels_N < 0) | (labels_N >= vocab)
    if active_N is not None:
        bad_N &= active_N
    if bad_N.any():
        where = int(bad_N.nonzero()[0])
        raise ValueError(
            f"labels of active tokens must lie in [0, {vocab}); got {int(labels_N[where])} at flat position {where}. "
            "Tokens to be ignored need mask = False"
        )


def check_rows(rows: Tensor, hidden_NH: Tensor) -> Tensor:
    """`rows` if they can be flat indices of tokens; that they rise within [0, N) is looked at on the CPU only."""
    check_tensor("rows", rows, (torch.int64,), hidden_NH.device)
    if rows.dim() != 1:
        raise ValueError(f"rows must have shape (R,): increasing flat indices of tokens; got {shape_text(rows)}")
    if rows.device.type != "cpu" or torch.compiler.is_compiling() or len(rows) == 0:
        return rows
    if rows[0] < 0 or rows[-1] >= len(hidden_NH) or (rows.diff() <= 0).any():
        raise ValueError(
            f"rows must be flat indices that increase within [0, {len(hidden_NH)}); got {rows}. "
            "Use mask.flatten().nonzero()[:, 0]"
        )
    return rows


def check_normalizer(normalizer: float | Tensor | None) -> None:
    """`normalizer` is one positive number, or None; the value of a tensor is not looked at."""
    if isinstance(normalizer, Tensor):
        if normalizer.dim() != 0:
            raise ValueError(f"normalizer must be one number; got shape {shape_text(normalizer)}. Use normalizer.sum()")
    elif normalizer is not None and check_number("normalizer", normalizer) <= 0:
        raise ValueError(f"normalizer must be > 0; got {normalizer}. loss_normalizer computes it from the mask")


def check_workspace(workspace_bytes: int | None) -> None:
    """`workspace_bytes` is a positive number of bytes, or None."""
    if workspace_bytes is None:
        return
    if isinstance(workspace_bytes, bool) or not isinstance(workspace_bytes, int):
        raise TypeError(f"workspace_bytes must be an int or None; got {type(workspace_bytes).__name__}")
    if workspace_bytes <= 0:
        raise ValueError(f"workspace_bytes must be > 0; got {workspace_bytes}. None chooses by the shapes")


def token_batch(
    labels: Tensor,
    advantages: Tensor,
    mask: Tensor,
    *,
    bonuses: Tensor | None,
    answer_mask: Tensor | None,
    ref_logps: Tensor | None,
    old_logps: Tensor | None,
    rollout_weights: Tensor | None,
    cu_seqlens: Tensor | None,
    device: torch.device,
) -> tuple[TokenBatch, TokenLayout]:
    """Check the per-token inputs of the policy loss and flatten them to (N,)."""
    check_tensor("labels", labels, (torch.int64,), device)
    layout = TokenLayout.of(labels, cu_seqlens)

    def flags(name: str, value: Tensor | None) -> Tensor | None:
        return None if value is None else layout.same_shape(name, check_tensor(name, value, (torch.bool,), device))

    def numbers(name: str, value: Tensor | None, *, per_sequence: bool = False) -> Tensor | None:
        if value is None:
            return None
        check_tensor(name, value, FLOATS, device)
        flat_N = layout.per_token(name, value) if per_sequence else layout.same_shape(name, value)
        return flat_N.detach()

    mask_N = flags("mask", mask)
    advantages_N = numbers("advantages", advantages, per_sequence=True)
    assert mask_N is not None
    assert advantages_N is not None
    batch = TokenBatch(
        labels_N=labels.reshape(-1),
        advantages_N=advantages_N,
        mask_N=mask_N,
        sequence_ids_N=layout.sequence_ids_N,
        num_sequences=layout.num_sequences,
        horizon=layout.horizon,
        bonuses_N=numbers("bonuses", bonuses, per_sequence=True),
        answer_mask_N=flags("answer_mask", answer_mask),
        ref_logps_N=numbers("ref_logps", ref_logps),
        old_logps_N=numbers("old_logps", old_logps),
        rollout_weights_N=numbers("rollout_weights", rollout_weights, per_sequence=True),
    )
    return batch, layout


def check_head(hidden: Tensor, weight: Tensor, bias: Tensor | None, leading: tuple[int, ...]) -> None:
    """`hidden` (*leading, H), `weight` (V, H) and `bias` (V,) fit together."""
    check_tensor("hidden", hidden, FLOATS)
    check_tensor("weight", weight, FLOATS, hidden.device)
    if weight.dim() != 2:
        raise ValueError(f"weight must have shape (V, H), as lm_head.weight has; got {shape_text(weight)}")
    expected = (*leading, weight.shape[1])
    if tuple(hidden.shape) != expected:
        hint = ""
        if hidden.dim() >= 1 and hidden.shape[-1] == weight.shape[0] != weight.shape[1]:
            hint = ". Is weight transposed, or are these logits (policy_loss takes logits)?"
        raise ValueError(
            f"hidden must have shape {expected} = (*labels.shape, H) with weight of shape {shape_text(weight)}; "
            f"got {shape_text(hidden)}{hint}"
        )
    if bias is not None:
        check_tensor("bias", bias, FLOATS, hidden.device)
        if tuple(bias.shape) != (weight.shape[0],):
            raise ValueError(f"bias must have shape (V,) = ({weight.shape[0]},); got {shape_text(bias)}")
    for name, value in (("hidden", hidden), ("bias", bias)):
        if value is None or value.dtype == weight.dtype or torch.is_autocast_enabled(hidden.device.type):
            continue
        raise TypeError(
            f"{name} and weight must have the same dtype; got {value.dtype} and {weight.dtype}. "
            f"Use {name}.to(weight.dtype), or run under torch.autocast"
        )


def autocast(hidden: Tensor, weight: Tensor, bias: Tensor | None) -> tuple[Tensor, Tensor, Tensor | None]:
    """The operands in the dtype in which the matmul of the head runs: that of torch.autocast where it is on."""
    kind = hidden.device.type
    if not torch.is_autocast_enabled(kind):
        return hidden, weight, bias
    dtype = torch.get_autocast_dtype(kind)
    return hidden.to(dtype), weight.to(dtype), None if bias is None else bias.to(dtype)
