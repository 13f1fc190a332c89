"""Outcome-based exploration and a fused policy loss for RL on reasoning models.

`__init__.pyi` lists the public names. They are resolved on first use, so that `import outcome_rl` costs milliseconds
and a process that only grades answers never loads torch.
"""

from outcome_rl_kernels.lazy import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)
