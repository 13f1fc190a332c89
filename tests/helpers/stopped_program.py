"""A Python program that trains, and stops itself right after a row of its records: at the same place on any machine.

    python tests/helpers/stopped_program.py STOP -m MODULE ARGUMENTS...

STOP is a `Stop` in JSON.
"""

import json
import os
import runpy
import sys
from collections.abc import Mapping
from typing import Any, NamedTuple


class Stop(NamedTuple):
    """A signal that a program sends itself once it has recorded the metrics of a step.

    Args:
        target: `group`, as a terminal does; `process`, the program alone; or `engine`, vLLM's processes while they work
            on the next rollout.
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
            self._send_in_next_rollout()

    def _send_in_next_rollout(self) -> None:
        from outcome_rl.grpo.rollout.vllm_engine import VllmEngine

        wait = VllmEngine._outputs

        def send_first(engine: VllmEngine) -> list[Any]:
            for process in engine._processes:
                os.kill(process.pid, self.signum)
            return wait(engine)

        VllmEngine._outputs = send_first


def main(stop: Stop, module: str, arguments: list[str]) -> None:
    from outcome_rl.grpo.run.run_log import RunLog

    append = RunLog.append

    def append_and_stop(log: RunLog, stream: str, row: Mapping[str, Any]) -> None:
        append(log, stream, row)
        if (stream, row["step"], int(os.environ.get("RANK", "0"))) == ("metrics", stop.step, stop.rank):
            stop.send()

    RunLog.append = append_and_stop
    sys.argv, sys.path[0] = [module, *arguments], os.getcwd()  # as `python -m` has them
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    assert sys.argv[2] == "-m"
    main(Stop(*json.loads(sys.argv[1])), sys.argv[3], sys.argv[4:])
