"""Values and gradients on a GPU against float64, at vocabularies and lengths that no test has."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from bench.cases import Spec, make_case
from bench.gpu_parts.report import DEVICE, DRY, VOCABULARIES, Figures, Report, require
from bench.gpu_parts.supports import even_support, uneven_support
from outcome_rl_kernels import linear_divergence, linear_logprobs, linear_policy_loss, policy_loss
from outcome_rl_kernels.loss.rows.divergence import KINDS

SETTINGS: dict[str, Figures] = {
    "on-policy": {},
    "KL, entropy, temperature": {"beta": 0.1, "entropy_coef": 0.01, "temperature": 0.7},
    "dual clip": {"delta": 3.0},
    "sequence ratios": {"token_loss": "gspo", "loss_agg": "seq-mean-token-mean"},
    "answers without bonus": {"answer_mask_mode": "bonus"},
    "no answers": {"answer_mask_mode": "all"},
}
# The least errors that count; beyond them, twice what plain PyTorch in the same dtype loses is allowed.
LIMITS = {torch.float32: 2e-5, torch.bfloat16: 1e-2, torch.float16: 2e-3}


def arguments_of(
    vocabulary: int, dtype: torch.dtype, name: str, layout: Any = "padded", tokens: int = 8 if DRY else 96
) -> Figures:
    """Return every argument of the loss under one of SETTINGS: sequences of several lengths, some without advantage."""
    scale = 0.002 if DRY else 0.02
    spec = Spec(model=f"V = {vocabulary}", dtype=dtype, tokens=tokens, scale=scale, layout=layout, dead=0.3)
    case = make_case(spec, DEVICE)
    batch, options = case.off_policy, SETTINGS[name]
    generator = torch.Generator().manual_seed(0)
    answers = torch.rand(batch.labels.shape, generator=generator) < 0.2
    bonuses = torch.randn(len(batch.advantages), generator=generator).to(DEVICE)
    return {
        "hidden": case.hidden.view(*batch.labels.shape, -1),
        "weight": case.weight,
        "labels": batch.labels,
        "advantages": batch.advantages,
        "mask": batch.mask,
        "bonuses": bonuses.where(batch.advantages != 0, 0),
        "answer_mask": answers.to(DEVICE),
        "ref_logps": batch.ref_logps if options.get("beta") else None,
        "old_logps": None if name == "on-policy" else batch.old_logps,
        "cu_seqlens": batch.cu_seqlens,
        **options,
    }


def in_dtype(arguments: Figures, dtype: torch.dtype) -> Figures:
    """Return the arguments with operands as leaves in `dtype`, and other numbers in float64 if that is float64."""

    def cast(name: str, value: Any) -> Any:
        if name in ("hidden", "weight", "logits"):
            return value.detach().to(dtype, copy=True).requires_grad_()
        wide = dtype == torch.float64 and isinstance(value, Tensor) and value.is_floating_point()
        return value.double() if wide else value

    return {name: cast(name, value) for name, value in arguments.items()}


def linear(arguments: Figures, **options: Any) -> list[Tensor]:
    output = linear_policy_loss(**arguments, **options)
    (3 * output.loss).backward()  # type: ignore[no-untyped-call]
    return [output.loss.detach(), output.logps, arguments["hidden"].grad, arguments["weight"].grad]


def from_logits(arguments: Figures, **options: Any) -> list[Tensor]:
    others = {name: value for name, value in arguments.items() if name != "logits"}
    output = policy_loss(arguments["logits"] * 1, **others, **options)
    output.loss.backward()  # type: ignore[no-untyped-call]
    return [output.loss.detach(), output.logps, arguments["logits"].grad]


def log_probabilities(arguments: Figures, **options: Any) -> list[Tensor]:
    names = ("hidden", "weight", "labels", "ids", "mask", "support")
    given = {name: arguments[name] for name in names if name in arguments}
    logps, entropies = linear_logprobs(**given, return_entropy=True, **options)
    assert entropies is not None
    (2 * logps.sum() + entropies.sum()).backward()  # type: ignore[no-untyped-call]
    return [logps.detach(), entropies.detach(), arguments["hidden"].grad, arguments["weight"].grad]


def divergence(arguments: Figures, **options: Any) -> list[Tensor]:
    """Take the same head with other hidden states for the teacher."""
    hidden, weight, mask, bounds = (arguments[name] for name in ("hidden", "weight", "mask", "cu_seqlens"))
    other = hidden.detach().flip(0), weight.detach()
    output = linear_divergence(hidden, weight, *other, mask, cu_seqlens=bounds, **options)
    output.loss.backward()  # type: ignore[no-untyped-call]
    return [output.loss.detach(), output.divergences, hidden.grad, weight.grad]


def largest_error(call: Callable[..., list[Tensor]], arguments: Figures, dtype: torch.dtype, **options: Any) -> float:
    """Compare a call with the reference in float64, and return its largest error.

    Raises:
        AssertionError: an error is above both the limit of the dtype and twice that of plain PyTorch in this dtype.
    """
    exact = call(in_dtype(arguments, torch.float64), impl="reference", **options)
    plain = call(in_dtype(arguments, dtype), impl="reference", **options)
    seen = call(in_dtype(arguments, dtype), impl="triton", **options)

    def error(value: Tensor, truth: Tensor) -> float:
        scale = truth.norm() + (1 if truth.dim() == 0 else 1e-30)  # a loss may be near 0
        return float((value.double() - truth).norm() / scale)

    errors = [error(value, truth) for value, truth in zip(seen, exact, strict=True)]
    most = [max(LIMITS[dtype], 2 * error(value, truth)) for value, truth in zip(plain, exact, strict=True)]
    require(all(e <= m for e, m in zip(errors, most, strict=True)), f"{options}: errors {errors}, allowed {most}")
    return max(errors)


def float32_losses(report: Report) -> Figures:
    """Compare losses and log-probabilities with float64 in float32."""
    return losses_match(report, torch.float32)


def bfloat16_losses(report: Report) -> Figures:
    """Compare losses and log-probabilities with float64 in bfloat16."""
    return losses_match(report, torch.bfloat16)


def float16_losses(report: Report) -> Figures:
    """Compare losses and log-probabilities with float64 in float16."""
    return losses_match(report, torch.float16)


def losses_match(report: Report, dtype: torch.dtype) -> Figures:
    """Compare losses and log-probabilities with float64: vocabularies, settings, layouts, rows, workspaces."""
    found: Figures = {}
    if DRY and dtype != torch.float32:
        return {"left out": "a dry run has float32 only"}
    for vocabulary in VOCABULARIES:
        worst, room = 0.0, {"workspace_bytes": 20 * vocabulary * dtype.itemsize}
        for number, name in enumerate(list(SETTINGS)[:: 3 if DRY else 1]):
            given = arguments_of(vocabulary, dtype, name, ("padded", "packed")[number % 2])
            for rows, options in (("contributing", {}), ("active", room), ("all", room)):
                worst = max(worst, largest_error(linear, given, dtype, rows=rows, **options))
            hidden, weight = (given.pop(name).double() for name in ("hidden", "weight"))
            given["logits"] = (hidden @ weight.t()).to(dtype)
            worst = max(worst, *(largest_error(from_logits, given, dtype, inplace=i) for i in (False, True)))
        plain = arguments_of(vocabulary, dtype, "on-policy")
        worst = max(worst, largest_error(log_probabilities, plain, dtype, **room))
        found[f"V = {vocabulary}"] = f"{worst:.1e}"
        report.keep(found)
    return found


def losses_of_the_goal(report: Report) -> Figures:
    """Compare with float64 at the goal's vocabulary, with so many rows that every program takes several, and repeat."""
    found: Figures = {}

    def check(name: str, call: Callable[..., list[Tensor]], given: Figures, dtype: torch.dtype, **options: Any) -> None:
        error = largest_error(call, given, dtype, **options)
        first, again = (call(in_dtype(given, dtype), impl="triton", **options) for _ in range(2))
        require(all(map(torch.equal, first, again)), f"two calls differ: {name}")
        found[f"{str(dtype).removeprefix('torch.')}, {name}"] = f"{error:.1e}"
        report.keep(found)

    for dtype in (torch.float32,) if DRY else (torch.float32, torch.bfloat16):
        for name in list(SETTINGS)[:: 3 if DRY else 2]:
            given = arguments_of(VOCABULARIES[-1], dtype, name, "packed", tokens=8 if DRY else 1024)
            rows = int(given["mask"].sum())
            require(DRY or rows >= 512, f"{rows} rows are too few")
            check(f"{name}, {rows} rows", linear, given, dtype, rows="all")
        for kind in KINDS:
            check(kind, divergence, given, dtype, kind=kind)
        ids = torch.stack([(given["labels"] + 7 * k) % VOCABULARIES[-1] for k in range(2 if DRY else 64)], dim=-1)
        check("given ids", log_probabilities, given | {"ids": ids, "labels": None}, dtype)
    return found


def supports(report: Report) -> Figures:
    """Compare the loss and log-probabilities over kept tokens with float64: 1, 16, and as top-p 0.95 leaves them."""
    found: Figures = {}
    for dtype in (torch.float32,) if DRY else (torch.float32, torch.bfloat16):
        given = arguments_of(VOCABULARIES[-1], dtype, "KL, entropy, temperature", tokens=8 if DRY else 512)
        labels_N, vocabulary = given["labels"].flatten(), VOCABULARIES[-1]
        kept = {str(size): even_support(labels_N, vocabulary, size) for size in (1, 16)}
        kept["top-p 0.95"] = uneven_support(labels_N, vocabulary, **({"longest": 40} if DRY else {}))
        for name, support in kept.items():
            errors = [largest_error(call, given | {"support": support}, dtype) for call in (linear, log_probabilities)]
            found[f"{str(dtype).removeprefix('torch.')}, kept: {name}"] = f"{max(errors):.1e}"
            report.keep(found)
    return found
