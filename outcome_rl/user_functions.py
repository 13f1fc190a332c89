"""Functions of users, for every setting that takes one: import by name, and checks of what they return."""

import os
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from hashlib import sha256
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

from outcome_rl_kernels.registry import check_callable

_loaded: dict[str, str | None] = {}  # module -> its file, of functions that were loaded by name


def sources() -> dict[str, str]:
    """Return a digest of each module from which a function was loaded by name."""
    files = {name: Path(file) for name, file in _loaded.items() if file}
    return {name: sha256(file.read_bytes()).hexdigest()[:16] for name, file in files.items() if file.is_file()}


def name_of(function: Callable[..., Any]) -> str:
    """Return "module:function" if that is all there is to a function, else an empty text."""
    name = getattr(function, "__qualname__", "")
    if not name or "<" in name or not isinstance(getattr(function, "__self__", None), ModuleType | type | None):
        return ""
    return f"{function.__module__}:{name}"


def load_function(name: str, arguments: str = "(...)", *, setting: str = "") -> Callable[..., Any]:
    """Import a function that is named as "module:function" or "path.py:function".

    It must take the `arguments`, as for `check_callable`. Errors begin with the `setting`, if there is one.

    A module that is not installed may be in the current folder, which is then put on the path and stays there.

    Raises:
        ValueError: the name has another form, there is no such file, module or function, or importing it raises.
    """
    where = f"{setting}: {name}" if setting else name
    module, _, attribute = name.rpartition(":")
    if not (module and attribute):
        raise ValueError(f'{where} must be named as "module:function" or "path.py:function"')
    file = Path(module).resolve() if module.endswith(".py") else None
    if file is not None and not file.is_file():
        raise ValueError(f"{where}: there is no file {module}; give its path from the current folder")
    try:
        found: Any = _import(module) if file is None else _import(file.stem, str(file.parent))
    except ImportError as error:
        raise ValueError(f"{where}: {error}; put the module on PYTHONPATH or into the current folder") from error
    except (Exception, SystemExit) as error:
        *_, last = traceback.extract_tb(error.__traceback__)
        place = "" if isinstance(error, SyntaxError) else f" ({last.filename}, line {last.lineno})"  # it names its own
        raise ValueError(f"{where}: importing it raised {describe(error)}{place}; correct the module") from error
    _loaded[found.__name__] = getattr(found, "__file__", None)
    if file is not None and Path(getattr(found, "__file__", None) or "").resolve() != file:
        raise ValueError(f"{where}: Python finds another module named {file.stem!r}; rename the file")
    try:
        for part in attribute.split("."):
            found = getattr(found, part)
    except AttributeError as error:
        raise ValueError(f"{where}: {error}; name one that it has") from error
    try:
        check_callable(where, found, arguments)
    except TypeError as error:
        raise ValueError(str(error)) from error
    return found  # type: ignore[no-any-return]


def _import(module: str, folder: str = "") -> ModuleType:
    """Import a module, and use a folder, by default the current one, only as a last resort: files next to data must
    not become modules.
    """
    try:
        return import_module(module)
    except ModuleNotFoundError:
        with suppress(FileNotFoundError):  # the current folder was deleted
            folder = folder or os.getcwd()
        if not folder or folder in sys.path:
            raise
    sys.path.append(folder)
    return import_module(module)


@contextmanager
def not_ending_the_process() -> Iterator[None]:
    """Turn what a user's function raises to end the process, such as SystemExit, into a RuntimeError.

    Ctrl-C still ends it.
    """
    try:
        yield
    except (Exception, KeyboardInterrupt):
        raise
    except BaseException as error:
        raise RuntimeError(f"{describe(error)}, which would end the run; return a value instead") from error


def describe(error: BaseException) -> str:
    """Return the type and the message of an error, on one line of bounded length."""
    return " ".join(f"{type(error).__name__}: {error}"[:300].split())


def plain(value: Any) -> Any:
    """Return a value of plain Python, where numpy or torch has one number for it, also in tuples."""
    if type(value) is tuple:
        return tuple(map(plain, value))
    is_number = getattr(value, "ndim", None) == 0 and callable(getattr(value, "item", None))
    return value.item() if is_number else value


def boolean(setting: str, value: Any) -> bool:
    """Return the result of a user's function that decides something.

    Raises:
        TypeError: it is no boolean: a function that returns nothing has decided nothing, and a coroutine is true.
    """
    value = plain(value)
    if not (isinstance(value, int | float) and value in (0, 1)):
        raise TypeError(f"{setting} must return True or False; got {value!r:.80}")
    return bool(value)
