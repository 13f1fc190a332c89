"""Liger's `LigerFusedLinearGRPOLoss` with our loss behind it: one import to change.

from outcome_rl.integrations.liger import LigerFusedLinearGRPOLoss
# from liger_kernel.chunked_loss import LigerFusedLinearGRPOLoss
"""

import torch
import torch.distributed as dist
from torch import Tensor

from outcome_rl.integrations.loss_types import OF_ALL_TOKENS, obstacles_of, settings_of
from outcome_rl_kernels import linear_logprobs, linear_policy_loss


class LigerFusedLinearGRPOLoss(torch.nn.Module):
    """GRPO's loss from hidden states, by the constructor and call of Liger 0.8's class of that name.

    The loss and its gradients are Liger's. Differences from Liger: advantages may be per token; the weight's gradient
    is rounded to the weight's dtype at most eight times (Liger adds rounded parts, one per sequence); log-ratios beyond
    20 are bounded, without a gradient, where Liger's KL grows to 3e9 at 25; the backward pass does not wait for the
    GPU; there are three matrix products instead of four and none for tokens without a gradient. The clip metric also
    counts ratios that `delta` bounds, and for "cispo" ratios of tokens with a negative advantage.

    Args:
        beta: coefficient of the KL term (k3).
        compiled, chunk_size: accepted without effect; the loss needs no compiler and chooses its chunks itself.
        use_ref_model: without it the KL term is 0.
        epsilon_low, epsilon_high: clip range of the ratio; of "cispo" its upper bound is `epsilon_high`, at least 1.
        loss_type: "grpo", "bnpo", "dr_grpo", "dapo", "cispo", "sapo", "vespo", or, with
            `importance_sampling_level="sequence"` and `beta=0`, "luspo".
        max_completion_length: "dr_grpo" divides by it, times the number of sequences.
        importance_sampling_level: "token" or "sequence" (GSPO).
        temperature: divides the logits.
        delta: bound of the ratio, at least `1 + epsilon_high`; below it Liger's formula is not the dual clip.
        use_bias_correction_kl: multiply the KL by the ratio.
        sapo_temperature_pos, sapo_temperature_neg: of "sapo", > 0.
        vespo_k_pos, vespo_lambda_pos, vespo_k_neg, vespo_lambda_neg: of "vespo", >= 0.

    Raises:
        ValueError: an option that this loss does not have, by its name.
    """

    def __init__(
        self,
        beta: float = 0.04,
        compiled: bool = True,
        use_ref_model: bool = True,
        chunk_size: int = 1,
        epsilon_low: float = 0.2,
        epsilon_high: float = 0.2,
        loss_type: str = "dapo",
        max_completion_length: int | None = None,
        importance_sampling_level: str = "token",
        sapo_temperature_pos: float = 1.0,
        sapo_temperature_neg: float = 1.05,
        temperature: float = 1.0,
        delta: float | None = None,
        use_bias_correction_kl: bool = False,
        vespo_k_pos: float = 2.0,
        vespo_lambda_pos: float = 3.0,
        vespo_k_neg: float = 3.0,
        vespo_lambda_neg: float = 2.0,
    ) -> None:
        super().__init__()
        if importance_sampling_level not in ("token", "sequence"):
            raise ValueError(
                f"importance_sampling_level must be 'token' or 'sequence'; got {importance_sampling_level!r}"
            )
        if loss_type == "luspo" and (importance_sampling_level != "sequence" or beta != 0):
            raise ValueError(
                "loss_type='luspo' needs importance_sampling_level='sequence' and beta=0: otherwise Liger's adds up "
                "tokens that the mask leaves out"
            )
        if loss_type == "dr_grpo" and max_completion_length is None:
            raise ValueError("loss_type='dr_grpo' divides by max_completion_length; give it")
        unbiased_kl = use_bias_correction_kl and beta != 0
        obstacles = obstacles_of(loss_type, importance_sampling_level, epsilon_high, delta, unbiased_kl=unbiased_kl)
        if found := [name for name, present in obstacles.items() if present]:
            raise ValueError(f"this loss cannot express {'; '.join(found)}. Keep Liger's for it")
        self.beta = beta
        self.use_ref_model = use_ref_model
        self.use_bias_correction_kl = use_bias_correction_kl
        self.loss_type = loss_type
        self.max_completion_length = max_completion_length
        self.importance_sampling_level = importance_sampling_level
        self.temperature = temperature
        temperatures = sapo_temperature_pos, sapo_temperature_neg
        gammas = vespo_k_pos, vespo_lambda_pos, vespo_k_neg, vespo_lambda_neg
        self.settings = settings_of(
            loss_type, importance_sampling_level, epsilon_low, epsilon_high, delta, temperatures, gammas
        )

    def forward(
        self,
        _input: Tensor,
        lin_weight: Tensor,
        selected_token_ids: Tensor,
        attention_mask: Tensor,
        advantages: Tensor,
        bias: Tensor | None = None,
        ref_per_token_logps: Tensor | None = None,
        old_per_token_logps: Tensor | None = None,
        ref_input: Tensor | None = None,
        ref_weight: Tensor | None = None,
        ref_bias: Tensor | None = None,
        vllm_is_ratio: Tensor | None = None,
        num_items_in_batch: Tensor | float | None = None,
    ) -> tuple[Tensor, tuple[Tensor, ...]]:
        """Return the loss and Liger's metrics.

        Args:
            _input: (B, T, H) hidden states.
            lin_weight: (V, H).
            selected_token_ids: (B, T) int64.
            attention_mask: (B, T), nonzero on completion tokens.
            advantages: (B,) or (B, T).
            bias: (V,) or None.
            ref_per_token_logps: (B, T); without them they are taken from the next three, where `use_ref_model`.
            old_per_token_logps: (B, T), or None on-policy.
            ref_input, ref_weight, ref_bias: hidden states and head of the reference.
            vllm_is_ratio: (B, T), (B, 1) or (B,) weights of the policy term; one per sequence where the ratio is the
                sequence's, and one per token for "vespo". NaN, from an engine that returned no log-probability, is 1.
            num_items_in_batch: active tokens of the whole batch on all processes, by which "dapo" divides (times
                the number of processes); None takes the mask's, added up over processes.

        Returns:
            `(loss, metrics)`, the loss differentiable in `_input`, `lin_weight` and `bias`; the metrics, 0-d and
            without gradient, are the mean KL where `beta` is not 0, then the share of clipped tokens.

        Raises:
            ValueError: a reference is wanted and not given, or as `linear_policy_loss` raises.
        """
        mask = attention_mask != 0
        if not self.use_ref_model or self.beta == 0:
            ref_per_token_logps = None
        elif ref_per_token_logps is None:
            if ref_input is None or ref_weight is None:
                raise ValueError(
                    f"beta={self.beta} with use_ref_model needs ref_per_token_logps, or ref_input and ref_weight"
                )
            with torch.no_grad():
                ref_per_token_logps, _ = linear_logprobs(
                    ref_input,
                    ref_weight,
                    selected_token_ids,
                    bias=ref_bias,
                    temperature=self.temperature,
                    mask=mask,
                )
        if vllm_is_ratio is not None:
            vllm_is_ratio = vllm_is_ratio.masked_fill(vllm_is_ratio.isnan(), 1.0)
            if vllm_is_ratio.dim() == 2 and vllm_is_ratio.shape[1] == 1:
                vllm_is_ratio = vllm_is_ratio[:, 0]
            elif vllm_is_ratio.dim() == 2 and self.importance_sampling_level == "sequence":
                raise ValueError("vllm_is_ratio must be per sequence where importance_sampling_level is 'sequence'")
        output = linear_policy_loss(
            _input,
            lin_weight,
            selected_token_ids,
            advantages,
            mask,
            bias=bias,
            ref_logps=ref_per_token_logps,
            old_logps=old_per_token_logps,
            rollout_weights=vllm_is_ratio,
            temperature=self.temperature,
            beta=0.0 if ref_per_token_logps is None else self.beta,
            unbiased_kl=self.use_bias_correction_kl,
            **self.settings,
            normalizer=self._normalizer(mask, num_items_in_batch),
        )
        metrics = output.metrics
        # Tokens that need no computing have advantage 0, so they are never clipped.
        clipped = metrics["clip_fraction"] * metrics["computed_tokens"] / metrics["active_tokens"].clamp(min=1)
        return output.loss, (metrics["kl"], clipped) if self.beta != 0 else (clipped,)

    def _normalizer(self, mask: Tensor, num_items_in_batch: Tensor | float | None) -> Tensor | float:
        if self.loss_type in ("grpo", "sapo", "luspo"):
            return mask.shape[0]
        if self.loss_type == "dr_grpo":
            assert self.max_completion_length is not None
            return mask.shape[0] * self.max_completion_length
        tokens = mask.sum().float()
        if self.loss_type in OF_ALL_TOKENS:
            distributed = dist.is_available() and dist.is_initialized()
            if num_items_in_batch is not None:
                tokens = torch.as_tensor(num_items_in_batch, device=mask.device).float()
            elif distributed:
                dist.all_reduce(tokens)
            tokens = tokens / (dist.get_world_size() if distributed else 1)
        return tokens.clamp(min=1)
