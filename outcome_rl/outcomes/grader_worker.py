"""Worker process for math-verify: gets pairs of answers and replies with verdicts.

`outcome_rl.outcomes.grader` runs it as `python -m outcome_rl.outcomes.grader_worker MEMORY_MIB ALARM_S`.
"""

import logging
import resource
import sys
from functools import lru_cache
from typing import Any

from outcome_rl.outcomes.worker_process import MIB, serve
from outcome_rl.process_memory import status_kib


def main() -> None:
    """Serve verdicts until the input ends."""
    memory_mib, alarm_s = int(sys.argv[1]), float(sys.argv[2])

    def load() -> Any:
        logging.disable(logging.CRITICAL)  # math-verify logs every answer that it cannot parse
        judge("1", "1")  # loads sympy and the grammar
        return lambda pair: _verdict(pair, memory_mib)

    serve(memory_mib, alarm_s, load)


def _verdict(pair: list[str], memory_mib: int) -> dict[str, str]:
    a, b = pair
    equal = judge(a, b) or judge(b, a)
    used_mib = peak_mib()
    # math-verify catches MemoryError and returns "different", so that verdict is not trusted near the limit.
    if not equal and used_mib > memory_mib / 2:
        return {"verdict": "error", "reason": f"used {used_mib} MiB of at most {memory_mib} MiB"}
    return {"verdict": "equal" if equal else "different"}


def judge(gold: str, prediction: str) -> bool:
    """Return math-verify's verdict in verl's form: gold as LaTeX, prediction as expression or LaTeX, both boxed."""
    from math_verify import verify

    return bool(verify(_parse(gold, "gold"), _parse(prediction, "prediction"), timeout_seconds=None))


@lru_cache(maxsize=4096)
def _parse(answer: str, role: str) -> list[Any]:
    from math_verify import ExprExtractionConfig, LatexExtractionConfig, parse

    targets = (LatexExtractionConfig(),) if role == "gold" else (ExprExtractionConfig(), LatexExtractionConfig())
    parsed: list[Any] = parse(f"\\boxed{{{answer}}}", targets, parsing_timeout=None)
    return parsed


def peak_mib() -> int:
    """Return the peak memory of this process in MiB."""
    if sys.platform == "linux":
        # ru_maxrss would include the parent's memory at the fork, such as the weights of a policy.
        return status_kib("VmHWM") // 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // (MIB if sys.platform == "darwin" else 1024)


if __name__ == "__main__":
    main()
