"""The public policy losses: layouts, options crossed against float64, gradients, masks, and errors."""

import math
import re
from types import SimpleNamespace
from typing import Any, get_type_hints

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from loss_cases import AGGREGATIONS, needs_native
from torch import Tensor
from torch._subclasses import FakeTensorMode

from outcome_rl_kernels import (
    PolicyLossOutput,
    linear_logprobs,
    linear_policy_loss,
    loss_normalizer,
    policy_loss,
)
from outcome_rl_kernels.loss.types import LossOptions, LossSettings

B, T, H, V = 4, 5, 8, 11  # V is prime: no block size divides it
F64 = torch.ones(1, dtype=torch.float64)


def inputs(dtype: torch.dtype = torch.float64, seed: int = 0) -> dict[str, Any]:
    g = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=g, dtype=torch.float64).to(dtype)

    mask = torch.rand(B, T, generator=g) < 0.7
    mask[0] = False  # one sequence without a completion
    return {
        "hidden": normal(B, T, H),
        "weight": normal(V, H),
        "labels": torch.randint(V, (B, T), generator=g),
        "advantages": normal(B),
        "mask": mask,
        "bonuses": 0.1 * normal(B),
        "answer_mask": mask & (torch.rand(B, T, generator=g) < 0.4),
        "ref_logps": normal(B, T) - 3,
        "old_logps": normal(B, T) - 3,
        "rollout_weights": torch.rand(B, generator=g, dtype=torch.float64).to(dtype),
    }


def grads(call: dict[str, Any], **options: Any) -> tuple[PolicyLossOutput, Tensor, Tensor]:
    hidden, weight = call["hidden"].clone().requires_grad_(), call["weight"].clone().requires_grad_()
    output = linear_policy_loss(**(call | {"hidden": hidden, "weight": weight}), **options)
    output.loss.backward()
    return output, hidden.grad, weight.grad


def by_hand(
    call: dict[str, Any], answer_mask_mode: str, loss_agg: str, beta: float, token_loss: str, **numbers: Any
) -> Tensor:
    """The loss written out once more, padded and loop-free, from the design's formulas rather than from the library."""
    logits, cap = call["hidden"] @ call["weight"].T + call["bias"], numbers["softcap"]
    log_p = ((logits if cap is None else cap * (logits / cap).tanh()) / numbers["temperature"]).log_softmax(-1)
    lp = log_p.gather(-1, call["labels"][..., None])[..., 0]
    mask = call["mask"].double()
    answer = call["answer_mask"].double()
    if answer_mask_mode == "all":
        mask = mask * (1 - answer)
    with_bonus = 1 - answer if answer_mask_mode == "bonus" else 1.0
    advantage = call["advantages"][:, None] + call["bonuses"][:, None] * with_bonus
    log_ratio = lp - call["old_logps"]
    if token_loss == "gspo":
        log_ratio = ((log_ratio * mask).sum(1) / mask.sum(1).clamp(min=1)).detach()[:, None] + lp - lp.detach()
    ratio = log_ratio.exp()
    pg = torch.maximum(-ratio * advantage, -ratio.clamp(0.8, 1.2) * advantage) * call["rollout_weights"][:, None]
    if answer_mask_mode == "policy":
        pg = pg * (1 - answer)
    log_ref = call["ref_logps"] - lp
    kl = {"k1": -log_ref, "k2": log_ref.square() / 2, "k3": log_ref.exp() - log_ref - 1}[numbers["kl_penalty"]]
    if numbers["unbiased_kl"]:
        kl = kl * (lp - call["old_logps"]).exp()
    entropy = -(log_p.exp() * log_p).sum(-1)
    per_token = (pg + beta * kl - numbers["entropy_coef"] * entropy) * mask
    lengths = mask.sum(1)
    nonempty = (lengths > 0).sum()
    means = loss_agg == "seq-mean-token-mean"
    denominators = {"token-mean": mask.sum(), "token-sum": 1, "seq-mean-token-sum-norm": nonempty * T}
    denominator = numbers["normalizer"] or denominators.get(loss_agg, nonempty)
    return (per_token.sum(1) / (lengths.clamp(min=1) if means else 1)).sum() / denominator


@settings(max_examples=100, deadline=None)
@given(
    answer_mask_mode=st.sampled_from(["policy", "bonus", "all", "none"]),
    loss_agg=st.sampled_from(AGGREGATIONS),
    beta=st.sampled_from([0.0, 0.3]),
    kl_penalty=st.sampled_from(["k1", "k2", "k3"]),
    unbiased_kl=st.booleans(),
    token_loss=st.sampled_from(["ppo", "gspo"]),
    temperature=st.sampled_from([1.0, 0.7]),
    softcap=st.sampled_from([None, 5.0]),
    entropy_coef=st.sampled_from([0.0, 0.1]),
    normalizer=st.sampled_from([None, 7.0]),
    seed=st.integers(0, 1000),
)
def test_value_and_gradient_follow_the_formulas(seed: int, **options: Any) -> None:
    call = inputs(seed=seed) | {"bias": torch.linspace(-1, 1, V, dtype=torch.float64)}
    call["hidden"] /= 4  # so that no log-ratio is beyond its bound
    operands = {name: call[name].requires_grad_() for name in ("hidden", "weight", "bias")}
    ours, expected = linear_policy_loss(**call, **options).loss, by_hand(call, **options)
    torch.testing.assert_close(ours, expected, atol=1e-10, rtol=1e-9)
    gradients = (torch.autograd.grad(loss, list(operands.values())) for loss in (ours, expected))
    torch.testing.assert_close(*gradients, atol=1e-10, rtol=1e-9)


def test_packed_equals_padded() -> None:
    call = inputs()
    keep = call["mask"]
    lengths = keep.sum(1)
    packed = {k: v[keep] if v.shape[:2] == (B, T) else v for k, v in call.items() if k != "weight"}
    cu_seqlens = torch.cat([torch.zeros(1, dtype=torch.int64), lengths.cumsum(0)]).to(torch.int32)
    for loss_agg in ("token-mean", "seq-mean-token-sum", "seq-mean-token-mean"):
        for token_loss in ("ppo", "gspo"):
            options: dict[str, Any] = {"loss_agg": loss_agg, "token_loss": token_loss, "beta": 0.1}
            a = linear_policy_loss(**call, **options)  # beta is not 0, so that all active tokens contribute
            b = linear_policy_loss(**packed, weight=call["weight"], cu_seqlens=cu_seqlens, **options)
            torch.testing.assert_close(a.loss, b.loss)
            torch.testing.assert_close(a.logps[keep], b.logps)


def test_token_advantages_and_sequence_advantages_agree() -> None:
    call = inputs()
    spread = call | {k: call[k][:, None].expand(B, T) for k in ("advantages", "bonuses", "rollout_weights")}
    torch.testing.assert_close(linear_policy_loss(**call).loss, linear_policy_loss(**spread).loss)


@given(lengths=st.lists(st.integers(0, 3), min_size=1, max_size=6).filter(any))
def test_an_empty_sequence_takes_no_other_ones_advantage(lengths: list[int]) -> None:
    """Also where there are as many sequences as tokens."""
    N = sum(lengths)
    hidden, weight, labels = torch.randn(N, 3), torch.randn(5, 3), torch.arange(N) % 5
    advantages = torch.arange(1.0, len(lengths) + 1)
    spread = advantages.repeat_interleave(torch.tensor(lengths))
    bounds = torch.tensor([0, *lengths]).cumsum(0)
    mask = torch.ones(N, dtype=torch.bool)
    loss = linear_policy_loss(hidden, weight, labels, advantages, mask, cu_seqlens=bounds).loss
    assert loss.item() == pytest.approx(-spread.mean().item(), rel=1e-5)  # on-policy, so the ratio is 1


# bfloat16 and float16 hold every integer up to 256 and 2048: counts of tokens must not stop there.
@pytest.mark.parametrize("loss_agg", AGGREGATIONS)
@pytest.mark.parametrize(("dtype", "tokens"), [(torch.bfloat16, 300), (torch.bfloat16, 3000), (torch.float16, 3000)])
def test_long_sequences_with_half_precision_advantages(dtype: torch.dtype, tokens: int, loss_agg: str) -> None:
    g = torch.Generator().manual_seed(0)
    hidden, weight = torch.randn(2, tokens, H, generator=g), torch.randn(V, H, generator=g)
    labels = torch.randint(V, (2, tokens), generator=g)
    mask = torch.ones(2, tokens, dtype=torch.bool)
    mask[1, 5:] = False
    advantages = torch.tensor([0.3, -0.7], dtype=dtype)
    low, full = (
        linear_policy_loss(hidden, weight, labels, given, mask, loss_agg=loss_agg).loss
        for given in (advantages, advantages.float())
    )
    torch.testing.assert_close(low, full, atol=0, rtol=1e-6)


@pytest.mark.parametrize(
    ("impl", "dtype"), [("reference", torch.float64), pytest.param("native", torch.float32, marks=needs_native)]
)
@pytest.mark.parametrize("token_loss", ["ppo", "gspo"])
@pytest.mark.parametrize("rows", ["contributing", "active", "all"])
def test_an_empty_mask_gives_zero_with_zero_gradients(
    impl: str, dtype: torch.dtype, token_loss: str, rows: Any
) -> None:
    call = inputs(dtype)
    call["mask"] = torch.zeros_like(call["mask"])
    options: dict[str, Any] = {"beta": 0.1, "token_loss": token_loss, "impl": impl}
    for loss_agg in AGGREGATIONS:
        output, dh, dw = grads(call, loss_agg=loss_agg, rows=rows, **options)
        logits = (call["hidden"] @ call["weight"].T).requires_grad_()
        columns = {name: value for name, value in call.items() if name not in ("hidden", "weight")}
        of_logits = policy_loss(logits * 1, **columns, loss_agg=loss_agg, inplace=True, **options)
        of_logits.loss.backward()
        assert output.loss.item() == of_logits.loss.item() == 0
        assert not any(gradient.any() for gradient in (dh, dw, logits.grad))
        assert all(value.isfinite() for value in output.metrics.values())


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int32, torch.int64])
def test_masks_of_integers_are_those_of_bools(dtype: torch.dtype) -> None:
    call, masks = inputs(), ("mask", "answer_mask")
    whole = {name: call[name].to(dtype) for name in masks}
    for same, wanted in zip(grads(call | whole), grads(call), strict=True):
        if isinstance(wanted, torch.Tensor):
            assert torch.equal(same, wanted)
    logits, others = call["hidden"] @ call["weight"].T, (call["labels"], call["advantages"])
    losses = [policy_loss(logits, *others, mask).loss for mask in (whole["mask"], call["mask"])]
    assert torch.equal(*losses)
    pair = [
        linear_logprobs(call["hidden"], call["weight"], others[0], mask=mask)[0]
        for mask in (whole["mask"], call["mask"])
    ]
    assert torch.equal(*pair)
    of = [loss_normalizer(*each, answer_mask_mode="all") for each in (whole.values(), (call[name] for name in masks))]
    assert torch.equal(*of)


def test_an_advantage_outside_the_mask_may_be_nan() -> None:
    call = inputs()
    per_token = call["advantages"][:, None].expand(call["labels"].shape)
    held = per_token.masked_fill(~call["mask"], math.nan)
    assert torch.equal(grads(call | {"advantages": held})[2], grads(call | {"advantages": per_token})[2])


class TestErrors:
    @pytest.mark.parametrize(
        ("change", "error", "message"),
        [
            ({"advantages": F64.expand(2)}, ValueError, r"advantages .*repeat_interleave\(2\)"),
            ({"advantages": F64.expand(3)}, ValueError, r"advantages must have shape \(4,\)"),
            ({"advantages": F64.expand(B, T, 1)}, ValueError, r"advantages .*got \(4, 5, 1\)"),
            ({"advantages": [1.0]}, TypeError, r"advantages .*got list\. Use torch\.as_tensor"),
            ({"advantages": None}, TypeError, r"advantages .*got None\. group_advantages"),
            ({"advantages": F64.to("meta").expand(B)}, ValueError, "advantages must be on cpu"),
            ({"advantages": F64 * math.inf * torch.ones(B)}, ValueError, r"advantages .*got inf at index \[\d+\]"),
            ({"bonuses": F64 * math.nan * torch.ones(B)}, ValueError, "bonuses .*got nan"),
            ({"mask": None}, TypeError, r"mask .*got None\. For all tokens use torch\.ones_like\(labels\)"),
            ({"mask": torch.ones(B, T)}, TypeError, r"mask .*got float32\. Use mask\.bool\(\)"),
            ({"mask": torch.full((B, T), 2)}, ValueError, "mask .*got 2. Use mask > 0"),
            ({"mask": torch.ones(B, T + 1, dtype=torch.bool)}, ValueError, "mask must have the shape of labels"),
            ({"mask": torch.ones(B, T, dtype=torch.bool, device="meta")}, ValueError, "mask must be on cpu"),
            ({"epsilon": 0.2}, TypeError, "takes no argument 'epsilon'"),
            ({"labels": torch.zeros(B, T, dtype=torch.int32)}, TypeError, "labels .*got int32"),
            ({"labels": torch.full((B, T), V)}, ValueError, r"must lie in \[0, 11\); got 11"),
            ({"labels": torch.full((B, T), -100)}, ValueError, "got -100"),
            ({"labels": torch.zeros(B * T, dtype=torch.int64)}, ValueError, "pass cu_seqlens"),
            ({"weight": torch.nn.Linear(H, V)}, TypeError, r"got Linear\. Pass its parameter, such as lm_head\.weight"),
            ({"weight": SimpleNamespace(weight=0)}, TypeError, r"Pass its parameter, such as lm_head\.weight"),
            ({"weight": F64.expand(H, V)}, ValueError, r"hidden must have shape \(4, 5, 11\)"),
            ({"weight": torch.zeros(V, H)}, TypeError, "hidden and weight must have the same dtype"),
            ({"weight": F64.expand(V)}, ValueError, r"weight must have shape \(V, H\)"),
            ({"hidden": F64.expand(B, T, V)}, ValueError, "policy_loss takes logits"),
            ({"hidden": [1.0]}, TypeError, "hidden .*got list"),
            ({"bias": torch.zeros(V)}, TypeError, "bias and weight must have the same dtype"),
            ({"bias": F64.expand(H)}, ValueError, r"bias must have shape \(V,\)"),
            ({"ref_logps": F64.expand(B)}, ValueError, "ref_logps must have the shape of labels"),
            ({"old_logps": torch.zeros(B, T, dtype=torch.int64)}, TypeError, "old_logps must have dtype float16 or"),
            ({"rows": "some"}, ValueError, "rows .*got 'some'"),
            ({"workspace_bytes": 0}, ValueError, "workspace_bytes .*got 0"),
            ({"workspace_bytes": True}, ValueError, "workspace_bytes .*got True"),
            ({"normalizer": 0}, ValueError, "normalizer .*got 0.*loss_normalizer"),
            ({"normalizer": math.nan}, ValueError, "normalizer .*got nan"),
            ({"normalizer": torch.tensor(-1.0)}, ValueError, "normalizer .*got -1"),
            ({"normalizer": torch.tensor(math.nan)}, ValueError, "normalizer .*got nan"),
            ({"normalizer": "batch"}, TypeError, "normalizer .*got str"),
            ({"normalizer": torch.ones(B)}, ValueError, r"normalizer .*got shape \(4,\)"),
            ({"impl": "triton"}, ValueError, "linear_policy_loss.*cannot run: .* or float16, got float64"),
            ({"impl": "native"}, ValueError, "float32 or bfloat16, got float64"),
        ],
    )
    def test_names_the_argument(self, change: dict[str, Any], error: type[Exception], message: str) -> None:
        with pytest.raises(error, match=message):
            linear_policy_loss(**(inputs() | change))

    def test_lists_are_no_tensors(self) -> None:
        call = inputs()
        arguments = call["labels"], call["advantages"], call["mask"]
        with pytest.raises(TypeError, match=r"logits must be a torch\.Tensor; got list"):
            policy_loss([1.0], *arguments)
        with pytest.raises(TypeError, match=r"mask must be a torch\.Tensor; got list"):
            loss_normalizer([[True]])

    def test_logits_are_checked_like_hidden_states(self) -> None:
        call = inputs()
        logits = torch.zeros(B, T, V)
        for name in ("hidden", "weight"):
            del call[name]
        for change, message in (
            ({"logits": logits[:, 1:]}, r"logits .*\(4, 5, 'V'\); got \(4, 4, 11\)"),
            ({"labels": call["labels"] + V}, r"labels of active tokens must lie in \[0, 11\)"),
            ({"advantages": torch.ones(2)}, r"advantages\.repeat_interleave\(2\)"),
            ({"impl": "native", "logits": logits.half()}, "float32 or bfloat16, got float16"),
            ({"normalizer": -1.0}, "normalizer must be > 0"),
        ):
            with pytest.raises(ValueError, match=message):
                policy_loss(**({"logits": logits} | call | change))

    @pytest.mark.parametrize("cu_seqlens", [[0, 3], [1, 20], [0, 9, 5, 20]])
    def test_cu_seqlens_must_cover_the_tokens(self, cu_seqlens: list[int]) -> None:
        call = inputs()
        flat = {k: call[k].reshape(B * T, *call[k].shape[2:]) for k in ("hidden", "labels", "mask")}
        with pytest.raises(ValueError, match="cu_seqlens must rise from 0 to N = 20"):
            linear_policy_loss(
                **flat,
                weight=call["weight"],
                advantages=torch.ones(len(cu_seqlens) - 1, dtype=torch.float64),
                cu_seqlens=torch.tensor(cu_seqlens),
            )


class TestRows:
    """Which tokens the outputs speak of."""

    def test_tokens_that_cannot_contribute_are_left_out_by_default(self) -> None:
        call = inputs()
        call["advantages"][3] = call["bonuses"][3] = 0.0
        contributing = call["mask"] & ~call["answer_mask"]
        contributing[3] = False
        output = linear_policy_loss(**call)
        assert torch.equal(output.logps != 0, contributing)
        assert torch.equal(output.entropies != 0, contributing)
        assert output.metrics["computed_tokens"] == contributing.sum() < call["mask"].sum()
        assert output.metrics["active_tokens"] == call["mask"].sum()
        for options in ({"rows": "active"}, {"beta": 0.1}, {"entropy_coef": 0.1}):
            whole = linear_policy_loss(**call, **options)
            assert torch.equal(whole.logps != 0, call["mask"])
            assert whole.metrics["computed_tokens"] == whole.metrics["active_tokens"] == call["mask"].sum()
        torch.testing.assert_close(linear_policy_loss(**call, rows="active").loss, output.loss)
        call["hidden"] = call["hidden"].masked_fill(~contributing[..., None], math.nan)
        assert torch.equal(linear_policy_loss(**call).loss, output.loss)
        assert linear_policy_loss(**call, rows="active").loss.isnan()


@pytest.mark.parametrize("impl", ["reference", "triton"])
def test_logits_beyond_float16_are_counted(impl: Any) -> None:
    """The loss was NaN, and nothing said why."""
    hidden, weight = torch.full((1, 2, 16), 2.0**6).half(), torch.ones(8, 16).half()
    weight[5] = 2.0**7  # a logit of 2^17 at every token with this hidden state
    hidden[0, 1] = 0.5
    call = {"labels": torch.tensor([[5, 5]]), "advantages": torch.ones(1), "mask": torch.ones(1, 2).bool()}
    output = linear_policy_loss(hidden, weight, **call, impl=impl)
    assert not output.loss.isfinite()
    assert output.metrics["overflow_fraction"] == 0.5
    assert policy_loss(hidden @ weight.T, **call, impl=impl).metrics["overflow_fraction"] == 0.5
    kept = linear_policy_loss(hidden, weight, **call, impl=impl, fp32_logits=True)
    assert kept.loss.isfinite()
    assert "overflow_fraction" not in kept.metrics


@pytest.mark.parametrize("mode", ["policy", "all"])
def test_the_normalizer_of_a_batch(mode: str) -> None:
    call = inputs()
    for loss_agg in AGGREGATIONS:
        options: dict[str, Any] = {"answer_mask_mode": mode, "loss_agg": loss_agg}
        normalizer = loss_normalizer(call["mask"], call["answer_mask"], **options)
        own = linear_policy_loss(**call, **options).loss
        torch.testing.assert_close(linear_policy_loss(**call, **options, normalizer=normalizer).loss, own)
        torch.testing.assert_close(linear_policy_loss(**call, **options, normalizer=normalizer.item()).loss, own)
    halves = [loss_normalizer(call["mask"][part]) for part in (slice(0, 1), slice(1, 4))]
    assert halves[0] == 0  # so that ranks without tokens do not count in the sum
    assert sum(halves) == call["mask"].sum()
    empty = call | {"mask": torch.zeros_like(call["mask"])}
    assert linear_policy_loss(**empty, normalizer=halves[0]).loss == 0
    whole = loss_normalizer(call["mask"], loss_agg="seq-mean-token-sum-norm", horizon=100)
    assert whole == 100 * (call["mask"].any(dim=1)).sum()


def test_autocast_leaves_float64_alone_as_a_matmul_does() -> None:
    call = inputs()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = linear_policy_loss(**call).loss
    assert torch.equal(found, linear_policy_loss(**call).loss)


@pytest.mark.parametrize("rows", ["contributing", "active", "all"])
def test_columns_may_come_from_inference_mode(rows: Any) -> None:
    """An engine computes old log-probabilities and masks there; autograd saves no such tensor."""
    call = inputs(torch.float32)
    operands = {name: call.pop(name).requires_grad_() for name in ("hidden", "weight")}
    with torch.inference_mode():
        made = {name: value.clone() for name, value in call.items()}
    found, plain = (
        linear_policy_loss(**operands, **columns, rows=rows, entropy_coef=0.1, beta=0.1) for columns in (made, call)
    )
    found.loss.backward()
    assert torch.equal(found.loss, plain.loss)
    linear_logprobs(**operands, labels=made["labels"], mask=made["mask"])[0].sum().backward()


@needs_native
def test_fake_tensors_take_every_layout() -> None:
    call = inputs(torch.float32)
    packed = {
        name: value if value.dim() == 1 or name == "weight" else value.flatten(0, 1) for name, value in call.items()
    }
    with FakeTensorMode() as mode:
        for arguments in (call, packed | {"cu_seqlens": torch.arange(0, B * T + 1, T)}):
            fake = {name: mode.from_tensor(value) for name, value in arguments.items()}
            assert linear_policy_loss(**fake).loss.shape == ()


def test_type_checkers_see_every_setting() -> None:
    """`LossOptions` is written out for them; defaults and ranges are only in `LossSettings`."""
    shown, settings = get_type_hints(LossOptions), get_type_hints(LossSettings)
    assert {name: shown[name] for name in settings} == settings
    documented = re.findall(r"^        (\w[\w, ]*):", str(linear_policy_loss.__doc__), re.MULTILINE)
    assert {*shown} <= {name for names in documented for name in names.split(", ")}
