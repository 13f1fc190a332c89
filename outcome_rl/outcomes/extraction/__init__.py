"""Extraction of the final answer of a response: `response` has the order of the rules."""
