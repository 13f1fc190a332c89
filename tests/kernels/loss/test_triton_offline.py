"""Every kernel compiles, without a GPU, for every target and without spilling registers."""

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
import torch

pytest.importorskip("triton", reason="Triton has no build for this platform")

import triton
import triton.language as tl
from triton_offline import TARGETS, compile_launches

from outcome_rl_kernels.loss.reference import LossSettings
from outcome_rl_kernels.loss.row_kernels import PolicyTokens
from outcome_rl_kernels.loss.row_kernels_triton import logprob_rows, logprob_rows_backward, policy_rows

R = 2
ROW, MASK = torch.zeros(R), torch.zeros(R, dtype=torch.bool)
LABELS = torch.zeros(R, dtype=torch.int64)
LEAST = PolicyTokens(LABELS, ROW, ROW), LossSettings()
MOST = (
    PolicyTokens(LABELS, ROW, ROW, ROW, MASK, ROW, ROW, ROW, None, MASK),
    LossSettings(beta=0.1, entropy_coef=0.1, delta=3.0, log_ratio_clamp=20.0, kl_clamp=10.0),
)
OTHER_TERMS = (
    PolicyTokens(LABELS, ROW, ROW, ROW, MASK, ROW, ROW, None, ROW),
    LossSettings(beta=0.1, kl_penalty="k2", answer_mask_mode="bonus", importance_level="sequence"),
)
# Rows that take the large block and the small one, each with and without aligned loads.
VOCABULARIES = (128256, 50257, 512, 511)


@triton.jit
def _hungry_kernel(x_ptr, BLOCK: tl.constexpr):
    """Holds more values than a thread has registers, which shows that this file would notice."""
    offsets = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offsets)
    tl.store(x_ptr + offsets, x / tl.sum(x))


def launches() -> Iterator[tuple[str, Callable[[], object]]]:
    yield "hungry", lambda: _hungry_kernel[(1,)](torch.zeros(1), BLOCK=32768, num_warps=1)
    for dtype in (torch.bfloat16, torch.float32, torch.float16):
        for vocabulary in VOCABULARIES[: 1 if dtype == torch.float16 else None]:
            name, logits = f"{dtype}, {vocabulary}: ", torch.zeros(R, vocabulary, dtype=dtype)
            yield name + "most terms", partial(policy_rows, logits, *MOST, logits)
            yield name + "log-probs", partial(logprob_rows, logits, LABELS, 1.0)
            yield name + "backward", partial(logprob_rows_backward, logits, LABELS, 1.0, ROW, ROW, logits)
    logits = torch.zeros(R, VOCABULARIES[0], dtype=torch.bfloat16)
    yield "least terms", partial(policy_rows, logits, *LEAST, logits)
    yield "no gradient", partial(policy_rows, logits, *LEAST, None)
    yield "other terms", partial(policy_rows, logits.float(), *OTHER_TERMS, logits)
    yield "backward without entropies", partial(logprob_rows_backward, logits, LABELS, 1.0, ROW, None, logits)


@pytest.mark.parametrize("target", TARGETS)
def test_nothing_spills(target: str, tmp_path: Path) -> None:
    kernels = compile_launches(__file__, target, tmp_path)
    assert {kernel.launch for kernel in kernels if kernel.spilled_bytes} == {"hungry"}
