"""The backward pass of a loss whose gradients were taken in its forward pass."""

from collections.abc import Sequence

import torch
from torch import Tensor


def scaled_gradients(
    loss_grad: Tensor, grads: Sequence[Tensor | None], op: str, *, inplace: bool = False
) -> list[Tensor | None]:
    """`loss_grad` (0-d) times each gradient; None stays None.

    With `inplace` the saved gradients themselves are scaled, and autograd, which sees them changed, refuses a second
    backward pass.

    Raises:
        RuntimeError: under `create_graph=True`, which would need second derivatives.
    """
    if torch.is_grad_enabled() and not torch.compiler.is_compiling():
        raise RuntimeError(f"{op} has no second derivatives; use impl='reference' with create_graph=True")
    # `loss.backward()` comes with 1, and a copy of the weight's gradient would cost the CPU a tenth of the whole. On a
    # GPU, to look at a number is to wait for it.
    if not torch.compiler.is_compiling() and loss_grad.device.type == "cpu" and loss_grad.item() == 1:
        return list(grads)
    multiply = torch.Tensor.mul_ if inplace else torch.Tensor.mul
    return [None if grad is None else multiply(grad, loss_grad.to(grad.dtype)) for grad in grads]
