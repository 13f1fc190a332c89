"""Functions of the user, named by a setting."""

import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any


def load_function(name: str, setting: str) -> Callable[..., Any]:
    """Import the function that a setting names.

    Args:
        name: "module:name" for a module that Python finds, or "path.py:name" for a file.
        setting: name of the setting, for errors.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: the name has another form, there is no such module, or it has no such function.
        Exception: whatever the module raises when it is imported.
    """
    origin = f"{setting}={name}"
    source, _, function_name = name.rpartition(":")
    if not source or not function_name:
        raise ValueError(f"{origin} must have the form module:name or path.py:name, such as rewards.py:reward")
    module = _from_file(Path(source), origin) if source.endswith(".py") else _from_path(source, origin)
    function: Callable[..., Any] | None = getattr(module, function_name, None)
    if not callable(function):
        callables = [key for key, value in vars(module).items() if callable(value) and not key.startswith("_")]
        raise ValueError(
            f"{origin}: {source} has no function {function_name!r}; it has {', '.join(callables) or 'none'}. Name one"
        )
    return function


def _from_file(path: Path, origin: str) -> ModuleType:
    if not path.is_file():
        raise FileNotFoundError(f"{origin}: there is no file {path}. Give its path from the working directory")
    name = f"user_function_{path.stem}"  # hides no installed module
    specification = importlib.util.spec_from_file_location(name, path)
    assert specification is not None
    assert specification.loader is not None  # every .py file has one
    module = importlib.util.module_from_spec(specification)
    sys.modules[name] = module  # dataclasses and pickle look for it there
    specification.loader.exec_module(module)
    return module


def _from_path(name: str, origin: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and name.startswith(error.name):
            raise ValueError(
                f"{origin}: Python finds no module {error.name!r}. Install it, add its folder to PYTHONPATH, or name "
                "the file: path.py:name"
            ) from error
        raise
