"""Samplers of other weights or with filters: whether they sample from the policy, and which tokens they kept."""
