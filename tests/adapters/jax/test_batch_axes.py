"""Batch axes under JAX: any number, which broadcast, and nested vmap by one call of the kernel."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.test_util import check_grads

import derivatrix as dx
import derivatrix.jax

n, c = dx.dims("n c")
x, W, y = dx.vector("x", n), dx.matrix("W", c, n), dx.vector("y", c)
RANDOM = np.random.default_rng(0)
WEIGHTS = RANDOM.normal(size=(2, 3))


def by_jax(x, W, y):
    return y * jnp.tanh(x @ W.T)


@pytest.fixture(scope="module")
def layers():
    """A function of one sample, the same with batch axes, and both as one function for vmap."""
    value = y * dx.tanh(W @ x)
    one = dx.compile(dx.function("layer", [x, W, y], value))
    many = dx.compile(dx.function("layers", [x, W, y], value, batch=[x, y]))
    return derivatrix.jax.function(many), derivatrix.jax.function(one, batched=many)


def arrays(x_axes, y_axes):
    return (
        jnp.asarray(RANDOM.normal(size=(*x_axes, 3))),
        WEIGHTS,
        jnp.asarray(RANDOM.normal(size=(*y_axes, 2))),
    )


def calls(function, *arguments):
    """The calls of the kernels' primitive that JAX traces, and whether it loops."""
    text = str(jax.make_jaxpr(function)(*arguments))
    return text.count("derivatrix["), "scan" in text


@pytest.mark.parametrize(
    ("x_axes", "y_axes"),
    [
        ((4, 5), (4, 5)),
        ((), ()),
        ((4, 1), (1, 5)),
        ((4, 5), ()),
        ((2, 1, 3), (4, 1)),
        ((0, 2), (1,)),
    ],
)
def test_values_and_derivatives(layers, x_axes, y_axes):
    many, _ = layers
    inputs = arrays(x_axes, y_axes)
    np.testing.assert_allclose(many(*inputs), by_jax(*inputs), rtol=1e-12)
    np.testing.assert_allclose(jax.jit(many)(*inputs), by_jax(*inputs), rtol=1e-12)

    def loss(function):
        return jax.grad(lambda *a: jnp.sum(jnp.sin(function(*a))), (0, 1, 2))

    for ours, theirs in zip(loss(many)(*inputs), loss(by_jax)(*inputs), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-10, atol=1e-12)
    if 0 not in x_axes:
        check_grads(many, inputs, 1)


def test_nested_vmap_is_one_call(layers):
    many, one = layers
    inputs = arrays((4, 5), (4, 5))
    axes = (0, None, 0)
    for function in (many, one):
        twice = jax.vmap(jax.vmap(function, axes), axes)
        np.testing.assert_allclose(twice(*inputs), by_jax(*inputs), rtol=1e-12)
        assert calls(twice, *inputs) == (1, False)
        across = jax.vmap(jax.vmap(function, (None, None, 0)), (1, None, None), 1)
        left, _, right = arrays((3, 4), (5,))
        expected = jax.vmap(jax.vmap(by_jax, (None, None, 0)), (1, None, None), 1)
        if function is one:
            left = left[0].T
            np.testing.assert_allclose(
                across(left, WEIGHTS, right), expected(left, WEIGHTS, right), rtol=1e-12
            )
            assert calls(across, left, WEIGHTS, right) == (1, False)


def test_gradients_under_nested_vmap(layers):
    many, one = layers
    inputs = arrays((4, 5), (4, 5))

    def gradients(function):
        gradient = jax.grad(lambda *a: jnp.sum(function(*a) ** 2), (0, 2))
        return jax.vmap(jax.vmap(gradient, (0, None, 0)), (0, None, 0))

    for function in (many, one):
        results = gradients(function)(*inputs)
        for ours, theirs in zip(results, gradients(by_jax)(*inputs), strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=1e-10, atol=1e-12)


def test_gradients_of_all_inputs_under_nested_vmap_are_one_call():
    product = dx.function("product", [x, y], dx.sum(x) * y, batch=[x, y])
    ours = derivatrix.jax.function(product)
    inputs = arrays((4, 5), (4, 5))[::2]

    def gradients(function):
        gradient = jax.grad(lambda *a: jnp.sum(function(*a) ** 2), (0, 1))
        return jax.vmap(jax.vmap(gradient))

    results = gradients(ours)(*inputs)
    expected = gradients(lambda x, y: x.sum() * y)(*inputs)
    for array, other in zip(results, expected, strict=True):
        np.testing.assert_allclose(array, other, rtol=1e-10)
    assert not calls(gradients(ours), *inputs)[1]


def test_vmap_of_what_has_batch_axes_already(layers):
    many, _ = layers
    points, _, factors = arrays((6, 4, 5), (4, 5))
    mapped = jax.vmap(many, (0, None, None))
    np.testing.assert_allclose(
        mapped(points, WEIGHTS, factors), by_jax(points, WEIGHTS, factors), rtol=1e-12
    )
    assert calls(mapped, points, WEIGHTS, factors) == (1, False)
    per_weights = jax.vmap(many, (None, 0, None))  # weights are shared: sample by sample
    stacked = jnp.stack([WEIGHTS, 2 * WEIGHTS])
    expected = [by_jax(points, weights, factors) for weights in stacked]
    np.testing.assert_allclose(per_weights(points, stacked, factors), expected, rtol=1e-12)


def test_hessians_of_scalar_functions():
    loss = derivatrix.jax.function(dx.function("loss", [x, W], dx.logsumexp(W @ x), batch=[x]))
    points = jnp.asarray(RANDOM.normal(size=(2, 4, 3)))
    for total in (lambda *a: loss(*a).sum(), lambda *a: (loss(*a) ** 2).sum()):
        check_grads(total, (points, WEIGHTS), 2)
    assert loss(points[0, 0], WEIGHTS).shape == ()
    assert jax.hessian(loss)(points[0, 0], WEIGHTS).shape == (3, 3)


def test_second_derivatives_of_array_functions(layers):
    many, one = layers
    inputs = arrays((2, 3), (3,))
    check_grads(many, inputs, 2)
    point, _, factor = arrays((2, 3), (2, 3))
    axes = (0, None, 0)
    for function in (many, one):
        hessians = jax.vmap(jax.vmap(jax.hessian(function), axes), axes)
        expected = jax.vmap(jax.vmap(jax.hessian(by_jax), axes), axes)
        np.testing.assert_allclose(
            hessians(point, WEIGHTS, factor), expected(point, WEIGHTS, factor), atol=1e-12
        )


def test_axes_that_do_not_fit_are_refused(layers):
    many, _ = layers
    with pytest.raises(dx.ShapeError, match=r"layers: argument y has the batch axes \(5,\); expec"):
        many(*arrays((4,), (5,)))
    with pytest.raises(dx.ShapeError, match=r"argument x has shape \(\); expected \(\*batch, n\)"):
        many(jnp.ones(()), WEIGHTS, jnp.ones(2))
    with pytest.raises(dx.ShapeError, match=r"argument W has shape \(4, 2, 3\); expected \(c, n\)"):
        many(jnp.ones(3), jnp.ones((4, 2, 3)), jnp.ones(2))
