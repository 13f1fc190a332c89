"""The losses that are compared: ours, plain PyTorch's and other libraries', one small adapter each.

Every adapter computes the mean over the mask's tokens of PPO's clipped surrogate plus `beta` times k3, with epsilon
0.2: the same number, which `accuracy` checks before anything is timed. A library that offers log-probabilities gets the
rest of the loss in plain PyTorch. Nothing here is needed to use outcome_rl: a library that is absent is a row
that says so. The versions that the adapters were written against are in bench/baselines.txt.
"""

import importlib.util
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from bench.cases import Batch, only_kept
from outcome_rl.environment import versions_of
from outcome_rl_kernels import linear_logprobs, linear_policy_loss, policy_loss
from outcome_rl_kernels.loss.ratios import importance_ratios
from outcome_rl_kernels.loss.types import LossInputs

EPSILON = 0.2  # the default of linear_policy_loss
IGNORED = -100  # the label that cross-entropies skip
SAMPLE_BELOW = 1.25e-4  # of our sampled gradients
OURS, EAGER, COMPILED = "outcome_rl", "plain PyTorch", "plain PyTorch, torch.compile"
SAMPLED = f"{OURS}, sampled"

Loss = Callable[..., Tensor]  # (hidden (N, H), weight (V, H), batch), or (logits, batch), to a scalar
LogProbs = Callable[..., Tensor]  # (hidden, weight, batch) to (N,), anything on masked rows


def said(error: Exception) -> str:
    """Return the kind of an exception that a library raised, and the first line of its text."""
    return f"{type(error).__name__}: {next(iter(str(error).strip().splitlines()), '')}"


def _runs_anywhere(device: torch.device) -> None:
    return None


def _copy(logits_NV: Tensor, batch: Batch) -> Tensor:
    return logits_NV.clone()


def _needs(module: str, *, cuda: bool = False, on_gpu: str | None = None) -> Callable[[torch.device], str | None]:
    """Return what says why a library cannot run: a module, or on a GPU another one, is absent, or there is no GPU."""

    def obstacle(device: torch.device) -> str | None:
        if importlib.util.find_spec(module) is None:
            return "not installed"
        if on_gpu is not None and device.type == "cuda" and importlib.util.find_spec(on_gpu) is None:
            return f"{on_gpu} is not installed"
        return "needs a GPU" if cuda and device.type != "cuda" else None

    return obstacle


@dataclass(frozen=True)
class Baseline:
    """One of the compared losses.

    Attributes:
        loss: differentiable in its tensors.
        logps: only the log-probabilities; None where the library offers none.
        obstacle: why it cannot run on a device; None where it can.
        prepare: lays out a copy of (N, V) logits as a loss from logits wants them.
        carries_coefficients: False for a plain cross-entropy, which no policy can be trained with.
    """

    name: str
    loss: Loss
    logps: LogProbs | None = None
    obstacle: Callable[[torch.device], str | None] = _runs_anywhere
    prepare: Callable[[Tensor, Batch], Tensor] = _copy
    carries_coefficients: bool = True


def baseline_versions() -> dict[str, str]:
    """Versions of the libraries whose losses are compared, "not installed" where absent."""
    return versions_of({name: name for name in ("trl", "liger_kernel", "cut_cross_entropy", "verl", "quack")})


# --- ours


def ours(hidden: Tensor, weight: Tensor, batch: Batch, **options: Any) -> Tensor:
    rows, inputs = hidden.view(*batch.labels.shape, -1), _our_inputs(batch)
    return linear_policy_loss(rows, weight, support=batch.support, **inputs, **options).loss


def own_token_loss(logps: Tensor, entropies: Tensor, inputs: LossInputs) -> Tensor:
    """Return PPO's surrogate as a user would write it, for `token_loss`."""
    ratios, advantages = importance_ratios(logps, inputs), inputs.advantages
    return -torch.minimum(ratios * advantages, ratios.clamp(1 - EPSILON, 1 + EPSILON) * advantages)


def _our_logps(hidden: Tensor, weight: Tensor, batch: Batch) -> Tensor:
    rows = hidden.view(*batch.labels.shape, -1)
    return linear_logprobs(rows, weight, batch.labels, mask=batch.mask, support=batch.support)[0].view(-1)


def _ours_from_masked_logits(hidden: Tensor, weight: Tensor, batch: Batch) -> Tensor:
    return _ours_from_logits(only_kept(hidden @ weight.t(), batch.kept_NK), batch)


def _ours_from_logits(logits: Tensor, batch: Batch) -> Tensor:
    return policy_loss(
        logits.view(*batch.labels.shape, -1),
        **_our_inputs(batch),
        inplace=True,
    ).loss


def _our_inputs(batch: Batch) -> dict[str, Any]:
    return {
        "labels": batch.labels,
        "advantages": batch.advantages,
        "mask": batch.mask,
        "ref_logps": batch.ref_logps,
        "old_logps": batch.old_logps,
        "beta": batch.beta,
        "cu_seqlens": batch.cu_seqlens,
    }


# --- plain PyTorch


def loss_of_logps(logps_N: Tensor, batch: Batch) -> Tensor:
    """Return the loss of a training loop from log-probabilities: ratio, clip, k3, mean over the mask."""
    old_N = logps_N.detach() if batch.old_logps is None else batch.old_logps.view(-1)
    ratios_N = (logps_N - old_N).exp()
    clipped_N = ratios_N.clamp(1 - EPSILON, 1 + EPSILON)
    losses_N = -torch.minimum(ratios_N * batch.advantages_N, clipped_N * batch.advantages_N)
    if batch.ref_logps is not None:
        log_ratio_N = batch.ref_logps.view(-1) - logps_N
        losses_N = losses_N + batch.beta * (log_ratio_N.exp() - log_ratio_N - 1)
    return losses_N.masked_fill(~batch.mask_N, 0.0).sum() / batch.mask_N.sum()


def _logps_of_logits(logits_NV: Tensor, batch: Batch) -> Tensor:
    return logits_NV.float().log_softmax(dim=-1).gather(1, batch.labels_N[:, None])[:, 0]


def _eager_logps(hidden: Tensor, weight: Tensor, batch: Batch) -> Tensor:
    return _logps_of_logits(only_kept(hidden @ weight.t(), batch.kept_NK), batch)


def _eager(hidden: Tensor, weight: Tensor, batch: Batch) -> Tensor:
    return loss_of_logps(_eager_logps(hidden, weight, batch), batch)


def _eager_from_logits(logits: Tensor, batch: Batch) -> Tensor:
    return loss_of_logps(_logps_of_logits(logits, batch), batch)


@cache
def _compiled(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    return torch.compile(function, fullgraph=True, dynamic=False)  # static shapes: its best case


# --- other libraries: per-token log-probabilities


def _trl_selective(hidden: Tensor, weight: Tensor, batch: Batch) -> Tensor:
    return _trl_selective_of_logits(hidden @ weight.t(), batch)


def _trl_selective_of_logits(logits: Tensor, batch: Batch) -> Tensor:
    from trl.trainer.utils import selective_log_softmax

    labels = batch.labels if batch.labels.dim() == 2 else batch.labels[None]  # it goes through the sequences one by one
    logps: Tensor = selective_log_softmax(logits.view(*labels.shape, -1), labels)
    return logps.view(-1)


def _trl_from_logits(logits: Tensor, batch: Batch) -> Tensor:
    return loss_of_logps(_trl_selective_of_logits(logits, batch), batch)


def _trl_chunked(hidden: Tensor, weight: Tensor, batch: Batch) -> Tensor:
    """As `add_fused_lm_head` calls it: tokens outside the mask are dropped first."""
    from trl.kernels import ChunkedLogProbFunction

    mask_N, labels_N = batch.mask_N, batch.labels_N
    arguments = (1.0, 32768, None, 1.0, ("log_probs",))  # temperature, vocabulary tile, softcap, scale, outputs
    logps_R: Tensor = ChunkedLogProbFunction.apply(hidden[mask_N], weight, None, labels_N[mask_N], *arguments)[0]
    return logps_R.new_zeros(mask_N.shape).masked_scatter(mask_N, logps_R)


def _cce(hidden: Tensor, weight: Tensor, batch: Batch) -> Tensor:
    from cut_cross_entropy import linear_cross_entropy

    impl = "cce" if hidden.is_cuda else "torch_compile"
    losses_N: Tensor = linear_cross_entropy(hidden, weight, _labels_or_ignored(batch), reduction="none", impl=impl)
    return -losses_N


def _liger_scaled(hidden: Tensor, weight: Tensor, batch: Batch) -> Tensor:
    from liger_kernel.ops import LigerFusedLinearScaledCrossEntropyFunction

    labels_N = _labels_or_ignored(batch)
    losses_N: Tensor = LigerFusedLinearScaledCrossEntropyFunction.apply(hidden, weight, labels_N, 1.0, IGNORED)
    return -losses_N


def _verl_torch(hidden: Tensor, weight: Tensor, batch: Batch) -> Tensor:
    _verl_without_ray()
    from verl.utils.experimental.torch_functional import FusedLinearForPPO

    logps_N: Tensor = FusedLinearForPPO()(hidden, weight, batch.labels_N, 1.0)[0]
    return logps_N


def _verl_triton(hidden: Tensor, weight: Tensor, batch: Batch) -> Tensor:
    _verl_without_ray()
    from verl.utils.kernel.linear_cross_entropy import linear_cross_entropy

    logps_N: Tensor = linear_cross_entropy(hidden, weight, batch.labels_N, 1.0, "none")[0]
    return logps_N


@cache
def _verl_without_ray() -> None:
    """verl's packages without their `__init__` files, which import Ray; the two modules above need only PyTorch."""
    found = importlib.util.find_spec("verl")
    assert found is not None
    assert found.origin is not None
    root = Path(found.origin).parent
    for name in ("verl", "verl.utils", "verl.utils.experimental", "verl.utils.kernel"):
        spec = ModuleSpec(name, None, is_package=True)
        spec.submodule_search_locations = [str(root.joinpath(*name.split(".")[1:]))]
        sys.modules.setdefault(name, importlib.util.module_from_spec(spec))


def _labels_or_ignored(batch: Batch) -> Tensor:
    return batch.labels_N.masked_fill(~batch.mask_N, IGNORED)


def _with_eager_loss(logps: LogProbs) -> Loss:
    return lambda hidden, weight, batch: loss_of_logps(logps(hidden, weight, batch), batch)


# --- other libraries: whole losses


def _liger_grpo(hidden: Tensor, weight: Tensor, batch: Batch) -> Tensor:
    """Call Liger's loss; it takes one advantage per sequence, so packed tokens become sequences of one token."""
    from liger_kernel.chunked_loss import LigerFusedLinearGRPOLoss

    packed = batch.cu_seqlens is not None
    S, T = (len(hidden), 1) if packed else batch.labels.shape
    grpo = LigerFusedLinearGRPOLoss(
        beta=batch.beta,
        use_ref_model=batch.ref_logps is not None,
        epsilon_low=EPSILON,
        epsilon_high=EPSILON,
        loss_type="dapo",
        chunk_size=S,  # all sequences at once: it cuts rows and vocabulary into tiles again by itself
    )
    loss: Tensor = grpo(
        hidden.view(S, T, -1),
        weight,
        batch.labels.view(S, T),
        batch.mask.view(S, T),
        batch.advantages_N if packed else batch.advantages,
        ref_per_token_logps=None if batch.ref_logps is None else batch.ref_logps.view(S, T),
        old_per_token_logps=None if batch.old_logps is None else batch.old_logps.view(S, T),
    )[0]
    return loss


def _liger_grpo_tf32(hidden: Tensor, weight: Tensor, batch: Batch) -> Tensor:
    """Call it with products in TF32, which PyTorch leaves off; without, its gradients are products in float32."""
    matmul = torch.backends.cuda.matmul
    before, matmul.allow_tf32 = matmul.allow_tf32, True
    try:
        return _liger_grpo(hidden, weight, batch)  # computes the gradients too
    finally:
        matmul.allow_tf32 = before


def _liger_logits(logits_NV: Tensor, batch: Batch) -> Tensor:
    """(S, T + 1, V): it leaves the last position out."""
    S, T = batch.labels.shape
    return functional.pad(logits_NV.view(S, T, -1), (0, 0, 0, 1))


def _liger_grpo_from_logits(logits: Tensor, batch: Batch) -> Tensor:
    from liger_kernel.transformers.grpo_loss import triton_grpo_loss

    loss: Tensor = triton_grpo_loss(
        logits,
        batch.old_logps,
        batch.ref_logps,
        batch.labels,
        batch.advantages,
        completion_mask=batch.mask.int(),
        temperature=1.0,
        beta=batch.beta,
        eps_low=EPSILON,
        eps_high=EPSILON,
        loss_type="dapo",
        reduce=True,
    )[0]
    return loss


def _torch_cross_entropy(hidden: Tensor, weight: Tensor, batch: Batch) -> Tensor:
    options = torch.nn.LinearCrossEntropyOptions(batch_chunk_size=4096)  # its own choice is far slower on the CPU
    labels_N = _labels_or_ignored(batch)
    return functional.linear_cross_entropy(hidden, weight, labels_N, ignore_index=IGNORED, options=options)


def _quack(hidden: Tensor, weight: Tensor, batch: Batch) -> Tensor:
    from quack.linear_cross_entropy import chunked_linear_cross_entropy

    loss: Tensor = chunked_linear_cross_entropy(hidden, weight, _labels_or_ignored(batch), ignore_index=IGNORED)
    return loss


def _needs_linear_cross_entropy(device: torch.device) -> str | None:
    return None if hasattr(functional, "linear_cross_entropy") else "needs PyTorch 2.13"


BASELINES = [
    Baseline(OURS, ours, _our_logps),
    Baseline(EAGER, _eager, _eager_logps),
    Baseline(COMPILED, lambda *inputs: _compiled(_eager)(*inputs), lambda *inputs: _compiled(_eager_logps)(*inputs)),
    Baseline("TRL selective log-softmax", _with_eager_loss(_trl_selective), _trl_selective, _needs("trl")),
    Baseline("TRL chunked log-probs", _with_eager_loss(_trl_chunked), _trl_chunked, _needs("trl")),
    Baseline("Liger GRPO", _liger_grpo, obstacle=_needs("liger_kernel")),
    Baseline("Liger GRPO, TF32", _liger_grpo_tf32, obstacle=_needs("liger_kernel", cuda=True)),
    Baseline(
        "Liger scaled cross-entropy",
        _with_eager_loss(_liger_scaled),
        _liger_scaled,
        _needs("liger_kernel", on_gpu="cutlass"),
    ),
    Baseline("CCE", _with_eager_loss(_cce), _cce, _needs("cut_cross_entropy")),
    Baseline("verl, torch", _with_eager_loss(_verl_torch), _verl_torch, _needs("verl")),
    Baseline("verl, Triton", _with_eager_loss(_verl_triton), _verl_triton, _needs("verl", cuda=True)),
    Baseline(
        "PyTorch linear_cross_entropy",
        _torch_cross_entropy,
        obstacle=_needs_linear_cross_entropy,
        carries_coefficients=False,
    ),
    Baseline("QuACK", _quack, obstacle=_needs("quack", cuda=True, on_gpu="cutlass"), carries_coefficients=False),
]

# Over the tokens that truncated sampling kept, the others mask the logits of the whole vocabulary.
SUPPORT_BASELINES = [*BASELINES[:3], Baseline(f"{OURS}, policy_loss of masked logits", _ours_from_masked_logits)]

LOGITS_BASELINES = [
    Baseline(OURS, _ours_from_logits),
    Baseline(EAGER, _eager_from_logits),
    Baseline(COMPILED, lambda *inputs: _compiled(_eager_from_logits)(*inputs)),
    Baseline("TRL selective log-softmax", _trl_from_logits, obstacle=_needs("trl")),
    Baseline("Liger GRPO", _liger_grpo_from_logits, obstacle=_needs("liger_kernel", cuda=True), prepare=_liger_logits),
]
