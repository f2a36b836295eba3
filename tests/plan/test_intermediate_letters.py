"""Work arrays of kernels have the letters of formulas."""

from __future__ import annotations

import numpy as np
import pytest

import derivatrix as dx
from derivatrix.compiler.differentiate.derivatives import Derivatives
from derivatrix.compiler.driver.pipeline import kernel_plan
from derivatrix.compiler.ir.arrays import Array
from derivatrix.compiler.ir.nodes import Constant, einsum
from derivatrix.compiler.plan.intermediate_letters import intermediate_letters
from derivatrix.compiler.plan.steps import Allocate, Reuse
from derivatrix.compiler.plan.visit import walk

n, m, k = dx.dims("n m k")
X, W, Y = dx.matrix("X", n, m), dx.matrix("W", m, k), dx.matrix("Y", n, k)
A, S, P = dx.matrix("A", n, n), dx.matrix("S", n, n, "spd"), dx.matrix("P", n, n)
y, w, weights = dx.vector("y", n), dx.vector("w", m), dx.matrix("weights", m, k)
LETTERS: dict[str, tuple[list[Array], Array, str, set[str]]] = {
    "probabilities": ([X, W], dx.sum(dx.softmax(X @ W) ** 2), "value", {"XW", "P"}),
    "an input of this name": ([P], dx.sum(dx.softmax(P) ** 2), "value", {"P2"}),
    "two of them": (
        [X, A],
        dx.trace(dx.softmax(X @ X.T) @ dx.softmax(A)),
        "value",
        {"XXt", "P1", "P2"},
    ),
    "residual": ([X, W, Y], dx.sum((X @ W - Y) ** 2), "jacobian", {"R"}),
    "matrix and vector": ([X, w, y], dx.sum((X @ w - y) ** 2), "value", {"Xw"}),
    "long name": ([X, weights], dx.sum(dx.softmax(X @ weights) ** 2), "value", {"t0", "P"}),
    "Cholesky factor": ([S], dx.sum(dx.inv(dx.cholesky(S))), "value", {"L", "L_inv"}),
    "solution": ([A, y], (dx.inv(A) @ y) ** 2, "vjp", {"LU", "pivots", "A_inv_y", "t0"}),
    "inverse": ([S], dx.sum(dx.inv(S) ** 2), "value", {"L", "S_inv"}),
    "QR": ([A], dx.sum(dx.qr(A)[0]) + dx.sum(dx.qr(A)[1]), "value", {"Q", "R"}),
    "eigenvectors": ([S], dx.sum(dx.eigh(S)[1]), "value", {"V", "t0"}),
    "probabilities beside logsumexp": (
        [X, W],
        (dx.softmax(X @ W).T @ dx.logsumexp(X @ W, axis=1)),
        "value",
        {"XW", "P", "t0"},
    ),
    "function": ([X, W], dx.tanh(X @ W) @ W.T, "value", {"XW", "H"}),
    "transposes": ([A], dx.trace((A @ A).T @ (A @ A)), "hessian", {"AtA", "AA", "AAt"}),
    "transposed in memory": ([A], dx.trace((A @ A).T @ (A @ A)), "vjp", {"AA", "t0"}),
}


@pytest.mark.parametrize("name", LETTERS)
def test_letters(name: str) -> None:
    inputs, value, kind, expected = LETTERS[name]
    plan = kernel_plan(Derivatives(dx.function("f", inputs, value)), kind)
    names = {
        buffer.name
        for step in walk([callee.steps for callee in plan.with_callees])
        if isinstance(step, Allocate | Reuse)
        for buffer in (step.buffers if isinstance(step, Allocate) else [step.buffer])
    }
    assert names == expected


def test_loops_over_a_jacobian_have_the_indices_of_its_formula() -> None:
    square = dx.function("square", [A], A @ A)
    assert square.formula("jacobian") == "δ[i,k] A[l,j] + δ[j,l] A[i,k]"
    plan = str(kernel_plan(Derivatives(square), "jacobian"))
    assert "out[i, j, i, l] = A[l, j]" in plan and "out[i, j, k, j] += A[i, k]" in plan


def test_product_with_a_number_has_no_letters() -> None:
    number = Constant(np.array(2.0))
    product = einsum([(number, ()), (X.node, "ij")], "i")
    assert intermediate_letters([product]) == {}
