"""PyTorch, eager and through torch.compile."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

from tests.benchmarks.contestants.base import Call, Candidate, Contestant, Transforms
from tests.benchmarks.record import Program, Row, flat

TRANSFORMS = Transforms(
    grad=torch.func.grad,
    vjp=torch.func.vjp,
    jacrev=torch.func.jacrev,
    jacfwd=torch.func.jacfwd,
    vmap=torch.func.vmap,
    solve=lambda H, g: torch.cholesky_solve(g[:, None], torch.linalg.cholesky(H))[:, 0],
)


class Eager(Contestant):
    """Operation by operation: torch.func's transformations, and plain backward passes."""

    name = "torch"
    library = SimpleNamespace(
        cholesky=torch.linalg.cholesky,
        cos=torch.cos,
        cross=torch.linalg.cross,
        diagonal=torch.diagonal,
        dot=torch.dot,
        exp=torch.exp,
        expm=torch.linalg.matrix_exp,
        eye=lambda like: torch.eye(like.shape[-1], dtype=like.dtype),
        inv=torch.linalg.inv,
        log=torch.log,
        log_softmax=partial(torch.log_softmax, dim=-1),
        logdet=lambda A: torch.linalg.slogdet(A)[1],
        logsumexp=lambda x, axis: torch.logsumexp(x, dim=axis),
        relu=torch.relu,
        sin=torch.sin,
        softmax=partial(torch.softmax, dim=-1),
        softplus=torch.nn.functional.softplus,
        solve=torch.linalg.solve,
        sqrt=torch.sqrt,
        sum=torch.sum,
        tanh=torch.tanh,
        trace=torch.trace,
        triangular=lambda L, b: torch.linalg.solve_triangular(L, b, upper=False),
        width=lambda X: X.shape[-1],
    )

    def __init__(self, threads: int) -> None:
        torch.set_num_threads(threads)
        torch.set_num_interop_threads(1)
        self.version = torch.__version__

    def candidates(self, row: Row, arguments: Sequence[np.ndarray]) -> list[Candidate]:
        tensors = self.tensors(arguments)
        result = []
        for suffix, program in self.programs(row, "torch"):
            for variant, derivative in TRANSFORMS.derivatives(row, program).items():
                make = partial(self.make, derivative, tensors)
                result.append(Candidate(f"func.{variant}{suffix}", make))
            if row.kind in ("vjp", "gradient"):
                result += self.backward(row, program, suffix, tensors)
        return result

    def tensors(self, arguments: Sequence[np.ndarray]) -> list[torch.Tensor]:
        """The arguments, where they are computed with."""
        return [torch.from_numpy(array) for array in arguments]

    def make(self, derivative: Program, tensors: Sequence[torch.Tensor]) -> Call:
        return lambda: derivative(*tensors)

    def backward(
        self, row: Row, program: Program, suffix: str, tensors: Sequence[torch.Tensor]
    ) -> list[Candidate]:
        """The backward pass of the recorded forward pass; gradients of samples come from that of
        their sum."""
        mapped = TRANSFORMS._mapped(row, program)
        count = len(row.inputs)
        inputs = [tensor.clone() for tensor in tensors[:count]]
        chosen = [inputs[position].requires_grad_() for position in row.wrt]

        def call() -> Any:
            value = mapped(*inputs)
            if row.kind == "gradient":
                value = value.sum()
            return torch.autograd.grad(value, chosen, *tensors[count:])

        return [Candidate(f"autograd.grad{suffix}", lambda: call)]

    def arrays(self, result: Any) -> list[np.ndarray]:
        return flat(_numpy(result))


class Compiled(Eager):
    """The functions of torch.func through torch.compile, one graph for a size."""

    name = "torch-compile"
    slow = True

    def make(self, derivative: Program, tensors: Sequence[torch.Tensor]) -> Call:
        torch._dynamo.reset()
        compiled = torch.compile(derivative, dynamic=False, fullgraph=True)
        return lambda: compiled(*tensors)

    def backward(
        self, row: Row, program: Program, suffix: str, tensors: Sequence[torch.Tensor]
    ) -> list[Candidate]:
        return []


def _numpy(result: Any) -> Any:
    if isinstance(result, list | tuple):
        return [_numpy(part) for part in result]
    return result.detach().cpu().numpy()
