"""Second derivatives of array-valued functions are those of the same functions of JAX."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.test_util import check_grads

import derivatrix as dx
import derivatrix.jax
from tests.full_matrices import POINT, STRUCTURES, full, product

n, m = dx.dims("n m")
X, S = dx.matrix("X", n, n), dx.matrix("S", n, n, "spd")
W, b, x = dx.matrix("W", m, n), dx.vector("b", m), dx.vector("x", n)
LAYER = dx.softmax(W @ x + b)
RANDOM = np.random.default_rng(0)
MATRIX = RANDOM.normal(size=(3, 3)) + 4 * np.eye(3)
VECTOR = RANDOM.normal(size=3)
WEIGHTS = [RANDOM.normal(size=shape) for shape in ((2, 3), (2,), (3,))]

FUNCTIONS = {
    "square": (dx.function("square", [X], X @ X), lambda X: X @ X, [MATRIX]),
    "layer": (
        dx.function("layer", [W, b, x], LAYER),
        lambda W, b, x: jax.nn.softmax(W @ x + b),
        WEIGHTS,
    ),
    "solution": (
        dx.function("solution", [X, x], dx.solve(X, x)),
        jnp.linalg.solve,
        [MATRIX, VECTOR],
    ),
    "definite": (
        dx.function("definite", [S, x], dx.solve(S, x)),
        lambda S, x: jnp.linalg.solve((S + S.T) / 2, x),
        [MATRIX, VECTOR],
    ),
}
OPERATORS = {
    "hessian": jax.hessian,
    "reverse over reverse": lambda f, places: jax.jacrev(jax.jacrev(f, places), places),
    "reverse over forward": lambda f, places: jax.jacrev(jax.jacfwd(f, places), places),
    "forward over forward": lambda f, places: jax.jacfwd(jax.jacfwd(f, places), places),
    "gradient penalty": lambda f, places: jax.grad(
        lambda *a: sum(
            jnp.sum(jnp.sin(g)) for g in jax.grad(lambda *c: jnp.sum(f(*c) ** 2), places)(*a)
        ),
        places,
    ),
}


def agree(one, other, tolerance=1e-10):
    pairs = zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True)
    for left, right in pairs:
        np.testing.assert_allclose(left, right, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("operator", OPERATORS)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_second_derivatives(name, operator):
    declared, jax_function, arrays = FUNCTIONS[name]
    places, transformed = tuple(range(len(arrays))), OPERATORS[operator]
    ours, expected = (
        jax.jit(transformed(function, places))(*arrays)
        for function in (derivatrix.jax.function(declared), jax_function)
    )
    agree(ours, expected)


def test_second_derivatives_without_jit():
    declared, jax_function, arrays = FUNCTIONS["layer"]
    ours = derivatrix.jax.function(declared)
    agree(jax.hessian(ours, (0, 2))(*arrays), jax.hessian(jax_function, (0, 2))(*arrays))


def test_second_derivatives_in_single_precision():
    declared, jax_function, arrays = FUNCTIONS["layer"]
    singles = [array.astype(np.float32) for array in arrays]
    ours = jax.hessian(derivatrix.jax.function(declared), (0, 1, 2))(*singles)
    assert {leaf.dtype for leaf in jax.tree.leaves(ours)} == {np.dtype(np.float32)}
    agree(ours, jax.hessian(jax_function, (0, 1, 2))(*arrays), 1e-5)


@pytest.mark.parametrize("structure", STRUCTURES)
def test_full_matrices_for_structured_inputs(structure):
    check_grads(derivatrix.jax.function(product(structure)), (full(), POINT), 2)


@pytest.mark.parametrize("has_batched", [False, True], ids=["single", "batched"])
def test_samples(has_batched):
    """Under vmap, and as a function of all samples; the module with a batch axis is called once."""
    many = dx.function("layers", [W, b, x], LAYER, batch=[x])
    ours = derivatrix.jax.function(FUNCTIONS["layer"][0], batched=many if has_batched else None)
    jax_function, (weights, bias, _) = FUNCTIONS["layer"][1], WEIGHTS
    samples = RANDOM.normal(size=(4, 3))
    axes = (None, None, 0)
    for transformed in (
        lambda f: jax.vmap(jax.hessian(f, 2), axes),
        lambda f: jax.vmap(jax.jacfwd(jax.jacrev(f, (0, 2)), (0, 2)), axes),
        lambda f: jax.hessian(lambda *a: jnp.sum(jax.vmap(f, axes)(*a) ** 2), (0, 1, 2)),
    ):
        expected = jax.jit(transformed(jax_function))(weights, bias, samples)
        agree(jax.jit(transformed(ours))(weights, bias, samples), expected)
    agree(
        jax.jit(jax.hessian(derivatrix.jax.function(many), (0, 1, 2)))(weights, bias, samples),
        jax.jit(jax.hessian(jax.vmap(jax_function, axes), (0, 1, 2)))(weights, bias, samples),
    )


@pytest.mark.parametrize("has_batched", [False, True], ids=["single", "batched"])
def test_the_second_module_with_a_batch_axis_is_called_once(has_batched):
    one = dx.function("layer", [W, b, x], LAYER, wrt=[x])
    many = dx.function("layers", [W, b, x], LAYER, wrt=[x], batch=[x])
    ours = derivatrix.jax.function(one, batched=many if has_batched else None)

    def penalty(x):
        return jnp.sum(jax.grad(lambda x: jnp.sum(ours(*WEIGHTS[:2], x) ** 2))(x) ** 2)

    slopes = jax.vmap(jax.grad(penalty))
    assert ("scan" in str(jax.make_jaxpr(slopes)(jnp.ones((4, 3))))) == (not has_batched)


def test_inputs_without_derivatives():
    declared = dx.function("layer", [W, b, x], LAYER, wrt=[x, W])
    jax_function, arrays = FUNCTIONS["layer"][1:]
    ours = derivatrix.jax.function(declared)
    agree(jax.hessian(ours, (0, 2))(*arrays), jax.hessian(jax_function, (0, 2))(*arrays))
    with pytest.raises(dx.UnsupportedError, match="a derivative by b is asked for"):
        jax.jacfwd(jax.jacrev(ours, 0), 1)(*arrays)


def test_derivatives_that_there_are_not(tmp_path):
    declared, _, arrays = FUNCTIONS["square"]
    with pytest.raises(dx.UnsupportedError, match="a third derivative is asked for"):
        jax.jacfwd(jax.hessian(derivatrix.jax.function(declared)))(*arrays)
    dx.build(declared, tmp_path / "out", verify=False)
    ours = derivatrix.jax.function(dx.load(tmp_path / "out" / "square.py"))
    assert jax.jacrev(ours)(*arrays).shape == (3, 3, 3, 3)
    with pytest.raises(dx.UnsupportedError, match=r"square: has no second derivatives.*--second"):
        jax.hessian(ours)(*arrays)
    dx.build(declared, tmp_path / "second", verify=False, second=True)
    ours = derivatrix.jax.function(dx.load(tmp_path / "second" / "square.py"))
    agree(jax.hessian(ours)(*arrays), jax.hessian(lambda X: X @ X)(*arrays))
