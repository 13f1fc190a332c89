"""One call of the loss at the size of Llama-3.1-8B's head, on meta tensors, as a GPU would run it.

The memory is what the call allocates. The time is a prediction, from rates that others measured on an H200;
bench/results/losses.md shows what one of them measured.
"""

from functools import partial
from itertools import pairwise
from typing import Any

import pytest
import torch
from ledger import Ledger, ledger_of, size_of

pytest.importorskip("triton", reason="Triton has no build for this platform")

from meta_gpu import META, take_meta_for_gpu

from outcome_rl_kernels import linear_divergence, linear_logprobs, linear_policy_loss
from outcome_rl_kernels.loss import fused
from outcome_rl_kernels.loss.rows import scale_triton
from outcome_rl_kernels.loss.rows import triton as row_kernels_triton
from outcome_rl_kernels.loss.support import api as support
from outcome_rl_kernels.loss.support import triton as support_triton
from outcome_rl_kernels.loss.types import LogitRows

pytestmark = pytest.mark.offline
B, N, H, V = 16, 16384, 4096, 128256
GIB = 2**30
GRADIENTS = 2 * (N + V) * H  # bytes, bfloat16

# An H200 as others measured it: products of this size, a copy, and the gap between two small kernels.
FLOPS, BYTES_PER_SECOND, LAUNCH_MS = 790e12, 4.3e12, 0.005
# The 338 instructions of the row pass for 16 numbers take 1.2 to 1.5 ms for 8192 rows, its bytes 0.98 ms.
ROW_PASS_FACTOR = 1.5


@pytest.fixture(autouse=True)
def as_on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    take_meta_for_gpu(monkeypatch)


def launch_on(ledger: Ledger, kernel: Any, rows: LogitRows, **arguments: Any) -> None:
    """Note a pass over logits in place of its launch; a second read of a row in one launch finds it in the cache."""
    grad = arguments.get("grad_ptr")
    ledger.note(kernel.__name__, size_of(rows.logits_RV), 0 if grad is None else size_of(grad))


def arguments_of_the_loss() -> dict[str, Any]:
    hidden, weight = (
        torch.empty(*shape, H, dtype=torch.bfloat16, **META).requires_grad_() for shape in ((B, N // B), (V,))
    )
    return {
        "hidden": hidden,
        "weight": weight,
        "labels": torch.empty(B, N // B, dtype=torch.int64, **META),
        "advantages": torch.empty(B, **META),
        "mask": torch.empty(B, N // B, dtype=torch.bool, **META),
    }


def chosen_rows(monkeypatch: pytest.MonkeyPatch, rows: int) -> dict[str, str]:
    """Let a call compute so many rows."""
    monkeypatch.setattr(fused, "rows_of_mask", lambda mask: torch.empty(rows, dtype=torch.int64, **META))
    return {"rows": "all" if rows == N else "active"}


def loss_and_gradients(monkeypatch: pytest.MonkeyPatch, **options: Any) -> Ledger:
    arguments = arguments_of_the_loss() | options

    def call(ledger: Ledger) -> None:
        monkeypatch.setattr(row_kernels_triton, "launch_rows", partial(launch_on, ledger))
        monkeypatch.setattr(scale_triton, "scale_", lambda values, factor: ledger.note("scale_ by 1", 4, 0))
        linear_policy_loss(**arguments).loss.backward()

    return ledger_of(call)


@pytest.mark.parametrize("rows", [N, 9011])
def test_at_most_two_gib_beyond_inputs_and_gradients(rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = chosen_rows(monkeypatch, rows)
    gathered = 0 if rows == N else 2 * rows * H  # the hidden states
    extra = loss_and_gradients(monkeypatch, **chosen).peak_bytes - GRADIENTS - gathered
    assert 1.0 * GIB < extra <= 2 * GIB


@pytest.mark.parametrize("chunks", [2, 8, 16, 64])
def test_chunks_hold_their_logits_and_the_gradients(chunks: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """More than eight chunks would need a float32 sum, more memory than eight, so there are eight."""
    peak = loss_and_gradients(monkeypatch, rows="all", workspace_bytes=N // chunks * V * 2).peak_bytes
    held = GRADIENTS + N // min(chunks, 8) * V * 2
    assert held < peak < held + 0.01 * GIB


def extra_bytes(
    monkeypatch: pytest.MonkeyPatch, vocabulary: int, hidden: int, rows: int, workspace: int | None, **options: Any
) -> int:
    """Return the peak of a call beyond its inputs and gradients."""
    states, weight = (
        torch.empty(*shape, dtype=torch.bfloat16, **META).requires_grad_()
        for shape in ((1, rows, hidden), (vocabulary, hidden))
    )
    arguments: dict[str, Any] = {
        "labels": torch.empty(1, rows, dtype=torch.int64, **META),
        "advantages": torch.empty(1, **META),
        "mask": torch.empty(1, rows, dtype=torch.bool, **META),
    }
    given = arguments | {"hidden": states, "weight": weight, "rows": "all", "workspace_bytes": workspace} | options
    return loss_and_gradients(monkeypatch, **given).peak_bytes - 2 * (rows + vocabulary) * hidden


MODELS = [(32768, 4096), (128256, 4096), (151936, 1536), (262208, 3840), (262208, 5376)]
LENGTHS = [1000, 16384, 131072]
WORKSPACES = [2**31, 3 * 2**28, 2**29, 2**28]
SLACK = 128 * 262208 * 2 + 2**23  # a tile of rows, and numbers of tokens


@pytest.mark.parametrize(
    ("vocabulary", "hidden", "options"),
    [(*model, {}) for model in MODELS] + [(*MODELS[1], {"fp32_logits": True}), (*MODELS[0], {"softcap": 30.0})],
)
def test_a_smaller_workspace_never_takes_more(
    vocabulary: int, hidden: int, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    for rows in LENGTHS if not options else LENGTHS[:2]:
        found = [extra_bytes(monkeypatch, vocabulary, hidden, rows, size, **options) for size in WORKSPACES]
        assert all(less <= more + 2**20 for more, less in pairwise(found)), (rows, found)


@pytest.mark.parametrize("rows", LENGTHS)
def test_one_row_of_the_vocabulary_more_is_no_cliff(rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """2 GiB hold 4,096 rows of 262,144 logits, and one row less of 262,208."""
    small, large = (extra_bytes(monkeypatch, size, 3840, rows, None) for size in (262144, 262208))
    assert large <= small + SLACK


@pytest.mark.parametrize(("vocabulary", "hidden"), MODELS)
def test_longer_batches_take_more_by_no_more_than_their_rows(
    vocabulary: int, hidden: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = [extra_bytes(monkeypatch, vocabulary, hidden, rows, None) for rows in range(4096, 81920, 4096)]
    assert all(after <= before + 4096 * vocabulary * 2 + SLACK for before, after in pairwise(found))
    # Eight chunks hold at most what a float32 sum would need, beside its logits or to be cast.
    weight_bytes = 2 * vocabulary * hidden
    assert max(found) <= max(2 * GIB + weight_bytes, 2 * weight_bytes) + SLACK


def test_a_divergence_takes_less_in_a_smaller_workspace_and_four_products(monkeypatch: pytest.MonkeyPatch) -> None:
    heads = [torch.empty(*shape, H, dtype=torch.bfloat16, **META).requires_grad_() for shape in ((B, N // B), (V,))]
    mask = torch.empty(B, N // B, dtype=torch.bool, **META)

    def call(ledger: Ledger, workspace: int | None) -> None:
        monkeypatch.setattr(row_kernels_triton, "launch_rows", partial(launch_on, ledger))
        monkeypatch.setattr(scale_triton, "scale_", lambda values, factor: ledger.note("scale_ by 1", 4, 0))
        linear_divergence(*heads, *heads, mask, rows="all", workspace_bytes=workspace).loss.backward()

    found = [ledger_of(partial(call, workspace=size)) for size in (None, *WORKSPACES)]
    assert all(less.peak_bytes <= more.peak_bytes + 2**20 for more, less in pairwise(found))
    assert {sum(one.multiply_adds for one in ledger.operations) for ledger in found} == {4 * N * H * V}


def test_log_probabilities_without_gradient_take_half_a_gib(monkeypatch: pytest.MonkeyPatch) -> None:
    arguments = arguments_of_the_loss()

    def call(ledger: Ledger) -> None:
        monkeypatch.setattr(row_kernels_triton, "launch_rows", partial(launch_on, ledger))
        with torch.no_grad():
            linear_logprobs(*(arguments[name] for name in ("hidden", "weight", "labels")))

    assert 0.4 * GIB < ledger_of(call).peak_bytes <= 0.51 * GIB


# All tokens; and the 9011 that a batch with 45 % of its tokens in groups of equal rewards leaves.
@pytest.mark.parametrize(
    ("rows", "most_ms", "most_launches", "large"),
    [
        (N, 70.5, 40, set()),
        (9011, 41.0, 56, {"index.Tensor", "new_zeros.default", "index_copy_.default"}),
    ],
)
def test_operations_bytes_launches_and_the_predicted_time(
    rows: int, most_ms: float, most_launches: int, large: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen = chosen_rows(monkeypatch, rows)
    operations = loss_and_gradients(monkeypatch, **chosen).operations
    products = [operation for operation in operations if operation.multiply_adds]
    passes = [operation for operation in operations if operation.name == "_default_loss_kernel"]
    others = [operation for operation in operations if operation not in products + passes]
    assert sum(product.multiply_adds for product in products) == 3 * rows * H * V
    assert len(products) == 3 * len(passes) == 6
    assert sum(read + written for _, read, written, _ in passes) == 2 * rows * V * 2
    assert {name for name, read, written, _ in others if read + written > 8e6} == large  # rows gathered and put back
    assert len(operations) <= most_launches
    milliseconds = LAUNCH_MS * len(operations)
    for operation in operations:
        factor = ROW_PASS_FACTOR if operation in passes else 1
        milliseconds += factor * operation.milliseconds(FLOPS, BYTES_PER_SECOND)
    assert 3 * 2 * rows * H * V / FLOPS * 1e3 < milliseconds <= most_ms
    assert milliseconds == pytest.approx({N: 68.5, 9011: 38.0}[rows], abs=0.1)  # as bench/results/losses.md has it


@pytest.mark.parametrize(("kept", "predicted_ms"), [(16, 2.15), (117, 12.0)])
def test_the_predicted_time_of_a_support(kept: int, predicted_ms: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three gathers of the rows of `kept` tokens a position, each row from memory; the gradient of the whole weight."""
    hidden, weight = (torch.empty(rows, H, dtype=torch.bfloat16, **META) for rows in (N, V))
    labels_N, offsets, token_ids = (torch.empty(size, dtype=torch.int64, **META) for size in (N, N + 1, kept * N))
    others = offsets, token_ids, 1.0, None, "triton"
    results = ("sums_ptr", "token_grads_ptr", "values_ptr", "logits_ptr")

    def launch(ledger: Ledger, kernel: Any, programs: int, tensor: torch.Tensor, **arguments: Any) -> None:
        result = next(arguments[name] for name in results if name in arguments)
        given = [value for value in arguments.values() if isinstance(value, torch.Tensor) and value is not result]
        if kernel.__name__ in ("_piece_sums_kernel", "_long_sums_kernel"):
            # Sums of pieces, written and read once; 16 tokens a position leave no segment long.
            partial_sums = result if kernel.__name__ == "_piece_sums_kernel" else arguments["table_ptr"]
            ledger.note(kernel.__name__, 0 if kept == 16 else 4 * partial_sums.shape[0] * H, 0)
            return
        read = sum(size_of(tensor) for tensor in given if tensor is not hidden and tensor is not weight)
        if kernel.__name__ in ("_kept_logits_kernel", "_segment_sums_kernel"):
            read += kept * N * H * 2
        if kernel.__name__ == "_kept_logits_kernel":
            read += size_of(hidden)  # a position's, once; then from the cache
        ledger.note(kernel.__name__, read, size_of(result))

    def call(ledger: Ledger) -> None:
        monkeypatch.setattr(support_triton, "launch", partial(launch, ledger))
        values = support.logprobs_operator._init_fn(hidden, weight, None, labels_N, None, *others)
        grads_3N = torch.empty_like(values[0])
        support.gradients_operator._init_fn(
            grads_3N, *values, hidden, weight, None, labels_N, *others, [True, True, False]
        )

    operations = ledger_of(call).operations
    assert len(operations) <= 62
    milliseconds = sum(LAUNCH_MS + operation.milliseconds(FLOPS, BYTES_PER_SECOND) for operation in operations)
    assert milliseconds == pytest.approx(predicted_ms, abs=0.05)  # as bench/results/losses.md has it
