"""Outcome-based exploration and a fused policy loss for RL on reasoning models.

`__init__.pyi` lists the public names. They are resolved on first use, so that `import outcome_rl` costs milliseconds
and a process that only grades answers never loads torch.
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
        raise AttributeError(f"module 'outcome_rl' has no attribute {name!r}; it offers {', '.join(sorted(__all__))}")
    return getattr(import_module(_MODULE_OF[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
