"""Derivatives against those of JAX and PyTorch, where they have them: `pytest --peers` in an
environment with both (`pip install jax torch`); deselected otherwise."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pytest

import derivatrix as dx
from derivatrix.compiler.ir.interpret import evaluate_all
from derivatrix.runtime.sampling import project

pytestmark = pytest.mark.peers

n, m = dx.dims("n m")
SIZES = {"n": 3, "m": 4}
A, X = dx.matrix("A", n, m), dx.matrix("X", n, n)
S = dx.matrix("S", n, n, "spd")
x, y = dx.vector("x", n), dx.vector("y", m)
GENERATOR = np.random.default_rng(0)
VALUES = {
    "A": GENERATOR.normal(size=(3, 4)),
    "X": GENERATOR.normal(size=(3, 3)) + 3 * np.eye(3),
    "S": np.cov(GENERATOR.normal(size=(3, 9))) + np.diag([1.0, 2.0, 4.0]),
    "x": GENERATOR.normal(size=3),
    "y": GENERATOR.normal(size=4),
}


class Peer(NamedTuple):
    """A function of derivatrix and the same of arrays of JAX or PyTorch.: `numpy` gets
    their module of NumPy's names, its `linalg`, and the arrays."""

    expression: Any
    inputs: tuple[Any, ...]
    numpy: Callable[..., Any]


PEERS = {
    "square": Peer(X @ X, (X,), lambda np, la, X: X @ X),
    "sandwich": Peer(A.T @ X @ A, (X, A), lambda np, la, X, A: A.T @ X @ A),
    "energy": Peer(dx.trace(X @ X @ X.T), (X,), lambda np, la, X: np.trace(X @ X @ X.T)),
    "inverse": Peer(dx.inv(X), (X,), lambda np, la, X: la.inv(X)),
    "solve": Peer(dx.solve(X, x), (X, x), lambda np, la, X, x: la.solve(X, x)),
    "determinant": Peer(dx.det(X), (X,), lambda np, la, X: la.det(X)),
    "logdet": Peer(dx.logdet(S), (S,), lambda np, la, S: la.slogdet(S)[1]),
    "network": Peer(
        dx.tanh(A.T @ dx.exp(-x)), (A, x), lambda np, la, A, x: np.tanh(A.T @ np.exp(-x))
    ),
    "distance": Peer(
        dx.sqrt(dx.sum((A @ y - x) ** 2)),
        (A, y, x),
        lambda np, la, A, y, x: np.sqrt(np.sum((A @ y - x) ** 2)),
    ),
    "pseudoinverse": Peer(dx.pinv(A.T), (A,), lambda np, la, A: la.pinv(A.T)),
    "cholesky": Peer(
        dx.cholesky((S + S.T) / 2), (S,), lambda np, la, S: la.cholesky((S + S.T) / 2)
    ),
    "eigenvalues": Peer(
        dx.eigvalsh((X + X.T) / 2), (X,), lambda np, la, X: la.eigvalsh((X + X.T) / 2)
    ),
    "singular_values": Peer(
        dx.svdvals(A), (A,), lambda np, la, A: la.svd(A, full_matrices=False)[1]
    ),
    "logsumexp": Peer(dx.logsumexp(x), (x,), lambda np, la, x: np.log(np.sum(np.exp(x)))),
    "softmax": Peer(dx.softmax(x), (x,), lambda np, la, x: np.exp(x) / np.sum(np.exp(x))),
    "power": Peer(dx.matrix_power(X, 3), (X,), lambda np, la, X: la.matrix_power(X, 3)),
}


def ours(function: dx.Function) -> dict[tuple[str, ...], np.ndarray]:
    """The Jacobian by each input, and the Hessian where there is one."""
    nodes = dict(function.derivatives.results("jacobian"))
    if "hessian" in function.kinds:
        nodes |= function.derivatives.results("hessian")
    return dict(zip(nodes, evaluate_all(list(nodes.values()), VALUES, SIZES), strict=True))


def projected(function: dx.Function, key: tuple[str, ...], array: np.ndarray) -> np.ndarray:
    """A peer's derivative by structured inputs, within their structures."""
    leaves = {leaf.name: leaf for leaf in function.inputs}
    array = project(leaves[key[-1]].structure, array)
    if len(key) == 2:
        axes = range(leaves[key[0]].ndim)
        back = [axis - len(axes) for axis in axes]
        array = np.moveaxis(array, axes, back)
        array = np.moveaxis(project(leaves[key[0]].structure, array), back, axes)
    return array


def check(function: dx.Function, theirs: Callable[[tuple[int, ...]], Any]) -> None:
    """Each derivative against `theirs`, of the positions of the inputs to differentiate by."""
    names = [leaf.name for leaf in function.inputs]
    for key, array in ours(function).items():
        expected = np.asarray(theirs(tuple(names.index(name) for name in key)))
        scale = max(1.0, float(np.abs(expected).max()))
        actual = projected(function, key, expected)
        np.testing.assert_allclose(array, actual, rtol=0, atol=1e-10 * scale, err_msg=str(key))


def declared(name: str) -> tuple[dx.Function, Callable[..., Any], list[np.ndarray]]:
    peer = PEERS[name]
    function = dx.function(name, peer.inputs, peer.expression)
    return function, peer.numpy, [VALUES[leaf.name] for leaf in function.inputs]


@pytest.mark.parametrize("name", PEERS)
def test_jax(name: str) -> None:
    import jax

    jax.config.update("jax_enable_x64", True)
    function, numpy, values = declared(name)

    def theirs(positions: tuple[int, ...]) -> Any:
        derivative = partial(numpy, jax.numpy, jax.numpy.linalg)
        for position in positions:
            derivative = jax.jacrev(derivative, argnums=position)
        return derivative(*values)

    check(function, theirs)


@pytest.mark.parametrize("name", PEERS)
def test_pytorch(name: str) -> None:
    import torch

    function, numpy, values = declared(name)
    tensors = [torch.from_numpy(value) for value in values]

    def theirs(positions: tuple[int, ...]) -> Any:
        derivative = partial(numpy, torch, torch.linalg)
        for position in positions:
            derivative = torch.func.jacrev(derivative, argnums=position)
        return derivative(*tensors)

    check(function, theirs)
