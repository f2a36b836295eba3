"""Ops in graphs that PyTensor compiles with JAX."""

import subprocess
import sys
from typing import Any

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.compile.mode import Mode

import derivatrix as dx
from derivatrix.pytensor import operator
from tests.adapters.pytensor.test_pytensor import CASES, LIKELIHOOD, drawn

n = dx.dims("n")
x, P, s = dx.vector("x", n), dx.matrix("P", n, n), dx.scalar("s")


def assert_same(inputs: Any, outputs: Any, values: Any) -> None:
    """Compare JAX's results with those of the module's Python functions."""
    by_jax = pytensor.function(inputs, outputs, mode="JAX")
    names = [type(node.op).__name__ for node in by_jax.maker.fgraph.apply_nodes]
    assert "JAXOp" in names and "GeneratedOp" not in names
    results = by_jax(*values)
    expected = pytensor.function(inputs, outputs, mode=Mode("py"))(*values)
    for result, wanted in zip(results, expected, strict=True):
        np.testing.assert_allclose(result, wanted, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("name", CASES)
def test_values_and_gradients(name: str) -> None:
    function, shapes = CASES[name]
    inputs = [pt.tensor(shape=(None,) * len(shape), dtype="float64") for shape in shapes]
    value = function(*inputs)
    gradients = pytensor.gradient.grad(pt.sin(value).sum(), inputs)
    assert_same(inputs, [value, *gradients], drawn(*shapes))


def test_several_outputs_and_numbers() -> None:
    parts = {"mean": dx.tanh(P @ x), "energy": s * dx.sum(x**2)}
    moments = operator(dx.function("moments", [x, P, s], parts))
    v, M = pt.dvector(), pt.dmatrix()
    result = moments(v, M, 2.5)
    cost = result.mean.sum() * result.energy
    assert_same([v, M], [*result, *pytensor.gradient.grad(cost, [v, M])], drawn((3,), (3, 3)))


def test_errors() -> None:
    M = pt.dmatrix()
    function = pytensor.function([M], operator(LIKELIHOOD)(M, np.eye(3)), mode="JAX")
    with pytest.raises(Exception, match=r"likelihood: logdet\(S\): .*not positive definite"):
        function(-np.eye(3))
    with pytest.raises(dx.ShapeError, match=r"likelihood: argument C has shape \(3, 3\)"):
        function(np.eye(2))


WITHOUT_JAX = """
import sys
sys.modules["jax"] = None
import numpy as np, pytensor, pytensor.tensor as pt
import derivatrix as dx
from derivatrix.pytensor import operator

x = dx.vector("x", dx.dims("n"))
v = pt.dvector()
pytensor.function([v], operator(dx.function("norm", [x], x @ x))(v), mode="JAX")
"""


def test_jax_is_missing_and_is_imported_for_its_mode_alone() -> None:
    code = WITHOUT_JAX.replace('sys.modules["jax"] = None\n', "").replace(
        'mode="JAX"', 'mode="NUMBA"'
    )
    code += "assert 'jax' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
    command = [sys.executable, "-c", WITHOUT_JAX]
    process = subprocess.run(command, capture_output=True, text=True)
    assert process.returncode == 1
    assert "MissingPackageError: derivatrix.jax needs jax 0.5 or newer" in process.stderr
    assert "pip install 'derivatrix[jax]'" in process.stderr
