"""math-verify in worker processes that can be killed.

math-verify evaluates text that a model wrote: `9^{9^{9}}` froze a process for ten minutes with its timeouts off, and
with them on it needs the main thread and takes over the caller's alarm signal. Only a process boundary is safe
(`worker_pool`). A pair without a result is "timeout" or "error" and is logged; it is never silently "different".
"""

import logging
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, Literal

from outcome_rl.isolation.process_memory import peak_mib
from outcome_rl.isolation.worker_pool import WorkerPool

logger = logging.getLogger(__name__)

Verdict = Literal["equal", "different", "timeout", "error", "cut"]
Pair = tuple[str, str]

MAX_CACHED_PAIRS = 1 << 18
MAX_LOGGED_CHARS = 200


class MathVerifyPool(WorkerPool):
    """Compare pairs of answers with math-verify, several at a time; no pair can hang or crash the caller.

    Args:
        workers, timeout_s, memory_mib: as for `WorkerPool`; a task is a pair, both directions together.
    """

    def __init__(self, workers: int | None = None, timeout_s: float = 5.0, memory_mib: int = 2048) -> None:
        load = ("outcome_rl.isolation.grader:load_judge", str(memory_mib))
        super().__init__(load, workers=workers, timeout_s=timeout_s, memory_mib=memory_mib)
        self._cache: dict[Pair, Verdict] = {}

    def compare(
        self,
        pairs: Sequence[Pair],
        progress: Callable[[int, int], None] | None = None,
        deadline: float = float("inf"),
    ) -> list[Verdict]:
        """Compare pairs of answer texts; a pair is "equal" if math-verify accepts it in either direction.

        Args:
            pairs: answer texts, without `\\boxed{}`.
            progress: called as `progress(done, total)` after each pair.
            deadline: time, by `time.monotonic()`, after which no comparison begins.

        Returns:
            One result per pair: "equal", "different", "timeout" (its worker was killed), "error" (its worker died or
            came near its memory limit), or "cut" (it had not begun at the deadline). Only the first two are cached;
            timeouts and errors are logged as warnings with their reason.

        Raises:
            RuntimeError: if the workers do not start.
        """
        keys: list[Pair] = [(a, b) if a <= b else (b, a) for a, b in pairs]
        with self._turn():
            verdicts: dict[Pair, Verdict] = {key: self._cache[key] for key in keys if key in self._cache}
            todo = [key for key in dict.fromkeys(keys) if key not in verdicts]
            for judged, (i, reply) in enumerate(self._answer(todo, deadline), start=1):
                pair = todo[i]
                verdicts[pair] = reply["verdict"]
                if "reason" in reply:
                    a, b = (text[:MAX_LOGGED_CHARS] for text in pair)
                    logger.warning("math-verify: %s on %r and %r: %s", reply["verdict"], a, b, reply["reason"])
                elif reply["verdict"] != "cut":
                    self._cache[pair] = reply["verdict"]
                if progress is not None:
                    progress(judged, len(todo))
            while len(self._cache) > MAX_CACHED_PAIRS:
                del self._cache[next(iter(self._cache))]
        return [verdicts[key] for key in keys]


def load_judge(memory_mib: str) -> Callable[[list[str], float], dict[str, str]]:
    """Load math-verify in a worker, and return a handler that maps a pair of answers to its result."""
    logging.disable(logging.CRITICAL)  # math-verify logs every answer that it cannot parse
    judge("1", "1")  # loads sympy and the grammar
    limit_mib = int(memory_mib)

    def verdict(pair: list[str], limit_s: float) -> dict[str, str]:
        a, b = pair
        equal = judge(a, b) or judge(b, a)
        used_mib = peak_mib()
        # math-verify catches MemoryError and returns "different", so that result is not trusted near the limit.
        if not equal and used_mib > limit_mib / 2:
            return {"verdict": "error", "reason": f"used {used_mib} MiB of at most {limit_mib} MiB"}
        return {"verdict": "equal" if equal else "different"}

    return verdict


def judge(gold: str, prediction: str) -> bool:
    """Return whether math-verify accepts an answer, in verl's form.

    Gold as LaTeX, prediction as expression or LaTeX, both boxed.
    """
    from math_verify import verify

    return bool(verify(_parse(gold, "gold"), _parse(prediction, "prediction"), timeout_seconds=None))


@lru_cache(maxsize=4096)
def _parse(answer: str, role: str) -> list[Any]:
    from math_verify import ExprExtractionConfig, LatexExtractionConfig, parse

    targets = (LatexExtractionConfig(),) if role == "gold" else (ExprExtractionConfig(), LatexExtractionConfig())
    parsed: list[Any] = parse(f"\\boxed{{{answer}}}", targets, parsing_timeout=None)
    return parsed
