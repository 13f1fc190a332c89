"""TRL's GRPOTrainer on a batch that is given to it: its own generation, loss and training step, without its loop."""

import tempfile
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from outcome_rl.bench.padding import pad_rollouts
from outcome_rl.grpo.model.policy import Policy
from outcome_rl.grpo.types import Sample

INSTALL = "pip install 'trl>=1.16,<1.17' accelerate"


class TrlStep:
    """One training step of TRL on `batch`: forward and backward passes in micro-batches, clipping, AdamW."""

    def __init__(self, policy: Policy, batch: Sequence[Sample], *, n: int, micro_batch_size: int, lr: float) -> None:
        """Args:
        policy: its weights are trained.
        batch: what is learnt from; bonuses are added to the advantages, answers are not masked.
        n: responses to a question.
        micro_batch_size: responses of one forward and backward pass; divides their number.
        lr: of AdamW.

        Raises:
            ImportError: TRL or accelerate is not installed.
        """
        import datasets
        from trl import GRPOConfig, GRPOTrainer

        padded = pad_rollouts([sample.rollout for sample in batch], policy.tokenizer.pad_token_id, policy.device)
        parts = len(batch) // micro_batch_size
        self._folder = tempfile.TemporaryDirectory()
        settings = GRPOConfig(
            output_dir=self._folder.name,
            per_device_train_batch_size=micro_batch_size,
            gradient_accumulation_steps=parts,
            num_generations=n,
            max_completion_length=padded.completion_ids.shape[1],
            learning_rate=lr,
            optim="adamw_torch",
            beta=0.0,
            temperature=1.0,
            gradient_checkpointing=False,
            bf16=False,
            use_cpu=policy.device.type == "cpu",
            report_to=[],
        )

        class OnGivenBatches(GRPOTrainer):  # type: ignore[misc]
            def _prepare_inputs(self, generation_batch: Any) -> Any:
                return generation_batch

        self.trainer = OnGivenBatches(
            model=policy.model,
            processing_class=policy.tokenizer,
            reward_funcs=lambda completions, **_: [0.0] * len(completions),
            args=settings,
            train_dataset=datasets.Dataset.from_dict({"prompt": ["x"] * len(batch)}),
        )
        self.trainer.current_gradient_accumulation_steps = parts
        self.trainer.create_optimizer()
        self.trainer.model.train()
        whole: dict[str, Tensor] = {
            "prompt_ids": padded.prompt_ids,
            "prompt_mask": padded.prompt_mask.long(),
            "completion_ids": padded.completion_ids,
            "completion_mask": padded.completion_mask.long(),
            "advantages": torch.tensor([sample.advantage + sample.bonus for sample in batch], device=policy.device),
        }
        split = {name: torch.split(value, micro_batch_size) for name, value in whole.items()}
        tokens = padded.completion_mask.sum()
        self._inputs = [
            {**{name: values[part] for name, values in split.items()}, "num_items_in_batch": tokens}
            for part in range(parts)
        ]

    def __call__(self) -> tuple[float, float]:
        """Loss and norm of the gradient before clipping."""
        trainer = self.trainer
        losses = [trainer.training_step(trainer.model, dict(inputs), None) for inputs in self._inputs]
        norm = torch.nn.utils.clip_grad_norm_(trainer.model.parameters(), trainer.args.max_grad_norm)
        trainer.optimizer.step()
        trainer.optimizer.zero_grad()
        return torch.stack(losses).sum().item(), norm.item()

    def generate(self, prompts: Sequence[Sequence[int]], n: int) -> int:
        """Sample n responses to each prompt; how many tokens."""
        repeated = [list(prompt) for prompt in prompts for _ in range(n)]
        completions, _ = self.trainer._generate_single_turn(repeated, None, {}, n)
        return sum(map(len, completions))
