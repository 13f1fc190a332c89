"""The losses as modules: settings fixed once, tensors given with every call."""

from dataclasses import asdict
from typing import Any, Literal

import torch
from torch import Tensor

from outcome_rl_kernels.dispatch import Impl
from outcome_rl_kernels.loss.api import linear_policy_loss, policy_loss
from outcome_rl_kernels.loss.reference import LossSettings, PolicyLossOutput


class PolicyLoss(torch.nn.Module):
    """`policy_loss` with fixed settings.

    Args:
        inplace, impl: as for `policy_loss`.
        settings: `temperature`, `beta`, `epsilon_low` and the other numbers and names that `policy_loss` takes.

    Raises:
        TypeError, ValueError: a setting is unknown, or has the wrong type or range.
    """

    def __init__(self, *, inplace: bool = False, impl: Impl = "auto", **settings: Any) -> None:
        super().__init__()
        self.settings = LossSettings(**settings)
        self.options: dict[str, Any] = {"inplace": inplace, "impl": impl}

    def forward(
        self, logits: Tensor, labels: Tensor, advantages: Tensor, mask: Tensor, **inputs: Any
    ) -> PolicyLossOutput:
        """The loss; `inputs` are the optional tensors of `policy_loss`, and `normalizer`."""
        return policy_loss(logits, labels, advantages, mask, **inputs, **asdict(self.settings), **self.options)

    def extra_repr(self) -> str:
        return _changed(self.settings)


class LinearPolicyLoss(torch.nn.Module):
    """`linear_policy_loss` with fixed settings. The weight is an argument of the call: the lm_head keeps it.

    Args:
        rows, workspace_bytes, fp32_logits, impl: as for `linear_policy_loss`.
        settings: `temperature`, `beta`, `epsilon_low` and the other numbers and names that `linear_policy_loss` takes.

    Raises:
        TypeError, ValueError: a setting is unknown, or has the wrong type or range.
    """

    def __init__(
        self,
        *,
        rows: Literal["contributing", "active"] = "contributing",
        workspace_bytes: int | None = None,
        fp32_logits: bool = False,
        impl: Impl = "auto",
        **settings: Any,
    ) -> None:
        super().__init__()
        self.settings = LossSettings(**settings)
        self.options: dict[str, Any] = {
            "rows": rows,
            "workspace_bytes": workspace_bytes,
            "fp32_logits": fp32_logits,
            "impl": impl,
        }

    def forward(
        self, hidden: Tensor, weight: Tensor, labels: Tensor, advantages: Tensor, mask: Tensor, **inputs: Any
    ) -> PolicyLossOutput:
        """The loss; `inputs` are the optional tensors of `linear_policy_loss`, `normalizer`, or `rows` of this call."""
        options = self.options | inputs
        return linear_policy_loss(hidden, weight, labels, advantages, mask, **asdict(self.settings), **options)

    def extra_repr(self) -> str:
        return _changed(self.settings)


def _changed(settings: LossSettings) -> str:
    default = asdict(LossSettings())
    return ", ".join(f"{name}={value!r}" for name, value in asdict(settings).items() if value != default[name])
