"""Tensors in, tensors out: policy loss, log-probabilities, outcome counts and group advantages.

The package knows nothing of answers, trainers or configs. `outcome_rl` exports the same names. `__init__.pyi` lists
them; they are resolved on first use, so that files and settings cost no import of torch.
"""

from outcome_rl_kernels.lazy import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)
