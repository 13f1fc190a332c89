"""The policy update: optimizer steps on a batch of scored rollouts, in micro-batches that add up to their mini-batch.

batch --> mini-batches, one optimizer step each (by default one: the whole batch)
  --> packed micro-batches --model--> hidden states (M, H) --fused loss--> gradients, added up
"""

import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from outcome_rl.grpo import distributed
from outcome_rl.grpo.config.schema import TrainConfig
from outcome_rl.grpo.distributed import choose_device
from outcome_rl.grpo.model.fsdp import gathered, part_of_optimizer, plain
from outcome_rl.grpo.model.master_weights import MasterWeights
from outcome_rl.grpo.model.policy import Policy
from outcome_rl.grpo.update.importance import importance_weights
from outcome_rl.grpo.update.microbatches import MicroBatch, MiniBatch, ScoredRollouts, mini_batches
from outcome_rl.grpo.update.stats import UpdateStats, UpdateTotals
from outcome_rl_kernels import LinearPolicyLoss, PolicyLossOutput, linear_logprobs


class Updater:
    """Optimizer and schedule of the policy, and the reference policy that the KL term pulls towards."""

    def __init__(self, policy: Policy, config: TrainConfig, total_steps: int) -> None:
        from transformers import get_scheduler

        self.policy = policy
        self.config = config
        actor, optim = config.actor, config.actor.optim
        self.reference: Policy | None = None  # of LoRA, the policy without its adapters
        if actor.kl_loss_coef and policy.adapters is None:
            self.reference = policy.frozen_copy()
            if actor.ref_param_offload:
                self.reference.model.to("cpu")
        if actor.use_torch_compile:
            for model in (policy, self.reference):
                if model is not None:
                    model.compile()
        self.loss = LinearPolicyLoss(
            rows="active",  # the entropies reported are of all completions
            **config.loss_settings,
        )
        if distributed.shards_policy(config):
            for whole in (policy, self.reference):
                if whole is not None:
                    whole.shard(choose_device(config.model.device))
        self.weights = MasterWeights(policy.model, rounds=policy.sharded is not None and policy.sharded.rounds)
        self.optimizer = torch.optim.AdamW(
            self.weights.parameters, lr=optim.lr, betas=optim.betas, weight_decay=optim.weight_decay
        )
        self.scheduler = get_scheduler(
            optim.lr_scheduler_type,
            self.optimizer,
            num_warmup_steps=optim.lr_warmup_steps,
            num_training_steps=total_steps,
        )

    def step(self, batch: ScoredRollouts) -> UpdateStats:
        """`ppo_epochs` passes over the batch, an AdamW step for each mini-batch of each; the schedule moves on once.

        Raises:
            FloatingPointError: the gradient of a mini-batch is not finite. Weights and optimizer are as they were
                before that mini-batch: by default, before the call.
        """
        start = time.perf_counter()
        actor = self.config.actor
        chosen = list(
            mini_batches(
                batch,
                self.config,
                share_prefixes=actor.use_prefix_grouper and self.policy.packs,
                padded=self.policy.pads_attention,
            )
        )
        reference_start = time.perf_counter()
        chosen = list(self._with_reference(chosen))
        reference_s = time.perf_counter() - reference_start
        if actor.ppo_epochs * len(chosen) > 1:
            chosen = [self._with_old_logps(mini_batch) for mini_batch in chosen]
        totals = UpdateTotals(self.config.rollout.importance_cap, self.policy.device)
        for epoch in range(actor.ppo_epochs):
            for mini_batch in chosen:
                self._update(mini_batch, totals, first_pass=epoch == 0)
        lr = self.scheduler.get_last_lr()[0]
        self.scheduler.step()
        return totals.stats(lr, reference_s, start)

    def state_dict(self) -> dict[str, Any]:
        """To be saved by the first process; of a sharded policy all must call it."""
        state: dict[str, Any] = gathered(
            {
                "optimizer": self.optimizer.state_dict(),
                "scheduler": self.scheduler.state_dict(),
                "master_weights": self.weights.state_dict(),
            }
        )
        return state

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.optimizer.load_state_dict(part_of_optimizer(state["optimizer"], self.weights.parameters))
        self.scheduler.load_state_dict(state["scheduler"])
        self.weights.load_state_dict(state["master_weights"])

    def _update(self, mini_batch: MiniBatch, totals: UpdateTotals, *, first_pass: bool) -> None:
        """One AdamW step."""
        self.optimizer.zero_grad(set_to_none=True)
        loss = torch.zeros((), device=self.policy.device)
        for micro_batch in mini_batch.micro_batches:
            output = self._loss_of(micro_batch, mini_batch.normalizer)
            output.loss.backward()  # type: ignore[no-untyped-call]
            loss += output.loss.detach()
            totals.add(micro_batch, output, first_pass=first_pass)
        distributed.all_reduce_sum_(loss)
        if self.policy.sharded is None:
            distributed.all_reduce_gradients(self.weights.parameters)
        grad_norm = plain(torch.nn.utils.clip_grad_norm_(self.weights.parameters, self.config.actor.grad_clip))
        if not grad_norm.isfinite():
            raise FloatingPointError(
                f"the gradient is not finite (norm {grad_norm.item()}, loss {loss.item()}); the weights are as they "
                "were. Lower actor.optim.lr or actor.kl_loss_coef, or look for non-finite weights in the model"
            )
        self.optimizer.step()
        self.weights.publish()
        totals.add_update(loss, grad_norm)

    def _loss_of(self, micro_batch: MicroBatch, normalizer: Tensor) -> PolicyLossOutput:
        packed = micro_batch.packed
        hidden_MH = self.policy.packed_hidden(packed)
        output: PolicyLossOutput = self.loss(
            hidden_MH,
            self.policy.head_weight,
            micro_batch.labels_M,
            micro_batch.advantages_S,
            torch.ones_like(micro_batch.counted_M),
            bias=self.policy.head_bias,
            bonuses=micro_batch.bonuses_S,
            answer_mask=micro_batch.answer_mask_M,
            ref_logps=micro_batch.ref_logps_M,
            old_logps=micro_batch.old_logps_M,
            rollout_weights=self._rollout_weights(hidden_MH, micro_batch),
            normalizer=normalizer,
            cu_seqlens=packed.cu_seqlens,
        )
        return output

    def _with_reference(self, chosen: Iterable[MiniBatch]) -> Iterator[MiniBatch]:
        """The mini-batches with log-probabilities under the reference, where there is one."""
        if not self.config.actor.kl_loss_coef:
            yield from chosen
            return
        with self._reference() as reference:
            for mini_batch in chosen:
                done = [micro._replace(ref_logps_M=self._logps(reference, micro)) for micro in mini_batch.micro_batches]
                yield mini_batch._replace(micro_batches=done)

    def _with_old_logps(self, mini_batch: MiniBatch) -> MiniBatch:
        done = [micro._replace(old_logps_M=self._logps(self.policy, micro)) for micro in mini_batch.micro_batches]
        return mini_batch._replace(micro_batches=done)

    @contextmanager
    def _reference(self) -> Iterator[Policy]:
        """The reference policy, on the device."""
        if self.reference is None:
            with self.policy.adapters.disable_adapter():
                yield self.policy
            return
        offloads = self.config.actor.ref_param_offload
        if offloads:
            self.reference.model.to(self.policy.device)
        try:
            yield self.reference
        finally:
            if offloads:
                self.reference.model.to("cpu")
            if self.reference.sharded is not None:
                self.reference.sharded.drop()

    def _rollout_weights(self, hidden_MH: Tensor, micro_batch: MicroBatch) -> Tensor | None:
        """Importance weights (M,); without old log-probabilities they cost one more matrix product with the head."""
        cap, engine_logps_M = self.config.rollout.importance_cap, micro_batch.engine_logps_M
        if cap is None or engine_logps_M is None:
            return None
        logps_M = micro_batch.old_logps_M
        if logps_M is None:
            logps_M = self._head_logps(self.policy, hidden_MH.detach(), micro_batch)
        return importance_weights(logps_M, engine_logps_M, cap)

    @torch.no_grad()
    def _logps(self, policy: Policy, micro_batch: MicroBatch) -> Tensor:
        return self._head_logps(policy, policy.packed_hidden(micro_batch.packed), micro_batch)

    @torch.no_grad()
    def _head_logps(self, policy: Policy, hidden_MH: Tensor, micro_batch: MicroBatch) -> Tensor:
        logps_M, _ = linear_logprobs(
            hidden_MH,
            policy.head_weight,
            micro_batch.labels_M,
            bias=policy.head_bias,
            temperature=self.config.rollout.temperature,
        )
        return logps_M
