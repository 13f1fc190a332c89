"""TRL under FSDP2 in two processes on the CPU, where accelerate would choose DDP: what chooses is replaced.

torchrun --nproc-per-node 2 tests/helpers/trl_fsdp.py FOLDER
"""

import os
import sys
from pathlib import Path
from typing import Any

os.environ |= {
    "ACCELERATE_USE_FSDP": "true",
    "FSDP_VERSION": "2",
    "FSDP_AUTO_WRAP_POLICY": "TRANSFORMER_BASED_WRAP",
    "FSDP_TRANSFORMER_CLS_TO_WRAP": "LlamaDecoderLayer",
    "FSDP_STATE_DICT_TYPE": "SHARDED_STATE_DICT",
}

import torch
from accelerate import Accelerator
from accelerate.state import AcceleratorState
from accelerate.utils import DistributedType, FullyShardedDataParallelPlugin
from trl_runs import ended, make_trainer

from outcome_rl import ExplorationConfig

own_init = Accelerator.__init__


def init(self: Any, *args: Any, **kwargs: Any) -> None:
    own_init(self, *args, **kwargs)
    if getattr(self.state, "fsdp_plugin", None) is None:
        self.state.fsdp_plugin = FullyShardedDataParallelPlugin(fsdp_version=2)


Accelerator.__init__ = init
Accelerator.distributed_type = property(lambda self: DistributedType.FSDP)
AcceleratorState.is_fsdp2 = property(lambda self: True)


def main(folder: Path) -> None:
    """Train two steps, the second of them once more from a checkpoint, and with answers taken out of the loss."""
    exploration = ExplorationConfig(bonus="0.2*ucb_con + 0.1*batch")
    settings: dict[str, Any] = {"per_device_train_batch_size": 6, "optim": "sgd", "learning_rate": 0.1}

    def trainer(**more: Any) -> Any:
        return make_trainer(folder / "policy", folder / "run", **({"exploration": exploration} | settings | more))

    try:
        trainer(fused_loss=True)
    except ValueError as error:
        refused = str(error)
    whole = trainer(save_strategy="steps", save_steps=1)
    whole.train()
    resumed = trainer()
    resumed.train(resume_from_checkpoint=str(folder / "run" / "checkpoint-1"))
    out_of_the_loss = trainer(exploration=ExplorationConfig(adv_estimator="maxrl", answer_mask_mode="all"))
    out_of_the_loss.train()
    runs = [
        ended(run)
        | {"is_sharded": all(isinstance(p, torch.distributed.tensor.DTensor) for p in run.model.parameters())}
        for run in (whole, resumed, out_of_the_loss)
    ]
    rank = int(os.environ["RANK"])
    torch.save({"refused": refused, "runs": runs}, folder / f"{os.environ['WORLD_SIZE']}-{rank}.pt")


if __name__ == "__main__":
    torch.set_num_threads(1)
    main(Path(sys.argv[1]))
