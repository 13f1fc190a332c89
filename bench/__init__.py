"""Benchmarks of a checkout, their committed results, and the pages written from them; not installed."""
