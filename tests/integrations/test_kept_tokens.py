"""Kept tokens from the classes of verifiers and the layout of SkyRL 0.4."""

from itertools import pairwise

import pytest
import torch
from verifiers.v1.types import SamplingMask
from verifiers_traces import make

from outcome_rl.integrations.kept_tokens import from_counts, from_rows
from outcome_rl_kernels import Support


def kept_of(support: Support) -> list[list[int]]:
    return [support.token_ids[start:end].tolist() for start, end in pairwise(support.offsets.tolist())]


@pytest.mark.parametrize("width", [3, 5])
@pytest.mark.parametrize("kept", [[], [[]], [[7]], [[], [5, 2], [], [1, 0, 150_000], []]], ids=str)
def test_the_kept_tokens_of_either_layout(kept: list[list[int]], width: int) -> None:
    """Flat ids with their numbers, and rows as in `PackedTensor.values` of SkyRL 0.4: int32, -1 behind the ids."""
    flat = [token for row in kept for token in row]
    rows = torch.tensor([row + [-1] * (width - len(row)) for row in kept], dtype=torch.int32).view(-1, width)
    for support in (from_counts(flat, list(map(len, kept))), from_rows(rows)):
        assert support.offsets.dtype == support.token_ids.dtype == torch.int64
        assert kept_of(support) == kept


def test_the_mask_of_a_verifiers_branch() -> None:
    """Two turns, with prompts between them: `Branch.sampling_mask` has no kept tokens for those."""
    trace = make("27", "27", 1.0, turns=2)
    (branch,) = trace.branches
    pairs = zip(branch.token_ids, branch.sampled_mask, strict=True)
    kept = [[token, token + 1] if sampled else [] for token, sampled in pairs]
    start = 0
    for node in trace.nodes:
        if rows := [row for row in kept[start : start + len(node.token_ids)] if row]:
            node.sampling_mask = SamplingMask.from_sampling_mask(rows)
        start += len(node.token_ids)
    found = trace.branches[0].sampling_mask
    assert kept_of(from_counts(found.ids, found.counts)) == kept


def test_fields_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ValueError, match="counts must add up to the number of ids"):
        from_counts([1, 2, 3], [1, 1])
    with pytest.raises(ValueError, match=r"rows must have shape \(N, K\)"):
        from_rows([1, 2, 3])
