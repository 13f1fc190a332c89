"""Sampled gradients of logits, on the CPU (C++) and on a GPU (Triton)."""
