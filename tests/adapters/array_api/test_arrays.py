"""Arrays of PyTorch and JAX as arguments of generated modules, and the page about them."""

import re

import jax.numpy as jnp
import numpy as np
import pytest
import torch

import derivatrix as dx
from tests import ROOT

n, m = dx.dims("n m")
A, b = dx.matrix("A", n, m), dx.vector("b", m)
VALUES = np.random.default_rng(0).normal(size=(4, 3)).astype(np.float32)
TORCH, JAX = torch.from_numpy, jnp.asarray


@pytest.fixture(scope="module")
def module():
    return dx.compile(dx.function("product", [A, b], A @ b))


@pytest.mark.parametrize(
    ("made", "real"), [(TORCH, "float64"), (TORCH, "float32"), (JAX, "float32")]
)
def test_tensors_are_taken_as_numpy_s_arrays_are(module, made, real):
    """JAX has float64 by a setting for the whole process."""
    arguments = [VALUES.astype(real), VALUES[0].astype(real)]
    expected = module.jacobian(*arguments)
    actual = module.jacobian(*map(made, arguments))
    for each, other in zip(actual, expected, strict=True):
        assert type(each) is np.ndarray and each.dtype == real
        np.testing.assert_array_equal(each, other)
    transposed = made(np.ascontiguousarray(arguments[0].T)).T
    np.testing.assert_array_equal(
        module.value(transposed, made(arguments[1])), module.value(*arguments)
    )


def test_tensors_that_are_no_real_numbers_of_the_cpu_are_refused(module):
    b = torch.ones(3)
    for wrong, said in (
        (torch.ones(4, 3, requires_grad=True), "detach"),
        (torch.ones(4, 3, device="meta"), "meta"),
        (torch.ones(4, 3, dtype=torch.bfloat16), "BFloat16"),
        (torch.ones(4, 3, dtype=torch.complex64), "expected real numbers"),
        (torch.ones(4, 3).to_sparse(), "sparse"),
    ):
        with pytest.raises(TypeError, match=rf"product: argument A is Tensor.*(?i:{said})"):
            module.value(wrong, b)
    with pytest.raises(ValueError, match=r"b has shape \(2, 3\).*batch=\[b\]"):
        module.value(torch.ones(4, 3), torch.ones(2, 3))


def test_the_page_says_what_is_so():
    page = (ROOT / "docs/how-to/arrays.md").read_text(encoding="utf-8")
    (block,) = re.findall("```python\n(.*?)```", page, re.DOTALL)
    scope: dict = {}
    exec(block, scope)
    np.testing.assert_array_equal(scope["back"], [2.0, 4.0, 6.0])
