"""Losses of rows whose value is a divergence from a teacher, times a weight.

Shapes: R rows (tokens), V vocabulary. The negative divergence takes the part of the log-probability of a label: with a
teacher that is sure of the label, the forward KL is -log p of it. Its loss is linear, so one pass over a row takes the
divergence and the gradient.
"""

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from outcome_rl_kernels.loss.rows import cpu
from outcome_rl_kernels.loss.rows.api import RowKernels
from outcome_rl_kernels.loss.types import LogitRows, RowGradients, Teacher, TokenBatch

KINDS = ("reverse_kl", "forward_kl", "jsd")


class DivergenceRows:
    """Losses and gradients of rows with a teacher.

    Args:
        kernels: of the implementation, for the whole vocabulary or a shard of it.
        impl: the implementation.
        group: among whose ranks the vocabulary is sharded.
        masses: with the gradients, write the logarithms of (p + q) / 2, less 0.04, by which entries are sampled, over
            the teacher's logits.
    """

    def __init__(self, kernels: RowKernels, impl: str, teacher: Teacher, group: Any, *, masses: bool) -> None:
        self._kernels, self._teacher, self._group, self._masses = kernels, teacher, group, masses
        self._rows: Any = cpu.divergence_rows
        if impl == "triton":
            from outcome_rl_kernels.loss.rows.divergence_triton import divergence_rows  # not above: triton is heavy

            self._rows = divergence_rows

    def loss_rows(self, rows: LogitRows, batch: TokenBatch, grad_RV: Tensor | None) -> Tensor:
        """Return losses times weights, negative divergences and entropies, (3, R).

        The gradient of the sum of the losses goes to `grad_RV`, unless that is None.
        """
        assert rows.teacher_RV is not None
        teacher = self._teacher
        of_teacher = rows._replace(logits_RV=rows.teacher_RV, temperature=teacher.temperature)
        statistics = [self._kernels.row_statistics(of) for of in (rows, of_teacher)]
        scales: list[Tensor] = []
        for of, found in zip((rows, of_teacher), statistics, strict=True):
            log_sums_R = self._kernels.log_sums(found, of.temperature)
            anchors_R = (log_sums_R * of.temperature).float()  # so that float32 keeps differences of logits
            scales += [anchors_R, (log_sums_R - anchors_R.double() / of.temperature).float()]
        given = rows, torch.stack(scales), teacher.temperature, KINDS.index(teacher.kind), teacher.mixture
        weights_R = (batch.inputs.advantages * batch.weights).to(statistics[0].logps_R.dtype)
        factors_R = weights_R * ((1 - teacher.mixture if teacher.kind == "jsd" else 1.0) / rows.temperature)
        sums_2R = None
        if self._group is not None:
            sums_2R = self._rows(*given)
            dist.all_reduce(sums_2R, group=self._group)
        if sums_2R is None or grad_RV is not None:
            sums_2R = self._rows(*given, sums_2R, factors_R, grad_RV, masses=self._masses and grad_RV is not None)
        divergences_R = sums_2R[0]
        return torch.stack([weights_R * divergences_R, -divergences_R, statistics[0].entropies_R])


def by_mass(columns_3R: Tensor) -> RowGradients:
    """Return what `sample` needs to choose tokens by the masses of `DivergenceRows`, from its result."""
    losses_R, logps_R, entropies_R = columns_3R.double()
    return RowGradients(torch.zeros_like(logps_R), logps_R, entropies_R, -losses_R.bool().double(), None)
