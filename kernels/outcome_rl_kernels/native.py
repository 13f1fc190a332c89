"""The optional native library: C++ behind a plain C interface, built by CMake, shipped beside this file.

It is loaded on first use and may be absent: every operation then has its reference implementation. Set
`OUTCOME_RL_NATIVE=0` to run without it.
"""

import ctypes
import os
from functools import cache
from pathlib import Path

# Raised together with `kAbiVersion` in csrc/api.cpp whenever an exported function changes.
ABI_VERSION = 4

_PATH = Path(__file__).with_name("_native.so")
_REBUILD = "To build it, install a C++17 compiler and reinstall with OUTCOME_RL_NATIVE=1 set, which shows why it fails."


def native_status() -> tuple[bool, str]:
    """Says whether the native library can be used, and if not, why: `(True, "available")` or `(False, reason)`."""
    if os.environ.get("OUTCOME_RL_NATIVE") == "0":
        return False, "switched off by OUTCOME_RL_NATIVE=0"
    loaded, reason = _load(_PATH)
    return loaded is not None, reason


def native_library() -> ctypes.PyDLL:
    """Returns the loaded library.

    Raises:
        RuntimeError: it cannot be used; the message says why and what to do.
    """
    available, reason = native_status()
    library, _ = _load(_PATH)
    if not available or library is None:
        raise RuntimeError(f"the native library is not available: {reason}")
    return library


@cache
def _load(path: Path) -> tuple[ctypes.PyDLL | None, str]:
    if not path.is_file():
        return None, f"this installation was built without it (no {path.name} beside {Path(__file__).name}). {_REBUILD}"
    try:
        # PyDLL keeps the interpreter lock during a call, which makes each call atomic between Python threads.
        library = ctypes.PyDLL(str(path))
        version = library.outcome_rl_abi_version()
    except (OSError, AttributeError) as error:
        return None, f"{path.name} cannot be loaded: {error}. {_REBUILD}"
    if version != ABI_VERSION:
        return None, f"{path.name} has interface version {version}, this code needs {ABI_VERSION}. {_REBUILD}"
    return library, "available"
