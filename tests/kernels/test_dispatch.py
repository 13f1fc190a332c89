"""Which implementation runs, and what is said where the wanted one cannot."""

import pytest
import torch
from loss_cases import needs_native

from outcome_rl_kernels import implementations
from outcome_rl_kernels.dispatch import choose

LOSSES = ["linear_policy_loss", "policy_loss", "linear_logprobs"]


def like(dtype: torch.dtype) -> torch.Tensor:
    return torch.empty(0, dtype=dtype)


@pytest.mark.parametrize("op", LOSSES)
@needs_native
def test_auto_takes_what_is_fast_for_the_dtype(op: str) -> None:
    chosen = {dtype: choose(op, "auto", like(dtype)) for dtype in (torch.float32, torch.bfloat16)}
    assert set(chosen.values()) == {"native"}
    for dtype in (torch.float16, torch.float64):
        assert choose(op, "auto", like(dtype)) == "reference"
        assert choose(op, "reference", like(dtype)) == "reference"


def test_without_the_library_auto_takes_the_reference(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OUTCOME_RL_NATIVE", "0")
    assert choose("policy_loss", "auto", like(torch.float32)) == "reference"
    with pytest.raises(ValueError, match=r"switched off by OUTCOME_RL_NATIVE=0\. Use impl='auto' or impl='reference'"):
        choose("policy_loss", "native", like(torch.float32))
    assert implementations()["policy_loss"] == (
        "reference",
        "the native library is not available: switched off by OUTCOME_RL_NATIVE=0",
    )


@pytest.mark.parametrize(
    ("op", "impl", "message"),
    [
        ("policy_loss", "cuda", "impl must be one of 'auto', 'reference', 'native', 'triton'; got 'cuda'"),
        ("policy_loss", "triton", r"policy_loss\(impl='triton'\) cannot run: its tensors must be on cuda, got cpu"),
        ("policy_loss", "native", "its logits must be float32 or bfloat16, got float64"),
    ],
)
def test_what_cannot_run_says_why(op: str, impl: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        choose(op, impl, like(torch.float64))  # type: ignore[arg-type]


@needs_native
def test_every_op_names_its_implementation_and_dtypes() -> None:
    found = implementations()
    assert set(found) == {*LOSSES, "group_advantages", "OutcomeCounts"}
    if not torch.cuda.is_available():
        assert found["linear_logprobs"] == ("native", "C++ row passes on the CPU, for float32 or bfloat16")
