"""Liger's `LigerFusedLinearGRPOLoss` with this library's loss behind it.

Copy this file to your PYTHONPATH, and change one import:

    from liger import LigerFusedLinearGRPOLoss          # before: from liger_kernel.chunked_loss import ...

- Constructor, call, loss and gradients are those of Liger 0.8.
- Three matrix products instead of four, and none for tokens without a gradient. The backward pass does not wait for the
  GPU.
- Advantages may also be one per token. The gradient of a bfloat16 weight is rounded at most eight times, where Liger
  adds a rounded part for each sequence. Log-ratios beyond 20 are bounded.
- The clip metric also counts ratios that `delta` bounds, and for "cispo" ratios of tokens with a negative advantage.
- A token counts or does not: a mask of other numbers is no weight. A NaN of `vllm_is_ratio` is 1.
- Options that this loss does not have are refused by name: `delta` below `1 + epsilon_high`, "luspo" with ratios of
  tokens or KL, "cispo" with `epsilon_high` below 1, and `use_bias_correction_kl`, `vllm_is_ratio` of tokens, "cispo",
  "sapo" or "vespo" with ratios of sequences. Labels of active tokens outside the vocabulary are refused too.

Run: signatures, losses, gradients and metrics against Liger 0.8.5 on a CPU, by a test. Not run: a GPU.
"""

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from outcome_rl import linear_logprobs, linear_policy_loss
from outcome_rl_kernels.loss.losses.sapo import sapo
from outcome_rl_kernels.loss.losses.vespo import vespo

AGGREGATION = {"grpo": "seq-mean-token-mean", "sapo": "seq-mean-token-mean", "bnpo": "token-mean"} | dict.fromkeys(
    ("dr_grpo", "dapo", "luspo", "cispo", "vespo"), "token-sum"
)


class LigerFusedLinearGRPOLoss(torch.nn.Module):
    """GRPO's loss from hidden states, by Liger's constructor and call; `compiled` and `chunk_size` have no effect."""

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
        of_sequences = importance_sampling_level == "sequence"
        is_own = loss_type in ("cispo", "sapo", "vespo")  # they define the weight of a ratio themselves
        obstacles = {
            f"loss_type={loss_type!r}": loss_type not in AGGREGATION or (is_own and of_sequences),
            f"importance_sampling_level={importance_sampling_level!r}": importance_sampling_level
            not in ("token", "sequence"),
            "loss_type='luspo' with ratios of tokens or with KL": loss_type == "luspo"
            and (not of_sequences or beta != 0),
            "loss_type='dr_grpo' without max_completion_length": loss_type == "dr_grpo" and not max_completion_length,
            "loss_type='cispo' with epsilon_high below 1": loss_type == "cispo" and epsilon_high < 1,
            "delta below 1 + epsilon_high": not is_own and delta is not None and delta < 1 + epsilon_high,
            "use_bias_correction_kl with ratios of sequences": use_bias_correction_kl and beta != 0 and of_sequences,
        }
        if found := [name for name, holds in obstacles.items() if holds]:
            raise ValueError(
                f"this loss cannot express {'; '.join(found)} at {importance_sampling_level=}. Keep Liger's"
            )
        soft = sapo(sapo_temperature_pos, sapo_temperature_neg)  # refuses its temperatures whatever the loss, as Liger
        token_loss: Any = "gspo" if of_sequences else "ppo"
        if loss_type == "cispo":  # its upper bound is epsilon_high itself
            token_loss, epsilon_low, epsilon_high = "cispo", 1.0, epsilon_high - 1
        elif loss_type == "sapo":
            token_loss = soft
        elif loss_type == "vespo":
            token_loss = vespo(vespo_k_pos, vespo_lambda_pos, vespo_k_neg, vespo_lambda_neg)
        self.loss_type, self.of_sequences, self.max_completion_length = loss_type, of_sequences, max_completion_length
        self.beta = beta if use_ref_model else 0.0
        self.logs_kl = beta != 0
        self.settings = {
            "token_loss": token_loss,
            "epsilon_low": epsilon_low,
            "epsilon_high": epsilon_high,
            "delta": None if is_own else delta,
            "loss_agg": AGGREGATION[loss_type],
            "temperature": temperature,
            "unbiased_kl": use_bias_correction_kl,
        }

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
        """Return the loss, and Liger's metrics: the mean KL where `beta` is not 0, then the share of clipped tokens."""
        mask, labels = attention_mask != 0, selected_token_ids.long()
        if self.beta != 0 and ref_per_token_logps is None:
            if ref_input is None or ref_weight is None:
                raise ValueError(f"beta={self.beta} needs ref_per_token_logps, or ref_input and ref_weight")
            with torch.no_grad():
                ref_per_token_logps, _ = linear_logprobs(
                    ref_input,
                    _like(ref_input, ref_weight),
                    labels,
                    bias=_like(ref_input, ref_bias),
                    temperature=self.settings["temperature"],
                    mask=mask,
                )
        if vllm_is_ratio is not None:  # NaN: the engine returned no log-probability
            vllm_is_ratio = vllm_is_ratio.masked_fill(vllm_is_ratio.isnan(), 1.0)
            if vllm_is_ratio.dim() == 2 and vllm_is_ratio.shape[1] == 1:
                vllm_is_ratio = vllm_is_ratio[:, 0]
            elif vllm_is_ratio.dim() == 2 and self.of_sequences:
                raise ValueError("vllm_is_ratio must be per sequence where importance_sampling_level is 'sequence'")
        output = linear_policy_loss(
            _input,
            _like(_input, lin_weight),
            labels,
            advantages,
            mask,
            bias=_like(_input, bias),
            ref_logps=ref_per_token_logps if self.beta != 0 else None,
            old_logps=old_per_token_logps,
            rollout_weights=vllm_is_ratio,
            beta=self.beta,
            **self.settings,
            normalizer=self._normalizer(mask, num_items_in_batch),
        )
        metrics = output.metrics
        # Tokens that need no computing have advantage 0, so they are never clipped.
        clipped = metrics["clip_fraction"] * metrics["computed_tokens"] / metrics["active_tokens"].clamp(min=1)
        return output.loss, (metrics["kl"], clipped) if self.logs_kl else (clipped,)

    def _normalizer(self, mask: Tensor, num_items_in_batch: Tensor | float | None) -> Tensor | float:
        if self.loss_type in ("grpo", "sapo", "luspo"):
            return mask.shape[0]
        if self.loss_type == "dr_grpo":
            return mask.shape[0] * self.max_completion_length
        tokens = mask.sum().float()
        if self.loss_type != "bnpo":  # the tokens of the whole batch on all processes, a part for each process
            distributed = dist.is_available() and dist.is_initialized()
            if num_items_in_batch is not None:
                tokens = torch.as_tensor(num_items_in_batch, device=mask.device).float()
            elif distributed:
                dist.all_reduce(tokens)
            tokens = tokens / (dist.get_world_size() if distributed else 1)
        return tokens.clamp(min=1)


def _like(hidden: Tensor, operand: Tensor | None) -> Any:
    """Return an operand of the head in the dtype of the hidden states, as Liger multiplies."""
    return None if operand is None else operand.to(hidden.dtype)
