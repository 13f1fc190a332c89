"""The inputs of the losses: from the arguments of the public functions to the columns that formulas and kernels read.

Shapes: N tokens (all sequences flattened, B * T or packed), R of them that are computed, S sequences, H hidden, V
vocabulary.
"""

import warnings
from typing import Any, NamedTuple, Self, get_type_hints

import torch
from torch import Tensor

from outcome_rl_kernels.checks import FLOATS, check_like, check_number, check_tensor, shape_text
from outcome_rl_kernels.loss.settings import SETTINGS, LossAggregation, LossSettings, check_settings
from outcome_rl_kernels.loss.token_losses import exp, is_builtin, token_loss_of


class LossInputs(NamedTuple):
    """Inputs of a loss: one value per token, (N,), or (R,) for some of the tokens; None means that a term is absent.

    Floating-point columns are float32, or float64 where the loss is computed in float64.
    """

    labels: Tensor  # int64
    advantages: Tensor
    weights: Tensor  # factor of each token's loss, so that the scalar loss is the sum of the products
    sequence_ids: Tensor  # int64 in [0, num_sequences), rising
    active: Tensor | None  # bool: other tokens count for nothing, and their columns may hold anything. None: all do
    bonuses: Tensor | None
    answer_mask: Tensor | None  # bool
    ref_logps: Tensor | None
    old_logps: Tensor | None
    rollout_weights: Tensor | None
    rollout_logps: Tensor | None
    entropy_weights: Tensor | None
    num_sequences: int
    settings: LossSettings

    @classmethod
    def of(
        cls,
        operand: Tensor,
        labels: Tensor,
        advantages: Tensor,
        mask: Tensor,
        *,
        bonuses: Tensor | None = None,
        answer_mask: Tensor | None = None,
        ref_logps: Tensor | None = None,
        old_logps: Tensor | None = None,
        rollout_weights: Tensor | None = None,
        rollout_logps: Tensor | None = None,
        entropy_weights: Tensor | None = None,
        cu_seqlens: Tensor | None = None,
        normalizer: float | Tensor | None = None,
        **settings: Any,
    ) -> Self:
        """Check the arguments of a public loss and flatten them to (N,).

        Args:
            operand: hidden states or logits, which decide device and dtype.
            settings: fields of `LossSettings`.
            others: as for `linear_policy_loss`.

        Returns:
            The inputs; `active` are the tokens that the denominator counts.
        """
        device, dtype = operand.device, torch.promote_types(operand.dtype, torch.float32)
        chosen = check_settings("the loss", settings)
        if ref_logps is None and chosen.beta != 0:
            raise ValueError(
                f"beta={chosen.beta} needs ref_logps, log-probabilities under the reference policy; got None. "
                "linear_logprobs computes them; leave out beta for a loss without KL"
            )
        if ref_logps is not None and chosen.beta == 0 and not torch.compiler.is_compiling():
            warnings.warn("ref_logps without beta: the KL is in the metrics, not in the loss", stacklevel=3)
        check_tensor("labels", labels, (torch.int64,), device)
        sequence_ids, num_sequences = _sequences(labels, cu_seqlens)

        def numbers(name: str, value: Tensor | None, *, per_sequence: bool = False) -> Tensor | None:
            if value is None:
                return None
            if per_sequence and check_tensor(name, value, FLOATS, device).shape != labels.shape:
                value = _of_sequences(name, value, labels, num_sequences)[sequence_ids]
            else:
                value = check_like(name, value, FLOATS, "labels", labels).reshape(-1)
            return value.detach().to(dtype)

        if mask is None:
            raise TypeError("mask must be a torch.Tensor; got None. For all tokens use torch.ones_like(labels).bool()")
        active = check_like("mask", mask, (torch.bool,), "labels", labels).reshape(-1)
        flat_advantages = numbers("advantages", advantages, per_sequence=True)
        if flat_advantages is None:
            raise TypeError("advantages must be a torch.Tensor; got None. group_advantages computes them from rewards")
        if answer_mask is not None:
            answer_mask = check_like("answer_mask", answer_mask, (torch.bool,), "labels", labels).reshape(-1)
            if chosen.answer_mask_mode == "all":
                active = active & ~answer_mask
        inputs = cls(
            labels=labels.reshape(-1),
            advantages=flat_advantages,
            weights=flat_advantages,
            sequence_ids=sequence_ids,
            active=active,
            bonuses=numbers("bonuses", bonuses, per_sequence=True),
            answer_mask=answer_mask,
            ref_logps=numbers("ref_logps", ref_logps),
            old_logps=numbers("old_logps", old_logps),
            rollout_weights=numbers("rollout_weights", rollout_weights, per_sequence=True),
            rollout_logps=numbers("rollout_logps", rollout_logps),
            entropy_weights=numbers("entropy_weights", entropy_weights, per_sequence=True),
            num_sequences=num_sequences,
            settings=chosen,
        )
        return inputs._replace(weights=_weights(inputs, labels, cu_seqlens, normalizer))

    def select(self, rows: Tensor | slice) -> Self:
        """Return the inputs of the tokens `rows`, indices or a range."""
        columns: dict[str, Any] = {
            name: column[rows] for name, column in self._asdict().items() if isinstance(column, Tensor)
        }
        return self._replace(**columns)

    def to(self, dtype: torch.dtype) -> Self:
        """Return the inputs with floating-point columns in `dtype`."""
        if dtype == self.weights.dtype:
            return self
        columns: dict[str, Any] = {
            name: column.to(dtype)
            for name, column in self._asdict().items()
            if isinstance(column, Tensor) and column.is_floating_point()
        }
        return self._replace(**columns)

    def sum_active(self, values: Tensor) -> Tensor:
        """Return the sum of a column over the active tokens, 0-d, or (K,) for columns (K, N)."""
        return (values if self.active is None else values.where(self.active, 0)).sum(dim=-1)

    def num_active(self) -> Tensor:
        """Return the number of active tokens, 0-d int64."""
        return torch.ones_like(self.labels).sum() if self.active is None else self.active.sum()

    def effective_advantages(self) -> Tensor:
        """Return advantage plus bonus of each token, without the bonus on the answer if `answer_mask_mode="bonus"`."""
        bonuses = self.bonuses
        if bonuses is None:
            return self.advantages
        if self.settings.answer_mask_mode == "bonus" and self.answer_mask is not None:
            bonuses = bonuses.masked_fill(self.answer_mask, 0.0)
        return self.advantages + bonuses

    def log_ratios(self, logps: Tensor) -> Tensor:
        """Return lp - old_lp of each token, within `log_ratio_clamp`; on-policy 0, with the gradient of lp."""
        old_logps = logps.detach() if self.old_logps is None else self.old_logps
        clamp = self.settings.log_ratio_clamp
        return logps - old_logps if clamp is None else (logps - old_logps).clamp(-clamp, clamp)

    def importance_ratios(self, logps: Tensor) -> Tensor:
        """Return exp(lp - old_lp) of each token; on-policy 1, with the gradient of lp."""
        return exp(self.log_ratios(logps))

    def needs_sequences(self) -> bool:
        """Say whether a token's loss depends on other tokens; that of a built-in does not on-policy (all ratios 1)."""
        chosen, loss = self.settings.token_loss, token_loss_of(self.settings.token_loss)
        weighed = loss.weighs_rollouts and self.rollout_weights is not None
        return loss.needs_sequences and not (self.old_logps is None and not weighed and is_builtin(chosen))

    def mean_by_sequence(self, values: Tensor) -> Tensor:
        """Return for each active token the mean of a column over those of its sequence, and 0 for the others.

        Segments are summed in order: atomic additions would not be deterministic.

        Raises:
            ValueError: the token loss has not said that it needs sequences.
        """
        sums = self.sum_by_sequence(values)
        counted = torch.ones_like(self.sequence_ids) if self.active is None else self.active.long()
        return sums / _count_by_sequence(self, counted).clamp(min=1)[self.sequence_ids]

    def sum_by_sequence(self, values: Tensor) -> Tensor:
        """Return for each active token the sum of a column over those of its sequence, and 0 for the others.

        It sums and raises as `mean_by_sequence` does.
        """
        if not self.needs_sequences():
            raise ValueError(
                "a token loss that calls mean_by_sequence or sum_by_sequence must get whole sequences: pass "
                "token_loss=TokenLoss(your_function, needs_sequences=True)"
            )
        lengths = _count_by_sequence(self, torch.ones_like(self.sequence_ids))
        if self.active is not None:
            values = values.where(self.active, 0)
        sums = torch.segment_reduce(values, "sum", lengths=lengths, unsafe=True)[self.sequence_ids]
        return sums if self.active is None else sums.where(self.active, 0)

    def flat(self) -> tuple[Any, ...]:
        """Return the arguments that `SCHEMA` declares: an operator takes tensors, numbers and strings only.

        Raises:
            TypeError: the token loss has no name.
        """
        if not isinstance(self.settings.token_loss, str):
            raise TypeError(
                "torch.compile and fake tensors accept a token loss by name only; got "
                f"{self.settings.token_loss!r}. Give it one: register_token_loss(name, loss)"
            )
        return *self[:-1], *(getattr(self.settings, name) for name in SETTINGS)

    @classmethod
    def of_flat(cls, arguments: tuple[Any, ...]) -> Self:
        num_own = len(cls._fields) - 1
        settings = LossSettings(**dict(zip(SETTINGS, arguments[num_own:], strict=True)))
        return cls._make((*arguments[:num_own], settings))


NUM_ARGUMENTS = len(LossInputs._fields) - 1 + len(SETTINGS)
_SCHEMA_TYPES: dict[Any, str] = {
    Tensor: "Tensor",
    Tensor | None: "Tensor?",
    int: "SymInt",
    bool: "bool",
    float: "float",
    float | None: "float?",
}
SCHEMA = ", ".join(
    f"{_SCHEMA_TYPES.get(hint, 'str')} {name}"
    for owner in (LossInputs, LossSettings)
    for name, hint in get_type_hints(owner).items()
    if name != "settings"
)


class Head(NamedTuple):
    """The operands of the logits `hidden @ weight.T + bias`, of one dtype."""

    hidden: Tensor  # (N, H), or (R, H) of a part of the tokens
    weight: Tensor  # (V, H)
    bias: Tensor | None  # (V,)


class LogitRows(NamedTuple):
    """Rows of logits and their labels."""

    logits_RV: Tensor  # before the division by the temperature
    labels_R: Tensor  # int64
    temperature: float
    active_R: Tensor | None = None  # bool: other rows are not read and give zeros. None: all are active


class RowStatistics(NamedTuple):
    """Log-probabilities of the labels and entropies, and the numbers that gradients of the rows need."""

    logps_R: Tensor  # float64 on the CPU, float32 on a GPU
    entropies_R: Tensor
    others_KR: Tensor  # K numbers per row; K differs between the kinds of kernels

    def select(self, rows: slice) -> "RowStatistics":
        return RowStatistics(self.logps_R[rows], self.entropies_R[rows], self.others_KR[:, rows])


def denominator(tokens_S: Tensor, loss_agg: LossAggregation, horizon: float | Tensor) -> Tensor:
    """Return the denominator of an aggregation, 0 where nothing counts, from the counted tokens of each sequence.

    "seq-mean-token-sum-norm" also takes the length of the longest sequence, `horizon`.
    """
    if loss_agg == "token-sum":
        return tokens_S.new_ones(())
    if loss_agg == "token-mean":
        return tokens_S.sum()
    sequences = (tokens_S > 0).sum()
    return sequences * horizon if loss_agg == "seq-mean-token-sum-norm" else sequences


def check_labels(labels_N: Tensor, active_N: Tensor | None, vocabulary: int) -> None:
    """Refuse labels of active tokens outside [0, V); on the CPU only, because looking at a GPU would synchronise."""
    if labels_N.device.type != "cpu" or torch.compiler.is_compiling():
        return
    bad_N = (labels_N < 0) | (labels_N >= vocabulary)
    if active_N is not None:
        bad_N &= active_N
    if bad_N.any():
        position = int(bad_N.nonzero()[0])
        raise ValueError(
            f"labels of active tokens must lie in [0, {vocabulary}); got {int(labels_N[position])} at flat position "
            f"{position}. Tokens to be ignored need mask = False"
        )


def check_rows(rows: Tensor, labels_N: Tensor) -> None:
    """Check that `rows` can be flat indices of tokens; whether they increase within [0, N), on the CPU only."""
    check_tensor("rows", rows, (torch.int64,), labels_N.device)
    if rows.dim() != 1:
        raise ValueError(f"rows must have shape (R,): increasing flat indices of tokens; got {shape_text(rows)}")
    if rows.device.type != "cpu" or torch.compiler.is_compiling() or len(rows) == 0:
        return
    if rows[0] < 0 or rows[-1] >= len(labels_N) or (rows.diff() <= 0).any():
        raise ValueError(
            f"rows must be flat indices that increase within [0, {len(labels_N)}); got {rows}. "
            "Use mask.flatten().nonzero()[:, 0]"
        )


def check_head(hidden: Tensor, weight: Tensor, bias: Tensor | None, labels: Tensor) -> Head:
    """Return the head of `hidden` (*labels.shape, H), `weight` (V, H) and `bias` (V,) if they fit together.

    Its dtype is the one in which their matmul runs: that of torch.autocast where it is on.
    """
    check_tensor("weight", weight, FLOATS, hidden.device)
    if weight.dim() != 2:
        raise ValueError(f"weight must have shape (V, H), as lm_head.weight has; got {shape_text(weight)}")
    expected = (*labels.shape, weight.shape[1])
    if tuple(hidden.shape) != expected:
        hint = ""
        if hidden.dim() >= 1 and hidden.shape[-1] == weight.shape[0] != weight.shape[1]:
            hint = ". Is weight transposed, or are these logits (policy_loss takes logits)?"
        raise ValueError(
            f"hidden must have shape {expected} = (*labels.shape, H) with weight of shape {shape_text(weight)}; "
            f"got {shape_text(hidden)}{hint}"
        )
    if bias is not None:
        check_tensor("bias", bias, FLOATS, hidden.device)
        if tuple(bias.shape) != (weight.shape[0],):
            raise ValueError(f"bias must have shape (V,) = ({weight.shape[0]},); got {shape_text(bias)}")
    hidden_NH, kind = hidden.reshape(-1, hidden.shape[-1]), hidden.device.type
    if torch.is_autocast_enabled(kind):
        dtype = torch.get_autocast_dtype(kind)
        return Head(hidden_NH.to(dtype), weight.to(dtype), None if bias is None else bias.to(dtype))
    for name, value in (("hidden", hidden), ("bias", bias)):
        if value is not None and value.dtype != weight.dtype:
            raise TypeError(
                f"{name} and weight must have the same dtype; got {value.dtype} and {weight.dtype}. "
                f"Use {name}.to(weight.dtype), or run under torch.autocast"
            )
    return Head(hidden_NH, weight, bias)


def check_workspace(workspace_bytes: int | None) -> None:
    """Refuse `workspace_bytes` that are no positive number of bytes, nor None."""
    if workspace_bytes is None:
        return
    if isinstance(workspace_bytes, bool) or not isinstance(workspace_bytes, int):
        raise TypeError(f"workspace_bytes must be an int or None; got {type(workspace_bytes).__name__}")
    if workspace_bytes <= 0:
        raise ValueError(f"workspace_bytes must be > 0; got {workspace_bytes}. None chooses by the shapes")


def _sequences(labels: Tensor, cu_seqlens: Tensor | None) -> tuple[Tensor, int]:
    """Return the sequence of each token, (N,), and how many sequences there are."""
    if cu_seqlens is None:
        if labels.dim() != 2:
            raise ValueError(
                f"labels must have shape (B, T) without cu_seqlens; got {shape_text(labels)}. "
                "For packed sequences of shape (N,) pass cu_seqlens"
            )
        ids = torch.arange(labels.shape[0], device=labels.device)
        return ids[:, None].expand(labels.shape).reshape(-1), labels.shape[0]
    if labels.dim() != 1:
        raise ValueError(f"labels must have shape (N,) with cu_seqlens; got {shape_text(labels)}")
    check_tensor("cu_seqlens", cu_seqlens, (torch.int32, torch.int64), labels.device)
    if cu_seqlens.dim() != 1 or cu_seqlens.numel() < 2:
        raise ValueError(
            f"cu_seqlens must have shape (S + 1,): 0, the ends of the S sequences, N; got {shape_text(cu_seqlens)}"
        )
    if cu_seqlens.device.type == "cpu" and not torch.compiler.is_compiling():  # reading a GPU's would synchronise
        bounds = cu_seqlens.tolist()
        if bounds[0] != 0 or bounds[-1] != len(labels) or bounds != sorted(bounds):
            raise ValueError(f"cu_seqlens must rise from 0 to N = {len(labels)}; got {bounds}")
    positions = torch.arange(labels.shape[0], device=labels.device)
    return torch.bucketize(positions, cu_seqlens[1:].to(torch.int64), right=True), cu_seqlens.numel() - 1


def _of_sequences(name: str, value: Tensor, labels: Tensor, num_sequences: int) -> Tensor:
    """Return `value` if it has one number per sequence."""
    if tuple(value.shape) == (num_sequences,):
        return value
    repeat = ""
    if value.dim() == 1 and 0 < value.numel() < num_sequences and num_sequences % value.numel() == 0:
        n = num_sequences // value.numel()
        repeat = f". One value per prompt? Use {name}.repeat_interleave({n}) for {n} samples per prompt"
    raise ValueError(
        f"{name} must have shape ({num_sequences},), one per sequence, or {tuple(labels.shape)}, one per token; "
        f"got {shape_text(value)}{repeat}"
    )


def _weights(
    inputs: LossInputs, labels: Tensor, cu_seqlens: Tensor | None, normalizer: float | Tensor | None
) -> Tensor:
    """Return the factor of each token's loss: 1 over `normalizer`, or over the denominator of the aggregation.

    With "seq-mean-token-mean" it is also divided by the number of active tokens in the token's sequence.
    """
    assert inputs.active is not None
    loss_agg, dtype = inputs.settings.loss_agg, inputs.advantages.dtype
    # Counted as integers: bfloat16 would stop at 256, where adding 1 rounds back, and float16 at 2048.
    tokens = _count_by_sequence(inputs, inputs.active.long()) if loss_agg.startswith("seq") else inputs.active.sum()
    if isinstance(normalizer, Tensor) and normalizer.dim() != 0:
        raise ValueError(f"normalizer must be one number; got shape {shape_text(normalizer)}. Use normalizer.sum()")
    if normalizer is None:
        horizon: int | Tensor = labels.shape[-1]
        if loss_agg == "seq-mean-token-sum-norm" and cu_seqlens is not None:
            horizon = cu_seqlens.diff().amax()
        weight = 1 / denominator(tokens, loss_agg, horizon).clamp(min=1).to(dtype)
    elif isinstance(normalizer, Tensor):  # 0 where nothing counts, so that there is nothing to divide
        weight = 1 / normalizer.where(normalizer != 0, 1).to(dtype)
    elif check_number("normalizer", normalizer) > 0:
        weight = inputs.advantages.new_full((), 1 / normalizer)
    else:
        raise ValueError(f"normalizer must be > 0; got {normalizer}. loss_normalizer computes it from the mask")
    if loss_agg == "seq-mean-token-mean":
        return weight / tokens.clamp(min=1)[inputs.sequence_ids]
    return weight.expand(inputs.labels.shape)


def _count_by_sequence(inputs: LossInputs, ones: Tensor) -> Tensor:
    """Sum an int64 column over the tokens of each sequence, (S,)."""
    return ones.new_zeros(inputs.num_sequences).index_add(0, inputs.sequence_ids, ones)
