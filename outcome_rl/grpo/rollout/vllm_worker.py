"""vLLM worker extension (`worker_extension_cls`): vLLM's worker imports this module before it loads anything.

It adds two things that vLLM lacks: a backend for weights without a GPU, and an end with the trainer.
"""

import logging
import os
import shutil
import signal
import threading
import time

import outcome_rl.grpo.rollout.weight_transfer  # noqa: F401 - registers the backend

TRAINER = "OUTCOME_RL_TRAINER"  # environment variable of vLLM's processes: the trainer's process id, and its folder

# vLLM warns of every layer without weights, such as rotary embeddings; the backend reports parameters without weights.
logging.getLogger("vllm.model_executor.model_loader.reload.layerwise").setLevel(logging.ERROR)


class PolicyWorker:
    """The extension itself: its module is what vLLM's worker needs."""


def _end_with_trainer(trainer: int, folder: str) -> None:
    """End vLLM's processes and remove `folder` when process `trainer` ends, even if it is killed.

    Otherwise they would stay, with the GPU's memory. An engine that has not met the trainer yet has not imported this
    module; it gives up after five minutes.
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


# A call after vLLM's start would come too late for a trainer that was killed during it.
if TRAINER in os.environ:
    _pid, _folder = os.environ[TRAINER].split(" ", 1)
    if int(_pid) != os.getpid():
        _end_with_trainer(int(_pid), _folder)
