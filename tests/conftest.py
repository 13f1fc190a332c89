"""Triton kernels are tested everywhere: on the GPU where there is one, else by Triton's interpreter on CPU tensors.

Triton reads the variable when it is first imported, so it is set here, before any test module is imported. Tests that
need compiled kernels without a GPU run them in a child process: tests/helpers/triton_offline.py.
"""

import gc
import os
import sys

import torch

if not torch.cuda.is_available():
    if "triton" in sys.modules:
        raise RuntimeError(
            "a pytest plugin imported triton before TRITON_INTERPRET=1 could be set; disable it with -p no:"
        )
    os.environ["TRITON_INTERPRET"] = "1"

os.environ["HF_HUB_OFFLINE"] = "1"  # a hub that does not answer costs a minute a call


def pytest_collection_finish() -> None:
    """Take what was imported out of garbage collections: modules are most of the objects, and stay."""
    gc.freeze()
