"""The losses' arguments as those of operators, and back."""

import torch
from hypothesis import given
from loss_cases import ABSENT, OPTIONAL, SETTINGS, make_case

from outcome_rl_kernels.loss.operator_arguments import NUM_ARGUMENTS, SCHEMA, TokenArguments
from outcome_rl_kernels.loss.reference import LossSettings


@given(chosen=SETTINGS, absent=ABSENT)
def test_nothing_is_lost_on_the_way(chosen: dict[str, object], absent: set[str]) -> None:
    batch = make_case(0, torch.float64, chosen, absent=absent).batch()
    settings = LossSettings(**{name: value for name, value in chosen.items() if name != "normalizer"})
    arguments = TokenArguments.of_batch(batch, torch.ones(len(batch.labels_N)), settings)
    flat = arguments.flat()
    assert len(flat) == NUM_ARGUMENTS == len(SCHEMA.split(","))
    back = TokenArguments.of_flat(flat)
    assert back.settings == settings
    assert back.num_sequences == batch.num_sequences
    assert back.sequence_ids_N is batch.sequence_ids_N
    for name, column in back.tokens._asdict().items():
        assert column is getattr(arguments.tokens, name)
    assert all(
        column.dtype == torch.float32 for column in flat[:8] if column is not None and column.is_floating_point()
    )
    for name in set(OPTIONAL) - {"bias"}:
        assert (getattr(back.tokens, f"{name}_R") is None) == (name in absent)
