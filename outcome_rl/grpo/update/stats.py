"""What the updates on one batch did, added up on the device."""

import time
from typing import NamedTuple

import torch
from torch import Tensor

from outcome_rl.grpo import distributed
from outcome_rl.grpo.update.importance import Mismatch
from outcome_rl.grpo.update.microbatches import MicroBatch
from outcome_rl_kernels import PolicyLossOutput


class UpdateStats(NamedTuple):
    """What the updates on one batch did: host numbers, means over the updates or over their tokens."""

    loss: float
    kl: float  # to the reference
    grad_norm: float  # before clipping
    lr: float
    entropy: dict[str, float]  # over "all", "correct" and "incorrect" completions, in the first pass over the batch
    ratio: dict[str, float]  # of several updates: mean importance ratio, and the share of tokens that are clipped
    mismatch: dict[str, float]  # with the engine that sampled; empty where it is the policy itself
    reference_s: float
    update_s: float


class UpdateTotals:
    """Sums over the updates of a batch, on the device until the last of them."""

    def __init__(self, importance_cap: float | None, device: torch.device) -> None:
        self.mismatch = Mismatch(importance_cap)
        self.updates = torch.zeros(3, device=device)  # number, losses, norms of gradients
        self.tokens = torch.zeros(
            5, device=device, dtype=torch.float64
        )  # number, KL, ratio; of the policy term, clipped
        self.entropy = torch.zeros(2, 2, device=device, dtype=torch.float64)  # (sum, number) of incorrect, correct
        self.off_policy = False

    def add(self, micro_batch: MicroBatch, output: PolicyLossOutput, *, first_pass: bool) -> None:
        """Count the tokens of a micro-batch; entropy and mismatch in the first pass over the batch only."""
        metrics, old_logps_M = output.metrics, micro_batch.old_logps_M
        tokens = metrics["computed_tokens"]
        policy_tokens = micro_batch.policy_tokens
        clipped = metrics["clip_fraction"] * policy_tokens
        parts = [tokens, metrics["kl"] * tokens, metrics["ratio_mean"] * tokens, policy_tokens, clipped]
        self.tokens += torch.stack([part.double() for part in parts])
        self.off_policy |= old_logps_M is not None
        if not first_pass:
            return
        entropy_M = output.entropies.double()
        for kind, of_kind_M in enumerate((~micro_batch.correct_M, micro_batch.correct_M)):
            of_kind_M = of_kind_M & micro_batch.counted_M
            self.entropy[kind] += torch.stack([torch.where(of_kind_M, entropy_M, 0).sum(), of_kind_M.sum()])
        if micro_batch.engine_logps_M is not None:
            logps_M = output.logps if old_logps_M is None else old_logps_M
            self.mismatch.add(logps_M, micro_batch.engine_logps_M)

    def add_update(self, loss: Tensor, grad_norm: Tensor) -> None:
        self.updates += torch.stack([torch.ones_like(loss), loss, grad_norm.to(loss.dtype)])

    def stats(self, lr: float, reference_s: float, start: float) -> UpdateStats:
        """What all updates did, in all processes; waits for them."""
        distributed.all_reduce_sum_(self.tokens, self.entropy)
        updates, losses, norms = self.updates.tolist()
        tokens, kl, ratio, policy_tokens, clipped = self.tokens.tolist()
        ratio_mean, clip_fraction = ratio / max(tokens, 1), clipped / max(policy_tokens, 1)
        sums = [self.entropy.sum(dim=0), self.entropy[1], self.entropy[0]]
        entropy = zip(("all", "correct", "incorrect"), torch.stack(sums).tolist(), strict=True)
        return UpdateStats(
            loss=losses / updates,
            kl=kl / max(tokens, 1),
            grad_norm=norms / updates,
            lr=lr,
            entropy={kind: total / number for kind, (total, number) in entropy if number},
            ratio={"ratio_mean": ratio_mean, "clip_fraction": clip_fraction} if self.off_policy else {},
            mismatch=self.mismatch.summary(),
            reference_s=reference_s,
            update_s=time.perf_counter() - start - reference_s,
        )
