"""Tensors in, tensors out: policy loss, log-probabilities, outcome counts and group advantages.

The package knows nothing of answers, trainers or configs. `outcome_rl` exports the same names. `__init__.pyi` lists
them; they are resolved on first use, so that files and settings cost no import of torch.
"""

import ast
from importlib import import_module
from pathlib import Path
from typing import Any

_MODULE_OF = {
    alias.name: str(statement.module)
    for statement in ast.parse(Path(__file__).with_suffix(".pyi").read_text(encoding="utf-8")).body
    if isinstance(statement, ast.ImportFrom)
    for alias in statement.names
}
__all__ = list(_MODULE_OF)


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module 'outcome_rl_kernels' has no attribute {name!r}")
    return getattr(import_module(_MODULE_OF[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
