"""Passes over rows of logits: statistics and gradients, on the CPU (C++) and on a GPU (Triton)."""
