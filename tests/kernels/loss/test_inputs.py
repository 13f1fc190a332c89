"""The inputs of the losses: columns a token, their weights, sums by sequence, and the way through an operator."""

import math
from typing import Any

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from loss_cases import ABSENT, SETTINGS, B, make_case
from loss_cases import batch_of as packed
from torch import Tensor

from outcome_rl_kernels import linear_policy_loss, policy_loss
from outcome_rl_kernels.loss.aggregate import sum_active
from outcome_rl_kernels.loss.inputs import active_tokens
from outcome_rl_kernels.loss.operands import SCHEMA, batch_of, flat
from outcome_rl_kernels.loss.ratios import mean_by_sequence
from outcome_rl_kernels.loss.types import LossSettings, RowStatistics, TokenBatch, joined, map_tensors, select

F64 = torch.float64


def tensors(batch: TokenBatch) -> list[Tensor]:
    found: list[Tensor] = []
    map_tensors(batch, lambda tensor: found.append(tensor) or tensor)
    return found


@given(seed=st.integers(0, 1000), chosen=SETTINGS, absent=ABSENT)
def test_active_tokens_are_all_that_the_loss_needs(seed: int, chosen: dict[str, Any], absent: set[str]) -> None:
    chosen = chosen | {"normalizer": 7.0}
    case = make_case(seed, F64, chosen, absent={*absent, "rollout_weights"}, packed=True)
    settings = {name: value for name, value in chosen.items() if name != "normalizer"}
    asked = ("advantages", "mask", "bonuses", "answer_mask", "cu_seqlens")
    found = active_tokens(**{name: case.inputs[name] for name in asked if name in case.inputs}, **settings)
    assume(found.sum() != B)  # else a column of tokens is read as one number for each sequence
    kept = {name: value[found] if value.shape == found.shape else value for name, value in case.inputs.items()}
    sequence = torch.bucketize(found.nonzero()[:, 0], case.inputs["cu_seqlens"][1:], right=True)
    kept["cu_seqlens"] = torch.nn.functional.pad(torch.bincount(sequence, minlength=B).cumsum(0), (1, 0))
    logits = case.logits(F64)
    wanted, got = (logits.clone().requires_grad_() for _ in range(2))
    policy_loss(wanted, **case.inputs, **chosen).loss.backward()
    policy_loss(got[found], **kept, **chosen).loss.backward()
    torch.testing.assert_close(got.grad, wanted.grad, rtol=1e-12, atol=1e-14)
    assert not found[~case.inputs["mask"]].any()


@given(chosen=SETTINGS, absent=ABSENT)
def test_nothing_is_lost_on_the_way_through_an_operator(chosen: dict[str, Any], absent: set[str]) -> None:
    batch = make_case(0, torch.float32, chosen, absent=absent).batch(torch.bfloat16, **chosen)
    arguments = flat(batch)
    assert len(arguments) == len(SCHEMA.split(","))
    back = batch_of(*arguments)
    assert back.inputs.settings == batch.inputs.settings
    assert all(a is b for a, b in zip(tensors(back), tensors(batch), strict=True))
    given = {name: getattr(back.inputs, name) for name in ("old_logps", "rollout_weights")}
    given |= {name: getattr(back, name) for name in ("ref_logps", "entropy_weights")}
    for name, column in given.items():
        needed = name == "ref_logps" and chosen["beta"] != 0
        assert (column is None) == (name in absent and not needed)
        assert column is None or column.dtype == torch.float32
    masked = "answer_mask" not in absent and chosen["answer_mask_mode"] == "policy"
    assert (back.answer_mask is not None) == masked


@settings(max_examples=100, deadline=None)
@given(lengths=st.lists(st.integers(0, 4), min_size=1, max_size=6), seed=st.integers(0, 100))
def test_means_of_sequences_are_over_their_active_tokens(lengths: list[int], seed: int) -> None:
    count, g = sum(lengths), torch.Generator().manual_seed(seed)
    values = torch.randn(count, generator=g)
    active = torch.rand(count, generator=g) < 0.6
    inputs = packed(lengths, mask=active, old_logps=torch.zeros(count), token_loss="gspo").inputs
    found = mean_by_sequence(values.where(active, torch.nan), inputs)
    for sequence in range(len(lengths)):
        here = inputs.sequences.ids == sequence
        mean = values[here & active].mean() if (here & active).any() else torch.tensor(0.0)
        torch.testing.assert_close(found[here], mean.expand(int(here.sum())).where(active[here], 0))
    assert torch.equal(mean_by_sequence(torch.ones(count), inputs._replace(active=None)), torch.ones(count))


def test_means_of_sequences_pass_gradients_on() -> None:
    values = torch.randn(5, dtype=F64, requires_grad=True)
    inputs = packed([3, 2], token_loss="gspo", old_logps=values.detach()).inputs
    assert torch.autograd.gradcheck(lambda column: mean_by_sequence(column, inputs), (values,))


def test_sums_leave_inactive_tokens_out() -> None:
    values = torch.tensor([1.0, math.nan, 2.0])
    assert sum_active(values, torch.tensor([True, False, True])) == 3
    assert sum_active(values, None).isnan()


def test_parts_of_a_batch_and_the_whole() -> None:
    batch = packed(
        [5], labels=torch.arange(5), old_logps=torch.zeros(5), token_loss="gspo", rollout_weights=torch.rand(5)
    )
    chosen = select(batch, torch.tensor([4, 0]))
    assert chosen.labels.tolist() == [4, 0]
    assert chosen.ref_logps is None
    assert chosen.inputs.old_logps is not None
    assert chosen.inputs.sequences.number == 1
    assert chosen.inputs.settings is batch.inputs.settings
    columns = torch.rand(4, 5)
    statistics = RowStatistics(columns[0], columns[1], columns)
    again = joined([select(statistics, slice(0, 2)), select(statistics, slice(2, 5))])
    assert all(map(torch.equal, again, statistics))


def test_packed_sequences_divide_by_the_longest() -> None:
    """The other modes are written out in test_api.py."""
    batch = packed([3, 0, 1], loss_agg="seq-mean-token-sum-norm")
    assert batch.weights.tolist() == pytest.approx([1 / (2 * 3)] * 4)  # the empty sequence does not count


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("loss_agg", "mean", "'mean'"),
        ("answer_mask_mode", "both", "'both'"),
        ("temperature", 0.0, "got 0"),
        ("temperature", math.nan, "got nan"),
        ("epsilon_low", 1.5, "got 1.5"),
        ("epsilon_high", -0.1, "got -0.1"),
        ("delta", 1.0, "got 1"),
        ("beta", -0.1, "got -0.1"),
        ("entropy_coef", math.inf, "got inf"),
    ],
)
def test_settings_are_checked(field: str, value: object, message: str) -> None:
    with pytest.raises(ValueError, match=f"{field} .*{message}"):
        LossSettings(**{field: value})


@pytest.mark.parametrize(
    ("name", "nearest"),
    [("temprature", "temperature"), ("old_logp", "old_logps"), ("sample_bellow", "sample_below"), ("foo", "")],
)
def test_an_unknown_argument_is_named_with_the_nearest(name: str, nearest: str) -> None:
    row = torch.zeros(1, 2, 3)
    given: dict[str, Any] = {"labels": torch.zeros(1, 2).long(), "advantages": row[:, 0, 0], "mask": row[..., 0].bool()}
    hint = f"; did you mean '{nearest}'" if nearest else r"; help\(linear_policy_loss\)"
    with pytest.raises(TypeError, match=f"^linear_policy_loss takes no argument '{name}'{hint}"):
        linear_policy_loss(row, torch.zeros(4, 3), **given, **{name: 1})
    with pytest.raises(TypeError, match=f"^policy_loss takes no argument '{name}"):
        policy_loss(row, **given, **{name: 1})


def test_settings_take_python_numbers() -> None:
    with pytest.raises(TypeError, match="beta must be a number; got tensor"):
        LossSettings(beta=torch.tensor(0.1))
    with pytest.raises(TypeError, match="epsilon_high must be a number; got None"):
        LossSettings(epsilon_high=None)


def test_a_coefficient_of_the_kl_needs_a_reference() -> None:
    with pytest.raises(ValueError, match=r"beta=0\.1 needs ref_logps, .*; got None\. linear_logprobs computes them"):
        packed([3], beta=0.1)


def test_a_reference_without_a_coefficient_is_measured_with_a_warning() -> None:
    with pytest.warns(UserWarning, match="ref_logps without beta: the KL is in the metrics, not in the loss"):
        assert packed([3], ref_logps=torch.zeros(3)).ref_logps is not None
