"""X @ X, forward alone and with its backward pass."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

import derivatrix as dx
import derivatrix.torch
from examples.square import square
from tests.adapters.cost import Ways

MODULE = dx.compile(square)


@torch.library.custom_op("derivatrix_cost::square", mutates_args=())
def by_hand(x: Tensor) -> Tensor:
    return torch.from_numpy(MODULE.value(x.numpy()))


@torch.library.custom_op("derivatrix_cost::square_vjp", mutates_args=())
def by_hand_vjp(x: Tensor, cotangent: Tensor) -> Tensor:
    return torch.from_numpy(MODULE.vjp(x.numpy(), cotangent.numpy()))


by_hand.register_autograd(
    lambda context, cotangent: by_hand_vjp(*context.saved_tensors, cotangent),
    setup_context=lambda ctx, inputs, output: ctx.save_for_backward(*inputs),
)


def calls(n: int, random: np.random.Generator) -> dict[str, Ways]:
    """Return the calls to compare, by group."""
    arrays = random.normal(size=(2, n, n))
    x, cotangent = torch.from_numpy(arrays)
    tracked = x.clone().requires_grad_()

    def backward(function: Callable[[Tensor], Tensor]) -> Callable[[], object]:
        return lambda: torch.autograd.grad(function(tracked), tracked, cotangent)

    functions = {
        "PyTorch's own": lambda x: x @ x,
        "derivatrix.torch": derivatrix.torch.operator(MODULE),
        "custom_op by hand": by_hand,
    }
    forward: Ways = {
        name: lambda function=function: function(x) for name, function in functions.items()
    }
    both: Ways = {name: backward(function) for name, function in functions.items()}
    forward["module alone"] = lambda: MODULE.value(arrays[0])
    both["module alone"] = lambda: (MODULE.value(arrays[0]), MODULE.vjp(*arrays))
    return {"forward": forward, "forward and backward": both}
