"""Compile the kernels that launchers would launch, for GPUs that are not there.

`compile_launches` runs this file as a script in a child process, because the tests' own process may hold interpreted
kernels (tests/conftest.py). The child runs the given test file and calls its `launches()`, which yields pairs of a name
and a function without arguments that launches on CPU tensors. A launch then takes Triton's real path, binding and
specialising the very arguments, up to the machine code.
"""

import json
import os
import re
import runpy
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

TARGETS = ("sm_80", "sm_86", "sm_90", "sm_100", "sm_103", "sm_120", "gfx942")


class Compiled(NamedTuple):
    launch: str
    kernel: str
    threads: int
    registers: int  # of a thread
    spilled_bytes: int  # of a thread's local memory: anything but 0 means traffic that the source does not show
    shared_bytes: int
    accesses: dict[str, int]  # how often each instruction for global memory, atomics and fences stands in the code

    def count(self, pattern: str) -> int:
        """How many instructions have a name that matches the regular expression."""
        return sum(number for name, number in self.accesses.items() if re.search(pattern, name))


def compile_launches(test_file: str, target: str, cache: Path) -> list[Compiled]:
    """Every kernel of the test file's `launches()`, compiled for one of `TARGETS`, `cache` being an empty folder."""
    changed = {"TRITON_INTERPRET": "0", "TRITON_CACHE_DIR": str(cache), "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, __file__, test_file, target]
    done = subprocess.run(command, env=os.environ | changed, capture_output=True, text=True, timeout=500)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)} failed:\n{done.stderr}")
    return [Compiled(*fields) for fields in json.loads(done.stdout.splitlines()[-1])]


def _main(test_file: str, target_name: str) -> None:
    import torch
    from triton import knobs
    from triton.backends.compiler import GPUTarget
    from triton.runtime import driver
    from triton.runtime.jit import JITFunction

    digits = re.sub(r"\D", "", target_name)
    is_nvidia = target_name.startswith("sm_")
    target = GPUTarget("cuda", int(digits), 32) if is_nvidia else GPUTarget("hip", target_name, 64)

    class AbsentGpu:
        """As much of a Triton driver as compiling asks for."""

        get_current_target = staticmethod(lambda: target)
        get_current_device = staticmethod(lambda: 0)
        get_current_stream = staticmethod(lambda device: 0)

    torch.version.hip = None if is_nvidia else "offline"
    driver.set_active(AbsentGpu())
    compiled: list[Any] = []
    run = JITFunction.run

    def compile_only(self: Any, *args: Any, **kwargs: Any) -> None:
        compiled.append(run(self, *args, **(kwargs | {"warmup": True})))

    JITFunction.run = compile_only
    report = []
    for name, launch in runpy.run_path(test_file)["launches"]():
        compiled.clear()
        launch()
        if not compiled:
            raise RuntimeError(f"{name} launched no kernel")
        for kernel in compiled:
            threads = kernel.metadata.num_warps * target.warp_size
            usage = _nvidia_usage(kernel, knobs.nvidia.cuobjdump.path) if is_nvidia else _amd_usage(kernel)
            accesses = _nvidia_accesses(knobs.nvidia.nvdisasm.path) if is_nvidia else _amd_accesses(kernel)
            report.append(Compiled(name, kernel.metadata.name, threads, *usage, kernel.metadata.shared, accesses))
    print(json.dumps(report))


def _nvidia_usage(kernel: Any, cuobjdump: str) -> tuple[int, int]:
    """Registers and bytes of local memory of a thread, from the machine code."""
    binary = _binary()
    binary.write_bytes(kernel.asm["cubin"])
    command = [cuobjdump, "--dump-resource-usage", str(binary)]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    figures = {name: int(value) for name, value in re.findall(r"\b(REG|STACK|LOCAL):(\d+)", text)}
    return figures["REG"], figures["STACK"] + figures["LOCAL"]


def _nvidia_accesses(nvdisasm: str) -> dict[str, int]:
    """Instructions of the binary that `_nvidia_usage` wrote, without their predicates."""
    text = subprocess.run([nvdisasm, "-c", str(_binary())], capture_output=True, text=True, check=True).stdout
    instructions = re.findall(r"/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\w+\s+)?([A-Z][\w.]+)", text)
    return Counter(name for name in instructions if re.match(r"LDG|STG|ATOM|RED[G.]|MEMBAR|CCTL", name))


def _binary() -> Path:
    return Path(os.environ["TRITON_CACHE_DIR"], "kernel.cubin")


def _amd_accesses(kernel: Any) -> dict[str, int]:
    return Counter(re.findall(r"^\s+((?:global|flat|buffer)_\w+)", kernel.asm["amdgcn"], re.MULTILINE))


def _amd_usage(kernel: Any) -> tuple[int, int]:
    """Likewise; a spill of scalar registers into vector registers counts with 4 bytes as well."""
    text = kernel.asm["amdgcn"]
    names = ("vgpr_count", "vgpr_spill_count", "sgpr_spill_count", "private_segment_fixed_size")
    found = (re.search(rf"\.{name}: +(\d+)", text) for name in names)
    registers, vector_spills, scalar_spills, scratch = (int(match[1]) for match in found if match)
    return registers, max(4 * (vector_spills + scalar_spills), scratch)


if __name__ == "__main__":
    _main(*sys.argv[1:])
