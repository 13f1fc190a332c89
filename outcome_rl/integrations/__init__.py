"""Outcome-based exploration in other training stacks; each module imports its stack when it is used."""
