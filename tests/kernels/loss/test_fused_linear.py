"""The three-product policy loss: which products it takes, how much it holds, and its operator."""

from typing import Any

import pytest
import torch
from loss_cases import (
    B,
    Case,
    H,
    T,
    V,
    make_case,
    needs_native,
    run,
    threads,
)
from op_profile import Cost, caught_operator, cost_of
from torch import Tensor

from outcome_rl_kernels import linear_policy_loss
from outcome_rl_kernels.dtypes import Bfloat16
from outcome_rl_kernels.loss import chunked_head

pytestmark = needs_native


@pytest.fixture(params=[True, False], ids=["bfloat16 products", "no bfloat16 products"])
def is_fast(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Whether the CPU multiplies bfloat16 fast."""
    monkeypatch.setattr(chunked_head, "bfloat16_products", lambda _: Bfloat16(request.param, "by the test"))
    return bool(request.param)


# --- cost ---

N = 48  # rows are multiplied in fours


def measured(
    *, dtype: torch.dtype = torch.float32, wants: str = "hidden weight", vocabulary: int = 2048, **options: Any
) -> tuple[float, Cost]:
    """How many products of the size N x H x V the loss and its backward pass take, and all else that they cost."""
    g = torch.Generator().manual_seed(0)
    hidden = torch.randn(4, N // 4, H, generator=g).to(dtype).requires_grad_("hidden" in wants)
    weight = torch.randn(vocabulary, H, generator=g).to(dtype).requires_grad_("weight" in wants)
    labels = torch.randint(vocabulary, (4, N // 4), generator=g)
    mask = torch.ones(4, N // 4, dtype=torch.bool)
    advantages = options.pop("advantages", torch.ones(4))

    def call() -> None:
        output = linear_policy_loss(hidden, weight, labels, advantages, mask, impl="native", **options)
        if output.loss.requires_grad:
            output.loss.backward()

    cost = cost_of(call)
    return cost.multiply_adds / (N * H * vocabulary), cost


def test_three_products_and_none_for_what_is_frozen() -> None:
    assert measured()[0] == 3
    assert measured(wants="hidden")[0] == 2
    assert measured(wants="weight")[0] == 2
    assert measured(wants="")[0] == 1
    assert measured(workspace_bytes=7 * 2048 * 4)[0] == 3  # chunks of unlike size: 7, and the last one of 6
    with torch.no_grad():
        assert measured()[0] == 1


def test_ratios_of_sequences_take_a_fourth_product_where_there_are_several_chunks() -> None:
    sequences: dict[str, Any] = {"token_loss": "gspo", "old_logps": torch.full((4, N // 4), -7.0)}
    chunked = {"workspace_bytes": 7 * 2048 * 4}
    assert measured(**sequences)[0] == 3
    assert measured(**sequences, wants="")[0] == 1
    assert measured(**sequences, **chunked)[0] == 4
    assert measured(**sequences, **chunked, wants="")[0] == 1
    assert measured(token_loss="gspo", **chunked)[0] == 3  # on-policy the ratio is 1


def test_tokens_without_a_gradient_reach_no_product() -> None:
    dead = {"advantages": torch.tensor([1.0, -1.0, 0.0, 0.0])}
    assert measured(**dead)[0] == 3 / 2
    assert measured(**dead, rows="active")[0] == 3
    answer_mask = torch.zeros(4, N // 4, dtype=torch.bool)
    answer_mask[:2, :6] = True
    assert measured(**dead, answer_mask=answer_mask)[0] == 3 / 4
    assert measured(**dead, answer_mask=answer_mask, answer_mask_mode="none")[0] == 3 / 2
    assert measured(**dead, bonuses=torch.tensor([0.0, 0.0, 0.5, 0.0]))[0] == 3 * 3 / 4
    assert measured(rollout_weights=torch.tensor([1.0, 0.0, 0.0, 0.0]))[0] == 3 / 4
    assert measured(**dead, entropy_coef=0.1)[0] == 3
    reference = torch.full((4, N // 4), -7.0)
    assert measured(**dead, ref_logps=reference)[0] == 3 / 2  # without a coefficient there is no KL
    assert measured(**dead, beta=0.1, ref_logps=reference)[0] == 3
    assert measured(advantages=torch.zeros(4))[0] == 0
    assert measured(**dead, token_loss="gspo", old_logps=reference, answer_mask=answer_mask)[0] == 3 / 2


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("token_loss", ["ppo", "gspo"])
def test_no_more_logits_than_the_workspace(dtype: torch.dtype, token_loss: str, is_fast: bool) -> None:
    vocabulary, row = 2**14, 2**14 * dtype.itemsize
    widens = dtype == torch.bfloat16 and not is_fast
    options = {"token_loss": token_loss, "old_logps": torch.full((4, N // 4), -10.0), "dtype": dtype}
    for rows in (1, 4, 8):
        _, cost = measured(vocabulary=vocabulary, workspace_bytes=rows * row, **options)
        weight_bytes = vocabulary * H * dtype.itemsize
        # In bfloat16 eight chunks, whose sum is in the weight's own dtype, take less than a workspace for fewer rows
        # with a float32 sum beside it. Fewer than four rows are multiplied as four.
        held = max(rows, N // 8) if dtype == torch.bfloat16 else rows
        padded = 4 * row if held < 4 else 0
        assert cost.largest_bytes == max(held * row, weight_bytes)
        # Where products are widened: a part of the weight, of the logits, and of the gradient, which is rounded.
        part = 4096 * ((H + held) * 4 + H * 4 + H * 2) if widens else 0
        assert held * row + weight_bytes < cost.peak_bytes < held * row + padded + weight_bytes + part + 64_000
    _, cost = measured(vocabulary=vocabulary, **options)
    part = 4096 * (H + N) * 4 if widens else 0
    assert cost.peak_bytes < N * row + weight_bytes + part + 64_000


# --- torch.library, torch.compile and other company ---


def call_of_operator(**options: Any) -> tuple[Any, tuple[Any, ...]]:
    """The operator that `linear_policy_loss` calls with a case's tensors, and its arguments, ready for opcheck."""
    dtype = options.pop("dtype", torch.float32)
    transposed = options.pop("transposed", False)
    case = make_case(1, dtype, options, absent=options.pop("absent", set()))
    operands = {name: value.nan_to_num().requires_grad_() for name, value in case.operands.items()}
    if transposed:
        operands["hidden"] = operands["hidden"].permute(2, 0, 1).clone().permute(1, 2, 0)
        operands["weight"] = operands["weight"].t().clone().t()
    return caught_operator(lambda: linear_policy_loss(**operands, **case.inputs, **options))


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"absent": {"bias", "bonuses", "answer_mask", "ref_logps", "old_logps", "rollout_weights"}},
        {"transposed": True},
        {"transposed": True, "rows": "active", "workspace_bytes": 1},
        {"rows": "all", "delta": 3.0, "softcap": 12.0},
        {"rows": "active", "token_loss": "gspo", "dtype": torch.bfloat16},
        {"fp32_logits": True, "dtype": torch.bfloat16, "workspace_bytes": 4 * 6 * V, "entropy_coef": 0.1},
        {"sample_below": 0.05, "sample_seed": 3},
    ],
)
def test_opcheck(options: dict[str, Any]) -> None:
    torch.library.opcheck(*call_of_operator(**options))


def with_gradients(loss: Any, case: Case, **options: Any) -> list[Tensor]:
    output, values = run(loss, case.operands, torch.float32, {"hidden", "weight", "bias"}, **case.inputs, **options)
    return [output.logps, output.entropies, *output.metrics.values(), *values.values()]


@pytest.mark.nightly  # Inductor takes a minute; the next test compiles without its code
def test_compiles_whole() -> None:
    case, options = make_case(0, torch.float32, {}), {"entropy_coef": 0.1, "workspace_bytes": 4 * V * 4}
    compiled = torch.compile(linear_policy_loss, fullgraph=True)
    losses = (with_gradients(loss, case, **options) for loss in (compiled, linear_policy_loss))
    for ours, eager in zip(*losses, strict=True):
        torch.testing.assert_close(ours, eager, equal_nan=True)


def test_compiled_labels_are_still_checked() -> None:
    case = make_case(0, torch.float32, {})
    compiled = torch.compile(linear_policy_loss, fullgraph=True, backend="aot_eager")
    wrong = case.inputs | {"labels": case.inputs["labels"].where(~case.inputs["mask"], V)}
    with pytest.raises(ValueError, match=rf"must lie in \[0, {V}\); got {V} at flat position"):
        compiled(**case.operands, **wrong)


@pytest.mark.usefixtures("is_fast")
def test_autocast() -> None:
    case = make_case(0, torch.float32, {})
    with torch.autocast("cpu", dtype=torch.bfloat16):
        automatic = with_gradients(linear_policy_loss, case)
    half = Case({name: value.bfloat16() for name, value in case.operands.items()}, case.inputs)
    output, by_hand = run(
        linear_policy_loss, half.operands, torch.bfloat16, {"hidden", "weight", "bias"}, **case.inputs
    )
    assert torch.equal(automatic[0], output.logps)
    for ours, cast in zip(automatic[-4:], by_hand.values(), strict=True):
        assert ours.dtype == torch.float32
        assert torch.equal(ours, cast.float())


@pytest.mark.parametrize("number", [1, 3])
def test_two_runs_give_the_same_bits(number: int) -> None:
    """Between numbers of threads the matrix products differ, `torch.mm` itself; the row passes do not (see theirs)."""
    g = torch.Generator().manual_seed(0)
    vocabulary = 2**15  # enough for a thread a row
    case = Case(
        {"hidden": torch.randn(2, 12, H, generator=g), "weight": torch.randn(vocabulary, H, generator=g)},
        {
            "labels": torch.randint(vocabulary, (2, 12), generator=g),
            "advantages": torch.randn(2, generator=g),
            "mask": torch.ones(2, 12, dtype=torch.bool),
            "old_logps": torch.randn(2, 12, generator=g) - 11,
        },
    )
    options = {"token_loss": "gspo", "entropy_coef": 0.1, "workspace_bytes": 5 * vocabulary * 4}
    with threads(number):
        first, second = (with_gradients(linear_policy_loss, case, **options) for _ in range(2))
    assert all(map(torch.equal, first, second))


# --- numbers that are none, and sizes ---


@pytest.mark.parametrize("bad", [torch.nan, torch.inf, -torch.inf])
@pytest.mark.parametrize("answer", [False, True])  # an answer token's policy term is dropped
def test_what_is_not_finite_reaches_the_loss(bad: float, answer: bool) -> None:
    case = make_case(0, torch.float32, {})
    row = tuple(case.inputs["mask"].nonzero()[0])
    case.inputs["advantages"][:] = 1
    case.inputs["answer_mask"][:] = answer
    case.operands["hidden"][row] = bad
    arguments = case.inputs | {"rows": "active"}
    output, gradients = run(linear_policy_loss, case.operands, torch.float32, {"hidden", "weight"}, **arguments)
    assert output.loss.isnan()
    assert gradients["hidden"][row].isnan().all()
    others = gradients["hidden"].flatten(0, 1).isfinite().all(-1)
    assert others.sum() == B * T - 1
    assert not gradients["weight"].isfinite().any()


@pytest.mark.parametrize("shape", [(0, 5), (3, 0), (0, 0)])
def test_a_batch_without_tokens(shape: tuple[int, int]) -> None:
    hidden, weight = torch.zeros(*shape, H, requires_grad=True), torch.zeros(V, H, requires_grad=True)
    labels, mask = torch.zeros(shape, dtype=torch.int64), torch.zeros(shape, dtype=torch.bool)
    loss = linear_policy_loss(hidden, weight, labels, torch.zeros(shape[0]), mask).loss
    loss.backward()
    assert loss.item() == 0
    assert not weight.grad.any()
