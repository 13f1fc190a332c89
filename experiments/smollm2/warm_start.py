"""Supervised warm start: the format of the answer, and a first idea of the task.

A demonstration is a response with advantage 1. Its gradient is that of the log-likelihood, so the trainer's own update
learns from it.
"""

import time
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from experiments.smollm2.task import Question, questions
from outcome_rl.exploration.config import ExplorationConfig
from outcome_rl.grpo.config.schema import ActorConfig, DataConfig, ModelConfig, OptimConfig, TrainConfig
from outcome_rl.grpo.data.prompts import tokenize
from outcome_rl.grpo.model.policy import Policy
from outcome_rl.grpo.types import Problem, ProblemSet, Rollout, Sample
from outcome_rl.grpo.update.updater import Updater

BATCH_SIZE = 24
LEARNING_RATE = 1e-4
WARMUP_STEPS = 5


def warm_start(base: Path, folder: Path, steps: int, first: int = 0) -> None:
    """Train a model on fresh demonstrations, each seen once, and save it.

    Args:
        base: Hugging Face folder of the model.
        folder: where to save the result.
        steps: optimizer steps of 24 demonstrations.
        first: demonstrations of the data that are left out, those of other warm starts.
    """
    config = TrainConfig(
        model=ModelConfig(path=str(base), device="cpu"),
        actor=ActorConfig(
            loss_mode="cispo",  # its value is the negative log-likelihood, because the ratio is 1
            kl_loss_coef=0.0,
            ppo_micro_batch_size_per_gpu=BATCH_SIZE,
            optim=OptimConfig(
                lr=LEARNING_RATE, lr_warmup_steps=WARMUP_STEPS, lr_scheduler_type="linear", weight_decay=0.0
            ),
        ),
        exploration=ExplorationConfig(answer_mask_mode="none"),
    )
    policy = Policy.load(config.model)
    print(f"warm start: {steps} steps of {BATCH_SIZE} demonstrations in {str(policy.dtype).removeprefix('torch.')}")
    updater = Updater(policy, config, steps)
    source, start = islice(questions("warm"), first, None), time.perf_counter()
    for step in range(1, steps + 1):
        metrics = updater.step(_demonstrations(policy.tokenizer, list(islice(source, BATCH_SIZE)), config.data))
        seconds = time.perf_counter() - start
        print(f"step {step}/{steps}: loss {metrics['actor/loss']:.4f}, {seconds:.0f} s", flush=True)
    policy.save(folder)


def _demonstrations(tokenizer: Any, chosen: Sequence[Question], config: DataConfig) -> list[Sample]:
    asked = tuple(Problem(question.expression, question.text, str(question.value)) for question in chosen)
    prompts = tokenize(ProblemSet("warm", asked, ""), tokenizer, config).prompts
    samples = []
    for problem, prompt, question in zip(asked, prompts, chosen, strict=True):
        ids = tokenizer(question.demonstration, add_special_tokens=False)["input_ids"] + [tokenizer.eos_token_id]
        rollout = Rollout(prompt, ids, question.demonstration)
        samples.append(Sample(problem, rollout, None, True, reward=1.0, count=0, advantage=1.0, bonus=0.0))
    return samples
