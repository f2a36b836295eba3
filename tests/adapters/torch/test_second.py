"""Second derivatives of array-valued functions are those of the same functions of PyTorch."""

import pytest
import torch
from torch.autograd import gradgradcheck
from torch.func import grad, hessian, jacfwd, jacrev, jvp, vmap

import derivatrix as dx
import derivatrix.torch

n, m = dx.dims("n m")
X, S = dx.matrix("X", n, n), dx.matrix("S", n, n, "spd")
W, b, x = dx.matrix("W", m, n), dx.vector("b", m), dx.vector("x", n)
LAYER = dx.softmax(W @ x + b)
RANDOM = torch.Generator().manual_seed(0)


def normal(*shape):
    return torch.randn(shape, dtype=torch.float64, generator=RANDOM)


MATRIX, VECTOR = normal(3, 3) + 4 * torch.eye(3, dtype=torch.float64), normal(3)
WEIGHTS = [normal(2, 3), normal(2), normal(3)]
pytestmark = pytest.mark.filterwarnings("ignore:Backwards compatibility")
FUNCTIONS = {
    "scalar": (
        dx.function("scalar", [X], dx.sum(X @ X @ X)),
        lambda X: (X @ X @ X).sum(),
        [MATRIX],
    ),
    "square": (dx.function("square", [X], X @ X), lambda X: X @ X, [MATRIX]),
    "layer": (
        dx.function("layer", [W, b, x], LAYER),
        lambda W, b, x: torch.softmax(W @ x + b, 0),
        WEIGHTS,
    ),
    "solution": (
        dx.function("solution", [X, x], dx.solve(X, x)),
        lambda X, x: torch.linalg.inv(X) @ x,  # solve's own are wrong in PyTorch 2.13
        [MATRIX, VECTOR],
    ),
    "definite": (
        dx.function("definite", [S, x], dx.solve(S, x)),
        lambda S, x: torch.linalg.inv((S + S.mT) / 2) @ x,
        [MATRIX, VECTOR],
    ),
}
OPERATORS = {
    "hessian": hessian,
    "reverse over reverse": lambda f, places: jacrev(jacrev(f, places), places),
    "reverse over forward": lambda f, places: jacrev(jacfwd(f, places), places),
    "forward over forward": lambda f, places: jacfwd(jacfwd(f, places), places),
    "forward over gradient": lambda f, places: (
        lambda *a: jvp(grad(lambda *c: (f(*c) ** 2).sum(), places), a, a)
    ),
    "gradient of forward": lambda f, places: grad(lambda *a: (jvp(f, a, a)[1] ** 2).sum(), places),
    "gradient penalty": lambda f, places: grad(
        lambda *a: sum(torch.sin(g).sum() for g in grad(lambda *c: (f(*c) ** 2).sum(), places)(*a)),
        places,
    ),
}


def agree(one, other):
    torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("operator", OPERATORS)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_second_derivatives(name, operator):
    declared, torch_function, tensors = FUNCTIONS[name]
    places, transformed = tuple(range(len(tensors))), OPERATORS[operator]
    ours = derivatrix.torch.operator(declared)
    agree(transformed(ours, places)(*tensors), transformed(torch_function, places)(*tensors))


@pytest.mark.parametrize("name", FUNCTIONS)
def test_double_backward(name):
    declared, torch_function, tensors = FUNCTIONS[name]

    def penalty_gradients(function):
        leaves = [tensor.clone().requires_grad_() for tensor in tensors]
        slopes = torch.autograd.grad((function(*leaves) ** 3).sum(), leaves, create_graph=True)
        sum((slope**2).sum() for slope in slopes).backward()
        return [leaf.grad for leaf in leaves]

    agree(penalty_gradients(derivatrix.torch.operator(declared)), penalty_gradients(torch_function))


def test_samples():
    """Under vmap with a module that has a batch axis, and as a function of all samples."""
    many = dx.function("layers", [W, b, x], LAYER, batch=[x])
    one, torch_function, (weights, bias, _) = FUNCTIONS["layer"]
    ours, samples = derivatrix.torch.operator(one, batched=many), normal(4, 3)
    for transformed in (
        lambda f: vmap(hessian(f, 2), (None, None, 0)),
        lambda f: vmap(jacfwd(jacrev(f, (0, 2)), (0, 2)), (None, None, 0)),
        lambda f: hessian(lambda *a: (vmap(f, (None, None, 0))(*a) ** 2).sum(), (0, 1, 2)),
    ):
        agree(
            transformed(ours)(weights, bias, samples),
            transformed(torch_function)(weights, bias, samples),
        )
    inputs = [tensor.clone().requires_grad_() for tensor in (weights, bias, samples)]
    assert gradgradcheck(derivatrix.torch.operator(many), inputs, check_fwd_over_rev=True)


def test_single_precision():
    declared, torch_function, tensors = FUNCTIONS["layer"]
    singles = [tensor.float() for tensor in tensors]
    result = hessian(derivatrix.torch.operator(declared), (0, 1, 2))(*singles)
    expected = hessian(torch_function, (0, 1, 2))(*singles)
    torch.testing.assert_close(result, expected, rtol=1e-4, atol=1e-5)


def test_inputs_without_derivatives():
    declared = dx.function("layer", [W, b, x], LAYER, wrt=[x, W])
    torch_function, tensors = FUNCTIONS["layer"][1:]
    ours = derivatrix.torch.operator(declared)
    agree(hessian(ours, (0, 2))(*tensors), hessian(torch_function, (0, 2))(*tensors))


def test_compiled_hessians():
    declared, torch_function, tensors = FUNCTIONS["layer"]
    ours = derivatrix.torch.operator(declared)
    torch.compiler.reset()  # tests before this one may have used up the recompilations
    compiled = torch.compile(hessian(ours, (0, 2)), fullgraph=True)
    agree(compiled(*tensors), hessian(torch_function, (0, 2))(*tensors))
