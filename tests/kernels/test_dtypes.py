"""The data type follows the processor, and a processor without bfloat16 products is recognised."""

import os
import platform
import subprocess
import sys

import pytest
import torch

from outcome_rl_kernels.dtypes import bfloat16_products, preferred_dtype

ASK = """
import torch
from outcome_rl_kernels.dtypes import preferred_dtype
dtype, reason = preferred_dtype(torch.device("cpu"))
print(dtype, reason)
"""


def answer(**environment: str) -> str:
    paths = {"PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", ASK]
    return subprocess.run(
        command, env={**os.environ, **paths, **environment}, capture_output=True, text=True, check=True
    ).stdout


@pytest.mark.skipif(platform.machine() != "x86_64", reason="oneDNN's limit of instructions is for x86-64")
def test_without_bfloat16_instructions_it_is_float32() -> None:
    """oneDNN multiplies as on a processor without AVX-512."""
    assert answer(ONEDNN_MAX_CPU_ISA="AVX2").startswith("torch.float32")


@pytest.mark.parametrize(("supported", "expected"), [(True, torch.bfloat16), (False, torch.float32)])
def test_a_gpu_tells(monkeypatch: pytest.MonkeyPatch, supported: bool, expected: torch.dtype) -> None:
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation: supported)
    bfloat16_products.cache_clear()
    assert preferred_dtype(torch.device("cuda"))[0] == expected
    bfloat16_products.cache_clear()


def test_other_devices_take_float32() -> None:
    assert preferred_dtype(torch.device("mps"))[0] == torch.float32
