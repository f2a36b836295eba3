"""Operations that are made of others: their modules pass verification. The operations themselves
are checked one by one in `tests/differentiate`."""

import pytest

import derivatrix as dx

n, m, p, q = dx.dims("n m p q")
s, x, w = dx.scalar("s"), dx.vector("x", n), dx.vector("w", 3)
X, Y, R = dx.matrix("X", n, m), dx.matrix("Y", p, m), dx.matrix("R", n, q)
V, W, B = dx.matrix("V", n, 3), dx.matrix("W", n, 3), dx.matrix("B", 3, n)
L, U = dx.matrix("L", n, n, "lower"), dx.matrix("U", 3, 3)
POSITIONS = dx.vector("i", m)

FUNCTIONS = [
    dx.function("sinc", [s], dx.sinc(s) * s),
    dx.function("trimmed", [x], dx.sum(dx.sort(x)[1:-1] ** 3), batch=[x]),
    dx.function("rotation", [w], dx.rotation(w), batch=[w]),
    dx.function("rotated", [W, V], (dx.rotation(W) @ V[..., None])[..., 0]),
    dx.function("cross", [V, B], dx.cross(V, B.T)),
    *(
        dx.function(metric, [X, Y], dx.cdist(X, Y, metric))
        for metric in ("cityblock", "euclidean", "sqeuclidean")
    ),
    dx.function("triangular", [L, R], dx.solve_triangular(L, R, lower=True)),
    dx.function("unit_triangular", [U, w], dx.solve_triangular(U, w, trans=1, unit_diagonal=True)),
    dx.function("rows", [X, POSITIONS], dx.exp(X[POSITIONS]), wrt=[X]),
]


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda function: function.name)
def test_verification(function: dx.Function) -> None:
    report = dx.verify(dx.compile(function))
    assert report.passed, str(report)
