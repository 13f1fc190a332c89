"""Our kernels behind every policy loss of verl: importing this module replaces verl's fused heads.

    actor_rollout_ref.model.use_fused_kernels=true
    actor_rollout_ref.model.external_lib=outcome_rl.integrations.verl.fused_head

verl imports `external_lib` in every worker before it builds the model. Its models look the heads up at every forward
pass: the function of `fused_kernel_options.impl_backend=triton`, and the module of the other backends. The forward
passes for Megatron have imported the function by then, so it is replaced in them too.
"""

import sys

import verl.utils.experimental.torch_functional as other_backends
import verl.utils.kernel.linear_cross_entropy as triton_backend
from torch import Tensor, nn

from outcome_rl.integrations.verl.kernels import linear_cross_entropy
from outcome_rl_kernels.checks import check_choice


class FusedLinearForPPO(nn.Module):
    """Replacement for verl's module of the same name and signature."""

    def __init__(self, chunk_size: int = 512, impl_backend: str = "torch") -> None:
        super().__init__()
        check_choice("impl_backend", impl_backend, ("torch", "liger"))

    def forward(
        self, hidden_states: Tensor, vocab_weights: Tensor, input_ids: Tensor, temperature: float = 1.0
    ) -> tuple[Tensor, Tensor]:
        """Return log-probabilities and entropies, shaped like `input_ids`."""
        logps_N, entropies_N = linear_cross_entropy(hidden_states, vocab_weights, input_ids, temperature)
        return logps_N.view(input_ids.shape), entropies_N.view(input_ids.shape)


_THEIRS = triton_backend.linear_cross_entropy
for _name, _module in [*sys.modules.items()]:
    if _name.startswith("verl.") and vars(_module).get("linear_cross_entropy") is _THEIRS:
        _module.linear_cross_entropy = linear_cross_entropy  # type: ignore[attr-defined]
other_backends.FusedLinearForPPO = FusedLinearForPPO
