"""Checks of `bench/gpu.py`, a module for each part; a check returns its figures and may add goals."""
