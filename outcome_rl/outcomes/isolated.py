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

from outcome_rl.isolation.closing import Closing
from outcome_rl.isolation.own_process import in_own_process
from outcome_rl.isolation.worker_pool import WorkerPool
from outcome_rl.isolation.worker_process import Handler
from outcome_rl.outcomes.batch import Row
from outcome_rl.outcomes.functions import Failure, FailureKind, OutcomeFunction, found, text_of, value_of
from outcome_rl.outcomes.outcome import Outcome
from outcome_rl.user_functions import describe, load_function, name_of

_GRACE_S = 5.0  # a worker ends a function at the limit; after so much longer the worker itself is ended

MAX_REASON_CHARS = 400
_KINDS: dict[str, FailureKind] = {"timeout": "timeout", "error": "crash", "memory": "memory", "raised": "error"}


class Isolated(OutcomeFunction, Closing):
    """An outcome function that runs in worker processes; made by `isolated`, called with all responses of a step."""

    def __init__(self, function: Callable[..., Any], timeout_s: float, memory_mb: int, workers: int | None) -> None:
        known = function if isinstance(function, OutcomeFunction) else OutcomeFunction(function)
        path = name_of(known.function)
        if not path or path.startswith("__main__:"):
            raise ValueError(
                "function must be at the top of a module that a process can import, because it is imported by its "
                f"name; got {function!r}. Move it to a separate file"
            )
        super().__init__(known.function, name=known.name, version=known.version)
        load = ("outcome_rl.outcomes.isolated:load_isolated", path)
        self._pool = WorkerPool(load, workers=workers, timeout_s=timeout_s, memory_mib=memory_mb, grace_s=_GRACE_S)

    def call(
        self, responses: Sequence[str], examples: Sequence[Row], deadline: float = float("inf")
    ) -> list[Outcome | Failure]:
        """Return the outcome of each response; those that have not begun at the deadline are cut.

        Raises:
            TypeError: an example cannot be sent to another process.
            RuntimeError: the workers do not start, because the module cannot be imported, for example.
        """
        tasks = [_sent(*row) for row in zip(responses, examples, strict=True)]
        return list(map(_received, self._pool.ask(tasks, deadline), responses))

    __call__ = call

    def close(self) -> None:
        """Stop the workers; a later call starts new ones."""
        self._pool.close()


def isolated(
    function: Callable[[str, Mapping[str, Any]], Hashable | None],
    timeout_s: float = 5.0,
    memory_mb: int = 2048,
    workers: int | None = None,
) -> Isolated:
    """Run an outcome function in killable processes: a timeout, a crash or too much memory is a separate outcome.

    Worker processes import the function by its name, without the environment variables of the run. They start at the
    first response, and fork a process for each one: whatever a call does to its process, other responses keep their
    outcomes. Load what is slow at the top of the module; what a call loads is gone at the next one.

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


def _sent(response: str, example: Row) -> str:
    try:
        return base64.b64encode(pickle.dumps((response, dict(example)))).decode()
    except Exception as error:  # pickle raises anything
        raise TypeError(
            f"examples must be picklable to reach a worker process; one is not: {error}. Remove such columns"
        ) from error


def _received(reply: Mapping[str, Any], response: str) -> Outcome | Failure:
    """Return the outcome in a reply; the function may have forged the reply."""
    verdict: Any = reply.get("verdict")
    if verdict == "cut":
        return Failure("cut", "the time limit of the step")
    try:
        if verdict == "value":
            text, *rest = reply["found"]
            return found(Outcome(value_of(text), *rest), len(response))
        return Failure(_KINDS[verdict], str(reply.get("reason") or reply["error"])[:MAX_REASON_CHARS])
    except (ValueError, TypeError, KeyError, RecursionError):
        return Failure("crash", "its process replied with no outcome")


def load_isolated(name: str) -> Handler:
    """Import an outcome function in a worker, and return a handler that runs it in a process for each task."""
    function = load_function(name)
    if isinstance(function, OutcomeFunction):  # where a decorator took the name of what it wraps
        function = function.function

    def reply(task: str) -> dict[str, Any]:
        response, example = pickle.loads(base64.b64decode(task))
        try:
            value, *rest = found(function(response, example), len(response))
            return {"verdict": "value", "found": (text_of(value), *rest)}
        except MemoryError:
            return {"verdict": "memory", "error": "its memory limit was reached"}
        except BaseException as error:  # noqa: BLE001 - SystemExit too: the outcome is logged
            return {"verdict": "raised", "error": describe(error)}

    return in_own_process(reply)
