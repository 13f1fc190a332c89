"""The file that carries weights between processes without a GPU."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from outcome_rl.grpo.config.schema import ModelConfig
from outcome_rl.grpo.model.policy import Policy
from outcome_rl.grpo.rollout.weight_transfer import FileInit, FileReceiver, FileUpdate, PolicyWeights

# Sizes that are no multiple of the alignment, a scalar, an empty tensor, a transposed one, and dtypes of 1 to 8 bytes.
TENSORS = {
    "odd": torch.randn(3, 7),
    "scalar": torch.tensor(2.5, dtype=torch.bfloat16),
    "empty": torch.empty(0, 4),
    "transposed": torch.randn(5, 3).T,
    "bytes": torch.arange(65, dtype=torch.uint8),
    "long": torch.arange(9).view(3, 3),
}


def test_tensors_of_a_file(tmp_path: Path) -> None:
    weights: list[tuple[str, Tensor]] = list(TENSORS.items())
    update = FileUpdate.of(tmp_path / "weights", weights)
    for (_, tensor), (_, mapped) in zip(weights, update.tensors(shared=True), strict=True):
        mapped.copy_(tensor)
    read = dict(update.tensors(shared=False))
    (tmp_path / "weights").unlink()
    assert list(read) == list(TENSORS)
    for name, tensor in TENSORS.items():
        assert read[name].dtype == tensor.dtype
        assert torch.equal(read[name], tensor)


def test_a_tied_weight_is_sent_once() -> None:
    policy = Policy.load(ModelConfig(path="toy", device="cpu", dtype="float32"))
    source = PolicyWeights(policy.published_weights, policy.device)
    sent = dict(source)
    assert sum(tensor.numel() for tensor in sent.values()) == sum(x.numel() for x in policy.model.parameters())
    assert [meta.name for meta in source.metadata()] == list(sent)


def test_a_receiver_on_another_machine_is_refused(tmp_path: Path) -> None:
    receiver: Any = FileReceiver.__new__(FileReceiver)
    receiver.init_transfer_engine(FileInit(str(tmp_path)))
    with pytest.raises(ValueError, match="trainer's machine"):
        receiver.init_transfer_engine(FileInit(str(tmp_path / "missing")))
