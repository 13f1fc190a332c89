"""Outcome-based exploration in training stacks that people already run; each module imports its stack when it is used."""
