"""Every adapter that can run here computes the same loss; the rest say why they cannot."""

import tomllib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from packaging.requirements import Requirement

from bench import cases
from bench.accuracy import gradients, objection, truth_of
from bench.baselines import BASELINES, LOGITS_BASELINES, Baseline
from bench.cases import Batch, Spec, make_case
from bench.loss import attempt

CPU = torch.device("cpu")
F32 = torch.float32


@pytest.fixture(autouse=True)
def tiny_and_uncompiled(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The results of the adapters do not depend on the compiler, which takes half a minute for all of them."""
    monkeypatch.setitem(cases.MODELS, "tiny", (32, 257))
    with torch.compiler.set_stance("force_eager"):
        yield


def runnable(baselines: list[Baseline]) -> list[object]:
    """The baselines, those that cannot run here marked as skipped with their reason."""
    return [
        pytest.param(
            baseline, id=baseline.name, marks=pytest.mark.skipif(why is not None, reason=f"{baseline.name}: {why}")
        )
        for baseline in baselines
        for why in [baseline.obstacle(CPU)]
    ]


@pytest.mark.parametrize(("layout", "beta"), [("packed", 0.0), ("padded", 0.1)])
@pytest.mark.parametrize("baseline", runnable(BASELINES))
def test_a_baseline_computes_the_same_loss(baseline: Baseline, layout: str, beta: float) -> None:
    spec = Spec(model="tiny", dtype=F32, tokens=300, scale=0.1, layout=layout, dead=0.2, beta=beta)
    case = make_case(spec, CPU)
    inputs = (case.hidden, case.weight)
    for batch in (case.batch, case.off_policy) if baseline.carries_coefficients else (case.batch.as_cross_entropy(),):
        truth = truth_of(inputs, batch)
        truth = truth if baseline.carries_coefficients else truth.as_cross_entropy()
        errors, why = attempt(baseline, inputs, batch, truth, None, F32)
        assert why is None
        assert max(errors["gradients"]) < 1e-5


@pytest.mark.parametrize("baseline", runnable(LOGITS_BASELINES))
def test_a_baseline_computes_the_same_loss_from_logits(baseline: Baseline) -> None:
    case = make_case(Spec(model="tiny", dtype=F32, sequences=4, length=16), CPU)
    logits = case.hidden @ case.weight.t()
    before = logits.clone()
    for batch in (case.batch, case.off_policy):
        _, why = attempt(baseline, (baseline.prepare(logits, batch),), batch, truth_of((logits,), batch), None, F32)
        assert why is None
    assert torch.equal(logits, before)


def plain(h: torch.Tensor, w: torch.Tensor, batch: Batch, **changes: object) -> torch.Tensor:
    return BASELINES[1].loss(h, w, replace(batch, **changes))


def broken(hidden: torch.Tensor, weight: torch.Tensor, batch: Batch) -> torch.Tensor:
    raise RuntimeError("no kernel image\nfor this device")


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        pytest.param({"loss": lambda h, w, batch: 2 * plain(h, w, batch)}, "error", id="another normaliser"),
        pytest.param({"loss": lambda h, w, batch: plain(h, w, batch, old_logps=None)}, "error", id="no ratio"),
        pytest.param(
            {"loss": lambda h, w, batch: plain(h, w, batch, mask=torch.ones_like(batch.mask))}, "error", id="no mask"
        ),
        pytest.param({"loss": lambda h, w, batch: plain(h, w, batch) * torch.nan}, "error", id="NaN"),
        pytest.param({"loss": lambda h, w, batch: plain(h, w.detach(), batch)}, "", id="no gradient of the weight"),
        pytest.param(
            {"loss": lambda h, w, batch: plain(h, w, batch) + 0.1}, "error", id="the gradients alone are right"
        ),
        pytest.param(
            {"logps": lambda h, w, batch: (h @ w.t()).log_softmax(-1).amax(dim=-1)},
            "log-probabilities",
            id="of other tokens",
        ),
        pytest.param({"loss": broken}, "RuntimeError: no kernel image", id="an error of the library"),
    ],
)
def test_the_check_refuses_a_wrong_loss(changes: dict[str, Any], said: str) -> None:
    case = make_case(Spec(model="tiny", dtype=F32, tokens=300, scale=0.1, layout="padded"), CPU)
    inputs, batch = (case.hidden, case.weight), case.off_policy
    truth = truth_of(inputs, batch)
    assert attempt(BASELINES[1], inputs, batch, truth, None, F32)[1] is None
    errors, why = attempt(replace(BASELINES[1], **changes), inputs, batch, truth, None, F32)
    assert why.startswith("failed: ")
    assert said in why
    assert "\n" not in why
    assert errors is None or "Error" not in why


def test_ours_is_held_to_twice_the_error_of_plain_pytorch_and_others_are_not() -> None:
    case = make_case(Spec(model="tiny", dtype=F32, sequences=2, length=8), CPU)
    truth = truth_of((case.hidden, case.weight), case.batch)
    eager = truth.errors_of(*gradients(BASELINES[1].loss, (case.hidden, case.weight), case.batch), None)
    three_times = eager | {"gradients": [3 * error for error in eager["gradients"]]}
    assert objection(three_times, None, F32) is None
    assert "gradient 1" in (objection(three_times, eager, F32) or "")
    assert objection(eager, eager, F32) is None


def test_absent_libraries_and_devices_are_obstacles_not_errors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    obstacles = {baseline.name: baseline.obstacle(CPU) for baseline in BASELINES}
    assert obstacles["outcome_rl"] is None
    assert obstacles["plain PyTorch"] is None
    assert obstacles["TRL chunked log-probs"] == obstacles["Liger GRPO"] == obstacles["CCE"] == "not installed"
    monkeypatch.setattr("importlib.util.find_spec", lambda name: object())
    assert {baseline.name: baseline.obstacle(CPU) for baseline in BASELINES}["verl, Triton"] == "needs a GPU"


def test_the_pinned_baselines_are_those_that_the_extra_allows() -> None:
    root = Path(__file__).resolve().parents[2]
    extra = tomllib.loads((root / "pyproject.toml").read_text())["project"]["optional-dependencies"]["baselines"]
    lines = (root / "bench" / "baselines.txt").read_text().splitlines()
    pins = {pin.name: pin for pin in (Requirement(line.partition("#")[0]) for line in lines if line[:1] != "#")}
    for allowed in map(Requirement, extra):
        (pinned,) = pins[allowed.name].specifier
        assert pinned.operator == "=="
        assert allowed.specifier.contains(pinned.version)
