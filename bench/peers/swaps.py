"""A pytest plugin: tests of other libraries get what `REPLACED` names in place of the library's own, by SWAP."""

import importlib
import os
import runpy
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from bench.result_file import ROOT
from outcome_rl_kernels import linear_logprobs


class Swap(NamedTuple):
    module: str
    name: str
    ours: Any  # makes the replacement


def liger_class() -> Any:
    """Return the class of the example, which is a file to copy."""
    return runpy.run_path(str(ROOT / "examples" / "stacks" / "liger.py"))["LigerFusedLinearGRPOLoss"]


def cce_function() -> Any:
    """Return `linear_logprobs` under the signature of CCE's `linear_cross_entropy`."""

    def linear_cross_entropy(
        e: Tensor,
        c: Tensor,
        targets: Tensor,
        bias: Tensor | None = None,
        ignore_index: int = -100,
        softcap: float | None = None,
        reduction: str = "mean",
        shift: bool | int = 0,
        return_lse: bool = False,
        **others: Any,
    ) -> Tensor:
        if return_lse:
            raise NotImplementedError("return_lse=True: linear_logprobs returns no log-sum-exps")
        if shift:
            e, targets = e[..., : -int(shift), :], targets[..., int(shift) :]
        mask = targets != ignore_index
        losses = -linear_logprobs(e, c, targets, bias=bias, softcap=softcap, mask=mask, fp32_logits=True)[0]
        return losses if reduction == "none" else losses.sum() / (mask.sum() if reduction == "mean" else 1)

    return linear_cross_entropy


REPLACED = {
    "liger": Swap("liger_kernel.chunked_loss", "LigerFusedLinearGRPOLoss", liger_class),
    "cce": Swap("cut_cross_entropy", "linear_cross_entropy", cce_function),
}


def on_this_device(suite: Path, work: Path) -> None:
    """Let tests that are written for a GPU run on the CPU if there is none."""
    for file in suite.rglob("test_*.py") if not torch.cuda.is_available() else ():
        text = file.read_text().replace("not torch.cuda.is_available()", "False")
        file.write_text(text.replace('"cuda"', '"cpu"').replace("torch.cuda.manual_seed", "torch.manual_seed"))


if os.environ.get("SWAP") in REPLACED:
    chosen = REPLACED[os.environ["SWAP"]]
    setattr(importlib.import_module(chosen.module), chosen.name, chosen.ours())
