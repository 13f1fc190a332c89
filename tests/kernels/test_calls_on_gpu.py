"""Calls of the public functions as a GPU would run them, on meta tensors.

The host waits for nothing but what the documentation names, no operation or launch mixes devices, and no copy of a
large tensor is made that the work does not need.
"""

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from ledger import Ledger, ledger_of
from torch import Tensor

pytest.importorskip("triton", reason="Triton has no build for this platform")

from meta_gpu import META, Launches, replace_kernels, take_meta_for_gpu

from outcome_rl_kernels import (
    OutcomeCounts,
    group_advantages,
    linear_divergence,
    linear_logprobs,
    linear_policy_loss,
    policy_loss,
)
from outcome_rl_kernels.advantages.estimators import ADV_ESTIMATORS
from outcome_rl_kernels.loss.support import api as supports

pytestmark = pytest.mark.offline
B, T, H, V = 16, 64, 32, 4096
N, LARGE = B * T, B * T * H * 2  # bytes of the hidden states


@pytest.fixture(autouse=True)
def launches(monkeypatch: pytest.MonkeyPatch) -> Iterator[Launches]:
    take_meta_for_gpu(monkeypatch)
    found = replace_kernels(monkeypatch)
    yield found
    assert found.number > 0


def operands(dtype: torch.dtype = torch.bfloat16) -> dict[str, Tensor]:
    shapes = {"hidden": (B, T, H), "weight": (V, H), "bias": (V,)}
    return {name: torch.empty(*shape, dtype=dtype, **META).requires_grad_() for name, shape in shapes.items()}


def inputs(**options: Any) -> dict[str, Any]:
    logps = torch.empty(B, T, **META)
    found: dict[str, Any] = {
        "labels": torch.empty(B, T, dtype=torch.int64, **META),
        "advantages": torch.empty(B, **META),
        "mask": torch.empty(B, T, dtype=torch.bool, **META),
        "bonuses": torch.empty(B, **META),
        "answer_mask": torch.empty(B, T, dtype=torch.bool, **META),
        "old_logps": logps,
        "rollout_weights": torch.empty(B, **META),
        "normalizer": torch.empty((), **META),
    }
    return found | ({"ref_logps": logps} if options.get("beta") else {}) | options


def large_copies(ledger: Ledger) -> list[str]:
    """Names of the copies of as many bytes as the hidden states have, or more."""
    names = ("clone", "_to_copy", "copy_", "cat", "constant_pad_nd")
    return [name for name, _, written, _ in ledger.operations if name.split(".")[0] in names and written >= LARGE]


SETTINGS: list[dict[str, Any]] = [
    {},
    {"beta": 0.1, "entropy_coef": 0.01, "temperature": 0.7},
    {"token_loss": "gspo", "loss_agg": "seq-mean-token-mean"},
    {"delta": 3.0, "loss_agg": "seq-mean-token-sum-norm", "answer_mask_mode": "all"},
]


@pytest.mark.parametrize("options", SETTINGS, ids=["default", "KL and entropy", "sequences", "dual clip"])
@pytest.mark.parametrize("rows", ["contributing", "active", "all"])
@pytest.mark.parametrize("fp32_logits", [False, True])
@pytest.mark.parametrize("chunks", [1, 6])
def test_the_linear_loss_waits_for_the_number_of_rows_alone(
    options: dict[str, Any], rows: str, fp32_logits: bool, chunks: int
) -> None:
    leaves, found = operands(), {}
    given = inputs(**options)
    computed = N if rows == "all" else N // 2
    workspace = -(-computed // chunks) * V * (6 if fp32_logits else 2)

    def call(ledger: Ledger) -> None:
        found["output"] = linear_policy_loss(
            **leaves, **given, rows=rows, fp32_logits=fp32_logits, workspace_bytes=workspace
        )
        (found["output"].loss / 4).backward()

    ledger = ledger_of(call)
    assert ledger.waits == (["nonzero"] if rows in ("contributing", "active") else [])
    output = found["output"]
    assert all(value.is_meta for value in (output.loss, output.logps, output.entropies, *output.metrics.values()))
    assert all(leaf.grad is not None and leaf.grad.dtype == leaf.dtype for leaf in leaves.values())
    assert large_copies(ledger) == []  # up to eight chunks the sum of the weight's gradient has its own dtype


@pytest.mark.parametrize(("rows", "waits"), [("contributing", ["nonzero"]), ("all", [])])
def test_a_sampled_backward_pass_waits_for_nothing_more(rows: Any, waits: list[str]) -> None:
    leaves = operands()

    def call(ledger: Ledger) -> None:
        linear_policy_loss(**leaves, **inputs(), rows=rows, sample_below=1e-2, sample_seed=0).loss.backward()

    assert ledger_of(call).waits == waits


@pytest.mark.parametrize("options", SETTINGS, ids=["default", "KL and entropy", "sequences", "dual clip"])
@pytest.mark.parametrize("inplace", [False, True])
def test_the_loss_from_logits_waits_for_nothing_and_copies_nothing(options: dict[str, Any], inplace: bool) -> None:
    logits = torch.empty(B, T, V, dtype=torch.bfloat16, **META).requires_grad_()

    def call(ledger: Ledger) -> None:
        policy_loss(logits * 1, **inputs(**options), inplace=inplace).loss.backward()

    ledger = ledger_of(call)
    assert (ledger.waits, large_copies(ledger)) == ([], [])


@pytest.mark.parametrize("masked", [False, True])
def test_log_probabilities_wait_once_a_pass_where_there_is_a_mask(masked: bool) -> None:
    leaves = operands()
    mask = torch.empty(B, T, dtype=torch.bool, **META) if masked else None
    labels = torch.empty(B, T, dtype=torch.int64, **META)

    def call(ledger: Ledger) -> None:
        logps, entropies = linear_logprobs(**leaves, labels=labels, mask=mask, return_entropy=True)
        (logps + entropies).sum().backward()
        assert all(value.is_meta for value in (logps, entropies))
        assert all(leaf.grad is not None and leaf.grad.dtype == leaf.dtype for leaf in leaves.values())

    ledger = ledger_of(call)
    assert (ledger.waits, large_copies(ledger)) == (["nonzero"] * 2 * masked, [])


@pytest.mark.parametrize("masked", [False, True])
def test_log_probabilities_of_ids_wait_as_those_of_labels(masked: bool) -> None:
    leaves, ids = operands(), torch.empty(B, T, 5, dtype=torch.int64, **META)
    mask = torch.empty(B, T, dtype=torch.bool, **META) if masked else None

    def call(ledger: Ledger) -> None:
        logps, entropies = linear_logprobs(**leaves, labels=None, ids=ids, mask=mask, return_entropy=True)
        (logps.sum() + entropies.sum()).backward()

    ledger = ledger_of(call)
    assert (ledger.waits, large_copies(ledger)) == (["nonzero"] * 2 * masked, [])


@pytest.mark.parametrize(("rows", "waits"), [("contributing", ["nonzero"]), ("all", [])])
@pytest.mark.parametrize("sample_below", [0.0, 1e-2])
def test_a_divergence_waits_for_the_number_of_rows_alone(rows: Any, waits: list[str], sample_below: float) -> None:
    leaves, mask = operands(), torch.empty(B, T, dtype=torch.bool, **META)
    teacher = [leaf.detach() for leaf in leaves.values()][:2]
    sampling: dict[str, Any] = {"sample_below": sample_below, "sample_seed": 0}

    def call(ledger: Ledger) -> None:
        linear_divergence(leaves["hidden"], leaves["weight"], *teacher, mask, rows=rows, **sampling).loss.backward()

    assert ledger_of(call).waits == waits


@pytest.mark.parametrize("masked", [False, True])
def test_a_support_waits_for_nothing(masked: bool) -> None:
    """The bodies of the operators: on meta tensors PyTorch does not run them."""
    hidden, weight, bias = (leaf.detach() for leaf in operands().values())
    active_N = torch.empty(N, dtype=torch.bool, **META) if masked else None
    labels_N, offsets, token_ids = (torch.empty(size, dtype=torch.int64, **META) for size in (N, N + 1, 5 * N))
    head, others = (hidden.reshape(N, H), weight, bias, labels_N), (offsets, token_ids, 1.0, None, "triton")

    def call(ledger: Ledger) -> None:
        found = supports.logprobs_operator._init_fn(*head, active_N, *others)
        grads = supports.gradients_operator._init_fn(found[0], *found, *head, *others, [True] * 3)
        assert all(value.is_meta for value in (*found, *grads))
        assert [grad.shape for grad in grads] == [(N, H), (V, H), (V,)]

    ledger = ledger_of(call)
    assert (ledger.waits, large_copies(ledger)) == ([], [])


# Launches of PyTorch and of the table. The default: the table; mean and deviation, the difference, eps, the quotient;
# the root of the counts, which samples have an answer, their minimum, the baseline, the coefficient; which groups are
# all correct, and their bonus set to 0; which samples and groups have no answer, and the bonus of such groups set to 0.
# Without `correct` one more compares the rewards with 0.
@pytest.mark.parametrize(
    ("bonus", "launches_at_most"), [("ucb_con", 17), ("ucb", 14), ("none", 9), ("ucb_mean+batch", 30)]
)
def test_advantages_wait_for_nothing_and_launch_little(bonus: str, launches_at_most: int, launches: Launches) -> None:
    counts = OutcomeCounts(capacity=2**16, device="meta", impl="triton")
    rewards, correct = torch.empty(B, 8, **META), torch.empty(B, 8, dtype=torch.bool, **META)
    questions, keys = torch.empty(B, dtype=torch.int64, **META), torch.empty(B, 8, dtype=torch.int64, **META)

    def call(ledger: Ledger) -> None:
        found = group_advantages(rewards, questions, keys, counts, correct=correct, bonus=bonus, coef=0.2)
        assert all(value is not None and value.is_meta for value in found)

    ledger = ledger_of(call)
    assert ledger.waits == []
    assert launches.number == 3
    assert len(ledger.operations) + launches.number <= launches_at_most, [each.name for each in ledger.operations]


WITH_NUMBERS = {"pass_at_k": "pass_at_k(k=4)", "pkpo": "pkpo(k=4)"}


@pytest.mark.parametrize("adv_estimator", [WITH_NUMBERS.get(name, name) for name in ADV_ESTIMATORS])
def test_estimators_wait_for_nothing(adv_estimator: str) -> None:
    counts = OutcomeCounts(capacity=2**16, device="meta", impl="triton")
    rewards, keys = torch.empty(B, 8, **META), torch.empty(B, 8, dtype=torch.int64, **META)

    def call(ledger: Ledger) -> None:
        found = group_advantages(rewards, keys[:, 0], keys, counts, adv_estimator=adv_estimator, coef=0.2)
        assert found.advantages.is_meta

    assert ledger_of(call).waits == []


def test_counting_waits_for_nothing() -> None:
    counts = OutcomeCounts(capacity=2**16, device="meta", impl="triton")
    questions, outcomes = torch.empty(B, dtype=torch.int64, **META), torch.empty(B, 8, dtype=torch.int64, **META)

    def call(ledger: Ledger) -> None:
        assert counts.observe(questions, outcomes).is_meta
        assert counts.lookup(questions, outcomes).is_meta

    assert ledger_of(call).waits == []
    with pytest.raises(RuntimeError, match="meta tensor"):  # a call that waits would raise as this one does
        len(counts)


def test_the_ledger_notices_what_this_file_looks_for(launches: Launches) -> None:
    launches.number = 1
    on_gpu, on_host = torch.empty(4, **META), torch.ones(4)
    with pytest.raises(RuntimeError, match="of the GPU and of the CPU"):
        ledger_of(lambda ledger: on_gpu + on_host)
    assert ledger_of(lambda ledger: on_gpu.nonzero()).waits == ["nonzero"]
    with pytest.raises(NotImplementedError, match="nonzero"):
        ledger_of(lambda ledger: on_gpu[on_gpu > 0])
    assert ledger_of(lambda ledger: on_host.to("meta")).waits == ["_to_copy"]
    assert ledger_of(lambda ledger: on_gpu + torch.ones(())).waits == []
    with pytest.raises(RuntimeError, match="meta tensor"):
        on_gpu.sum().item()
