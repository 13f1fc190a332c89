"""Our kernels behind every policy loss of verl: importing this module replaces verl's `linear_cross_entropy`.

    actor_rollout_ref.model.use_fused_kernels=true
    actor_rollout_ref.model.fused_kernel_options.impl_backend=triton
    actor_rollout_ref.model.external_lib=outcome_rl.integrations.verl.fused_head

verl imports `external_lib` in every worker before it builds the model, and looks the function up at every forward pass.
"""

import verl.utils.kernel.linear_cross_entropy as verls

from outcome_rl.integrations.verl.kernels import linear_cross_entropy

verls.linear_cross_entropy = linear_cross_entropy
