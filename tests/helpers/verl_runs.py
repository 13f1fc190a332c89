"""A trainer of verl's without its workers: its own constructor, tokenizer, replay buffer and methods, on the CPU.

`Queue` keeps in a dictionary what TransferQueue keeps in other processes, and gives it back in the same types.
"""

import functools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
import transfer_queue
from hydra import compose, initialize_config_module
from omegaconf import DictConfig, OmegaConf
from tensordict import TensorDict
from transfer_queue import KVBatchMeta
from verl.trainer.ppo.v1.trainer_sync import PPOTrainerSync
from verl.utils.tensordict_utils import list_of_dict_to_tensordict

from outcome_rl.toy import policy_dir

EXPLORE = "+algorithm.outcome_exploration."
QUESTIONS = {"q1": ("D12 39 ^ 9 =>", "27"), "q2": ("D05 10 % 8 =>", "3")}  # id -> prompt, gold answer


class Queue:
    def __init__(self) -> None:
        self.fields: dict[str, dict[str, Any]] = {}
        self.tags: dict[str, dict[str, Any]] = {}
        self.partition: dict[str, str] = {}

    def install(self, monkeypatch: pytest.MonkeyPatch) -> "Queue":
        for name in ("kv_batch_get", "kv_batch_put", "kv_list", "kv_clear"):
            monkeypatch.setattr(transfer_queue, name, getattr(self, name))
        return self

    def kv_batch_put(
        self,
        keys: Sequence[str],
        partition_id: str,
        fields: TensorDict | None = None,
        tags: Sequence[Mapping[str, Any]] | None = None,
    ) -> KVBatchMeta:
        for i, key in enumerate(keys):
            self.partition[key] = partition_id
            self.tags.setdefault(key, {}).update(tags[i] if tags else {})
            values = self.fields.setdefault(key, {})
            for name in fields.keys() if fields is not None else ():
                column = fields[name]
                values[name] = column.unbind()[i] if torch.is_tensor(column) else list(column)[i]
        return KVBatchMeta(keys=list(keys), tags=[self.tags[key] for key in keys], partition_id=partition_id)

    def kv_batch_get(self, keys: Sequence[str], partition_id: str, select_fields: Sequence[str]) -> TensorDict:
        rows = [self.fields[key] for key in keys]
        known = [name for name in select_fields if all(name in row for row in rows)]
        return list_of_dict_to_tensordict([{name: row[name] for name in known} for row in rows])

    def kv_list(self, partition_id: str | None = None) -> dict[str, dict[str, dict[str, Any]]]:
        listed: dict[str, dict[str, dict[str, Any]]] = {}
        for key, tag in self.tags.items():
            listed.setdefault(self.partition[key], {})[key] = tag
        return listed

    def kv_clear(self, keys: Sequence[str], partition_id: str) -> None:
        for key in keys:
            for kept in (self.fields, self.tags, self.partition):
                kept.pop(key, None)


class NoWorkers:
    """Stand-in for the workers that hold the model, and for the data loader."""

    def save_checkpoint(self, *arguments: Any, **keywords: Any) -> None: ...

    def load_checkpoint(self, *arguments: Any, **keywords: Any) -> None: ...

    def state_dict(self) -> dict[str, int]:
        return {}

    def load_state_dict(self, state: dict[str, int]) -> None: ...


@functools.cache
def _defaults() -> DictConfig:
    with initialize_config_module("verl.trainer.config", version_base=None):
        return compose("ppo_trainer", ["+algorithm.outcome_exploration={}"])


def verl_config(folder: Path, *overrides: str) -> DictConfig:
    """verl's own default configuration with changes, the estimator `outcome_grpo` first."""
    config = _defaults().copy()
    OmegaConf.set_struct(config, False)
    changes = [
        "algorithm.adv_estimator=outcome_grpo",
        f"actor_rollout_ref.model.path={policy_dir()}",
        f"trainer.default_local_dir={folder}",
        "data.train_batch_size=2",
        *(override.removeprefix("+") for override in overrides),
    ]
    config = OmegaConf.merge(config, OmegaConf.from_dotlist(changes))
    if not config.algorithm.outcome_exploration:
        del config.algorithm["outcome_exploration"]
    OmegaConf.set_struct(config, True)
    return config


def make_trainer(config: DictConfig) -> PPOTrainerSync:
    """The trainer as verl makes it, up to and with the checkpoint; what needs GPUs is left out."""
    trainer = PPOTrainerSync(config)
    trainer._init_tokenizer()
    trainer.use_critic = False
    trainer.actor_rollout_wg = trainer.train_dataloader = NoWorkers()
    trainer._load_checkpoint()
    return trainer


def put_group(
    queue: Any, trainer: PPOTrainerSync, uid: str, question: str, answers: Sequence[str | None], **changes: Any
) -> KVBatchMeta:
    """One group of responses as verl's agent loops leave it in the queue: one a session, rewarded if correct."""
    prompt, gold = QUESTIONS[question]
    rows, keys, tags = [], [], []
    for session, answer in enumerate(answers):
        words = ["9"] * session + ([r"\boxed{", answer, "}"] if answer is not None else ["9"])
        ids = torch.tensor(trainer.tokenizer.convert_tokens_to_ids([*words, "<eos>"]))
        scores = torch.zeros(len(ids))
        scores[-1] = float(answer == gold)
        rows.append(
            {
                "uid": uid,
                "prompts": torch.tensor(trainer.tokenizer.convert_tokens_to_ids(prompt.split())),
                "responses": ids,
                "response_mask": torch.ones_like(ids),
                "rm_scores": scores,
                "raw_prompt": [{"role": "user", "content": prompt}],
                "reward_model": {"ground_truth": gold, "style": "rule"},
                "data_source": "dialect",
                "extra_info": {"index": question},
                **changes,
            }
        )
        keys.append(f"{uid}_{session}_0")
        tags.append({"status": "success", "global_steps": 1})
    return queue.kv_batch_put(keys, "train", list_of_dict_to_tensordict(rows), tags)


def together(*groups: KVBatchMeta) -> KVBatchMeta:
    """Groups as one batch."""
    return KVBatchMeta(
        keys=[key for group in groups for key in group.keys],
        tags=[tag for group in groups for tag in group.tags],
        partition_id="train",
    )
