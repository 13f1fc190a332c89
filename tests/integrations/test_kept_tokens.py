"""Kept tokens from the classes of verifiers and the layout of SkyRL 0.4: the loss is that of the truncated policy."""

import sys
import typing
from typing import Any

import numpy as np
import pytest
import torch
import typing_extensions
from torch import Tensor
from verifiers.v1.types import SamplingMask
from verifiers_traces import make

from outcome_rl import linear_policy_loss
from outcome_rl.integrations.kept_tokens import from_counts, from_rows
from outcome_rl_kernels import Support

H = 6


def kept_by_top_p(logits_TV: Tensor, labels_T: Tensor, p: float = 0.8) -> list[list[int]]:
    """The most likely tokens that together reach p, and the sampled one, which the sampler kept by definition."""
    kept = []
    for row, label in zip(logits_TV.softmax(dim=-1), labels_T.tolist(), strict=True):
        order = row.argsort(descending=True)
        size = int((row[order].cumsum(0) < p).sum()) + 1
        kept.append(sorted({*order[:size].tolist(), label}))
    return kept


def compare(
    support: Support, kept: list[list[int]], hidden: Tensor, weight: Tensor, labels: Tensor, mask: Tensor
) -> None:
    """Value and gradient against the softmax of masked logits in float64, and the ratios of an unchanged policy."""
    logits = hidden @ weight.T
    floor = torch.full_like(logits, -torch.inf)
    for position, ids in enumerate(kept):
        floor[position, ids] = 0.0
    floor[~mask] = 0.0
    logps = torch.log_softmax(logits + floor, dim=-1).gather(1, labels[:, None])[:, 0]
    advantages = torch.linspace(-1, 1.3, len(labels), dtype=torch.float64)  # none is 0
    expected = -(advantages * logps)[mask].mean()
    (gradient,) = torch.autograd.grad(expected, weight)
    given: dict[str, Any] = {"cu_seqlens": torch.tensor([0, len(labels)]), "support": support, "token_loss": "ppo"}
    old = logps.detach()
    output = linear_policy_loss(hidden, weight, labels, advantages, mask, old_logps=old, **given)
    (ours,) = torch.autograd.grad(output.loss, weight)
    torch.testing.assert_close(output.logps[mask], logps.detach()[mask].to(output.logps.dtype))
    torch.testing.assert_close(ours, gradient, rtol=1e-6, atol=1e-8)
    assert output.metrics["ratio_mean"].item() == pytest.approx(1, abs=1e-12)
    given["support"] = None
    whole = linear_policy_loss(hidden, weight, labels, advantages, mask, old_logps=old, **given)
    assert whole.metrics["ratio_mean"].item() < 0.95  # without the kept tokens the ratio is biased


def head(vocabulary: int, tokens: int) -> tuple[Tensor, Tensor]:
    g = torch.Generator().manual_seed(0)
    hidden = torch.randn(tokens, H, generator=g, dtype=torch.float64)
    return hidden, torch.randn(vocabulary, H, generator=g, dtype=torch.float64).requires_grad_()


def test_the_mask_of_a_verifiers_branch() -> None:
    """Two turns, with prompts between them: `Branch.sampling_mask` has no kept tokens for those."""
    trace = make("27", "27", 1.0, turns=2)
    (branch,) = trace.branches
    token_ids = torch.tensor(branch.token_ids)
    hidden, weight = head(int(token_ids.max()) + 1, len(token_ids))
    kept = kept_by_top_p(hidden @ weight.T, token_ids)
    mask, start = torch.tensor(branch.sampled_mask), 0
    for node in trace.nodes:
        rows = [kept[start + i] for i, sampled in enumerate(node.mask) if sampled]
        if rows:
            node.sampling_mask = SamplingMask.from_sampling_mask(rows)
        start += len(node.token_ids)
    found = trace.branches[0].sampling_mask
    support = from_counts(found.ids, found.counts)
    assert len(support.offsets) == len(token_ids) + 1
    compare(support, kept, hidden, weight, token_ids, mask)


def test_the_padded_rows_of_skyrl() -> None:
    """As `PackedTensor.values` of SkyRL 0.4, which needs Python 3.12: int32, -1 behind the kept ids of a token."""
    hidden, weight = head(40, 9)
    labels = torch.arange(9) * 3
    kept = kept_by_top_p(hidden @ weight.T, labels)
    mask = torch.tensor([True] * 7 + [False, True])
    width = max(map(len, kept))
    rows = np.full((9, width), -1, dtype=np.int32)
    for position, ids in enumerate(kept):
        if mask[position]:
            rows[position, : len(ids)] = ids
    compare(from_rows(torch.from_numpy(rows)), kept, hidden, weight, labels, mask)


def test_skyrls_own_log_probabilities_are_those_of_the_support(monkeypatch: pytest.MonkeyPatch) -> None:
    """SkyRL's `PackedTensor` with two responses: log-probabilities, the gradient of a loss, ratios of exactly 1."""
    if sys.version_info < (3, 12):  # as in test_skyrl.py
        monkeypatch.setattr(typing, "TypedDict", typing_extensions.TypedDict)
    replay = pytest.importorskip(
        "skyrl.backends.skyrl_train.utils.sample_support_replay",
        reason="SkyRL 0.4, which needs Python 3.12, is not installed",
    )
    hidden, weight = head(40, 9)
    labels = torch.arange(9) * 3
    kept = kept_by_top_p(hidden @ weight.T, labels)
    rows = torch.full((9, max(map(len, kept))), -1, dtype=torch.int32)
    for position, ids in enumerate(kept):
        rows[position, : len(ids)] = torch.tensor(ids)
    packed = replay.PackedTensor.from_segments([rows[:4], rows[4:]])
    scores = replay.sample_support_scores(
        hidden @ weight.T, labels, packed.values, vocab_start_index=0, vocab_end_index=40, tp_group=None
    )
    advantages = torch.linspace(-1, 1.3, 9, dtype=torch.float64)
    (gradient,) = torch.autograd.grad(-(advantages * scores.logprobs).mean(), weight)
    given: dict[str, Any] = {"support": from_rows(packed.values), "cu_seqlens": packed.cu_seqlens.long()}
    old, mask = scores.logprobs.detach(), torch.ones(9, dtype=torch.bool)
    output = linear_policy_loss(hidden, weight, labels, advantages, mask, old_logps=old, token_loss="ppo", **given)
    torch.testing.assert_close(output.logps, old.to(output.logps.dtype))
    torch.testing.assert_close(torch.autograd.grad(output.loss, weight)[0], gradient, rtol=1e-6, atol=1e-8)
    assert output.metrics["ratio_mean"].item() == pytest.approx(1, abs=1e-12)


def test_fields_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ValueError, match="counts must add up to the number of ids, 3; got 2"):
        from_counts([1, 2, 3], [1, 1])
    with pytest.raises(ValueError, match=r"rows must have shape \(N, K\).*got \(3,\)"):
        from_rows([1, 2, 3])
