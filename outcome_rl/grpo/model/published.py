"""Weights of a policy in the form in which Hugging Face publishes them and vLLM expects them, without a file."""

from torch import Tensor

from outcome_rl.grpo.model.lora import merged_state_dict
from outcome_rl.grpo.model.policy import Policy


def published_weights(policy: Policy) -> dict[str, Tensor]:
    """Return the tensors that `policy.save_weights` would write, without a copy where the policy holds them so.

    Adapters are merged, and a tied weight occurs once. All processes must call it.
    """
    from transformers.core_model_loading import revert_weight_conversion
    from transformers.modeling_utils import remove_tied_weights_from_state_dict

    model = policy.full_copy(everywhere=True).model
    state = model.state_dict() if policy.adapters is None else merged_state_dict(model)
    weights: dict[str, Tensor] = revert_weight_conversion(model, remove_tied_weights_from_state_dict(state, model))
    return weights
