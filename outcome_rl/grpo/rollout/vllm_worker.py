"""vLLM worker extension: load weights from a folder, and exit when the trainer exits.

vLLM mixes the class into its own worker (`worker_extension_cls`) and calls its methods through `collective_rpc`, which
carries no tensors: the trainer sends the name of a folder in shared memory.
"""

import logging
import os
import shutil
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor


TRAINER = "OUTCOME_RL_TRAINER"  # environment variable of vLLM's processes: the trainer's process id, and its folder


class PolicyWorker:
    """The methods that `VllmEngine` calls in the worker."""

    vllm_config: Any  # vLLM's worker has these
    model_runner: Any
    reload_weights: Any

    def load_policy(self, folder: str) -> None:
        """Replace the weights in place by those of a Hugging Face folder.

        `reload_weights` rather than `model.load_weights`, which ignores that weights were packed for the CPU or
        quantised after loading.
        """
        from vllm.config import set_current_vllm_config
        from vllm.model_executor.layers.vocab_parallel_embedding import ParallelLMHead, UnquantizedEmbeddingMethod

        # It warns of every layer without weights, such as rotary embeddings. Another logger reports parameters that the
        # folder lacks.
        logging.getLogger("vllm.model_executor.model_loader.reload.layerwise").setLevel(logging.ERROR)
        with set_current_vllm_config(self.vllm_config):
            self.reload_weights(weights_iterator=_tensors(Path(folder)))
            # A head that is tied to the embedding is in no checkpoint, so vLLM does not repack it.
            for layer in self.model_runner.get_model().modules():
                if isinstance(layer, ParallelLMHead) and isinstance(layer.quant_method, UnquantizedEmbeddingMethod):
                    layer.quant_method.process_weights_after_loading(layer)


def _tensors(folder: Path) -> "Iterator[tuple[str, Tensor]]":
    from safetensors import safe_open

    for path in sorted(folder.glob("*.safetensors")):
        with safe_open(path, framework="pt") as file:
            for name in file.keys():  # noqa: SIM118 - not a mapping
                yield name, file.get_tensor(name)


def _end_with_trainer(trainer: int, folder: str) -> None:
    """End vLLM's processes and remove `folder` when process `trainer` ends, even if it is killed.

    Otherwise they would stay, with the GPU's memory.
    """
    import psutil  # a dependency of vLLM

    parent = os.getppid()  # vLLM's engine core; the trainer, if the worker runs inside the core
    ours = [os.getpid()] if parent == trainer else [parent, os.getpid()]

    process = psutil.Process(trainer) if psutil.pid_exists(trainer) else None

    def lives() -> bool:
        try:
            # A zombie is dead, but its parent has not read its status.
            return process is not None and process.is_running() and process.status() != psutil.STATUS_ZOMBIE
        except psutil.NoSuchProcess:
            return False

    def watch() -> None:
        while lives():
            time.sleep(1)
        shutil.rmtree(folder, ignore_errors=True)  # an orderly end has removed it
        for pid in ours:
            os.kill(pid, signal.SIGKILL)

    threading.Thread(target=watch, name="watch trainer", daemon=True).start()


# In vLLM's worker, which imports this module before it loads anything: a call after the start would come too late for a
# trainer that was killed during it.
if TRAINER in os.environ:
    _pid, _folder = os.environ[TRAINER].split(" ", 1)
    if int(_pid) != os.getpid():
        _end_with_trainer(int(_pid), _folder)
