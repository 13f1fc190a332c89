"""The scaling of a gradient: on the GPU where there is one, else interpreted (tests/conftest.py)."""

import pytest
import torch

pytest.importorskip("triton", reason="Triton has no build for this platform")

from outcome_rl_kernels.loss.scale_triton import scale_

# NumPy, which interprets, warns where a GPU does not.
pytestmark = [pytest.mark.gpu, pytest.mark.filterwarnings("ignore:invalid value encountered:RuntimeWarning")]
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("count", [0, 1, 8191, 8192, 250_001])  # more than three programs of 8192 take at once
@pytest.mark.parametrize("factor", [1 / 3, -4.0, 0.0])
def test_each_value_is_multiplied_in_float32_and_rounded_once(dtype: torch.dtype, count: int, factor: float) -> None:
    values = torch.randn(count, generator=torch.Generator().manual_seed(0)).to(DEVICE, dtype)
    scalar = torch.tensor(factor, device=DEVICE)
    exact = values.float() * scalar
    scale_(values, scalar)
    # Interpreted, float32 is cut off to bfloat16, not rounded.
    torch.testing.assert_close(values.float(), exact, atol=1e-7, rtol=torch.finfo(dtype).eps)


def test_infinite_and_missing_factors_reach_the_values() -> None:
    for factor in (torch.inf, torch.nan):
        values = torch.ones(10, device=DEVICE)
        scale_(values, torch.tensor(factor, device=DEVICE))
        assert not values.isfinite().any()


@pytest.mark.skipif(DEVICE != "cpu", reason="counts the stores of interpreted kernels; there is a GPU")
def test_a_factor_of_one_touches_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    from triton.runtime import interpreter

    stores: list[None] = []
    store = interpreter.InterpreterBuilder.create_masked_store
    monkeypatch.setattr(
        interpreter.InterpreterBuilder, "create_masked_store", lambda *given: (stores.append(None), store(*given))
    )
    values = torch.randn(20_000)
    scale_(values, torch.ones(()))
    assert not stores
    scale_(values, torch.full((), 2.0))
    assert stores
