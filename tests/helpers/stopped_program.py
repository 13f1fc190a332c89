"""A Python program that trains, and stops itself right after a row of its records: at the same place on any machine.

    python tests/helpers/stopped_program.py STOP -m MODULE ARGUMENTS...

STOP is a `Stop` in JSON.
"""

import json
import os
import runpy
import sys
from collections.abc import Mapping
from functools import reduce
from importlib import import_module
from typing import Any, NamedTuple


class Stop(NamedTuple):
    """A signal that a program sends itself once it has recorded the metrics of a step.

    Args:
        step: 0 is the start.
        target: `group`, as a terminal does; `process`, the program alone; or `module:function`, the program alone when
            it next calls this function.
        rank: of the process that does it.
    """

    signum: int
    step: int
    target: str = "group"
    rank: int = 0

    def send(self) -> None:
        if self.target == "group":
            os.killpg(0, self.signum)
        elif self.target == "process":
            os.kill(os.getpid(), self.signum)
        else:
            self._send_at_next_call()

    def _send_at_next_call(self) -> None:
        module, _, path = self.target.partition(":")
        *owners, name = path.split(".")
        owner = reduce(getattr, owners, import_module(module))
        assert callable(getattr(owner, name)), self.target
        setattr(owner, name, lambda *_, **__: os.kill(os.getpid(), self.signum))


def main(stop: Stop, module: str, arguments: list[str]) -> None:
    from outcome_rl.grpo.run.run_log import RunLog

    append = RunLog.append

    def append_and_stop(log: RunLog, stream: str, row: Mapping[str, Any]) -> None:
        append(log, stream, row)
        if (stream, row["step"], int(os.environ.get("RANK", "0"))) == ("metrics", stop.step, stop.rank):
            stop.send()

    RunLog.append = append_and_stop
    if stop.step == 0:
        stop.send()
    sys.argv, sys.path[0] = [module, *arguments], os.getcwd()  # as `python -m` has them
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    assert sys.argv[2] == "-m"
    main(Stop(*json.loads(sys.argv[1])), sys.argv[3], sys.argv[4:])
