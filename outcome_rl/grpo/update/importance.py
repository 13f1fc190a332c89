"""Truncated importance weights: what the engine sampled, seen from the policy that learns from it.

The two hold the same weights, but their arithmetic differs, so tokens are samples of a slightly other policy. With
lp the policy's log-probability of a token and mu the engine's, the policy term of the loss is multiplied by

    w = min(exp(lp - mu), cap)

without gradient. Sources: Ionides 2008 (doi:10.1198/106186008X320456) for the truncation; Yao et al. 2025, "On the
Rollout-Training Mismatch in Modern RL Systems" (openreview.net/forum?id=8MHqvb4lK9), for its use here.
"""

import torch
from torch import Tensor

from outcome_rl.grpo import distributed


def importance_weights(logps: Tensor, engine_logps: Tensor, cap: float) -> Tensor:
    """Weights of the policy term, like `logps`, without gradient.

    Args:
        logps, engine_logps: (M,) log-probabilities of the sampled tokens under the policy and under the engine.
        cap: > 0, the largest weight.
    """
    return torch.exp(logps.detach() - engine_logps).clamp(max=cap)


class Mismatch:
    """How far policy and engine are apart over the tokens of one update, gathered from micro-batches on the device."""

    def __init__(self, cap: float | None) -> None:
        self.cap = cap
        self._parts: list[Tensor] = []  # (5,) each: tokens, |lp - mu|, its maximum, weight, tokens at the cap

    def add(self, logps: Tensor, engine_logps: Tensor) -> None:
        """Count M sampled tokens, both (M,)."""
        difference = (logps.detach() - engine_logps).double()
        ratio, apart = difference.exp(), difference.abs()
        cap = torch.inf if self.cap is None else self.cap
        tokens = torch.tensor(len(difference), device=difference.device)
        part = [tokens, apart.sum(), apart.max(), ratio.clamp(max=cap).sum(), (ratio > cap).sum()]
        self._parts.append(torch.stack([value.double() for value in part]))

    def summary(self) -> dict[str, float]:
        """`logp_diff_mean`, `logp_diff_max`; with a cap `importance_mean` and `importance_clipped`, a share of tokens.

        Empty where nothing was added.
        """
        rows = distributed.all_gather_object(lambda: torch.stack(self._parts).tolist() if self._parts else [])
        parts = torch.tensor([part for of_process in rows for part in of_process], dtype=torch.float64)
        if not len(parts):
            return {}
        tokens, apart, _, weight, clipped = parts.sum(dim=0).tolist()
        found = {"logp_diff_mean": apart / tokens, "logp_diff_max": parts[:, 2].max().item()}
        if self.cap is not None:
            found |= {"importance_mean": weight / tokens, "importance_clipped": clipped / tokens}
        return found
