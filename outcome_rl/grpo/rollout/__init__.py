"""Sampling: engines, and the collection of a batch."""
