"""Baselines of a training step: the loop that one would write with transformers and PyTorch, and TRL's GRPOTrainer.

A baseline samples, computes the reference and updates on the prompts, the settings and the weights of a `Trainer`. All
take outcomes and advantages from this library. Baselines pad their batches; this library packs them.
"""

import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from importlib.util import find_spec
from itertools import pairwise
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from outcome_rl.grpo.model.policy import Policy
from outcome_rl.grpo.trainer import Trainer
from outcome_rl.grpo.types import Rollout, TrainingBatch

PARTS = ("rollout", "outcomes", "reference", "update")
INSTALL_TRL = "pip install 'trl>=1.16,<1.17' accelerate"


class Padded(NamedTuple):
    """N scored responses: prompts padded on the left to P tokens, responses on the right to T."""

    prompt_ids: Tensor  # (N, P) int64
    prompt_mask: Tensor  # (N, P) bool
    completion_ids: Tensor  # (N, T) int64
    completion_mask: Tensor  # (N, T) bool, the end token included
    advantages: Tensor  # (N, T) float32, bonuses included; 0 on answer tokens

    @property
    def ids(self) -> Tensor:
        return torch.cat([self.prompt_ids, self.completion_ids], dim=1)

    @property
    def mask(self) -> Tensor:
        return torch.cat([self.prompt_mask, self.completion_mask], dim=1).long()

    def split(self, size: int) -> list["Padded"]:
        """Return micro-batches of `size` responses."""
        return [Padded(*rows) for rows in zip(*(torch.split(column, size) for column in self), strict=True)]


def pad(batch: TrainingBatch, token: int, device: torch.device) -> Padded:
    """Pad prompts and responses with a token."""
    prompts = _padded([rollout.prompt_ids for rollout in batch.rollouts], token, left=True)
    completion_ids, completion_mask = _padded([rollout.token_ids for rollout in batch.rollouts], token, left=False)
    first, stop = batch.spans_N2.T[..., None]
    positions = torch.arange(completion_ids.shape[1])
    is_answer = (positions >= first) & (positions < stop)
    advantages = (batch.advantages_N + batch.bonuses_N)[:, None] * ~is_answer
    columns = (*prompts, completion_ids, completion_mask, advantages)
    return Padded(*(column.to(device) for column in columns))


class Baseline(ABC):
    """A training step on a trainer's model with a baseline's implementation."""

    label: str

    def __init__(self, trainer: Trainer) -> None:
        self.trainer = trainer
        self.config = trainer.parts.config
        self.device = trainer.parts.policy.device
        # As transformers loads it: the trainer's has other attention, and masters that take its gradients.
        self.policy = Policy.load(replace(self.config.model, use_remove_padding=False))
        self.reference: nn.Module  # frozen

    @abstractmethod
    def generate(self, prompts: Sequence[Sequence[int]]) -> list[Rollout]:
        """Sample `rollout.n` responses to each prompt."""

    @abstractmethod
    def reference_logps(self, micro_batch: Padded) -> Tensor:
        """Return the reference's log-probabilities (N, T)."""

    @abstractmethod
    def update(self, micro_batches: Sequence[Padded], reference_logps: Sequence[Tensor]) -> tuple[float, float]:
        """Take one optimizer step and drop the gradients; return the loss, and the gradient norm before clipping."""

    def step(self) -> tuple[dict[str, float], int]:
        """Make a whole step; return the seconds of each of `PARTS`, and the number of sampled tokens."""
        trainer = self.trainer
        chosen = trainer.parts.plan.order.batch(1)
        marks = [self._now()]
        rollouts = self.generate([trainer.parts.plan.train_set.prompts[i] for i in chosen])
        marks.append(self._now())
        samples, _ = trainer.parts.collector.score([trainer.parts.plan.train_set.problems[i] for i in chosen], rollouts)
        marks.append(self._now())
        micro_batches = self.micro_batches(samples)
        logps = [self.reference_logps(one) for one in micro_batches]
        marks.append(self._now())
        self.update(micro_batches, logps)
        marks.append(self._now())
        seconds = [end - start for start, end in pairwise(marks)]
        return dict(zip(PARTS, seconds, strict=True)), sum(len(rollout.token_ids) for rollout in rollouts)

    def train(self, samples: TrainingBatch) -> tuple[float, float]:
        """Make the part of a step after the outcomes; return loss and gradient norm."""
        micro_batches = self.micro_batches(samples)
        return self.update(micro_batches, [self.reference_logps(one) for one in micro_batches])

    @property
    def responses_in_a_pass(self) -> int:
        """Responses of full length in the tokens of a pass of ours."""
        return self.config.actor.ppo_max_token_len_per_gpu // self.config.data.max_length

    def micro_batches(self, samples: TrainingBatch) -> list[Padded]:
        padded = pad(samples, self.trainer.parts.policy.tokenizer.pad_token_id, self.device)
        return padded.split(self.responses_in_a_pass)

    def _now(self) -> float:
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        return time.perf_counter()


class PlainLoop(Baseline):
    """`model.generate`, whole sequences through policy and reference, log-softmax and gather of all logits, AdamW."""

    label = "plain loop"

    def __init__(self, trainer: Trainer) -> None:
        super().__init__(trainer)
        self.model, self.tokenizer = self.policy.model, self.policy.tokenizer
        self.reference = self.policy.frozen_copy().model
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=self.config.actor.optim.lr)

    @torch.no_grad()
    def generate(self, prompts: Sequence[Sequence[int]]) -> list[Rollout]:
        inputs = self.tokenizer.pad({"input_ids": list(prompts)}, return_tensors="pt").to(self.device)
        n, width = self.config.rollout.n, inputs.input_ids.shape[1]
        sampled = self.model.generate(
            input_ids=inputs.input_ids,
            attention_mask=inputs.attention_mask,
            num_return_sequences=n,
            do_sample=True,
            top_k=0,
            max_new_tokens=self.config.data.max_response_length,
        )[:, width:]
        # Up to and including the first end token.
        ends_before = (sampled == self.tokenizer.eos_token_id).cumsum(dim=1).roll(1, dims=1)
        ends_before[:, 0] = 0
        lengths = (ends_before == 0).sum(dim=1).tolist()
        texts = self.tokenizer.batch_decode(sampled, skip_special_tokens=True)
        columns = zip(sampled.tolist(), lengths, texts, strict=True)
        return [Rollout(prompts[row // n], ids[:length], text) for row, (ids, length, text) in enumerate(columns)]

    @torch.no_grad()
    def reference_logps(self, micro_batch: Padded) -> Tensor:
        return self._logps(self.reference, micro_batch)

    def update(self, micro_batches: Sequence[Padded], reference_logps: Sequence[Tensor]) -> tuple[float, float]:
        total = sum(part.completion_mask.sum() for part in micro_batches)
        whole = torch.zeros((), device=self.device)
        for part, ref in zip(micro_batches, reference_logps, strict=True):
            loss = self.loss(part, ref) / total
            loss.backward()  # type: ignore[no-untyped-call]
            whole += loss.detach()
        norm = torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.config.actor.grad_clip)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        return whole.item(), norm.item()

    def loss(self, micro_batch: Padded, ref: Tensor) -> Tensor:
        """Return the sum of the token losses."""
        logps = self._logps(self.model, micro_batch)
        ratio = torch.exp(logps - logps.detach())
        k3 = torch.exp(ref - logps) - (ref - logps) - 1
        per_token = self.config.actor.loss.beta * k3 - ratio * micro_batch.advantages
        return (per_token * micro_batch.completion_mask).sum()

    def _logps(self, model: Any, part: Padded) -> Tensor:
        width = part.prompt_ids.shape[1]
        logits = model(input_ids=part.ids, attention_mask=part.mask, use_cache=False).logits[:, width - 1 : -1]
        found: Tensor = F.log_softmax(logits, dim=-1).gather(-1, part.completion_ids[..., None])[..., 0]
        return found


class TrlLoop(Baseline):
    """TRL's GRPOTrainer on batches that are given to it: its generation, reference, loss and training step."""

    label = "TRL"

    def __init__(self, trainer: Trainer) -> None:
        """Build TRL's trainer with the settings of ours.

        Raises:
            ImportError: TRL or accelerate is not installed.
        """
        import datasets
        from trl import GRPOConfig, GRPOTrainer

        super().__init__(trainer)
        actor = self.config.actor
        self._folder = tempfile.TemporaryDirectory()
        samples = self.config.data.train_batch_size * self.config.rollout.n
        self._parts = samples // self.responses_in_a_pass
        settings = GRPOConfig(
            output_dir=self._folder.name,
            per_device_train_batch_size=self.responses_in_a_pass,
            gradient_accumulation_steps=self._parts,
            num_generations=self.config.rollout.n,
            max_completion_length=self.config.data.max_response_length,
            max_grad_norm=actor.grad_clip,
            learning_rate=actor.optim.lr,
            optim="adamw_torch",
            beta=actor.loss.beta,
            use_bias_correction_kl=False,  # the plain k3, as ours; TRL's default has another gradient
            temperature=1.0,
            gradient_checkpointing=False,
            bf16=False,
            use_cpu=self.device.type == "cpu",
            report_to=[],
        )

        class OnGivenBatches(GRPOTrainer):  # type: ignore[misc]
            def _prepare_inputs(self, generation_batch: Any) -> Any:
                return generation_batch

        self.trl = OnGivenBatches(
            model=self.policy.model,
            processing_class=self.policy.tokenizer,
            reward_funcs=lambda completions, **_: [0.0] * len(completions),
            args=settings,
            train_dataset=datasets.Dataset.from_dict({"prompt": ["x"] * samples}),
        )
        self.trl.current_gradient_accumulation_steps = self._parts
        self.trl.create_optimizer()
        self.trl.model.train()
        self.reference = self.trl.ref_model

    def generate(self, prompts: Sequence[Sequence[int]]) -> list[Rollout]:
        n = self.config.rollout.n
        repeated = [list(prompt) for prompt in prompts for _ in range(n)]
        completions = self.trl._generate_single_turn(repeated, None, {}, n)[0]
        texts = self.trl.processing_class.batch_decode(completions, skip_special_tokens=True)
        return [Rollout(*row) for row in zip(repeated, completions, texts, strict=True)]

    @torch.no_grad()
    def reference_logps(self, micro_batch: Padded) -> Tensor:
        width = micro_batch.completion_ids.shape[1]
        logps: Tensor = self.trl._get_per_token_logps_and_entropies(
            self.reference, micro_batch.ids, micro_batch.mask, width
        )[0]
        return logps

    def update(self, micro_batches: Sequence[Padded], reference_logps: Sequence[Tensor]) -> tuple[float, float]:
        tokens = sum(part.completion_mask.sum() for part in micro_batches)
        losses = []
        for part, ref in zip(micro_batches, reference_logps, strict=True):
            inputs = {
                **part._asdict(),
                "prompt_mask": part.prompt_mask.long(),
                "completion_mask": part.completion_mask.long(),
                "ref_per_token_logps": ref,
                "num_items_in_batch": tokens,
            }
            losses.append(self.trl.training_step(self.trl.model, inputs, None))
        norm = torch.nn.utils.clip_grad_norm_(self.trl.model.parameters(), self.trl.args.max_grad_norm)
        self.trl.optimizer.step()
        self.trl.optimizer.zero_grad()
        return torch.stack(losses).sum().item(), norm.item()


def installed_baselines() -> list[type[Baseline]]:
    """Return the baselines that can run here."""
    return [PlainLoop, TrlLoop] if find_spec("trl") is not None else [PlainLoop]


def _padded(rows: Sequence[Sequence[int]], token: int, *, left: bool) -> tuple[Tensor, Tensor]:
    width = max(map(len, rows))
    gaps = [[token] * (width - len(row)) for row in rows]
    ids = torch.tensor([[*gap, *row] if left else [*row, *gap] for row, gap in zip(rows, gaps, strict=True)])
    lengths = torch.tensor([[len(row)] for row in rows])
    positions = torch.arange(width)[None]
    return ids, positions >= width - lengths if left else positions < lengths
