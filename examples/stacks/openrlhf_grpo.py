"""Outcome-based exploration in OpenRLHF 0.11: its command with a bonus that lowers answers repeated within a group.

    python openrlhf_grpo.py --algo.advantage.estimator group_norm --data.label_key answer ...

It takes the options of `python -m openrlhf.cli.train_ppo_ray`, without `--train.async_enable`.

- Rewards, KL, baselines and normalisation stay OpenRLHF's. Then every response gets its bonus, and the tokens of its
  answer get no advantage; `SETTINGS` below changes it.
- The label is the gold answer, and the hash of the prompt the question. With tools the answer is taken from the last
  turn of the policy; images are refused. A reward function (`--reward.remote_url`) would get one response at a time.
- `--actor.policy_loss_type gspo` is refused: its ratio spreads the gradient of a response over masked tokens too.
- Counts are saved next to the checkpoints, in `exploration/`, after every one that `--ckpt.save_steps` makes due, and
  loaded with `--ckpt.load_enable`. They belong to the newest one: OpenRLHF's checkpoint of the best step has none.

Run: OpenRLHF 0.11's experiences, advantages and its trainer's constructor on a CPU, by a test. Not run: its workers,
which need GPUs, DeepSpeed and vLLM.
"""

import runpy
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import ray
import torch
from openrlhf.trainer import ppo_trainer
from openrlhf.trainer.ppo_utils.experience import Experience
from openrlhf.trainer.ppo_utils.experience_maker import RemoteExperienceMaker

from outcome_rl import Batch, Explorer, question_id
from outcome_rl.exploration.scored import Scored
from outcome_rl.files.rows import filled_text
from outcome_rl.integrations.adapter import answer_mask, check_mask_mode, outcome_turn
from outcome_rl.outcomes.answer_mask import decode_completion

SETTINGS = {"bonus": "batch", "coef": 0.2}
FOLDER = "exploration"  # of the counts, in OpenRLHF's folder of checkpoints
_STATE = {True: "was loaded", False: "is not there or --ckpt.load_enable is off: counts start empty"}


def add_bonuses(experiences: Sequence[Experience], explorer: Explorer, tokenizer: Any, n: int) -> Scored:
    """Score and count all samples of a step, n of each prompt, and add their bonuses to `advantages`, in place."""
    rows = sorted(
        (index, i, row) for i, experience in enumerate(experiences) for row, index in enumerate(experience.index)
    )
    samples = [(experiences[i], row) for _, i, row in rows]  # in the order of sampling: every n are a group
    if any(image for experience, _ in samples for image in experience.images):
        raise ValueError("with images a question is more than its prompt, whose hash this example takes as its id")
    # OpenRLHF's action_mask begins at the second token of a sequence, and is 0 on the prompt and what tools wrote.
    is_action = [experience.action_mask[row].bool() for experience, row in samples]
    spans = [_span(mask) for mask in is_action]  # of the responses, padding left out
    turns = [
        outcome_turn(explorer, one.sequences[row, 1:][span].tolist(), mask[span].tolist())
        for (one, row), mask, span in zip(samples, is_action, spans, strict=True)
    ]
    batch = Batch(
        [question_id(experience.prompts[row]) for experience, row in samples],
        [decode_completion(tokenizer, turn.ids) for turn in turns],
        [
            filled_text(experience.labels[row], "label", "gold answer", "a row of the data")
            for experience, row in samples
        ],
        group_ids=[index // n for index, _, _ in rows],
    )
    scored = explorer.score(batch)
    answers = answer_mask(scored, tokenizer, turns, max(span.stop - span.start for span in spans))
    bonuses = replace(scored, advantages=torch.zeros(len(batch))).token_advantages(answers)
    for i, ((experience, row), mask, span) in enumerate(zip(samples, is_action, spans, strict=True)):
        written = mask[span].nonzero()[:, 0]
        own = experience.advantages[row, mask]
        if scored.answer_mask_mode == "policy":
            own = own.masked_fill(answers[i, written], 0.0)
        experience.advantages[row, mask] = own + bonuses[i, written].to(own)
    return scored


def _span(is_action: torch.Tensor) -> slice:
    """Return the tokens from the first to the last that the policy wrote."""
    written = is_action.nonzero()[:, 0].tolist()
    return slice(written[0], written[-1] + 1) if written else slice(0, 0)


class ExploringExperienceMaker(RemoteExperienceMaker):
    """OpenRLHF's experience maker, with an `Explorer` whose counts are kept next to the checkpoints."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.folder = Path(self.args.ckpt.path, FOLDER)
        resumes = self.args.ckpt.load_enable and self.folder.exists()
        self.explorer = Explorer.load(self.folder, **SETTINGS) if resumes else Explorer(**SETTINGS)
        check_mask_mode(self.explorer.config.answer_mask_mode, "OpenRLHF")
        if self.args.actor.policy_loss_type == "gspo" and self.explorer.config.answer_mask_mode != "none":
            raise ValueError(
                "--actor.policy_loss_type gspo moves masked tokens; set answer_mask_mode='none' in SETTINGS"
            )
        print(f"exploration: {len(self.explorer.counts)} counted outcomes, {self.folder} {_STATE[resumes]}", flush=True)
        self.explorer.set_id_source("the hash of the prompt")

    def compute_advantages_and_returns(self, experiences: list[Experience]) -> list[Experience]:
        experiences = super().compute_advantages_and_returns(experiences)
        n = self.args.rollout.n_samples_per_prompt
        scored = add_bonuses(experiences, self.explorer, self.tokenizer, n)
        print({name: round(value, 4) for name, value in scored.metrics.items()}, flush=True)
        return experiences


class ExploringTrainer(ppo_trainer.PPOTrainer.__ray_metadata__.modified_class):
    """OpenRLHF's trainer with this experience maker, which saves the counts after every checkpoint that is due."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        made = self.experience_maker
        groups = made.actor_model_group, made.critic_model_group, made.reward_model_group, made.initial_model_group
        self.experience_maker = ExploringExperienceMaker(*groups, made.kl_ctl, made.strategy, made.tokenizer)

    def save_logs_and_checkpoints(self, global_step: int, *args: Any, **kwargs: Any) -> None:
        super().save_logs_and_checkpoints(global_step, *args, **kwargs)
        if global_step % self.args.ckpt.save_steps == 0:
            self.experience_maker.explorer.save(self.experience_maker.folder)


if __name__ == "__main__":
    if "--train.async_enable" in sys.argv:
        raise SystemExit("--train.async_enable takes another trainer, which would train without bonuses; leave it out")
    ppo_trainer.PPOTrainer = ray.remote(ExploringTrainer)
    runpy.run_module("openrlhf.cli.train_ppo_ray", run_name="__main__")
