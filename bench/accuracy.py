"""The check before any timing: gradients and loss against the specification in float64."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TypedDict

import torch
from torch import Tensor

from bench.cases import Batch, float64_chunks, only_kept
from outcome_rl_kernels import policy_loss

# A loss with another meaning is off by tens of percent; rounding, bfloat16 sums and CCE's filter stay below.
SAME_LOSS = {torch.float32: 1e-4, torch.bfloat16: 0.1}
TIMES_EAGER = 2.0  # what our gradients' errors may be, in errors of plain PyTorch in the same dtype


class Errors(TypedDict):
    """Errors of a loss, compared with float64."""

    loss: float  # over the mean absolute advantage
    gradients: list[float]  # relative, in the Frobenius norm, of each input
    logps: float | None  # root mean square over the mask's tokens, in nats; None where only a loss is offered


@dataclass(frozen=True)
class Truth:
    """Loss, gradients and log-probabilities in float64, and the mean absolute advantage."""

    loss: Tensor
    gradients: tuple[Tensor, ...]
    logps_R: Tensor  # of the mask's tokens
    scale: Tensor

    def as_cross_entropy(self) -> "Truth":
        """Return the same gradients, under a loss that is the mean of -log p."""
        return replace(self, loss=-self.logps_R.mean(), scale=self.logps_R.abs().mean())

    def errors_of(self, loss: Tensor, gradients: Sequence[Tensor], logps_R: Tensor | None) -> Errors:
        """Return the error of a result against the truth; NaN counts as an infinite error."""
        logps = None if logps_R is None else _finite((logps_R.double() - self.logps_R).square().mean().sqrt())
        errors = [
            _finite((gradient.double() - true).norm() / true.norm().clamp(min=1e-30))  # one kept token: no gradient
            for gradient, true in zip(gradients, self.gradients, strict=True)
        ]
        return Errors(loss=_finite((loss.double() - self.loss).abs() / self.scale), gradients=errors, logps=logps)


def truth_of(inputs: Sequence[Tensor], batch: Batch) -> Truth:
    """Return the loss as a function of `(hidden, weight)` or of `(logits,)`, in chunks of rows that fit memory."""
    rows_NX, *head = (tensor.detach().double() for tensor in inputs)
    head = [weight.requires_grad_() for weight in head]
    rows_grad = torch.zeros_like(rows_NX)
    active_R = batch.mask_N.nonzero()[:, 0]
    logps_R = rows_grad.new_empty(len(active_R))
    loss = rows_grad.new_zeros(())
    for chunk in float64_chunks(len(active_R), len(head[0]) if head else rows_NX.shape[1]):
        rows = active_R[chunk]
        rows_CX = rows_NX[rows].requires_grad_()
        logits_CV = rows_CX @ head[0].t() if head else rows_CX
        part = policy_loss(
            only_kept(logits_CV, None if batch.kept_NK is None else batch.kept_NK[rows]),
            batch.labels_N[rows],
            batch.advantages_N[rows].double(),
            batch.mask_N[rows],
            ref_logps=_double(batch.ref_logps, rows),
            old_logps=_double(batch.old_logps, rows),
            beta=batch.beta,
            normalizer=float(len(active_R)),
            cu_seqlens=torch.tensor([0, len(rows)], device=rows.device),
            impl="reference",
        )
        part.loss.backward()  # type: ignore[no-untyped-call]
        assert rows_CX.grad is not None
        rows_grad[rows] = rows_CX.grad
        logps_R[chunk] = part.logps
        loss += part.loss.detach()
    grads = (rows_grad, *(weight.grad for weight in head if weight.grad is not None))
    return Truth(loss, grads, logps_R, batch.advantages_N[active_R].abs().double().mean())


def gradients(loss: Callable[..., Tensor], inputs: Sequence[Tensor], batch: Batch) -> tuple[Tensor, tuple[Tensor, ...]]:
    """Return the loss and its gradients, as a training step gets them: `backward()` into leaves without a gradient."""
    leaves = [tensor.detach().requires_grad_() for tensor in inputs]
    value = loss(*leaves, batch)
    value.backward()  # type: ignore[no-untyped-call]
    return value.detach(), tuple(leaf.grad for leaf in leaves if leaf.grad is not None)


def objection(errors: Errors, eager: Errors | None, dtype: torch.dtype) -> str | None:
    """Why a loss must not be timed; None where its error is fine.

    Args:
        errors: of the loss in question.
        eager: of plain PyTorch, for a loss that must keep within `TIMES_EAGER` of it (ours); None for others, which
            only must be the same loss.
        dtype: of the inputs.
    """
    same = SAME_LOSS[dtype]
    measures = {"loss": (errors["loss"], same)}
    for index, error in enumerate(errors["gradients"]):
        most = same if eager is None else min(same, TIMES_EAGER * eager["gradients"][index])
        measures[f"gradient {index + 1}"] = error, most
    if errors["logps"] is not None:
        most = same if eager is None or eager["logps"] is None else min(same, TIMES_EAGER * eager["logps"])
        measures["log-probabilities"] = errors["logps"], most
    for name, (error, most) in measures.items():
        if not error <= most:
            return f"error of the {name} is {error:.1e}, at most {most:.1e} is allowed"
    return None


def _double(values: Tensor | None, rows: Tensor) -> Tensor | None:
    return None if values is None else values.view(-1)[rows].double()


def _finite(error: Tensor) -> float:
    return float(error) if error.isfinite() else math.inf
