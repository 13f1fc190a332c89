"""The recipe of docs/losses.md for an lm_head that FSDP2 shards, on two ranks, against one process."""

import copy
import re
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from ranks import on_ranks
from torch import Tensor
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

from outcome_rl_kernels import linear_policy_loss, loss_normalizer

pytestmark = pytest.mark.skipif(not dist.is_gloo_available(), reason="this PyTorch is built without gloo")

RANKS, B, T, H, V = 2, 6, 5, 8, 37  # 37 rows are not shared out equally
PARTS = [slice(0, 2), slice(2, 6)]  # nor are sequences


def recipe() -> str:
    page = Path(__file__).resolve().parents[3] / "docs" / "losses.md"
    (block,) = (b for b in re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL) if "fully_shard" in b)
    return block


def whole_batch() -> dict[str, Any]:
    g = torch.Generator().manual_seed(0)
    mask = torch.rand(B, T, generator=g) < 0.7
    return {
        "hidden": torch.randn(B, T, H, generator=g),
        "labels": torch.randint(V, (B, T), generator=g),
        "advantages": torch.randn(B, generator=g),
        "mask": mask,
        "ref_logps": torch.randn(B, T, generator=g) - 4,
        "lm_head": torch.nn.Linear(H, V, bias=False, dtype=torch.float32),
    }


def alone(batch: dict[str, Any]) -> tuple[Tensor, Tensor, Tensor]:
    """Loss, and gradients of weight and hidden states, of one process."""
    hidden, weight = batch["hidden"].clone().requires_grad_(), batch["lm_head"].weight.detach().clone().requires_grad_()
    arguments = (batch[name] for name in ("labels", "advantages", "mask"))
    loss = linear_policy_loss(hidden, weight, *arguments, epsilon_high=0.28).loss
    loss.backward()
    return loss.detach(), weight.grad, hidden.grad


def check_rank(rank: int) -> None:
    torch.manual_seed(0)
    mesh = dist.init_device_mesh("cpu", (RANKS,))
    for empty_rank in (None, 1):
        batch = whole_batch()
        if empty_rank is not None:
            batch["mask"][PARTS[empty_rank]] = False
        loss, weight_grad, hidden_grad = alone(batch)
        mine = {name: value if name == "lm_head" else value[PARTS[rank]] for name, value in batch.items()}
        mine["hidden"] = mine["hidden"].clone().requires_grad_()
        scope = mine | {"torch": torch, "mesh": mesh}
        scope |= {"linear_policy_loss": linear_policy_loss, "partial": partial, "loss_normalizer": loss_normalizer}
        exec(recipe(), scope)
        sharded = batch["lm_head"].weight
        torch.testing.assert_close(sharded.grad.full_tensor(), weight_grad, atol=1e-7, rtol=1e-5)
        torch.testing.assert_close(mine["hidden"].grad / RANKS, hidden_grad[PARTS[rank]], atol=1e-7, rtol=1e-5)
        mean = scope["output"].loss.detach().clone()
        dist.all_reduce(mean)
        torch.testing.assert_close(mean / RANKS, loss)

        with pytest.raises(TypeError, match=r"weight must be whole on every rank; got a DTensor.*docs/losses\.md"):
            linear_policy_loss(mine["hidden"], sharded, mine["labels"], mine["advantages"], mine["mask"])

    # In bfloat16: what is not of the head keeps its float32.
    batch = whole_batch()
    head = scope["HeadAndLoss"](copy.deepcopy(batch["lm_head"]), partial(linear_policy_loss, beta=0.1))
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32, cast_forward_inputs=False)
    fully_shard(head, mesh=mesh, mp_policy=policy)
    arguments = [batch[name] for name in ("labels", "advantages", "mask")]
    hidden = batch["hidden"].bfloat16()
    output = head(hidden, *arguments, ref_logps=batch["ref_logps"])
    output.loss.backward()
    weight = batch["lm_head"].weight.detach().bfloat16().requires_grad_()
    expected = linear_policy_loss(hidden, weight, *arguments, ref_logps=batch["ref_logps"], beta=0.1)
    expected.loss.backward()
    assert torch.equal(output.loss, expected.loss)
    assert torch.equal(head.lm_head.weight.grad.full_tensor(), weight.grad.float())


def test_two_ranks_have_the_loss_and_the_gradients_of_one_process(tmp_path: Path) -> None:
    on_ranks(RANKS, check_rank, tmp_path)
