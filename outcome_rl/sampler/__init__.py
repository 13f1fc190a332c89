"""Seeds of samples, and samplers of other weights or with filters: whether they are the policy, what they kept."""
