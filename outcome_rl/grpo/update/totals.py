"""Statistics of the updates on one batch, summed on the device."""

from functools import partial

import torch
from torch import Tensor

from outcome_rl.grpo import distributed
from outcome_rl.grpo.update.microbatches import MicroBatch
from outcome_rl_kernels import PolicyLossOutput
from outcome_rl_kernels.loss.types import LOG_RATIO_CLAMP


class UpdateTotals:
    """Sums over the updates on a batch, on the device until the last of them."""

    def __init__(self, importance_cap: float | None, device: torch.device, *, entropy: bool = True) -> None:
        """Start at zero; without `entropy` there is none, because not every token is computed."""
        zeros = partial(torch.zeros, dtype=torch.float64, device=device)
        self.importance_cap = importance_cap
        self.reports_entropy = entropy
        self.updates = zeros(3)  # number; sums of losses and of gradient norms
        # Number; sums of KL and ratio; number beyond the bound of the log-ratio; of the policy term, of these clipped.
        self.tokens = zeros(6)
        self.entropy = zeros(3, 2)  # (sum, number) of incorrect responses, of correct ones, and of answers
        # With the engine: number of tokens; sums of |lp - mu|, KL and weight; number at the cap, and without mu.
        self.mismatch = zeros(6)
        self.largest_mismatch = zeros(1)
        self.off_policy = False

    def add(self, micro_batch: MicroBatch, output: PolicyLossOutput, *, first_pass: bool) -> None:
        """Count the tokens of a micro-batch; entropy and mismatch in the first pass over the batch only."""
        metrics, old_logps_M = output.metrics, micro_batch.old_logps_M
        tokens = metrics["computed_tokens"]
        policy_tokens = micro_batch.policy_tokens
        clipped = metrics["clip_fraction"] * policy_tokens
        of_tokens = [metrics[name] * tokens for name in ("kl", "ratio_mean", "clamp_fraction")]
        parts = [tokens, *of_tokens, policy_tokens, clipped]
        self.tokens += torch.stack([part.double() for part in parts])
        self.off_policy |= old_logps_M is not None
        if not first_pass:
            return
        entropy_M = output.entropies.double()
        correct_M = micro_batch.correct_M
        kinds = (~correct_M, correct_M, micro_batch.answer_mask_M) if self.reports_entropy else ()
        for kind, of_kind_M in enumerate(kinds):
            self.entropy[kind] += torch.stack([torch.where(of_kind_M, entropy_M, 0).sum(), of_kind_M.sum()])
        if micro_batch.engine_logps_M is not None and len(entropy_M):
            self.add_mismatch(output.logps if old_logps_M is None else old_logps_M, micro_batch.engine_logps_M)

    def add_mismatch(self, logps_M: Tensor, engine_logps_M: Tensor) -> None:
        """Compare the policy's log-probabilities lp of sampled tokens with the engine's, mu, as `rollout_weights`."""
        missing_M = engine_logps_M.isnan()
        difference_M = (logps_M.detach() - engine_logps_M).double().masked_fill(missing_M, 0)
        difference_M = difference_M.clamp(-LOG_RATIO_CLAMP, LOG_RATIO_CLAMP)
        ratio_M, distance_M = difference_M.exp(), difference_M.abs()
        cap = torch.inf if self.importance_cap is None else self.importance_cap
        number = torch.ones_like(ratio_M).sum()
        kl = (difference_M.expm1() - difference_M).sum()
        parts = [number, distance_M.sum(), kl, ratio_M.clamp(max=cap).sum(), (ratio_M > cap).sum(), missing_M.sum()]
        self.mismatch += torch.stack([part.double() for part in parts])
        self.largest_mismatch = torch.maximum(self.largest_mismatch, distance_M.max()[None])

    def add_update(self, loss: Tensor, grad_norm: Tensor) -> None:
        """Count an optimizer step; both values cover all processes."""
        self.updates += torch.stack([part.double() for part in (torch.ones_like(loss), loss, grad_norm)])

    def all_reduce_(self) -> None:
        """Sum over the processes, all of which must call it."""
        distributed.all_reduce_sum_(self.tokens, self.entropy, self.mismatch)
        distributed.all_reduce_max_(self.largest_mismatch)

    def metrics(self) -> dict[str, float]:
        """Return means over the updates or over the tokens that they compute; this waits for the device, once.

        - `actor/loss`, `actor/kl` (to the reference), `actor/grad_norm` (before clipping);
        - of several updates `actor/ratio_mean` and `actor/clip_fraction`;
        - `actor/clamp_fraction`, the share of tokens whose log-ratio to the old or reference policy is beyond +-20,
          if there are any;
        - `entropy/all`, `entropy/correct`, `entropy/incorrect`: of responses of that kind, in the first pass, if every
          token is computed; `entropy/answer_share`, the share of the sum that lies on answer tokens, if some are masked
          and computed;
        - with an engine that has its own arithmetic, `rollout/logp_diff_mean` and `rollout/logp_diff_max` (of
          differences within +-20), `rollout/mismatch_kl`, KL(engine || policy) by the mean of
          exp(lp - mu) - 1 - (lp - mu), and with importance weights their mean `rollout/importance_mean` and the share
          of tokens at the cap, `rollout/importance_clipped`; `rollout/logp_missing`, the share of tokens of which the
          engine returned no log-probability, or NaN, if there are any.
        """
        sums = torch.cat([self.updates, self.tokens, self.entropy.flatten(), self.mismatch, self.largest_mismatch])
        on_host = torch.split(sums.cpu(), [3, 6, 6, 7])
        (updates, losses, norms), of_tokens = (part.tolist() for part in on_host[:2])
        tokens, kl, ratio, beyond, policy_tokens, clipped = of_tokens
        found = {"actor/loss": losses / updates, "actor/kl": kl / max(tokens, 1), "actor/grad_norm": norms / updates}
        if self.off_policy:
            found["actor/ratio_mean"] = ratio / max(tokens, 1)
            found["actor/clip_fraction"] = clipped / max(policy_tokens, 1)
        if beyond:
            found["actor/clamp_fraction"] = beyond / tokens
        incorrect, correct, answers = on_host[2].view(3, 2)
        every = incorrect + correct
        for kind, (total, number) in (("all", every), ("correct", correct), ("incorrect", incorrect)):
            if number:
                found[f"entropy/{kind}"] = float(total / number)
        if answers[1] and every[0]:
            found["entropy/answer_share"] = float(answers[0] / every[0])
        number, distance, kl, weight, at_cap, missing, largest = on_host[3].tolist()
        if number:
            found |= {"rollout/logp_diff_mean": distance / number, "rollout/logp_diff_max": largest}
            found["rollout/mismatch_kl"] = kl / number
            if self.importance_cap is not None:
                found |= {"rollout/importance_mean": weight / number, "rollout/importance_clipped": at_cap / number}
            if missing:
                found["rollout/logp_missing"] = missing / number
        return found
