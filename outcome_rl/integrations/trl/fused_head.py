"""Our kernels behind the log-probabilities and divergences that TRL's trainers take from hidden states."""

from functools import reduce
from typing import Any

import torch
import trl.kernels
import trl.trainer.utils
from torch import Tensor

from outcome_rl_kernels import linear_divergence
from outcome_rl_kernels.loss.chunked_logprob import ChunkedLogProbFunction


def use_fused_head() -> None:
    """Replace TRL's chunked log-probabilities, entropies and divergences by ours, for all trainers of this process.

    `GRPOTrainer`, `RLOOTrainer`, `AsyncGRPOTrainer`, `KTOTrainer`, `DPOTrainer`, `SFTTrainer` and, since TRL 1.16,
    `DistillationTrainer` call them at every forward pass, so the call may come at any time. Losses and metrics stay
    TRL's. Not for DeepSpeed ZeRO-3, which shards the head again before the backward pass.

    Raises:
        ImportError: this TRL has no `trl.kernels.ChunkedLogProbFunction`, which came with TRL 1.15.
    """
    if not hasattr(trl.kernels, "ChunkedLogProbFunction"):
        raise ImportError(
            f"use_fused_head needs trl.kernels.ChunkedLogProbFunction of TRL 1.15, which TRL {trl.__version__} lacks; "
            "upgrade TRL, or use OutcomeGRPOTrainer(fused_loss=True)"
        )
    trl.trainer.utils._ChunkedLogProbFunction = ChunkedLogProbFunction
    if hasattr(trl.kernels, "chunked_divergence"):
        from trl.trainer import distillation_trainer  # not above: it imports what only distillation needs

        distillation_trainer._chunked_divergence_loss = chunked_divergence_loss


def chunked_divergence_loss(
    student_hidden_states: Tensor,
    teacher_hidden_states: Tensor,
    student_lm_head_weight: Tensor,
    teacher_lm_head_weight: Tensor,
    completion_mask: Tensor,
    beta: float,
    num_items_in_batch: Tensor | int | None = None,
    student_lm_head_bias: Tensor | None = None,
    teacher_lm_head_bias: Tensor | None = None,
    student_logit_scale: float = 1.0,
    teacher_logit_scale: float = 1.0,
    student_final_logit_softcapping: float | None = None,
    teacher_final_logit_softcapping: float | None = None,
    temperature: float = 1.0,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return loss, sum of the student's entropies and number of tokens, as TRL's function of that name.

    A scale of logits before their cap is a cap and a temperature divided by it. Logits are float32, as TRL's. Operands
    of several dtypes are multiplied in the widest.
    """
    kind = {0.0: "forward_kl", 1.0: "reverse_kl"}.get(beta, "jsd")
    added = student_hidden_states, teacher_hidden_states, student_lm_head_bias, teacher_lm_head_bias
    dtype = reduce(torch.promote_types, (one.dtype for one in added if one is not None))
    items = num_items_in_batch
    if isinstance(items, Tensor):
        items = items.to(student_hidden_states.device)
    softcap, teacher_softcap = (
        None if cap is None else cap / scale
        for cap, scale in (
            (student_final_logit_softcapping, student_logit_scale),
            (teacher_final_logit_softcapping, teacher_logit_scale),
        )
    )
    output = linear_divergence(
        student_hidden_states.to(dtype),
        _whole(student_lm_head_weight, student_hidden_states.dtype, dtype),  # rounded as TRL rounds it
        teacher_hidden_states.to(dtype),
        _whole(teacher_lm_head_weight, teacher_hidden_states.dtype, dtype),
        completion_mask != 0,
        kind=kind,
        mixture=beta if kind == "jsd" else 0.5,
        bias=_whole(student_lm_head_bias, dtype),
        teacher_bias=_whole(teacher_lm_head_bias, dtype),
        temperature=temperature / student_logit_scale,
        teacher_temperature=temperature / teacher_logit_scale,
        softcap=softcap,
        teacher_softcap=teacher_softcap,
        normalizer=items,
        fp32_logits=True,
    )
    return output.loss, output.entropies.sum(), output.metrics["active_tokens"]


def _whole(operand: Any, *dtypes: torch.dtype) -> Any:
    """Return an operand of a head, gathered where FSDP2 shards it, in one dtype after the other."""
    if operand is None:
        return None
    if isinstance(operand, torch.distributed.tensor.DTensor):
        operand = operand.full_tensor()
    return reduce(Tensor.to, dtypes, operand)
