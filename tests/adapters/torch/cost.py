"""What a call through PyTorch costs, for X @ X: `python -m tests.adapters.torch.cost`.

In turns: PyTorch's own expression, the operator, a `torch.library.custom_op` written by hand that
calls the same module, and the module itself. Microseconds: the least, the median, the most."""

from __future__ import annotations

from collections.abc import Callable
from statistics import median
from time import perf_counter

import torch
from torch import Tensor

import derivatrix as dx
import derivatrix.torch

ROUNDS = 31
SECONDS = 0.01
"""How long a round of one of them takes."""

n = dx.dims("n")
X = dx.matrix("X", n, n)
MODULE = dx.compile(dx.function("square", [X], X @ X))


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


def calls(size: int) -> dict[str, dict[str, Callable[[], object]]]:
    """What is timed, by name."""
    x, cotangent = torch.randn(2, size, size, dtype=torch.float64)
    tracked, arrays = x.clone().requires_grad_(), (x.numpy(), cotangent.numpy())

    def backward(function: Callable[[Tensor], Tensor]) -> Callable[[], object]:
        return lambda: torch.autograd.grad(function(tracked), tracked, cotangent)

    functions = {
        "PyTorch": lambda x: x @ x,
        "operator": derivatrix.torch.operator(MODULE),
        "custom_op by hand": by_hand,
    }
    forward: dict[str, Callable[[], object]] = {
        name: lambda function=function: function(x) for name, function in functions.items()
    }
    both = {name: backward(function) for name, function in functions.items()}
    return {
        "forward": {**forward, "module": lambda: MODULE.value(arrays[0])},
        "forward and backward": {
            **both,
            "module": lambda: (MODULE.value(arrays[0]), MODULE.vjp(*arrays)),
        },
    }


def seconds(function: Callable[[], object], repeats: int) -> float:
    """The time of one call."""
    start = perf_counter()
    for _ in range(repeats):
        function()
    return (perf_counter() - start) / repeats


def main() -> None:
    print(f"PyTorch {torch.__version__}, {torch.get_num_threads()} threads, float64")
    for size in (4, 512):
        for what, functions in calls(size).items():
            repeats = {
                name: max(1, int(SECONDS / min(seconds(function, 1) for _ in range(5))))
                for name, function in functions.items()
            }
            rounds = [
                {name: 1e6 * seconds(functions[name], repeats[name]) for name in functions}
                for _ in range(ROUNDS)
            ]
            print(f"\nX @ X, {what}, n = {size}")
            for name in functions:
                times = [each[name] for each in rounds]
                figures = [f"{time:10.1f}" for time in (min(times), median(times), max(times))]
                print(f"  {name:18}", *figures)


if __name__ == "__main__":
    main()
