"""Outcome-based exploration in training stacks that people already run: thin adapters, one a stack."""
