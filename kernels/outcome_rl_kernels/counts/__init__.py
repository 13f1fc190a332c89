"""Exact counts of (question, outcome) pairs, on the CPU or in GPU memory."""
