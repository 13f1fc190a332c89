"""Calls that are stopped at a line, as Ctrl-C may stop them."""

import sys
from collections.abc import Callable
from types import FrameType, ModuleType
from typing import Any


def stopped_at(line: int, module: ModuleType, call: Callable[..., Any], *arguments: Any) -> bool:
    """Call, and raise KeyboardInterrupt before the given line of the module; return whether the call was stopped."""
    left = line

    def trace(frame: FrameType, event: str, _: object) -> Any:
        nonlocal left
        if frame.f_code.co_filename != module.__file__:
            return None
        left -= event == "line"
        if event == "line" and left == 0:
            raise KeyboardInterrupt
        return trace

    tracer = sys.gettrace()
    sys.settrace(trace)
    try:
        call(*arguments)
    except KeyboardInterrupt:
        return True
    finally:
        sys.settrace(tracer)
    return False
