"""Formulas as functions in JAX and PyTorch have the values of those in NumPy."""

import inspect

import jax
import numpy as np
import pytest
import torch

from derivatrix.compiler.frontends.notation.declaration import text_function
from derivatrix.compiler.playground.programs import programs
from tests.identities import IDENTITIES
from tests.points import draw_all

SIZES = {"n": 3, "m": 4, "p": 5, "k": 2, "q": 2, "N": 6, "d": 3, "c": 2}
ARRAYS = {"jax": jax.numpy.asarray, "torch": torch.as_tensor}
TEXTS = IDENTITIES[::7]


def results(function):
    """The keys of values and gradients, or of values, VJPs and JVPs."""
    kinds = ("value", "gradient") if function.is_scalar else ("value", "vjp", "jvp")
    for kind in kinds:
        for key in function.derivatives.results(kind):
            yield kind, function.derivatives.formula(kind, key or None, "numpy")


def call(code, values, convert):
    scope = {}
    exec(code, scope)
    parameters = inspect.signature(scope["f"]).parameters
    return np.asarray(scope["f"](*(convert(np.array(values[name])) for name in parameters)))


@pytest.fixture(autouse=True)
def type_of_other_tests():
    """The programs set PyTorch's type of numbers for the whole process."""
    default = torch.get_default_dtype()
    yield
    torch.set_default_dtype(default)


@pytest.mark.parametrize("identity", TEXTS, ids=lambda identity: identity.text)
def test_programs_run(identity):
    function = text_function(identity.text, identity.dims, identity.wrt.split())
    values = draw_all(function, 0, SIZES)
    random = np.random.default_rng(0)
    tangents = {name: random.normal(size=values[name].shape) for name in function.wrt}
    values |= {f"tangent_{name}": tangent for name, tangent in tangents.items()}
    values["tangent"] = tangents[function.wrt[0]]
    for kind, text in results(function):
        written = programs("f", text, [leaf.name for leaf in function.inputs])
        expected = call(written.pop("numpy"), values, np.asarray)
        if kind == "value":
            values["cotangent"] = random.normal(size=expected.shape)
        for framework, code in written.items():
            actual = call(code, values, ARRAYS[framework])
            np.testing.assert_allclose(actual, expected, rtol=1e-7, atol=1e-9)
