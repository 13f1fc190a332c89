"""Public names of a package, listed in its `__init__.pyi` and imported on first use."""

import ast
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any


def attach_stub(package: str, file: str) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """Return `__getattr__`, `__dir__` and `__all__` of a package whose stub imports each name from its module.

    Args:
        package: its `__name__`.
        file: its `__file__`.
    """
    module_of = {
        alias.name: str(statement.module)
        for statement in ast.parse(Path(file).with_suffix(".pyi").read_text(encoding="utf-8")).body
        if isinstance(statement, ast.ImportFrom)
        for alias in statement.names
    }
    names = list(module_of)

    def find(name: str) -> Any:
        if name not in module_of:
            raise AttributeError(f"module {package!r} has no attribute {name!r}; it offers {', '.join(sorted(names))}")
        return getattr(import_module(module_of[name]), name)

    return find, lambda: sorted(names), names
