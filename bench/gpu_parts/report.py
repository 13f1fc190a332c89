"""Figures and goals of a check, and the sizes that checks have on a GPU and in a dry run."""

import gc
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from bench.cases import MODELS, Spec
from bench.loss_plans import gpu_plans
from outcome_rl.environment import describe_environment
from outcome_rl.files.atomic import write_json

DRY = not torch.cuda.is_available()  # everything in small, interpreted; figures are not judged
DEVICE = torch.device("cpu") if DRY else torch.device("cuda", torch.cuda.current_device())
# Vocabularies: smaller than a block of a row kernel, aligned, without alignment, and that of the goal.
VOCABULARIES = (272,) if DRY else (1000, 4096, 50257, 128256)
MODELS.update({f"V = {V}": (64, V) for V in VOCABULARIES})
# 16,384 tokens with the head of Llama-3.1-8B.
GOAL = Spec(model="V = 272", dtype=torch.bfloat16, sequences=2, length=1)
if not DRY:
    GOAL = gpu_plans()[0].spec
Figures = dict[str, Any]


class Report:
    """A check's figures and goals, in a file from the start."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.found: Figures = {"devices": describe_environment()["devices"], "goals": [], "figures": None}
        self._save()

    def run(self, check: Callable[["Report"], object]) -> None:
        """Run a check, whatever it raises, and wait for the GPU, whose errors may come later than their cause."""
        start = time.perf_counter()
        try:
            figures = check(self)
            self.keep(figures if figures is not None else self.found["figures"])
            release()
            self.found["ok"] = True
        except Exception as error:  # noqa: BLE001 - the error is the result of the check
            traceback.print_exc()
            self.found |= {"ok": False, "error": f"{type(error).__name__}: {error}"}
        self.found["seconds"] = round(time.perf_counter() - start, 1)
        self._save()
        figures = self.found["figures"]
        for line in figures.items() if isinstance(figures, dict) else [("", figures)]:
            print("     ", *[str(part)[:250] for part in line], flush=True)  # the file has them whole

    def keep(self, figures: object) -> None:
        """Write the figures so far."""
        self.found["figures"] = figures
        self._save()

    def at_most(self, name: str, limit: float, seen: float | None, unit: str) -> None:
        """Add a goal; on the CPU it is not judged."""
        met = None if DRY or seen is None else seen <= limit
        self.found["goals"].append({"goal": name, "expected": limit, "seen": seen, "unit": unit, "met": met})
        self._save()

    def _save(self) -> None:
        write_json(self.path, self.found)


def release() -> None:
    gc.collect()
    if not DRY:
        torch.cuda.synchronize()
        torch.cuda.empty_cache()


def require(condition: bool, what: str) -> None:
    if not condition:
        raise AssertionError(what)
