"""Simulation of the theory behind outcome-based exploration: bandits whose arms are partitioned into outcomes.

An arm stands for a chain of thought, an outcome for its final answer: many arms, few outcomes, and the reward depends
on the outcome alone. `experiments/bandits/README.md` has the statements; `python -m experiments.bandits --check` tests
them.
"""

from experiments.bandits.algorithms import BALANCED, PARTITION_AWARE, Algorithm, SoftExclusion
from experiments.bandits.instances import Instance, balanced, needle
from experiments.bandits.simulate import Simulation, discovery_times, simulate

__all__ = [
    "BALANCED",
    "PARTITION_AWARE",
    "Algorithm",
    "Instance",
    "Simulation",
    "SoftExclusion",
    "balanced",
    "discovery_times",
    "needle",
    "simulate",
]
