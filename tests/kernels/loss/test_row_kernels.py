"""Per-token inputs of the row passes."""

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from outcome_rl_kernels.loss.row_kernels import PolicyTokens


def tokens_of(count: int) -> PolicyTokens:
    ones = torch.ones(count)
    return PolicyTokens(torch.arange(count), ones, ones, old_logps_R=torch.zeros(count))


@settings(max_examples=100, deadline=None)
@given(lengths=st.lists(st.integers(0, 4), min_size=1, max_size=6), seed=st.integers(0, 100))
def test_ratios_of_sequences_are_means_over_their_active_tokens(lengths: list[int], seed: int) -> None:
    count, g = sum(lengths), torch.Generator().manual_seed(seed)
    ids = torch.arange(len(lengths)).repeat_interleave(torch.tensor(lengths))
    logps = torch.randn(count, generator=g)
    active = torch.rand(count, generator=g) < 0.6
    tokens = tokens_of(count).with_active(active)
    found = tokens.with_sequence_log_ratios(logps.where(active, torch.nan), ids, len(lengths)).sequence_log_ratios_R
    assert found is not None
    for sequence in range(len(lengths)):
        here = ids == sequence
        mean = logps[here & active].mean() if (here & active).any() else torch.tensor(0.0)
        torch.testing.assert_close(found[here], mean.expand(int(here.sum())))


def test_labels_of_tokens_that_are_not_active_are_never_an_index() -> None:
    tokens = tokens_of(3)._replace(labels_R=torch.tensor([5, -100, 2**40]))
    assert tokens.with_active(torch.tensor([True, False, False])).labels_R.tolist() == [5, 0, 0]


def test_selecting_keeps_what_is_absent_absent() -> None:
    tokens = tokens_of(5).select(torch.tensor([4, 0]))
    assert tokens.labels_R.tolist() == [4, 0]
    assert tokens.bonuses_R is None
    assert tokens_of(5).select(slice(1, 3)).labels_R.tolist() == [1, 2]
