"""The divergences of distillation against float64 autograd and against plain PyTorch in its own dtype."""

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from loss_cases import (
    AGGREGATIONS,
    BACKENDS,
    FLOOR,
    GPU,
    ON_GPU,
    ROWS,
    WANTS,
    B,
    V,
    make_case,
    needs_native,
)
from torch import Tensor

from outcome_rl_kernels import linear_divergence

KINDS = ("reverse_kl", "forward_kl", "jsd")
WIDTH = 24  # of the teacher's hidden states
OPTIONS = st.fixed_dictionaries(
    {
        "kind": st.sampled_from(KINDS),
        "mixture": st.sampled_from([0.5, 0.1, 0.9]),
        "temperature": st.sampled_from([1.0, 0.7]),
        "teacher_temperature": st.sampled_from([None, 1.3]),
        "softcap": st.sampled_from([None, 12.0]),
        "teacher_softcap": st.sampled_from([None, 12.0]),
        "loss_agg": st.sampled_from(AGGREGATIONS),
        "normalizer": st.sampled_from([None, 7.0]),
    }
)
TEACHERS = st.sampled_from(["another", "equal", "near", "opposite", "sharp"])
FORBIDDEN = st.sampled_from(["none", "by both", "by one"])


def make_teacher(case: Any, teacher: str, forbidden: str, kind: str, seed: int) -> dict[str, Tensor]:
    """Return the teacher's operands; the student's bias gets the tokens that it forbids."""
    g = torch.Generator().manual_seed(seed)
    hidden, weight = case.operands["hidden"], case.operands["weight"]
    shape, dtype = hidden.shape[:-1], weight.dtype
    if teacher in ("another", "sharp"):
        scale = 1 if teacher == "another" else 8
        other = torch.randn(*shape, WIDTH, generator=g) * scale, torch.randn(V, WIDTH, generator=g)
    else:
        other = hidden * (-1 if teacher == "opposite" else 1), weight
        if teacher == "near":
            other = hidden, weight * (1 + 1e-2 * torch.randn(V, 1, generator=g))
    bias = case.operands.get("bias")
    found = {"teacher_hidden": other[0].to(dtype), "teacher_weight": other[1].to(dtype)}
    if bias is None:
        return found
    found["teacher_bias"] = torch.randn(V, generator=g).to(dtype) if teacher == "another" else bias.clone()
    rare = torch.rand(V, generator=g) < 0.3
    if forbidden == "by both" or (forbidden == "by one" and kind == "jsd"):
        found["teacher_bias"][rare] = -torch.inf
    if forbidden == "by both":
        bias[rare] = -torch.inf
    return found


def run(case: Any, dtype: torch.dtype, wants: set[str], teacher: dict[str, Tensor], **options: Any) -> Any:
    leaves = {name: value.to(dtype).clone().requires_grad_(name in wants) for name, value in case.operands.items()}
    of_teacher = {name: value.to(dtype).clone().requires_grad_() for name, value in teacher.items()}
    output = linear_divergence(**leaves, **of_teacher, **options)
    if output.loss.requires_grad:
        (3 * output.loss).backward()
    assert all(value.grad is None for value in of_teacher.values())
    values = {"divergences": output.divergences, "entropies": output.entropies}
    return output, {"loss": output.loss.detach()} | {name: leaf.grad for name, leaf in leaves.items()}, values


def check(
    seed: int, dtype: torch.dtype, impl: Any, wants: set[str], options: Any, teacher: str, forbidden: str, rows: str,
    weighed: str, chunk_rows: Any, fp32_logits: bool, **drawn: Any,
) -> None:  # fmt: skip
    options = {name: value for name, value in options.items() if forbidden == "none" or "softcap" not in name}
    case = make_case(seed, dtype, {}, **drawn)
    given_teacher = make_teacher(case, teacher, forbidden, options["kind"], seed)
    device = GPU if impl == "triton" else "cpu"
    case, given_teacher = case.moved(device), {name: value.to(device) for name, value in given_teacher.items()}
    g = torch.Generator().manual_seed(seed)
    options |= {"mask": case.inputs["mask"], "cu_seqlens": case.inputs.get("cu_seqlens")}
    options["rows"] = "active" if rows == "all" else rows  # "all" wants finite states
    if weighed != "no":
        options["weights"] = torch.rand(B if weighed == "sequence" else tuple(options["mask"].shape), generator=g)
        options["weights"][..., :1] = 0
        options["weights"] = options["weights"].to(device)
    workspace = None if chunk_rows is None else chunk_rows * V * 3 * 4
    exact, truth, values = run(case, torch.float64, wants, given_teacher, **options)
    _, eager, _ = run(case, dtype, wants, given_teacher, **options, impl="reference")  # rounds the gradients of logits
    options["fp32_logits"] = fp32_logits
    _, _, plain_values = run(case, dtype, wants, given_teacher, **options, impl="reference")
    output, ours, found = run(case, dtype, wants, given_teacher, **options, impl=impl, workspace_bytes=workspace)
    # A gradient of a row is a difference of terms as large as that of the forward KL, p - q, times log(p / q).
    largest = max(1.0, float(values["divergences"].max()))
    _, terms, _ = run(case, torch.float64, wants, given_teacher, **options | {"kind": "forward_kl"})
    for name, value in found.items():
        far, allowed = ((one.double() - values[name]).abs().max() for one in (value, plain_values[name]))
        assert far <= 2 * allowed + FLOOR * (8 + values[name].abs().max()), (name, float(far), float(allowed))
    for name, value in truth.items():
        assert (ours[name] is None) == (value is None), name
        if value is None:
            continue
        size = torch.maximum(value.norm(), largest * terms[name].norm()) + (10 if name == "loss" else 0)
        far, allowed = ((one[name].double() - value).norm() for one in (ours, eager))
        rounded = (value.to(dtype) - value).norm()
        assert far <= 2 * allowed + rounded + FLOOR * size, (name, float(far), float(allowed), float(size))
    torch.testing.assert_close(
        {name: float(value) for name, value in output.metrics.items()},
        {name: float(value) for name, value in exact.metrics.items()},
        rtol=1e-4 if dtype == torch.float32 or fp32_logits else 0.1,
        atol=1e-4 if dtype == torch.float32 or fp32_logits else 0.1,
    )


CASES = {
    "seed": st.integers(0, 10**6),
    "dtype": st.sampled_from([torch.float32, torch.bfloat16]),
    "wants": WANTS,
    "options": OPTIONS,
    "teacher": TEACHERS,
    "forbidden": FORBIDDEN,
    "rows": ROWS,
    "weighed": st.sampled_from(["no", "sequence", "token"]),
    "chunk_rows": st.sampled_from([None, 1, 4]),
    "fp32_logits": st.booleans(),
    "absent": st.sets(st.just("bias")),
    "packed": st.booleans(),
}


@pytest.mark.parametrize("impl", [BACKENDS[1], ON_GPU])
def test_as_exact_as_plain_pytorch(impl: Any) -> None:
    @settings(max_examples=100 if impl == "native" else 12, deadline=None)
    @given(**CASES)
    def holds(**drawn: Any) -> None:
        check(impl=impl, **drawn)

    holds()


@pytest.mark.parametrize("impl", BACKENDS[:2])
def test_a_kl_is_infinite_where_its_base_forbids_a_token_of_the_other(impl: Any) -> None:
    log_p, log_q = torch.tensor([[0.0, 1.0, -torch.inf]]), torch.tensor([[-torch.inf, 1.0, 2.0]])
    mask, finite = torch.ones(1, 1, dtype=torch.bool), {}
    for kind in KINDS:
        biases = {"bias": log_p[0], "teacher_bias": log_q[0], "impl": impl, "kind": kind}
        finite[kind] = float(
            linear_divergence(*[torch.zeros(*size, 1) for size in ((1, 1), (3,))] * 2, mask, **biases).loss
        )
    assert finite["reverse_kl"] == finite["forward_kl"] == torch.inf
    assert 0 < finite["jsd"] < 0.7


def rows_as_heads(student: Tensor, teacher: Tensor) -> tuple[Tensor, ...]:
    """Return operands whose logits are these rows, so that gradients of hidden states are those of logits."""
    eye = torch.eye(student.shape[-1], dtype=student.dtype)
    return student[None].requires_grad_(), eye, teacher[None], eye


@needs_native
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("gap", [0.0, 60.0, 100.0, 1e4, torch.inf])
def test_no_gap_between_logits_makes_denormal_gradients(kind: str, gap: float) -> None:
    g = torch.Generator().manual_seed(0)
    rows = torch.randn(2, 6, 64, generator=g)
    rows[:, :, 1:] -= gap / 2 if gap < torch.inf else 5e3
    rows[1, :3] = rows[1, :3].flip(-1)
    heads = rows_as_heads(*rows)
    linear_divergence(*heads, torch.ones(1, 6, dtype=torch.bool), kind=kind).loss.backward()
    found = heads[0].grad
    assert found.isfinite().all()
    assert not ((found != 0) & (found.abs() < torch.finfo(torch.float32).tiny)).any()


@needs_native
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(("kind", "softcap"), [("reverse_kl", None), ("forward_kl", 6.0), ("jsd", None)])
def test_the_mean_of_sampled_gradients_is_exact(kind: str, softcap: Any, dtype: torch.dtype) -> None:
    """Errors of independent seeds shrink as their square root, and their variance is within its bound."""
    g, rows, vocabulary, threshold = torch.Generator().manual_seed(0), 6, 2048, 0.01
    student, teacher = (2 * torch.randn(2, rows, vocabulary, generator=g)).to(dtype)
    mask, weights = torch.ones(1, rows, dtype=torch.bool), torch.rand(1, rows, generator=g)

    def gradient(**options: Any) -> Any:
        heads = rows_as_heads(student.clone(), teacher)
        output = linear_divergence(*heads, mask, kind=kind, weights=weights, softcap=softcap, **options)
        output.loss.backward()
        return output, heads[0].grad[0].double()

    dense, exact = gradient()
    samples = [gradient(sample_below=threshold, sample_seed=seed) for seed in range(400)]
    assert all(output.loss == dense.loss for output, _ in samples)
    assert 1 < float(samples[0][0].metrics["sampled_entries"]) <= 1 / threshold + 2
    assert float(samples[0][0].metrics["sampled_rows"]) == 1
    errors = torch.stack([(sample - exact) for _, sample in samples])
    variance = errors.square().sum(dim=(1, 2)).mean()
    rounding = torch.finfo(dtype).eps ** 2 * exact.square().sum()
    assert errors.mean(dim=0).square().sum() <= 2 * variance / len(samples) + rounding
    p, q = (
        (x.double() if softcap is None or x is teacher else softcap * (x.double() / softcap).tanh()).softmax(-1)
        for x in (student, teacher)
    )
    bound = threshold * (exact.square() / ((p + q) / 2)).sum()
    assert 0 < variance <= 1.2 * bound  # half-precision masses are 4 % smaller


ARGUMENTS = {"hidden": (2, 3, 4), "weight": (9, 4), "teacher_hidden": (2, 3, 5), "teacher_weight": (9, 5)}


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"kind": "kl"}, ValueError, "kind must be one of 'reverse_kl'"),
        ({"kind": "jsd", "mixture": 1.0}, ValueError, r"mixture must lie in \(0, 1\); got 1.0"),
        (
            {"teacher_weight": torch.zeros(8, 5)},
            ValueError,
            "teacher_weight must have the rows of weight, V = 9; got 8",
        ),
        ({"teacher_hidden": torch.zeros(2, 5)}, ValueError, "teacher_hidden must have shape"),
        ({"teacher_bias": torch.zeros(8)}, ValueError, "teacher_bias must have shape"),
        ({"teacher_hidden": torch.zeros(2, 3, 5).half()}, TypeError, "teacher_hidden and teacher_weight must have"),
        ({"teacher_temperature": 0.0}, ValueError, "temperature"),
        ({"mask": None}, TypeError, "mask must be"),
        ({"weights": torch.ones(3)}, ValueError, "weights must have shape"),
    ],
)
def test_errors_name_the_argument(change: dict[str, Any], error: type[Exception], message: str) -> None:
    arguments: Any = {name: torch.zeros(shape) for name, shape in ARGUMENTS.items()}
    arguments["mask"] = torch.ones(2, 3, dtype=torch.bool)
    with pytest.raises(error, match=message):
        linear_divergence(**arguments | change)
