"""The tokens that top-k, top-p and min-p kept, for `fused_loss`: old, reference and new policy are truncated alike.

TRL asks its vLLM for the log-probability of the sampled token alone, and leaves out the ids that come with more of them
(`VLLMGeneration(logprobs=0)` and `_generate_single_turn` in `trl/trainer/grpo_trainer.py`). `keep_tokens` asks for as
many as `top_k` may keep, and takes the kept ids before TRL leaves them out.

A `rollout_func` that samples elsewhere returns them itself, under `kept_ids`: a list of token ids for each token of
each completion, empty where `env_mask` is 0.
"""

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from outcome_rl.integrations.trl.fused_loss import KEPT, add_policy_loss, head_autocast, head_input, support_of
from outcome_rl.sampler.vllm_kept import kept_limit, kept_tokens
from outcome_rl_kernels import linear_logprobs

if TYPE_CHECKING:
    from trl import GRPOTrainer

logger = logging.getLogger(__name__)


def truncates(trainer: "GRPOTrainer") -> bool:
    """Return whether completions are sampled from a part of the vocabulary."""
    return trainer.top_p < 1 or trainer.top_k > 0 or bool(trainer.min_p)


def keep_tokens(trainer: "GRPOTrainer") -> None:
    """Prepare a trainer with `fused_loss` for kept tokens, and let its vLLM return them where it can.

    Raises:
        ValueError: `sample_below` is set where it can.
    """
    reference = getattr(trainer, "ref_model", None)
    if reference is not None:
        add_policy_loss(trainer.accelerator.unwrap_model(reference))
    if not truncates(trainer) or trainer.rollout_func is not None:
        return
    reasons = {
        "transformers does not return them": not trainer.use_vllm,
        "with tools a completion is several samples": trainer.tools,
        "top_k must bound their number": trainer.top_k < 1,
        "old log-probabilities over them are not computed with images": trainer._is_vlm,
    }
    reason = next((name for name, holds in reasons.items() if holds), None)
    if reason is not None:
        logger.warning(
            "the loss is over the whole vocabulary, though top_p=%s, top_k=%s and min_p=%s leave out tokens: the kept "
            "ones are unknown, because %s. It is not the loss of the policy that samples (docs/losses.md, truncated "
            "sampling)",
            *(trainer.top_p, trainer.top_k, trainer.min_p, reason),
        )
        return
    if trainer.sample_below > 0:
        raise ValueError(
            f"sample_below={trainer.sample_below} cannot be combined with top_k={trainer.top_k}: the loss then reads "
            "the kept tokens only, and samples none. Leave sample_below out"
        )
    generation, top_k = trainer.vllm_generation, trainer.top_k
    generation.logprobs = kept_limit(top_k, trainer.model.get_output_embeddings().weight.shape[0])
    if generation.mode == "colocate":  # its limit is 20; a server has the option --max-logprobs
        limits = generation.llm.llm_engine.model_config
        limits.max_logprobs = max(limits.max_logprobs, generation.logprobs)
    generate = generation.generate

    def keeping(*args: Any, **kwargs: Any) -> tuple[Any, Any, Any, Any]:
        prompts, completions, logps, ids = generate(*args, **kwargs)
        positions = [
            [dict(zip(*position, strict=True)) for position in zip(*columns, strict=True)]
            for columns in zip(ids, logps, strict=True)
        ]
        trainer._kept = [
            [kept_tokens(token, position.items(), top_k) for token, position in zip(row, found, strict=True)]
            for row, found in zip(completions, positions, strict=True)
        ]
        sampled = [
            [[position[token]] for token, position in zip(row, found, strict=True)]
            for row, found in zip(completions, positions, strict=True)
        ]
        return prompts, completions, sampled, ids

    generation.generate = keeping


def check_kept(kept: Any, completions: Sequence[Sequence[int]], *, fused_loss: bool) -> None:
    """Check that there is a list of kept tokens for each token, if there are kept ones.

    Raises:
        ValueError: there is not, or the loss does not read them.
    """
    if kept is None:
        return
    if not fused_loss:
        raise ValueError(f"{KEPT} needs fused_loss=True; TRL's own loss is over the whole vocabulary")
    lengths, expected = [len(row) for row in kept], [len(row) for row in completions]
    if lengths != expected:
        raise ValueError(
            f"{KEPT} must hold a list of token ids for each token of each completion, so lists of {expected[:4]}... "
            f"lists; got {lengths[:4]}..."
        )


def padded(kept: Sequence[Sequence[Sequence[int]]], width: int) -> Tensor:
    """Return the kept ids of N completions as one tensor (N, width, K), int32 on the CPU, filled up with -1."""
    size = max((len(ids) for row in kept for ids in row), default=0)
    filled = [[[*ids, *[-1] * (size - len(ids))] for ids in row] + [[-1] * size] * (width - len(row)) for row in kept]
    return torch.tensor(filled, dtype=torch.int32)


@torch.no_grad()
def kept_logps(
    trainer: "GRPOTrainer",
    kept: Sequence[Sequence[Sequence[int]]],
    model: Any,
    input_ids: Tensor,
    attention_mask: Tensor,
    logits_to_keep: int,
    batch_size: int | None = None,
    **_: Any,
) -> tuple[Tensor, None, None]:
    """Return log-probabilities (N, T) over the kept tokens, as TRL's `_get_per_token_logps_and_entropies` does."""
    ids, options = padded(kept, logits_to_keep), trainer._head.options(trainer.temperature)

    def logps_of(rows: slice) -> Tensor:
        mask = attention_mask[rows, -logits_to_keep:].bool() & (ids[rows] >= 0).any(dim=2).to(input_ids.device)

        def logps(hidden: Tensor, head: Any) -> Tensor:
            with head_autocast(trainer, hidden):
                return linear_logprobs(
                    head_input(trainer, hidden, head, logits_to_keep),
                    head.weight,
                    input_ids[rows, -logits_to_keep:],
                    bias=head.bias,
                    support=support_of(ids[rows], input_ids.device),
                    mask=mask,
                    softcap=options["softcap"],
                    temperature=options["temperature"],
                )[0]

        with trainer.accelerator.autocast():
            found: Tensor = model(input_ids=input_ids[rows], attention_mask=attention_mask[rows], policy_loss=logps)
        return found

    size = batch_size or len(input_ids)
    return torch.cat([logps_of(slice(start, start + size)) for start in range(0, len(input_ids), size)]), None, None
