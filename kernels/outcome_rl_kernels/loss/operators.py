"""Conversion of a `TokenBatch` to the arguments of an operator, which takes tensors, numbers and strings only."""

from typing import Any, get_type_hints

from torch import Tensor

from outcome_rl_kernels.loss.types import SETTINGS, LossInputs, LossSettings, Sequences, TokenBatch

_COLUMNS = (
    "Tensor labels, Tensor weights, Tensor? answer_mask, Tensor? ref_logps, Tensor? entropy_weights, "
    "Tensor advantages, Tensor? old_logps, Tensor? rollout_weights, Tensor? rollout_logps, Tensor? active, "
    "Tensor? sequence_ids, SymInt num_sequences"
)
_TYPES: dict[Any, str] = {bool: "bool", float: "float", float | None: "float?"}
SCHEMA = f"{_COLUMNS}, " + ", ".join(
    f"{_TYPES.get(hint, 'str')} {name}" for name, hint in get_type_hints(LossSettings).items()
)


def flat(batch: TokenBatch) -> tuple[Any, ...]:
    """Return the arguments that `SCHEMA` declares.

    Raises:
        TypeError: the token loss has no name.
    """
    inputs, settings = batch.inputs, batch.inputs.settings
    if not isinstance(settings.token_loss, str):
        raise TypeError(
            "torch.compile and fake tensors accept a token loss by name only; got "
            f"{settings.token_loss!r}. Give it one: register_token_loss(name, loss)"
        )
    return (
        *(batch.labels, batch.weights, batch.answer_mask, batch.ref_logps, batch.entropy_weights),
        *(inputs.advantages, inputs.old_logps, inputs.rollout_weights, inputs.rollout_logps, inputs.active),
        *(inputs.sequences or (None, 0)),
        *(getattr(settings, name) for name in SETTINGS),
    )


def batch_of(
    labels: Tensor,
    weights: Tensor,
    answer_mask: Tensor | None,
    ref_logps: Tensor | None,
    entropy_weights: Tensor | None,
    advantages: Tensor,
    old_logps: Tensor | None,
    rollout_weights: Tensor | None,
    rollout_logps: Tensor | None,
    active: Tensor | None,
    sequence_ids: Tensor | None,
    num_sequences: int,
    *settings: Any,
) -> TokenBatch:
    """Return the batch that `flat` turned into these arguments."""
    sequences = None if sequence_ids is None else Sequences(sequence_ids, num_sequences)
    chosen = LossSettings(**dict(zip(SETTINGS, settings, strict=True)))
    inputs = LossInputs(advantages, old_logps, rollout_weights, rollout_logps, active, sequences, chosen)
    return TokenBatch(inputs, labels, weights, answer_mask, ref_logps, entropy_weights)
