"""Derivatives of deep functions: their size grows with the depth, not with its square."""

import pytest

import derivatrix as dx
from derivatrix.compiler.driver.pipeline import kernel_plan
from derivatrix.compiler.frontends.function import Function
from derivatrix.compiler.ir.nodes import topological

n = dx.dims("n")
X, x, y = dx.matrix("X", n, n), dx.vector("x", n), dx.vector("y", n)
DEPTHS = (8, 16, 32)


def network(depth: int) -> Function:
    """The gradient of a network by its first layer goes through all others."""
    weights = [dx.matrix(f"W{layer}", n, n) for layer in range(depth)]
    hidden = x
    for weight in weights:
        hidden = dx.tanh(weight @ hidden)
    return dx.function("network", [x, *weights], dx.sum(hidden), wrt=[weights[0]])


def chain(depth: int) -> Function:
    product = X
    for _ in range(depth - 1):
        product = product @ X
    return dx.function("chain", [X], product)


def power(depth: int) -> Function:
    return dx.function("power", [X], dx.matrix_power(X, depth))


def recurrence(depth: int) -> Function:
    """One matrix in every step, so that its derivative has as many terms."""
    hidden = x
    for _ in range(depth):
        hidden = dx.tanh(X @ hidden + y)
    return dx.function("recurrence", [X, x, y], dx.sum(hidden), wrt=[X])


GROWING = [(network, "vjp"), (network, "hvp"), (chain, "vjp"), (power, "vjp"), (recurrence, "vjp")]


def assert_linear(sizes: list[int]) -> None:
    """Doubling the depth at most doubles what is added, but for a little."""
    first, second, third = sizes
    assert third - second <= 2.5 * max(second - first, 20), sizes


@pytest.mark.parametrize(("make", "kind"), GROWING)
def test_formulas_and_nodes_grow_linearly(make, kind):
    functions = [make(depth) for depth in DEPTHS]
    nodes = [list(f.derivatives.results(kind).values()) for f in functions]
    assert_linear([len(list(topological(found))) for found in nodes])
    assert_linear([len(f.formula(kind)) for f in functions])


@pytest.mark.parametrize(("make", "kind"), GROWING)
def test_kernels_grow_linearly(make, kind):
    functions = [make(depth) for depth in DEPTHS]
    assert_linear([len(str(kernel_plan(f.derivatives, kind))) for f in functions])
