"""The checks of `bench/gpu.py`, a module for each part; each check returns its figures and may add goals."""
