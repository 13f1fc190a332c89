"""The policy update: one gradient step on a batch of scored rollouts, in micro-batches that add up to the batch."""

import time
from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor

from outcome_rl.driver.config import TrainConfig
from outcome_rl.driver.importance import Mismatch, importance_weights
from outcome_rl.driver.policy import Policy
from outcome_rl.driver.rollout import Rollouts
from outcome_rl_kernels import LinearPolicyLoss, linear_logprobs, loss_normalizer


class ScoredRollouts(NamedTuple):
    """Rollouts with what the loss needs to know of them, on the policy's device."""

    rollouts: Rollouts  # N responses
    advantages: Tensor  # (N,) reward part
    bonuses: Tensor  # (N,) exploration part
    answer_mask: Tensor  # (N, T) bool
    correct: Tensor  # (N,) bool


class UpdateStats(NamedTuple):
    """What one update did: host numbers."""

    loss: float
    kl: float  # mean over the tokens of the loss
    grad_norm: float  # before clipping
    lr: float
    entropy: dict[str, float]  # the same, over "all", "correct" and "incorrect" completions
    mismatch: dict[str, float]  # with the engine that sampled; empty where it is the policy itself
    reference_s: float
    update_s: float


class Updater:
    """Optimizer and schedule of the policy, and the reference policy that the KL term pulls towards."""

    def __init__(self, policy: Policy, config: TrainConfig, total_steps: int) -> None:
        from transformers import get_scheduler

        self.policy = policy
        self.config = config
        self.reference = policy.frozen_copy() if config.actor.kl_loss_coef else None
        actor, optim = config.actor, config.actor.optim
        self.loss = LinearPolicyLoss(
            rows="active",  # the entropies reported are of all completions
            answer_mask_mode=config.exploration.answer_mask_mode,
            temperature=config.rollout.temperature,
            beta=actor.kl_loss_coef,
            kl_penalty=actor.kl_loss_type,
            epsilon_low=actor.clip_ratio_low,
            epsilon_high=actor.clip_ratio_high,
            delta=actor.clip_ratio_c,
            loss_agg=actor.loss_agg_mode,
            entropy_coef=actor.entropy_coeff,
        )
        self.optimizer = torch.optim.AdamW(
            policy.model.parameters(), lr=optim.lr, betas=optim.betas, weight_decay=optim.weight_decay
        )
        self.scheduler = get_scheduler(
            optim.lr_scheduler_type,
            self.optimizer,
            num_warmup_steps=optim.lr_warmup_steps,
            num_training_steps=total_steps,
        )

    def step(self, batch: ScoredRollouts) -> UpdateStats:
        """One AdamW step on the whole batch.

        Raises:
            FloatingPointError: the gradient is not finite; the weights are as they were.
        """
        actor = self.config.actor
        normalizer = loss_normalizer(
            batch.rollouts.completion_mask,
            batch.answer_mask,
            answer_mask_mode=self.config.exploration.answer_mask_mode,
            loss_agg=actor.loss_agg_mode,
            horizon=self.config.data.max_response_length,
        )
        num_samples = len(batch.advantages)
        device = self.policy.device
        loss = torch.zeros((), device=device)
        kl = torch.zeros((), device=device)
        entropy_of_sample = torch.zeros(num_samples, device=device)
        mismatch = Mismatch(self.config.rollout.importance_cap)
        reference_s = 0.0
        start = time.perf_counter()
        self.optimizer.zero_grad(set_to_none=True)
        for rows in _micro_batches(num_samples, actor.ppo_micro_batch_size_per_gpu):
            rollouts = batch.rollouts.rows(rows)
            mask = rollouts.completion_mask
            reference_start = time.perf_counter()
            ref_logps = self._reference_logps(rollouts)
            reference_s += time.perf_counter() - reference_start
            with self.policy.precision():
                hidden = _completion_hidden(self.policy, rollouts)
                output = self.loss(
                    hidden,
                    self.policy.head_weight,
                    rollouts.completion_ids,
                    batch.advantages[rows],
                    mask,
                    bias=self.policy.head_bias,
                    bonuses=batch.bonuses[rows],
                    answer_mask=batch.answer_mask[rows, : mask.shape[1]],
                    ref_logps=ref_logps,
                    rollout_weights=self._rollout_weights(hidden, rollouts),
                    normalizer=normalizer,
                )
            output.loss.backward()
            loss += output.loss.detach()
            kl += output.metrics["kl"] * output.metrics["active_tokens"]
            if rollouts.logps is not None:
                mismatch.add(output.logps, rollouts.logps, mask)
            entropy_of_sample[rows] = output.entropies.sum(dim=1).to(entropy_of_sample.dtype)
        grad_norm = torch.nn.utils.clip_grad_norm_(self.policy.model.parameters(), actor.grad_clip)
        if not grad_norm.isfinite():
            raise FloatingPointError(
                f"the gradient is not finite (norm {grad_norm.item()}, loss {loss.item()}); the weights are as they "
                "were. Lower actor.optim.lr or actor.kl_loss_coef, or look for non-finite weights in the model"
            )
        self.optimizer.step()
        lr = self.scheduler.get_last_lr()[0]
        self.scheduler.step()
        counted = batch.rollouts.completion_mask
        if self.config.exploration.answer_mask_mode == "all":  # the loss leaves these out of its statistics too
            counted = counted & ~batch.answer_mask
        tokens_of_sample = counted.sum(dim=1)
        return UpdateStats(
            loss=loss.item(),
            kl=(kl / tokens_of_sample.sum().clamp(min=1)).item(),
            grad_norm=grad_norm.item(),
            lr=lr,
            entropy=_split_entropy(entropy_of_sample, tokens_of_sample, batch.correct),
            mismatch=mismatch.summary(),
            reference_s=reference_s,
            update_s=time.perf_counter() - start - reference_s,
        )

    def state_dict(self) -> dict[str, Any]:
        return {"optimizer": self.optimizer.state_dict(), "scheduler": self.scheduler.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.optimizer.load_state_dict(state["optimizer"])
        self.scheduler.load_state_dict(state["scheduler"])

    def _reference_logps(self, rollouts: Rollouts) -> Tensor | None:
        if self.reference is None:
            return None
        with torch.no_grad(), self.reference.precision():
            return self._logps(self.reference, _completion_hidden(self.reference, rollouts), rollouts)

    def _rollout_weights(self, hidden: Tensor, rollouts: Rollouts) -> Tensor | None:
        """Importance weights (N, T), at the price of one more matrix product with the head."""
        cap = self.config.rollout.importance_cap
        if cap is None or rollouts.logps is None:
            return None
        return importance_weights(self._logps(self.policy, hidden.detach(), rollouts), rollouts.logps, cap)

    @torch.no_grad()
    def _logps(self, policy: Policy, hidden: Tensor, rollouts: Rollouts) -> Tensor:
        logps, _ = linear_logprobs(
            hidden,
            policy.head_weight,
            rollouts.completion_ids,
            bias=policy.head_bias,
            temperature=self.config.rollout.temperature,
            mask=rollouts.completion_mask,
        )
        return logps


def _micro_batches(total: int, size: int) -> Iterator[slice]:
    for start in range(0, total, size):
        yield slice(start, min(start + size, total))


def _completion_hidden(policy: Policy, rollouts: Rollouts) -> Tensor:
    """(N, T, H): the state at each position that predicts a completion token."""
    ids = torch.cat([rollouts.prompt_ids, rollouts.completion_ids], dim=1)
    mask = torch.cat([rollouts.prompt_mask, rollouts.completion_mask], dim=1).long()
    return policy.hidden(ids, mask)[:, rollouts.prompt_ids.shape[1] - 1 : -1]


def _split_entropy(entropy_N: Tensor, tokens_N: Tensor, correct_N: Tensor) -> dict[str, float]:
    """Mean token entropy over all, correct and incorrect completions; a group without completions is left out."""
    groups = {"all": torch.ones_like(correct_N), "correct": correct_N, "incorrect": ~correct_N}
    sums = torch.stack([torch.stack([entropy_N[group].sum(), tokens_N[group].sum()]) for group in groups.values()])
    return {name: total / tokens for name, (total, tokens) in zip(groups, sums.tolist(), strict=True) if tokens}
