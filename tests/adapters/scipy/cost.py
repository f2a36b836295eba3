"""|X @ X - B|² and its gradient, as `scipy.optimize` calls them, and a product with the Jacobian of
X @ X - B as a `LinearOperator`: beside functions written by hand with NumPy."""

from __future__ import annotations

from itertools import cycle

import numpy as np
from scipy.optimize import approx_fprime
from scipy.sparse.linalg import LinearOperator

import derivatrix as dx
from derivatrix.scipy import objective
from tests.adapters.cost import Ways

n = dx.dims("n")
X, B = dx.matrix("X", n, n), dx.matrix("B", n, n)
DISTANCE = dx.function("distance", [X, B], dx.sum((X @ X - B) ** 2), wrt=[X])
RESIDUAL = dx.function("residual", [X, B], X @ X - B, wrt=[X])


def calls(n: int, random: np.random.Generator) -> dict[str, Ways]:
    """Return the calls to compare, by group."""
    B, *points = random.normal(size=(3, n, n))
    distance, residual = objective(DISTANCE, B=B), objective(RESIDUAL, B=B)
    flat = cycle([point.reshape(-1) for point in points])  # an objective keeps the last gradient
    module, (x, direction) = dx.compile(DISTANCE), points

    def fun(vector: np.ndarray) -> float:
        X = vector.reshape(n, n)
        return float(((X @ X - B) ** 2).sum())

    def jac(vector: np.ndarray) -> np.ndarray:
        X = vector.reshape(n, n)
        R = 2 * (X @ X - B)
        return (R @ X.T + X.T @ R).reshape(-1)

    def product(vector: np.ndarray) -> np.ndarray:
        V = vector.reshape(n, n)
        return (V @ x + x @ V).reshape(-1)

    by_hand = LinearOperator((n * n, n * n), matvec=product, dtype=np.float64)
    operator, along = residual.jac_operator(x.reshape(-1)), direction.reshape(-1)
    gradient: Ways = {
        "NumPy by hand": lambda: (fun(point := next(flat)), jac(point)),
        "derivatrix.scipy": lambda: (distance.fun(point := next(flat)), distance.jac(point)),
        "module alone": lambda: module.value_and_gradient(x, B),
    }
    if n * n < 100:  # where differences end
        gradient["SciPy's differences"] = lambda: (
            fun(point := next(flat)),
            approx_fprime(point, fun),
        )
    jvp = dx.compile(RESIDUAL).jvp
    return {
        "fun and jac": gradient,
        "jac_operator @ v": {
            "NumPy by hand": lambda: by_hand @ along,
            "derivatrix.scipy": lambda: operator @ along,
            "module alone": lambda: jvp(x, B, direction),
        },
    }
