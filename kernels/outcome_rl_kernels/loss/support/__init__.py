"""Log-probabilities over the tokens that a sampler kept, on the CPU (C++) and on a GPU (Triton)."""
