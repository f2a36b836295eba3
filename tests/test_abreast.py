"""Systems of equations of many samples, solved side by side in memory."""

from __future__ import annotations

import pytest

import derivatrix as dx
from derivatrix.compiler.pipeline import kernel_plan
from tests.plain import check_plain

n, k = dx.dims("n k")
A, B, x = dx.matrix("A", n, n), dx.matrix("B", n, k), dx.vector("x", n)
S, R = dx.matrix("S", n, n, structure="spd"), dx.matrix("R", n, n)
H = dx.matrix("H", k, n)
FUNCTIONS = {
    "vector": dx.function("f", [A, x], dx.solve(A, x), batch=[A, x]),
    "transposed": dx.function("f", [A, x], dx.solve(A.T, x), batch=[A, x]),
    "matrix": dx.function("f", [A, B], dx.solve(A, B), batch=[A, B]),
    "from the right": dx.function("f", [A, B], B.T @ dx.inv(A), batch=[A, B]),
    "inverse": dx.function("f", [A], dx.inv(A), batch=[A]),
    "determinant": dx.function("f", [A], dx.det(A), batch=[A]),
    "logarithm": dx.function("f", [S], dx.logdet(S), batch=[S]),
    "positive": dx.function("f", [S, x], x @ dx.solve(S, x) + dx.det(S), batch=[S, x]),
    "product": dx.function("f", [A, R], dx.solve(A @ R, R), batch=[A, R]),
    "filtered": dx.function(
        "f", [S, H, x], S @ H.T @ dx.solve(H @ S @ H.T, H @ dx.tanh(x)), batch=[S, x], wrt=[S, x]
    ),
    "softmax": dx.function("f", [S, x], dx.softmax(dx.solve(S, x)), batch=[S, x]),
}


@pytest.mark.parametrize("kind", ["value", "vjp", "jvp", "jacobian"])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_plans(name: str, kind: str) -> None:
    """The kernel for many samples makes what the usual one makes, and what the graph says."""
    columns = kernel_plan(FUNCTIONS[name].derivatives, kind).parts
    assert columns is not None and columns.columns is not None
    check_plain(FUNCTIONS[name], kind, {"batch": 7, "n": 4, "k": 3}, 1e-9)
