"""Training steps on a GPU: their time, where the host waits, and a resumed run; what packing is worth."""

import math
import re
import tempfile
import traceback
import warnings
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from bench.gpu_parts.report import DEVICE, DRY, Figures, Report, require
from outcome_rl.bench.measure import interleaved_times, peak_mib

# Where a training step may wait for a GPU, because the host needs a value: the list of docs/larger-models.md.
WAITING = (
    "exploration/",  # Explorer.score copies its results to the host, once a step
    "rollout/decode_loop.py",  # looks every 8 tokens whether responses have ended, and reads them at the end
    "update/updater.py: _update",  # refuses a gradient that is not finite, once an optimizer step
    "update/totals.py: metrics",  # once a step
)
SMALL = (
    "data.train_batch_size=4",
    "data.train_files=toy:train[:8]",
    "data.val_files=toy:validation[:2]",
    "data.test_files=toy:test[:2]",
    "rollout.n=4",
)


@contextmanager
def synchronisations(found: Counter[str]) -> Iterator[None]:
    """Count by function where the host waits for a GPU: the innermost of the library, or else of any code."""

    def note(message: Any, *_: Any) -> None:
        if "called a synchronizing" in str(message):
            frames = traceback.extract_stack()[:-1]  # without this function
            own = [frame for frame in frames if re.search(r"/outcome_rl(_kernels)?/", frame.filename)]
            place = own or [frame for frame in frames if Path(frame.filename).name != "warnings.py"]
            found["/".join(Path(place[-1].filename).parts[-2:]) + f": {place[-1].name}"] += 1

    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.showwarning = note  # type: ignore[assignment]
        if not DRY:
            torch.cuda.set_sync_debug_mode("warn")
        try:
            yield
        finally:
            if not DRY:
                torch.cuda.set_sync_debug_mode("default")


def training_steps(report: Report) -> Figures:
    """Train the toy policy for ten steps, and resume it once: times and synchronisations of a step."""
    from outcome_rl.grpo.config.load import load_config
    from outcome_rl.grpo.parts import open_parts
    from outcome_rl.grpo.plan import plan
    from outcome_rl.grpo.trainer import Trainer

    steps, found, seconds = 2 if DRY else 10, Counter[str](), []
    with tempfile.TemporaryDirectory() as folder:
        settings = [f"model.device={DEVICE.type}", f"trainer.default_local_dir={folder}", *(SMALL if DRY else [])]
        settings += ["trainer.test_freq=-1", f"trainer.save_freq={steps}", "trainer.logger=[]"]
        trainer = Trainer(
            open_parts(plan(load_config("toy", [*settings, f"trainer.total_training_steps={steps + 2}"])))
        )
        try:
            trainer.train_step()  # compiles
            for _ in range(steps - 1):
                with synchronisations(found):
                    seconds.append(trainer.train_step()[1]["time/step_s"])
            trainer.parts.save()
        finally:
            trainer.parts.close()
        resumed = Trainer(
            open_parts(plan(load_config("toy", [*settings, f"trainer.total_training_steps={steps + 2}"])))
        )
        try:
            require(
                resumed.parts.state.step == steps,
                f"the resumed run begins after step {resumed.parts.state.step}, not {steps}",
            )
            _, row = resumed.train_step()
        finally:
            resumed.parts.close()
    require(math.isfinite(row["actor/loss"]), f"the loss is {row['actor/loss']}")
    others = sum(n for place, n in found.items() if not place.startswith(WAITING))
    scored = sum(n for place, n in found.items() if place.startswith("exploration/"))
    report.at_most(f"synchronisations besides {', '.join(WAITING)}", 0, others, "")
    report.at_most("synchronisations of Explorer.score a step", 1, scored / (steps - 1), "")
    return {"synchronisations": dict(found), "step_s": seconds, "resumed at": steps}


def packing(report: Report) -> Figures:
    """Time updates on responses of ten lengths, packed and padded, on a model of 1.2 billion parameters."""
    from bench.step import model_inputs, opened, our_update
    from outcome_rl.grpo.types import Rollout

    name, found, calls = "toy" if DRY else "llama-1b", Figures(), {}
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        settings = [*model_inputs(name, Path(folder)), f"model.device={DEVICE.type}", *(SMALL if DRY else [])]
        for kind, packs in (("padded", "false"), ("packed", "true")):
            trainer, _, samples = stack.enter_context(
                opened(name, [*settings, f"model.use_remove_padding={packs}"], [])
            )
            policy = trainer.parts.policy
            rollouts = [
                Rollout.decoded(
                    policy.tokenizer, one.prompt_ids, one.token_ids[: -(-len(one.token_ids) * tenths // 10)]
                )
                for one, tenths in zip(samples.rollouts, [*range(1, 11)] * len(samples), strict=False)
            ]
            # A random model's responses are all wrong, and without advantage they would be left out.
            ones = torch.tensor([1.0 if row % 2 else -1.0 for row in range(len(samples))])
            samples = replace(
                samples, rollouts=rollouts, advantages_N=ones, spans_N2=torch.zeros_like(samples.spans_N2)
            )
            calls[kind] = partial(our_update, trainer, samples)
            layouts = {"packs": policy.packs, "attention": policy.attention_layout}
            found[kind] = layouts | {"peak_mib": peak_mib(calls[kind], DEVICE)}
            report.keep(found)
        rounds = {"warmups": 1, "rounds": 2 if DRY else 10, "seconds": 30}
        times = interleaved_times(calls, DEVICE, floor="padded", **rounds)
    for kind, measured in times.items():
        found[kind] |= measured
    report.at_most("an update, packed over padded", 0.9, found["packed"]["of_floor"]["ratio"], "")
    return found
