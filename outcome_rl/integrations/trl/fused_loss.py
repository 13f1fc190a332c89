"""TRL's policy loss from hidden states, by `linear_policy_loss`.

TRL multiplies the hidden states with the lm_head inside the model's forward, where data parallelism sees it, and
computes the loss from the log-probabilities outside. Here the loss itself is computed inside, with TRL's denominators:

| loss_type | aggregation | divided by |
|---|---|---|
| `grpo`, `sapo` | seq-mean-token-mean | sequences * steps of accumulation |
| `bnpo` | token-mean | tokens * steps of accumulation |
| `dr_grpo` | token-sum | sequences * max_completion_length * steps of accumulation |
| `luspo` | token-sum | sequences * steps of accumulation |
| `dapo`, `cispo`, `vespo` | token-sum | tokens of the generation batch, divided by steps and ranks |
"""

import functools
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from types import MethodType
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from outcome_rl.sampler.seeds import derive_seed
from outcome_rl_kernels import PolicyLossOutput, linear_policy_loss
from outcome_rl_kernels.checks import check_choice
from outcome_rl_kernels.loss.inputs import Rows, check_sampling
from outcome_rl_kernels.loss.losses.sapo import sapo
from outcome_rl_kernels.loss.losses.vespo import vespo
from outcome_rl_kernels.loss.types import LossAggregation

if TYPE_CHECKING:
    from trl import GRPOTrainer

AGGREGATION: dict[str, LossAggregation] = {
    "grpo": "seq-mean-token-mean",
    "bnpo": "token-mean",
    "dr_grpo": "token-sum",
    "dapo": "token-sum",
    "luspo": "token-sum",
    "cispo": "token-sum",
    "sapo": "seq-mean-token-mean",
    "vespo": "token-sum",
}
OF_ALL_TOKENS = ("dapo", "cispo", "vespo")  # divided by the tokens of the whole batch on all processes
UNCLIPPED = ("cispo", "sapo", "vespo")  # they define the weight of a ratio themselves
# What TRL's forward pass takes of images, beside text.
IMAGES = (
    *("pixel_values", "image_grid_thw", "pixel_attention_mask", "spatial_shapes", "image_sizes", "image_position_ids"),
    *("token_type_ids", "mm_token_type_ids"),
)


def check_fused_loss(trainer: "GRPOTrainer") -> None:
    """Refuse settings that `linear_policy_loss` cannot express, and `sample_below` where it is not called.

    Raises:
        ValueError: there are some; the message names all of them.
    """
    check_choice("fused_loss", trainer.fused_loss, (True, False))
    check_sampling(trainer.sample_below, 0, None)
    if not trainer.fused_loss:
        if trainer.sample_below > 0:
            raise ValueError(
                f"sample_below={trainer.sample_below} needs fused_loss=True; TRL's own loss has no such setting"
            )
        return
    from transformers.integrations.deepspeed import is_deepspeed_zero3_enabled

    args, loss_type, of_sequences = trainer.args, trainer.loss_type, trainer.importance_sampling_level == "sequence"
    # TRL multiplies the loss of a sequence by factors of tokens: their mean reaches the gradient of each token.
    of_means = of_sequences or loss_type == "luspo"
    obstacles = {
        f"loss_type={loss_type!r} (it takes {', '.join(AGGREGATION)})": loss_type not in AGGREGATION,
        f"loss_type={loss_type!r} with importance_sampling_level='sequence'": loss_type in UNCLIPPED and of_sequences,
        "use_bias_correction_kl with importance_sampling_level='sequence'": args.use_bias_correction_kl
        and trainer.beta != 0
        and of_sequences,
        "loss_type='cispo' with epsilon_high below 1": loss_type == "cispo" and trainer.epsilon_high < 1,
        "delta below 1 + epsilon_high": loss_type not in UNCLIPPED
        and args.delta is not None
        and args.delta < 1 + trainer.epsilon_high,
        "top_entropy_quantile below 1": trainer.top_entropy_quantile < 1,
        "off_policy_mask_threshold": trainer.off_policy_mask_threshold is not None,
        "use_adaptive_entropy, whose controller is in TRL's loss": trainer.use_adaptive_entropy,
        "vLLM's importance ratios of tokens with ratios of sequences (set vllm_importance_sampling_mode)": of_means
        and trainer.use_vllm
        and args.vllm_importance_sampling_correction
        and args.vllm_importance_sampling_mode.startswith("token"),
        "a mixture-of-experts model's auxiliary loss (set router_aux_loss_coef=0)": trainer.aux_loss_enabled,
        "use_liger_kernel of TRL 1.14, which replaces model.forward": getattr(trainer, "use_liger_kernel", False),
        "FSDP": trainer.is_fsdp_enabled,
        "DeepSpeed ZeRO-3": is_deepspeed_zero3_enabled(),
    }
    found = [name for name, present in obstacles.items() if present]
    if found:
        raise ValueError(f"fused_loss=True cannot be combined with {'; '.join(found)}. Leave it out to use TRL's loss")


def add_policy_loss(model: Any) -> None:
    """Make `model(..., policy_loss=f)` return f(last hidden states, lm_head) in place of logits."""
    base = model.get_base_model() if hasattr(model, "get_base_model") else model  # PEFT wraps it
    original = base.forward

    @functools.wraps(type(base).forward)  # `generate` reads its signature
    def forward(self: Any, *args: Any, policy_loss: Callable[[Tensor, Any], Any] | None = None, **kwargs: Any) -> Any:
        if policy_loss is None:
            return original(*args, **kwargs)
        kwargs.pop("labels", None)  # PEFT passes None
        hidden = self.base_model(*args, **kwargs, use_cache=False).last_hidden_state
        return policy_loss(hidden, self.get_output_embeddings())

    base.forward = MethodType(forward, base)


def fused_policy_loss(trainer: "GRPOTrainer", model: Any, inputs: dict[str, Any]) -> PolicyLossOutput:
    """Compute the loss of a micro-batch as `GRPOTrainer._compute_loss` does, with log-probabilities and entropies.

    Args:
        trainer: the trainer, for its settings.
        model: the policy, wrapped as for training.
        inputs: the inputs of `GRPOTrainer._compute_loss`.
    """
    completion_ids, completion_mask = inputs["completion_ids"], inputs["completion_mask"]
    num_sequences, num_tokens = completion_ids.shape
    mask = loss_mask(inputs)
    rollout_weights = inputs.get("importance_sampling_ratio")
    if rollout_weights is not None and rollout_weights.shape[1] == 1:  # one per sequence
        rollout_weights = rollout_weights[:, 0]

    settings = policy_term(trainer)
    normalizer = _normalizer(trainer, inputs, mask, num_sequences)
    if trainer._entropy_bonus_enabled:
        settings |= {
            "entropy_coef": float(trainer.entropy_coef),
            "entropy_weights": _entropy_weights(trainer, mask, normalizer, settings["loss_agg"]),
        }

    options = trainer._head.options(trainer.temperature)
    rows: Rows = "active" if trainer.logs_every_token() else "contributing"
    if trainer.model.training:
        step, done = trainer._micro_batch
        trainer._micro_batch = trainer.state.global_step, done + 1 if step == trainer.state.global_step else 0
    step, micro_batch = trainer._micro_batch
    sample_seed = derive_seed(trainer.args.seed, "entries", step, micro_batch, trainer.accelerator.process_index)

    def policy_loss(hidden: Tensor, head: Any) -> PolicyLossOutput:
        with head_autocast(trainer, hidden):
            return linear_policy_loss(
                head_input(trainer, hidden, head, num_tokens),
                head.weight,
                completion_ids,
                inputs["advantages"],
                mask,
                bias=head.bias,
                ref_logps=inputs.get("ref_per_token_logps"),
                old_logps=inputs.get("old_per_token_logps"),
                rollout_weights=rollout_weights,
                softcap=options["softcap"],
                temperature=options["temperature"],
                beta=trainer.beta,
                unbiased_kl=trainer.args.use_bias_correction_kl,
                **settings,
                normalizer=normalizer,
                rows=rows,
                sample_below=trainer.sample_below,
                sample_seed=sample_seed,
            )

    with trainer.accelerator.autocast():
        output: PolicyLossOutput = model(
            input_ids=torch.cat([inputs["prompt_ids"], completion_ids], dim=1),
            attention_mask=torch.cat([inputs["prompt_mask"], completion_mask], dim=1),
            policy_loss=policy_loss,
            **{name: inputs[name] for name in IMAGES if inputs.get(name) is not None},
        )
    return output


def policy_term(trainer: "GRPOTrainer") -> dict[str, Any]:
    """Return `token_loss`, its bounds and `loss_agg`.

    The upper bound of "cispo" is epsilon_high itself, and it has no lower one.
    """
    args, low, high = trainer.args, trainer.epsilon_low, trainer.epsilon_high
    token_loss: Any = "gspo" if trainer.importance_sampling_level == "sequence" else "ppo"
    if trainer.loss_type == "cispo":
        token_loss, low, high = "cispo", 1.0, high - 1
    elif trainer.loss_type == "sapo":
        token_loss = sapo(args.sapo_temperature_pos, args.sapo_temperature_neg)
    elif trainer.loss_type == "vespo":
        token_loss = vespo(args.vespo_k_pos, args.vespo_lambda_pos, args.vespo_k_neg, args.vespo_lambda_neg)
    return {
        "token_loss": token_loss,
        "epsilon_low": low,
        "epsilon_high": high,
        "delta": None if trainer.loss_type in UNCLIPPED else args.delta,
        "loss_agg": AGGREGATION[trainer.loss_type],
    }


def loss_mask(inputs: dict[str, Any]) -> Tensor:
    """Return the tokens of TRL's loss, bool (N, T)."""
    mask: Tensor = inputs["completion_mask"] * inputs.get("tool_mask", 1)
    return mask.bool()


@torch.no_grad()
def loss_metrics(trainer: "GRPOTrainer", inputs: dict[str, Any], output: PolicyLossOutput) -> dict[str, float]:
    """Return TRL's metrics of a micro-batch's loss over all ranks: `entropy`, `kl` and the shares of clipped ratios.

    Every token of the loss must have been computed.
    """
    mask, advantages = loss_mask(inputs), inputs["advantages"].view(len(output.logps), -1)
    log_ratios = output.logps - inputs.get("old_per_token_logps", output.logps)
    if trainer.importance_sampling_level == "sequence":
        log_ratios = (log_ratios * mask).sum(dim=1, keepdim=True) / mask.sum(dim=1, keepdim=True).clamp(min=1)
    ratios = log_ratios.exp()
    clipped = {}
    if trainer.loss_type == "cispo":
        clipped["cispo_clip_ratio"] = (ratios > trainer.epsilon_high) & (advantages > 0)
    elif trainer.loss_type not in UNCLIPPED:
        low = (ratios < 1 - trainer.epsilon_low) & (advantages < 0)
        high = (ratios > 1 + trainer.epsilon_high) & (advantages > 0)
        clipped = {"clip_ratio/low_mean": low, "clip_ratio/high_mean": high, "clip_ratio/region_mean": low | high}

    tokens, means = mask.sum(), {name: output.metrics[name] for name in ("entropy", "kl")[: 1 + (trainer.beta != 0)]}
    totals = [torch.stack([mean * tokens, tokens]) for mean in means.values()]
    for where in clipped.values():
        weights = mask if where.shape[1] > 1 else torch.ones_like(where)  # TRL: one ratio a sequence counts once
        totals.append(torch.stack([(where & weights).sum(), weights.sum()]))
    totals_M2 = trainer.accelerator.reduce(torch.stack(totals).float(), reduction="sum")
    shares = (totals_M2[:, 0] / totals_M2[:, 1].clamp(min=1)).tolist()
    return dict(zip([*means, *clipped], shares, strict=True))


def head_autocast(trainer: "GRPOTrainer", hidden: Tensor) -> AbstractContextManager[Any]:
    """Return the context of products with the head: no autocast where TRL has cast it to float32."""
    return torch.autocast(hidden.device.type, enabled=False) if trainer.args.cast_lm_head_to_fp32 else nullcontext()


def head_input(trainer: "GRPOTrainer", hidden: Tensor, head: Any, num_tokens: int) -> Tensor:
    """Return the hidden states that predict the last tokens, in float32 where TRL has cast the head to it."""
    states = hidden[:, -num_tokens - 1 : -1]
    return states.to(head.weight.dtype) if trainer.args.cast_lm_head_to_fp32 else states


def _entropy_weights(
    trainer: "GRPOTrainer", mask: Tensor, normalizer: float | Tensor, loss_agg: LossAggregation
) -> Tensor:
    """Return weights that average the entropy term over tokens and accumulation steps, whatever the aggregation."""
    accumulated = trainer.current_gradient_accumulation_steps if trainer.model.training else 1
    tokens = mask.sum(dim=1) if loss_agg == "seq-mean-token-mean" else torch.ones_like(mask[:, 0])
    return normalizer * tokens.clamp(min=1).float() / (mask.sum().clamp(min=1) * accumulated)


def _normalizer(trainer: "GRPOTrainer", inputs: dict[str, Any], mask: Tensor, num_sequences: int) -> float | Tensor:
    """Return the denominator of the loss, the last column of this module's table."""
    training = trainer.model.training
    accumulated = trainer.current_gradient_accumulation_steps if training else 1
    if trainer.loss_type in OF_ALL_TOKENS:
        tokens: Tensor = inputs["num_items_in_batch"].clamp(min=1) / trainer.accelerator.num_processes
        return tokens * accumulated / trainer.args.steps_per_generation if training else tokens
    if trainer.loss_type == "bnpo":
        return mask.sum().clamp(min=1) * accumulated
    horizon = trainer.max_completion_length if trainer.loss_type == "dr_grpo" else 1
    return float(num_sequences * horizon * accumulated)
