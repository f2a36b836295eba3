"""JAX functions of functions with several outputs."""

import pickle
from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.test_util import check_grads

import derivatrix as dx
import derivatrix.jax
from derivatrix.runtime.errors import DeclarationError

n = dx.dims("n")
x, P = dx.vector("x", n), dx.matrix("P", n, n)


def outputs(x, P):
    return {"mean": dx.tanh(P @ x), "energy": dx.trace(P @ P) * dx.sum(x**2), "product": P @ P.T}


def reference(x, P):
    energy = jnp.trace(P @ P) * jnp.sum(x**2)
    return jnp.tanh(P @ x), energy, P @ P.T


FUNCTION = dx.function("moments", [x, P], outputs(x, P))
BY_SAMPLE = dx.function("moments", [x, P], outputs(x, P), batch=[x])


@cache
def function(batched=False, native=True):
    return derivatrix.jax.function(FUNCTION, batched=BY_SAMPLE if batched else None, native=native)


def point(real="float64"):
    random = np.random.default_rng(5)
    return jnp.asarray(random.normal(size=3), real), jnp.asarray(random.normal(size=(3, 3)), real)


def loss(function):
    def total(*arguments):
        mean, energy, product = function(*arguments)
        return mean.sum() * energy + jnp.sum(product**2)

    return total


def assert_close(actual, expected):
    actual, expected = jax.tree.leaves(actual), jax.tree.leaves(expected)
    for ours, other in zip(actual, expected, strict=True):
        np.testing.assert_allclose(ours, other, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("native", [True, False])
def test_the_value_is_a_named_tuple_of_arrays(native):
    value = function(native=native)(*point())
    assert value._fields == ("mean", "energy", "product")
    assert_close(value, reference(*point()))
    assert_close(jax.jit(function(native=native))(*point()), reference(*point()))
    single = function(native=native)(*point("float32"))
    assert {part.dtype for part in single} == {jnp.dtype("float32")}


@pytest.mark.parametrize("native", [True, False])
def test_gradients_of_a_scalar_of_the_outputs(native):
    ours = jax.jit(jax.grad(loss(function(native=native)), (0, 1)))(*point())
    assert_close(ours, jax.grad(loss(reference), (0, 1))(*point()))
    one = jax.grad(lambda *arrays: function(native=native)(*arrays).energy, (0, 1))(*point())
    assert_close(one, jax.grad(lambda *arrays: reference(*arrays)[1], (0, 1))(*point()))


def test_forward_mode_and_jacobians():
    tangents = tuple(array + 1 for array in point())
    value, tangent = jax.jvp(function(), point(), tangents)
    assert value._fields == tangent._fields == ("mean", "energy", "product")
    assert_close((value, tangent), jax.jvp(reference, point(), tangents))
    for transform in (jax.jacrev, jax.jacfwd):
        jacobian = transform(function(), (0, 1))(*point())
        assert jacobian.product[1].shape == (3, 3, 3, 3)
        assert_close(jacobian, transform(reference, (0, 1))(*point()))


def test_the_check_of_jax():
    check_grads(function(), point(), order=2)


def test_second_derivatives():
    ours = jax.hessian(loss(function()), (0, 1))(*point())
    assert_close(ours, jax.hessian(loss(reference), (0, 1))(*point()))


@pytest.mark.parametrize("batched", [False, True])
def test_samples(batched):
    x, P = point()
    stack = jnp.stack([x, 2 * x, -x])
    values = jax.vmap(function(batched), (0, None))(stack, P)
    assert values._fields == ("mean", "energy", "product")
    assert_close(values, jax.vmap(reference, (0, None))(stack, P))
    ours = jax.vmap(jax.grad(loss(function(batched))), (0, None))(stack, P)
    assert_close(ours, jax.vmap(jax.grad(loss(reference)), (0, None))(stack, P))


def test_batch_axes():
    x, P = point()
    stack = jnp.stack([x, 2 * x]).reshape(2, 1, 3)
    of_samples = derivatrix.jax.function(BY_SAMPLE)
    expected = jax.vmap(jax.vmap(reference, (0, None)), (0, None))
    assert_close(of_samples(stack, P), expected(stack, P))
    ours = jax.grad(lambda P: jnp.sum(of_samples(stack, P).product ** 2))(P)
    assert_close(ours, jax.grad(lambda P: jnp.sum(expected(stack, P)[2] ** 2))(P))


def test_a_single_named_output():
    mean = derivatrix.jax.function(dx.function("mean", [x, P], {"mean": P @ x}))
    assert mean(*point())._fields == ("mean",)
    ours = jax.grad(lambda *arrays: mean(*arrays).mean.sum())(*point())
    assert_close(ours, point()[1].sum(axis=0))


def test_an_error_of_a_kernel_with_several_cotangents():
    S = dx.matrix("S", n, n, "spd")
    solve = dx.function("solve", [S], {"inverse": dx.inv(S), "size": dx.logdet(S)})
    of_matrix = derivatrix.jax.function(solve)
    pullback = jax.jit(lambda S: jax.vjp(of_matrix, S)[1](of_matrix(jnp.eye(2))))
    with pytest.raises(Exception, match=r"solve: .*not positive definite"):
        jax.block_until_ready(pullback(-jnp.eye(2)))


def test_functions_are_pickled():
    restored = pickle.loads(pickle.dumps(function()))
    assert_close(restored(*point()), reference(*point()))


def test_a_batched_module_has_the_same_outputs():
    other = dx.function("moments", [x, P], {"mean": P @ x, "power": P @ P}, batch=[x])
    with pytest.raises(DeclarationError, match="is not the same function"):
        derivatrix.jax.function(FUNCTION, batched=other)
