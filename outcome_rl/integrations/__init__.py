"""Adapters to training stacks; each module imports its stack only when it is used."""
