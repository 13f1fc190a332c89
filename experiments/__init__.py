"""Experiments in a checkout of the repository; not installed."""
