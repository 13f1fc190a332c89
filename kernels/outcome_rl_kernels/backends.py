"""Choice of the implementation that runs an op here, with the reason.

Every op takes `impl`: "reference" is plain PyTorch (for counts NumPy), "native" is C++ on a CPU, "triton" is for GPUs.
"auto" takes the fast implementation for the device where it can run, else the reference. An explicit choice that cannot
run raises.

The native library is optional: C++ behind a plain C interface, built by CMake, shipped next to this file and loaded on
first use, unless it was built from other sources. `OUTCOME_RL_NATIVE=0` switches it off.
"""

import ctypes
import logging
import os
from functools import cache
from hashlib import sha256
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

from outcome_rl_kernels.checks import check_choice, dtype_text

logger = logging.getLogger(__name__)

Backend = Literal["reference", "native", "triton"]
Impl = Literal["auto", "reference", "native", "triton"]

_IMPLS: tuple[Impl, ...] = ("auto", "reference", "native", "triton")
# The fast implementations of each op with the dtypes that they accept; the reference takes any dtype.
_Dtypes = dict[str, tuple[torch.dtype, ...]]
_ROWS: _Dtypes = {"native": (torch.float32, torch.bfloat16), "triton": (torch.float32, torch.bfloat16, torch.float16)}
_DTYPES: dict[str, _Dtypes] = {
    **dict.fromkeys(("linear_policy_loss", "policy_loss", "linear_logprobs", "linear_divergence"), _ROWS),
    "OutcomeCounts": {"triton": (torch.int64,)},
}
_IN_NUMPY = ("OutcomeCounts",)  # ops whose reference runs on the CPU only

LIBRARY = Path(__file__).with_name("_native.so")
SOURCES = Path(__file__).parents[2] / "kernels" / "csrc"  # in a checkout
_REBUILD = "To build it, install a C++17 compiler and reinstall with OUTCOME_RL_NATIVE=1 set, which shows why it fails"
_POINTER, _INT64, _INT32, _FLOAT = ctypes.c_void_p, ctypes.c_int64, ctypes.c_int32, ctypes.c_float
_UINT64 = ctypes.c_uint64
_LOGIT_ROWS = (_INT32, _POINTER, _POINTER, _POINTER, _INT64, _INT64, _FLOAT)
# name: (result, *arguments), as declared in csrc
_FUNCTIONS = {
    "row_statistics": (None, *_LOGIT_ROWS, _POINTER, _INT32),
    "row_gradients": (None, *_LOGIT_ROWS, *[_POINTER] * 4, _INT32),
    "divergence_rows": (
        *(None, _INT32, *[_POINTER] * 3, _INT64, _INT64, _FLOAT, _FLOAT, _POINTER, _INT32, _FLOAT),
        *(_INT32, *[_POINTER] * 3, _INT32, _INT32),
    ),
    "transpose_columns": (None, _POINTER, *[_INT64] * 4, _POINTER, _INT32),
    "sample_gradients": (
        *(None, *_LOGIT_ROWS, *[_POINTER] * 6, _FLOAT, _UINT64, _INT64, *[_POINTER] * 4),
        _INT32,
    ),
    "pack_entries": (None, *[_POINTER] * 3, _INT64, _INT64, *[_POINTER] * 2),
    "entries_by_token": (None, *[_POINTER] * 3, _INT64, _INT64, *[_POINTER] * 3),
    "kept_logits": (None, _INT32, *[_POINTER] * 4, _INT64, _INT64, _POINTER, _INT32),
    "segment_sums": (None, _INT32, *[_POINTER] * 4, _INT64, _INT64, _POINTER, _INT32),
    "support_log_softmax": (None, *[_POINTER] * 6, _INT64, _INT64, _POINTER, _INT32),
    "support_token_gradients": (None, *[_POINTER] * 6, _INT64, _POINTER, _INT32),
}


class Choice(NamedTuple):
    impl: Backend
    reason: str


def choose(op: str, impl: Impl, device: torch.device, dtype: torch.dtype | None = None) -> Choice:
    """Return the implementation that a call runs with, and the reason in words.

    Args:
        op: name of the public function or class.
        impl: the caller's choice.
        device, dtype: device and dtype of the call's tensors; None where the dtype does not matter.

    Raises:
        ValueError: `impl` is unknown or cannot run here, or no implementation can.
    """
    check_choice("impl", impl, _IMPLS)
    wanted: Backend = ("native" if device.type == "cpu" else "triton") if impl == "auto" else impl
    obstacle = _obstacle(op, wanted, device, dtype)
    if obstacle is None:
        found = "the native library is available" if wanted == "native" else f"Triton runs on {device}"
        return Choice(wanted, found if impl == "auto" else "asked for")
    if impl == "auto" and _obstacle(op, "reference", device, dtype) is None:
        if obstacle == missing_for(wanted, device):
            say_once(obstacle)
        return Choice("reference", obstacle)
    if impl == "auto":
        raise ValueError(f"{op} cannot run on device={str(device)!r}: {obstacle}. Use device='cpu'")
    raise ValueError(f"{op}(impl={impl!r}) cannot run: {obstacle}. Use impl='auto'")


def implementations() -> dict[str, Choice]:
    """Return the implementation that `impl="auto"` takes for each op, with the reason; on a GPU if there is one."""
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    found = {}
    for op, dtypes in _DTYPES.items():
        choice = choose(op, "auto", device)
        takes = f", for {dtype_text(dtypes[choice.impl])}" if choice.impl in dtypes else ""
        found[op] = Choice(choice.impl, choice.reason + takes)
    return found


def native_obstacle() -> str | None:
    """Say why the native library cannot be used; None where it can."""
    if os.environ.get("OUTCOME_RL_NATIVE") == "0":
        return "the native library is not available: switched off by OUTCOME_RL_NATIVE=0"
    loaded = load_library(LIBRARY)
    return f"the native library is not available: {loaded}" if isinstance(loaded, str) else None


def triton_obstacle(device: torch.device) -> str | None:
    """Say why Triton kernels cannot run on tensors of this device; None where they can.

    On the CPU they run in Triton's interpreter only, which is for tests. Set TRITON_INTERPRET=1 before triton is
    imported.
    """
    if find_spec("triton") is None:
        return "triton is not installed"
    if device.type == "cuda":
        return None if torch.cuda.is_available() else "this PyTorch finds no GPU"
    if os.environ.get("TRITON_INTERPRET") == "1" and device.type == "cpu":
        return None
    return f"its tensors must be on a GPU, got {device}"


def native_library() -> ctypes.CDLL:
    """Return the loaded library with its functions declared.

    Raises:
        RuntimeError: the library cannot be used; the message says why and what to do.
    """
    loaded = load_library(LIBRARY)
    if isinstance(loaded, str) or os.environ.get("OUTCOME_RL_NATIVE") == "0":
        raise RuntimeError(native_obstacle())
    return loaded


def kernels_for(part: str, impl: str) -> Any:
    """Return the kernels of a fast implementation, a module: of "rows", "support" or "sampled" of the loss."""
    # Triton is heavy, and on Linux only.
    return import_module(f"outcome_rl_kernels.loss.{part}.{'cpu' if impl == 'native' else 'triton'}")


def call_native(name: str, *arguments: Tensor | float | None) -> None:
    """Call a function of the library while other Python threads run; it gets the addresses of tensors.

    A tensor that is not contiguous and aligned is copied first, so one that the function writes must be both.
    """
    # The tensors must live as long as the call that gets their addresses.
    given = [aligned(value) if isinstance(value, Tensor) else value for value in arguments]
    pointers = (value.data_ptr() if isinstance(value, Tensor) else value for value in given)
    getattr(native_library(), name)(*pointers)


def aligned(tensor: Tensor) -> Tensor:
    """Return the tensor contiguous and aligned to its elements, as kernels read it; a copy where it is not."""
    tensor = tensor.contiguous()
    return tensor.clone() if tensor.data_ptr() % tensor.element_size() else tensor


def _obstacle(op: str, impl: Backend, device: torch.device, dtype: torch.dtype | None) -> str | None:
    if impl == "reference":
        return f"it counts on the CPU, not on '{device}'" if op in _IN_NUMPY and device.type != "cpu" else None
    if impl not in _DTYPES[op]:
        return f"it has no {impl} implementation"
    if impl == "native" and device.type != "cpu":
        return f"its tensors must be on the CPU, got {device}"
    if (missing := missing_for(impl, device)) is not None:
        return missing
    takes = _DTYPES[op][impl]
    if dtype is None or dtype in takes:
        return None
    return f"it computes in {dtype_text(takes)}, got {dtype_text([dtype])}"


def missing_for(impl: Backend, device: torch.device) -> str | None:
    return native_obstacle() if impl == "native" else triton_obstacle(device)


@cache
def say_once(obstacle: str) -> None:
    if os.environ.get("OUTCOME_RL_NATIVE") != "0":  # 0 switches the library off on purpose
        logger.warning("%s. Plain PyTorch takes its place, which is slower", obstacle)


# torch.compile can neither look for files nor log. `torch.compiler.assume_constant_result` sets the same attribute,
# but as a decorator it would import the compiler into every process.
missing_for._dynamo_marked_constant = True  # type: ignore[attr-defined]
say_once._dynamo_marked_constant = True  # type: ignore[attr-defined]


@cache
def load_library(path: Path) -> ctypes.CDLL | str:
    """Return the library, or why there is none."""
    if not path.is_file():
        return f"this installation was built without it (no {path.name} next to {Path(__file__).name}). {_REBUILD}"
    try:
        library = ctypes.CDLL(str(path))
        built_from = library.outcome_rl_sources
    except (OSError, AttributeError) as error:
        return f"{path.name} cannot be loaded: {error}. {_REBUILD}"
    built_from.restype = ctypes.c_char_p
    found, expected = built_from().decode(), sources_digest(path)
    if found != expected:
        return (
            f"{path.name} was built from other sources than this code (digest {found[:12]}, expected "
            f"{expected[:12]}). {_REBUILD}"
        )
    for name, (result, *arguments) in _FUNCTIONS.items():
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    return library


def sources_digest(path: Path) -> str:
    """Return the digest of the C++ sources of a checkout, as CMakeLists.txt does; elsewhere the one stored at build."""
    if not SOURCES.is_dir():
        record = path.with_name(f"{path.name}.sha256")
        return record.read_text(encoding="ascii").strip() if record.is_file() else "not recorded"
    files = sorted(file for file in SOURCES.iterdir() if file.suffix in (".cpp", ".h"))
    lines = (f"{file.name} {sha256(file.read_bytes()).hexdigest()}\n" for file in files)
    return sha256("".join(lines).encode()).hexdigest()
