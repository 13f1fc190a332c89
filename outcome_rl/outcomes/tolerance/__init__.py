"""Generous comparison with a gold answer, for correctness only: `within` decides, by units, values and notation."""
