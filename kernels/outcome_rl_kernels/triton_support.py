"""Whether Triton kernels can run."""

import os
from importlib.util import find_spec

import torch


def triton_obstacle(device: torch.device) -> str | None:
    """Why Triton kernels cannot run on tensors of this device; None where they can.

    On the CPU they run in Triton's interpreter alone, which is for tests: TRITON_INTERPRET=1, set before triton is
    imported.
    """
    if find_spec("triton") is None:
        return "triton is not installed"
    if device.type == "cuda":
        return None if torch.cuda.is_available() else "this PyTorch finds no GPU"
    if os.environ.get("TRITON_INTERPRET") == "1" and device.type == "cpu":
        return None
    return f"its tensors must be on a GPU, got {device}"
