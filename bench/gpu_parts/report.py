"""Figures and goals of the checks, and the sizes they have on a GPU and in a dry run."""

import gc
import time
import traceback
from collections.abc import Callable
from typing import Any

import torch

from outcome_rl.bench.cases import MODELS, Spec
from outcome_rl.bench.loss_plans import gpu_plans

DRY = not torch.cuda.is_available()  # everything in small, interpreted; figures are not judged
DEVICE = torch.device("cpu") if DRY else torch.device("cuda", torch.cuda.current_device())
# Vocabularies: smaller than a block of a row kernel, aligned, without alignment, and that of the goal.
VOCABULARIES = (272,) if DRY else (1000, 4096, 50257, 128256)
MODELS.update({f"V = {V}": (64, V) for V in VOCABULARIES})
# The cases of the goals: 16,384 tokens with the head of Llama-3.1-8B, and as many in responses of an RL step.
GOAL = Spec(model="V = 272", dtype=torch.float32, sequences=2, length=1)
DEAD = Spec(model="V = 272", dtype=torch.float32, tokens=16, scale=0.005, layout="packed", dead=0.45, beta=0.0)
if not DRY:
    plans = {plan.name: plan.spec for plan in gpu_plans()}
    GOAL, DEAD = plans["Llama-3.1-8B, 16k"], plans["Llama-3.1-8B, RL packed, 45% dead"]
Figures = dict[str, Any]


class Report:
    """Figures of checks, and goals with what was seen."""

    def __init__(self) -> None:
        self.checks: dict[str, Figures] = {}
        self.goals: list[Figures] = []

    def run(self, check: Callable[["Report"], object]) -> None:
        """Run a check, whatever it raises."""
        name, start = check.__name__, time.perf_counter()
        print(f"... {name}", flush=True)
        try:
            found: Figures = {"ok": True, "figures": check(self)}
        except Exception as error:  # noqa: BLE001 - the next check runs all the same
            traceback.print_exc()
            found = {"ok": False, "error": f"{type(error).__name__}: {error}"}
        found["seconds"] = round(time.perf_counter() - start, 1)
        self.checks[name] = found
        print(f"{'ok  ' if found['ok'] else 'FAIL'} {name}, {found['seconds']} s", flush=True)
        figures = found.get("figures")
        for line in figures.items() if isinstance(figures, dict) else [("", figures)]:
            print("     ", *[str(part)[:250] for part in line])  # the record has them whole
        release()

    def at_most(self, name: str, limit: float, seen: float | None, unit: str) -> None:
        """Add a goal; on the CPU it is not judged."""
        met = None if DRY or seen is None else seen <= limit
        self.goals.append({"goal": name, "expected": limit, "seen": seen, "unit": unit, "met": met})

    @property
    def failed(self) -> list[str]:
        missed = [goal["goal"] for goal in self.goals if goal["met"] is False]
        return [name for name, found in self.checks.items() if not found["ok"]] + missed

    def print_goals(self) -> None:
        words = {None: "not judged", True: "met", False: "MISSED"}
        for goal in self.goals:
            seen = "nothing" if goal["seen"] is None else f"{goal['seen']:.4g} {goal['unit']}"
            print(f"{words[goal['met']]:10} {goal['goal']}: expected <= {goal['expected']} {goal['unit']}, seen {seen}")
        print(f"{len(self.checks)} checks; failed or missed: {', '.join(self.failed) or 'none'}")


def release() -> None:
    gc.collect()
    if not DRY:
        torch.cuda.synchronize()
        torch.cuda.empty_cache()


def require(condition: bool, what: str) -> None:
    if not condition:
        raise AssertionError(what)
