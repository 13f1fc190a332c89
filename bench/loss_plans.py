"""Sections of `python -m bench.loss` on the CPU and on a GPU."""

from dataclasses import dataclass
from functools import partial
from typing import Literal

import torch

from bench.baselines import COMPILED
from bench.cases import Spec
from outcome_rl_kernels.dtypes import preferred_dtype

WORKSPACES = (1.0, 0.5, 0.25, 0.125)
KEPT = (1, 8, 16, 64)
TEMPERATURES = (0.5, 1.0, 1.5)
TOP_P = (0.9, 0.95, 0.97)
NATS = (0.1, 0.46, 2.2)  # of a language model's logits: RL policies have .1 to 2
SLOW = (COMPILED, "verl, Triton", "verl, torch")  # on a GPU they, or their compilation, cost more than they show
# On a CPU these take 3 to 6 times the products in every section; the first sections show it.
SLOW_ON_CPU = (
    "TRL chunked log-probs",
    "Liger GRPO",
    "Liger scaled cross-entropy",
    "verl, torch",
    "PyTorch linear_cross_entropy",
)


@dataclass(frozen=True, kw_only=True)
class Plan:
    """One section: a case, the losses that are timed on it, and their time limit.

    Attributes:
        seconds: for the rounds of forward and backward; checks, compilation and memory come on top.
        workspaces: bounds on our logits that are timed as well, as shares of all logits.
        all_modes: also time only the forward pass, and log-probabilities without gradient.
        from_logits: compare the losses that take logits.
        without: names of baselines to leave out.
    """

    name: str
    spec: Spec
    seconds: float
    workspaces: tuple[float, ...] = ()
    all_modes: bool = False
    from_logits: bool = False
    without: tuple[str, ...] = ()


def cpu_plans() -> list[Plan]:
    """Plan for two cores and some minutes, the most important sections first."""
    layouts: tuple[tuple[Literal["packed", "padded"], float], ...] = (
        ("packed", 0.0),
        ("packed", 0.45),
        ("padded", 0.2),
    )
    preferred, _ = preferred_dtype(torch.device("cpu"))
    first, others = [], []
    for dtype in dict.fromkeys((torch.float32, preferred)):  # bfloat16 takes minutes where it is slow
        name = str(dtype).removeprefix("torch.")
        square = partial(Spec, model="small", dtype=dtype, sequences=8, length=64)
        rl = partial(Spec, model="small", dtype=dtype, tokens=512, scale=0.1, beta=0.0)
        first.append(Plan(name=f"small, {name}", spec=square(), seconds=90, workspaces=WORKSPACES, all_modes=True))
        others += [
            Plan(
                name=f"small, peaked logits, {name}",
                spec=square(logits="peaked"),
                seconds=20,
                without=SLOW_ON_CPU,
            ),
            *(
                Plan(
                    name=f"small, RL {layout}, {dead:.0%} dead, {name}",
                    spec=rl(layout=layout, dead=dead),
                    seconds=15,
                    without=SLOW_ON_CPU,
                )
                for layout, dead in layouts
            ),
            Plan(name=f"small, from logits, {name}", spec=square(), seconds=15, from_logits=True),
            *(
                Plan(
                    name=f"SmolLM2-135M, support of {kept}, {name}",
                    spec=square(model="SmolLM2-135M", kept=kept),
                    seconds=15,
                )
                for kept in (KEPT if dtype == preferred else KEPT[2:3])
            ),
        ]
    real = partial(Spec, model="SmolLM2-135M", dtype=preferred, sequences=8, length=64, layout="packed")
    others += [
        *(
            Plan(
                name=f"SmolLM2-135M, responses at temperature {value:g}",
                spec=real(temperature=value),
                seconds=30,
                without=() if value == 1 else SLOW_ON_CPU,
            )
            for value in TEMPERATURES
        ),
        *(
            Plan(
                name=f"SmolLM2-135M, support of top-p {value:g}",
                spec=real(temperature=1.0, top_p=value),
                seconds=15,
            )
            for value in TOP_P
        ),
    ]
    return first + others


def gpu_plans() -> list[Plan]:
    """Plan for ten minutes of one H200, the most important sections first."""
    dtype = torch.bfloat16
    llama, qwen = partial(Spec, model="Llama-3.1-8B", dtype=dtype), partial(Spec, model="Qwen2.5-1.5B", dtype=dtype)
    qwen_7b = Spec(model="Qwen2.5-7B", dtype=dtype, sequences=16, length=1024)
    packed = partial(llama, tokens=16384, layout="packed", beta=0.0)
    padded = partial(qwen, tokens=8192, layout="padded", beta=0.0)
    main = llama(sequences=16, length=1024)
    qwen3 = Spec(model="Qwen3-8B", dtype=dtype, sequences=8, length=1024)  # on which TRL timed its loss head, TRL #7244
    return [
        Plan(name="Llama-3.1-8B, 16k", spec=main, seconds=25, workspaces=WORKSPACES, all_modes=True),
        *(
            Plan(
                name=f"Llama-3.1-8B, logits of {nats:g} nats, 16k",
                spec=llama(sequences=16, length=1024, nats=nats, beta=0.0),
                seconds=15,
                without=SLOW,
            )
            for nats in NATS
        ),
        Plan(name="Llama-3.1-8B, RL packed, 45% dead", spec=packed(dead=0.45), seconds=15, without=SLOW),
        Plan(name="Qwen2.5-1.5B, 16k", spec=qwen(sequences=16, length=1024), seconds=15),
        Plan(name="Llama-3.1-8B, support of 16, 16k", spec=llama(sequences=16, length=1024, kept=16), seconds=5),
        Plan(name="Qwen2.5-1.5B, from logits, 4k", spec=qwen(sequences=8, length=512), seconds=5, from_logits=True),
        Plan(name="Qwen2.5-7B, 16k", spec=qwen_7b, seconds=20),
        Plan(name="Qwen3-8B, 8k, as TRL 7244", spec=qwen3, seconds=15, all_modes=True, without=SLOW),
        *(
            Plan(
                name=f"Llama-3.1-8B, support of {kept}, 16k",
                spec=llama(sequences=16, length=1024, kept=kept),
                seconds=10,
            )
            for kept in KEPT
            if kept != 16
        ),
        Plan(name="Llama-3.1-8B, RL packed, 0% dead", spec=packed(), seconds=15, without=SLOW),
        Plan(name="Llama-3.1-8B, 4k", spec=llama(sequences=8, length=512), seconds=10, without=SLOW),
        Plan(name="Llama-3.1-8B, 1k", spec=llama(sequences=4, length=256), seconds=5, without=SLOW),
        Plan(name="Qwen2.5-1.5B, RL padded, 20% dead", spec=padded(dead=0.2), seconds=15, without=SLOW),
        Plan(name="Llama-3.1-8B, RL packed, 20% dead", spec=packed(dead=0.2), seconds=15, without=SLOW),
        Plan(name="Qwen2.5-1.5B, RL padded, 45% dead", spec=padded(dead=0.45), seconds=15, without=SLOW),
        Plan(name="Llama-3.1-8B, 32k", spec=llama(sequences=16, length=2048), seconds=25, without=SLOW),
    ]
