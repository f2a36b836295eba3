"""The functions that PyTorch's checkers are run on, and tensors to run them with."""

from functools import cache

import numpy as np
import torch

import derivatrix as dx
import derivatrix.torch
from derivatrix.compiler.frontends.function_file import load_functions
from derivatrix.runtime import sampling
from tests import ROOT
from tests.cases import CASES

n, m = dx.dims("n m")
S, C = dx.matrix("S", n, n, "spd"), dx.matrix("C", n, n)
A, B = dx.matrix("A", m, n), dx.matrix("B", n, m)
y, s, t = dx.vector("y", n), dx.scalar("s"), dx.scalar("t")

EXAMPLES = [
    function
    for path in sorted((ROOT / "examples").glob("*.py"))
    for function in load_functions(path)
]
MORE = [
    dx.function("nll", [S, C], dx.logdet(S) + dx.trace(dx.inv(S) @ C), wrt=[S]),
    dx.function("order", [A, C, B], dx.trace(A @ C @ B @ A @ B), wrt=[B, A]),
    dx.function("orders", [A, C, B], dx.trace(A @ C @ B @ A @ B), wrt=[B, A], batch=[A, B]),
    dx.function("affine", [s, y], s**2 * y + s / 3),
    dx.function("numbers", [s, t], dx.exp(s) * t + s * t**2),
    dx.function("stack", [S, y], y @ S @ y + dx.sum(y**3), batch=[y]),
]
FUNCTIONS = {function.name: function for function in EXAMPLES + MORE}
OTHERS = {function.name: function for function in CASES if function.name not in FUNCTIONS}
"""The functions that run with `--rest` alone, as they take long to compile."""


@cache
def generated(name):
    """The generated module of a function."""
    return dx.compile((FUNCTIONS | OTHERS)[name])


def operator(name):
    """The operator of a function."""
    return derivatrix.torch.operator(generated(name))


def tensors(operator, dtype=torch.float64):
    """A tensor inside the domain of each input; those in wrt require gradients."""
    interface, random = operator.family.interface, np.random.default_rng(1)
    sizes = sampling.assignments(interface, {})[0]
    values = next(sampling.draws(interface, sizes, random)).values
    return [
        torch.tensor(values[entry.name], dtype=dtype, requires_grad=entry.wrt)
        for entry in interface.inputs
    ]


def rotating(operator, given):
    """The operator as a function of tensors near those given that checkers may move anywhere:
    orthogonal ones, which no adapter projects, move by rotations."""

    def rotated(structure, point, tensor):
        if structure != "orthogonal":
            return tensor
        return point @ torch.linalg.matrix_exp((point.mT @ tensor - tensor.mT @ point) / 2)

    structures = [entry.structure for entry in operator.family.interface.inputs]
    points = [tensor.detach().clone() for tensor in given]
    return lambda *moved: operator(*map(rotated, structures, points, moved))
