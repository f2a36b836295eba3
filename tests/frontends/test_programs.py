"""Formulas as functions in NumPy, JAX and PyTorch. Those in JAX and PyTorch run in
tests/adapters/playground."""

import numpy as np

import derivatrix as dx
from derivatrix.compiler.playground.programs import programs

n, m = dx.dims("n m")
X, w, y = dx.matrix("X", m, n), dx.vector("w", n), dx.vector("y", m)
MODEL = dx.function("f", [X, w, y], dx.norm(dx.tanh(X @ w) - y), wrt=[w])
NUMPY = """import numpy as np


def gradient(X, w, y):
    h = np.tanh(X @ w)
    r = h - y
    alpha = np.hypot.reduce(r)
    return np.where(alpha == 0, 0.0, 1 / alpha) * X.T @ (r * (1 - h**2))"""
TORCH = """import torch

torch.set_default_dtype(torch.float64)


def gradient(X, w, y):
    h = torch.tanh(X @ w)
    r = h - y
    alpha = torch.linalg.vector_norm(r, axis=0)
    return torch.where(alpha == 0, 0.0, 1 / alpha) * X.T @ (r * (1 - h ** 2))"""


def test_a_line_for_each_name():
    written = programs("gradient", MODEL.formula("gradient", style="numpy"), ["X", "w", "y"])
    assert written["numpy"] == NUMPY
    assert written["torch"] == TORCH
    assert "jnp.linalg.norm(r, axis=0)" in written["jax"] and "import jax" in written["jax"]
    scope = {}
    exec(written["numpy"], scope)
    arguments = np.ones((3, 2)), np.ones(2), np.zeros(3)
    expected = dx.compile(MODEL).gradient(*arguments)
    np.testing.assert_allclose(scope["gradient"](*arguments), expected)


def test_parameters_are_the_names_that_are_read():
    text = (
        "(t1 := x @ A, (lambda y: y + t1)(s) + len(x) + np.pi + scipy.special.erf(cotangent))[-1]"
    )
    written = programs("vjp", text, ["A", "x", "unused"])
    assert written["numpy"].startswith("import numpy as np\nimport scipy\n")
    assert "def vjp(A, x, s, cotangent):" in written["numpy"]


def test_what_a_framework_lacks_is_not_written():
    assert programs("f", "scipy.special.iv(1, x)", ["x"]).keys() == {"numpy"}
    assert programs("f", "x[::-1]", ["x"]).keys() == {"numpy", "jax"}
    assert programs("f", "np.log(2) * x", ["x"]).keys() == {"numpy", "jax"}
    assert programs("f", "np.where(np.eye(3), x, 0)", ["x"]).keys() == {"numpy", "jax"}
