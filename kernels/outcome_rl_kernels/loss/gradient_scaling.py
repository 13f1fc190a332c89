"""The backward pass of a loss whose gradients were taken in its forward pass: what it scales, and what it refuses."""

from collections.abc import Sequence

import torch
from torch import Tensor


def scaled_gradients(
    loss_grad: Tensor, grads: Sequence[Tensor | None], op: str, *, inplace: bool = False
) -> list[Tensor | None]:
    """`loss_grad` (0-d) times each gradient; None stays None.

    Unless `retain_graph=True` keeps them for another pass, saved gradients are given away where the factor is 1, and
    with `inplace` scaled where they are.

    Raises:
        RuntimeError: under `create_graph=True`.
    """
    refuse_second_derivatives(loss_grad, op)
    if _is_traced(loss_grad):
        return [None if grad is None else (grad * loss_grad[None]).to(grad.dtype) for grad in grads]
    keep = torch._C._autograd._get_current_graph_task_keep_graph()
    # As a tensor of one dimension the factor stays float32: rounded to bfloat16, 1 / 3 is off by 2 in 1000, and float16
    # ends below the usual loss scales. To look at its value on a GPU would be to wait for it.
    on_cpu = loss_grad.device.type == "cpu"
    factor = loss_grad.item() if on_cpu else loss_grad[None]

    def scaled(grad: Tensor) -> Tensor:
        if on_cpu and factor == 1:  # `loss.backward()`; a pass over d weight would cost a tenth of the whole
            return grad.clone() if keep else grad.detach()
        return torch.mul(grad, factor, out=grad if inplace and not keep else torch.empty_like(grad))

    return [None if grad is None else scaled(grad) for grad in grads]


def refuse_second_derivatives(upstream: Tensor, op: str) -> None:
    """A backward pass that is to be differentiated again, as under `create_graph=True`, is a RuntimeError.

    Args:
        upstream: the gradient that the backward pass was given.
    """
    if torch.is_grad_enabled() and not _is_traced(upstream):
        raise RuntimeError(f"{op} has no second derivatives; use impl='reference' with create_graph=True")


def _is_traced(tensor: Tensor) -> bool:
    """Whether this is a trace for a compiler: its tensors have no values, and what it records runs without autograd."""
    return torch.compiler.is_compiling() or type(tensor) is not Tensor  # the latter: traced without torch.compile
