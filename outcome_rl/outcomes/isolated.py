"""Outcome functions in worker processes that can be killed.

    tests = isolated(run_tests, timeout_s=5, memory_mb=1024)   # an outcome function like any other

It bounds time and memory, and keeps the run alive whatever the function does. It is no sandbox: the function, and
programs that it runs, may read and write every file and use the network as the user may. Run programs that you do not
trust in a container or virtual machine.
"""

import base64
import pickle
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any

from outcome_rl.outcomes.functions import (
    Example,
    Failure,
    FailureKind,
    Found,
    describe,
    found,
    load_function,
    rule_of,
)
from outcome_rl.outcomes.worker_pool import WorkerPool

_KINDS: dict[str, FailureKind] = {"timeout": "timeout", "error": "crash", "memory": "memory", "raised": "error"}


class Isolated(WorkerPool):
    """An outcome function that runs in worker processes; made by `isolated`, called with all responses of a step."""

    outcome_isolated = True

    def __init__(
        self, function: Callable[[str, Mapping[str, Any]], Any], timeout_s: float, memory_mb: int, workers: int | None
    ) -> None:
        rule_of(function)  # it has a name
        if getattr(function, "outcome_batched", False):
            raise ValueError(f"function must take one response, so that each has its own limits; {function} is batched")
        if function.__module__ == "__main__":
            raise ValueError(
                f"function must be in a module that a process can import; {function.__qualname__} is in the script that"
                " was started. Move it to a file of its own"
            )
        self.function = function
        self.outcome_version: str = getattr(function, "outcome_version", "1")
        self.__module__, self.__qualname__ = function.__module__, function.__qualname__
        load = ("outcome_rl.outcomes.isolated:load_isolated", f"{function.__module__}:{function.__qualname__}")
        super().__init__(load, workers=workers, timeout_s=timeout_s, memory_mib=memory_mb)

    def __call__(
        self,
        responses: Sequence[str],
        examples: Sequence[Example],
        deadline: float = float("inf"),
        timeout_s: float | None = None,
    ) -> list[Found | Failure]:
        """Return the outcome of each response; those that have not begun at the deadline are cut.

        Args:
            responses: N texts.
            examples: their data rows.
            deadline: time, by `time.monotonic()`.
            timeout_s: shorter time limit of a response, in seconds.

        Raises:
            TypeError: an example cannot be sent to another process.
            RuntimeError: the workers do not start, because the module cannot be imported, for example.
        """
        outcomes: list[Found | Failure] = [Failure("crash", "")] * len(responses)
        with self._turn():
            rows = zip(responses, examples, strict=True)
            for (i, _), reply in self._answer([(i, _sent(*row)) for i, row in enumerate(rows)], deadline, timeout_s):
                outcomes[i] = _received(reply)
        return outcomes


def isolated(
    function: Callable[[str, Mapping[str, Any]], Hashable | None],
    timeout_s: float = 5.0,
    memory_mb: int = 2048,
    workers: int | None = None,
) -> Isolated:
    """Run an outcome function in killable processes: a timeout, a crash or too much memory is an outcome of its own.

    Each process imports the function by its name, without the environment variables of the run. Processes start at the
    first response and are replaced when they die.

    Args:
        function: `(response, example) -> outcome`, at the top of a module that can be imported; examples must be
            picklable.
        timeout_s: longest time of a response, in seconds.
        memory_mb: address space of a process, in MiB, modules that the function imports included.
        workers: number of processes, by default one per CPU.

    Raises:
        ValueError: the function is not at the top of a module, or a number is not positive.
    """
    return Isolated(function, timeout_s, memory_mb, workers)


def _sent(response: str, example: Example) -> str:
    try:
        return base64.b64encode(pickle.dumps((response, dict(example)))).decode()
    except Exception as error:  # pickle raises anything
        raise TypeError(
            f"examples must be picklable to reach a process of their own; one is not: {error}. Remove such columns"
        ) from error


def _received(reply: dict[str, Any]) -> Found | Failure:
    if reply["verdict"] == "value":
        return Found(*reply["found"])
    if reply["verdict"] == "cut":
        return Failure("cut", "the time limit of the step")
    return Failure(_KINDS[reply["verdict"]], reply.get("reason") or reply["error"])


def load_isolated(name: str) -> Callable[[list[Any]], dict[str, Any]]:
    """Import an outcome function in a worker, and return a handler that maps a task to its reply."""
    function = load_function(name)
    function = getattr(function, "function", function)  # where `isolated` took the name of what it isolates
    getattr(function, "outcome_prepare", int)()

    def reply(task: list[Any]) -> dict[str, Any]:
        response, example = pickle.loads(base64.b64decode(task[1]))
        try:
            return {"verdict": "value", "found": found(function(response, example), len(response))}
        except MemoryError:
            return {"verdict": "memory", "reason": "its memory limit was reached"}  # and its worker is replaced
        except BaseException as error:  # noqa: BLE001 - SystemExit too: the outcome is logged, and the worker goes on
            return {"verdict": "raised", "error": describe(error)}

    return reply
