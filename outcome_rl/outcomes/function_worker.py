"""Worker process for an outcome function: gets responses with their examples and replies with outcomes.

`outcome_rl.outcomes.isolated` runs it as
`python -m outcome_rl.outcomes.function_worker MEMORY_MIB ALARM_S MODULE:FUNCTION`.
"""

import base64
import pickle
import sys
from typing import Any

from outcome_rl.outcomes.functions import describe, found, load_function
from outcome_rl.outcomes.worker_process import serve


def main() -> None:
    """Serve outcomes until the input ends."""
    memory_mib, alarm_s, name = int(sys.argv[1]), float(sys.argv[2]), sys.argv[3]

    def load() -> Any:
        function = load_function(name)
        function = getattr(function, "function", function)  # where `isolated` took the name of what it isolates
        getattr(function, "outcome_prepare", int)()
        return lambda task: _reply(function, *pickle.loads(base64.b64decode(task[1])))

    serve(memory_mib, alarm_s, load)


def _reply(function: Any, response: str, example: dict[str, Any]) -> dict[str, Any]:
    try:
        return {"verdict": "value", "found": found(function(response, example), len(response))}
    except MemoryError:
        return {"verdict": "memory", "reason": "its memory limit was reached"}  # and its worker is replaced
    except BaseException as error:  # noqa: BLE001 - SystemExit too: the outcome is logged, and the worker goes on
        return {"verdict": "raised", "error": describe(error)}


if __name__ == "__main__":
    main()
