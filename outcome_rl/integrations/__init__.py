"""Outcome-based exploration in stacks that people already run; each module imports its stack when it is used."""
