"""The inputs of the losses: columns a token, their weights, sums by sequence, and the way through an operator."""

import math
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from loss_cases import ABSENT, OPTIONAL, SETTINGS, make_case
from torch import Tensor

from outcome_rl_kernels.loss.inputs import NUM_ARGUMENTS, SCHEMA, LossInputs
from outcome_rl_kernels.loss.settings import LossSettings

F64 = torch.float64


def packed(lengths: list[int], **inputs: Any) -> LossInputs:
    """Sequences of these lengths, with an advantage of 1 each."""
    count = sum(lengths)
    cu_seqlens = torch.tensor([0, *lengths]).cumsum(0)
    mask = torch.ones(count, dtype=torch.bool)
    arguments = {"labels": torch.arange(count), "mask": mask, "advantages": torch.ones(count), "cu_seqlens": cu_seqlens}
    return LossInputs.of(torch.empty(0, dtype=F64), **(arguments | inputs))


@given(chosen=SETTINGS, absent=ABSENT)
def test_nothing_is_lost_on_the_way_through_an_operator(chosen: dict[str, Any], absent: set[str]) -> None:
    inputs = make_case(0, torch.float32, chosen, absent=absent).loss_inputs(torch.bfloat16, **chosen)
    flat = inputs.flat()
    assert len(flat) == NUM_ARGUMENTS == len(SCHEMA.split(","))
    back = LossInputs.of_flat(flat)
    assert back.settings == inputs.settings
    assert all(a is b for a, b in zip(back[:-1], inputs[:-1], strict=True))
    columns = [column for column in inputs if isinstance(column, Tensor) and column.is_floating_point()]
    assert {column.dtype for column in columns} == {torch.float32}
    for name in set(OPTIONAL) - {"bias"}:
        needed = name == "ref_logps" and chosen["beta"] != 0
        assert (getattr(back, name) is None) == (name in absent and not needed)


def test_the_schema_names_columns_and_settings() -> None:
    assert SCHEMA.startswith("Tensor labels, Tensor advantages, Tensor weights, Tensor sequence_ids, Tensor? active, ")
    assert SCHEMA.endswith(
        "SymInt num_sequences, str token_loss, str answer_mask_mode, float temperature, float beta, str kl_penalty, "
        "bool unbiased_kl, float epsilon_low, float epsilon_high, float? delta, str loss_agg, "
        "float entropy_coef, float? log_ratio_clamp, float? kl_clamp"
    )


@settings(max_examples=100, deadline=None)
@given(lengths=st.lists(st.integers(0, 4), min_size=1, max_size=6), seed=st.integers(0, 100))
def test_means_of_sequences_are_over_their_active_tokens(lengths: list[int], seed: int) -> None:
    count, g = sum(lengths), torch.Generator().manual_seed(seed)
    values = torch.randn(count, generator=g)
    active = torch.rand(count, generator=g) < 0.6
    inputs = packed(lengths, mask=active, old_logps=torch.zeros(count), token_loss="gspo")
    found = inputs.mean_by_sequence(values.where(active, torch.nan))
    for sequence in range(len(lengths)):
        here = inputs.sequence_ids == sequence
        mean = values[here & active].mean() if (here & active).any() else torch.tensor(0.0)
        torch.testing.assert_close(found[here], mean.expand(int(here.sum())).where(active[here], 0))
    assert torch.equal(inputs._replace(active=None).mean_by_sequence(torch.ones(count)), torch.ones(count))


def test_means_of_sequences_pass_gradients_on() -> None:
    values = torch.randn(5, dtype=F64, requires_grad=True)
    assert torch.autograd.gradcheck(
        packed([3, 2], token_loss="gspo", old_logps=values.detach()).mean_by_sequence, (values,)
    )


def test_sums_leave_inactive_tokens_out() -> None:
    inputs = packed([3], mask=torch.tensor([True, False, True]))
    values = torch.tensor([1.0, math.nan, 2.0])
    assert inputs.sum_active(values) == 3
    assert inputs._replace(active=None).sum_active(values).isnan()


def test_selecting_keeps_what_is_absent_absent() -> None:
    inputs = packed([5], old_logps=torch.zeros(5))
    chosen = inputs.select(torch.tensor([4, 0]))
    assert chosen.labels.tolist() == [4, 0]
    assert chosen.bonuses is None
    assert chosen.old_logps is not None
    assert inputs.select(slice(1, 3)).labels.tolist() == [1, 2]
    assert chosen.settings is inputs.settings


@pytest.mark.parametrize(
    ("mode", "expected"),
    [
        ("token-sum", 1 + 2 + 3 + 10),
        ("token-mean", 16 / 4),
        ("seq-mean-token-sum", (6 + 10) / 2),  # the empty sequence does not count
        ("seq-mean-token-mean", (2 + 10) / 2),
        ("seq-mean-token-sum-norm", (6 + 10) / 2 / 3),  # 3: the longest sequence
    ],
)
def test_aggregation(mode: str, expected: float) -> None:
    losses = torch.tensor([1, 2, 3, 10], dtype=F64)
    assert (losses * packed([3, 0, 1], loss_agg=mode).weights).sum().item() == pytest.approx(expected)
    numerator = 2 + 10 if mode == "seq-mean-token-mean" else 16
    for normalizer in (8, torch.tensor(8)):
        weights = packed([3, 0, 1], loss_agg=mode, normalizer=normalizer).weights
        assert (losses * weights).sum().item() == pytest.approx(numerator / 8)


def test_padded_sequences_divide_by_their_padded_length() -> None:
    mask = torch.tensor([[True, True, False], [True, False, False]])
    arguments = torch.zeros(2, 3, dtype=torch.int64), torch.ones(2), mask
    inputs = LossInputs.of(torch.empty(0), *arguments, loss_agg="seq-mean-token-sum-norm")
    assert inputs.weights.tolist() == pytest.approx([1 / (2 * 3)] * 6)
    assert inputs.sequence_ids.tolist() == [0, 0, 0, 1, 1, 1]


def test_answer_tokens_leave_the_denominator_where_all_of_them_is_masked() -> None:
    answer_mask = torch.tensor([False, True, False])
    for mode, active in (("all", [True, False, True]), ("policy", [True, True, True])):
        inputs = packed([3], answer_mask=answer_mask, answer_mask_mode=mode)
        assert inputs.active is not None
        assert inputs.active.tolist() == active
        assert inputs.weights[0] == 1 / sum(active)


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("loss_agg", "mean", "loss_agg must be one of 'token-mean'"),
        ("answer_mask_mode", "both", "answer_mask_mode must be one of"),
        ("temperature", 0.0, "temperature must be > 0"),
        ("temperature", math.nan, "temperature must be > 0"),
        ("epsilon_low", 1.5, r"epsilon_low must lie in \[0, 1\]"),
        ("epsilon_high", -0.1, "epsilon_high must be >= 0"),
        ("delta", 1.0, "must be > 1"),
        ("kl_clamp", -1.0, "kl_clamp must be > 0"),
        ("beta", -0.1, "beta must be finite and >= 0; got -0.1"),
        ("beta", math.nan, "beta must be finite and >= 0; got nan"),
        ("entropy_coef", math.inf, "entropy_coef must be finite; got inf"),
    ],
)
def test_settings_are_checked(field: str, value: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        LossSettings(**{field: value})  # type: ignore[arg-type]


def test_settings_take_python_numbers() -> None:
    with pytest.raises(TypeError, match="beta must be a Python number; got Tensor"):
        LossSettings(beta=torch.tensor(0.1))  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="epsilon_high must be a Python number; got NoneType"):
        LossSettings(epsilon_high=None)  # type: ignore[arg-type]


def test_a_coefficient_of_the_kl_needs_a_reference() -> None:
    with pytest.raises(ValueError, match=r"beta=0\.1 needs ref_logps, .*; got None\. linear_logprobs computes them"):
        packed([3], beta=0.1)


def test_a_reference_without_a_coefficient_is_measured_with_a_warning() -> None:
    with pytest.warns(UserWarning, match="ref_logps without beta: the KL is in the metrics, not in the loss"):
        assert packed([3], ref_logps=torch.zeros(3)).ref_logps is not None
