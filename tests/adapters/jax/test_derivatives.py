"""JAX's own check of derivatives says that ours are right, and that those off by 1e-4 are not; its
transformations give what they give for JAX's own functions."""

from types import ModuleType

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.test_util import check_grads
from numba import njit

import derivatrix as dx
import derivatrix.jax
from tests.adapters.jax.checks import checked
from tests.cases import CASES
from tests.driver.test_examples import FUNCTIONS
from tests.full_matrices import POINT, STRUCTURES, full, nearest, product, scalar

USUAL = ("quadratic", "affine", "cholesky", "batch_shared")
"""Cases of the usual run: `wrt`, numbers, structures, a batch. --rest has the others."""
PRECISIONS = pytest.mark.parametrize("real", ["float64", "float32"])


@pytest.fixture(scope="module")
def square():
    return dx.compile(FUNCTIONS["square"])


@PRECISIONS
@pytest.mark.parametrize("name", FUNCTIONS)
def test_examples_are_right(name, real):
    checked(FUNCTIONS[name], real)


@PRECISIONS
@pytest.mark.parametrize(
    "function",
    [
        pytest.param(case, marks=[] if case.name in USUAL else [pytest.mark.thorough], id=case.name)
        for case in CASES
    ],
)
def test_cases_are_right(function, real):
    checked(function, real)


def faulty(module, kind, place):
    """A copy of a module, whose `kind` returns 1.0001 times what it should: "in the kernel", or
    "in the function" that calls it."""
    kernel, right = getattr(module, f"{kind}_kernel"), getattr(module, kind)
    copy = ModuleType(module.__name__)
    vars(copy).update(vars(module))
    if place == "in the function":
        vars(copy)[kind] = lambda *a: jax.tree.map(lambda found: found * 1.0001, right(*a))
        return copy

    @njit
    def of_square(X, moved, out):
        kernel(X, moved, out)
        out *= 1.0001

    @njit
    def of_energy(X, out_value, out_X):
        kernel(X, out_value, out_X)
        out_X *= 1.0001

    wrong_kernel = of_energy if kind == "value_and_gradient" else of_square
    wrong_kernel.for_kernels = lambda: wrong_kernel  # as kernels of `compiled` have it
    vars(copy)[f"{kind}_kernel"] = wrong_kernel
    return copy


@pytest.mark.parametrize("place", ["in the kernel", "in the function"])
@pytest.mark.parametrize(
    ("name", "kind"),
    [("square", "jvp"), ("square", "vjp"), ("energy", "value_and_gradient"), ("energy", "hvp")],
)
def test_a_fault_of_a_ten_thousandth_is_refused(name, kind, place):
    wrong = faulty(dx.compile(FUNCTIONS[name]), kind, place)
    with pytest.raises(AssertionError, match="Not equal to tolerance"):
        checked(FUNCTIONS[name], "float64", wrong)


@pytest.mark.parametrize("made", [jax.jit, lambda function: function], ids=["jit", "eager"])
def test_transformations_are_those_of_a_function_of_jax(square, made):
    ours, jax_function = made(derivatrix.jax.function(square)), lambda X: X @ X
    X = jnp.asarray(np.random.default_rng(0).normal(size=(3, 3)))
    for transformed in (
        jax.jacrev,
        jax.jacfwd,
        lambda f: lambda X: jax.jvp(f, (X,), (X + 1,)),
        lambda f: lambda X: jax.linearize(f, X)[1](X + 1),
        lambda f: lambda X: jax.vmap(f, in_axes=1, out_axes=2)(jnp.stack([X, 2 * X], 1)),
        lambda f: lambda X: jax.vmap(jax.vmap(f))(jnp.stack([X, 2 * X])[None]),
        lambda f: lambda X: jax.lax.scan(lambda c, _: (f(c) / 3, c[0]), X, length=3),
        lambda f: jax.grad(
            lambda X: jax.lax.scan(lambda c, _: (f(c) / 3, 0.0), X, length=3)[0].sum()
        ),
        lambda f: jax.grad(lambda X: jnp.sum(jax.vmap(jax.checkpoint(f))(X[None] + 1))),
    ):
        for one, other in zip(
            jax.tree.leaves(made(transformed(ours))(X)),
            jax.tree.leaves(transformed(jax_function)(X)),
            strict=True,
        ):
            np.testing.assert_allclose(one, other, rtol=1e-12, atol=1e-12)


def test_a_structured_input_is_replaced_by_the_nearest_of_its_structure():
    n = dx.dims("n")
    S, t = dx.matrix("S", n, n, "spd"), dx.scalar("t")
    ours = derivatrix.jax.function(dx.function("scaled", [S, t], t * dx.logdet(S)))
    A = jnp.asarray(np.random.default_rng(1).normal(size=(3, 3))) / 3 + 2 * jnp.eye(3)

    def jax_function(A, t):
        return t * jnp.linalg.slogdet((A + A.T) / 2)[1]

    for order in (jax.grad, jax.hessian):
        for one, other in zip(
            jax.tree.leaves(order(ours, (0, 1))(A, 1.5)),
            jax.tree.leaves(order(jax_function, (0, 1))(A, 1.5)),
            strict=True,
        ):
            np.testing.assert_allclose(one, other, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("structure", STRUCTURES)
def test_a_full_matrix_counts_as_the_nearest_of_its_structure(structure):
    close = nearest(structure, full())
    for module, order in ((product(structure), 1), (scalar(structure), 2)):
        ours = derivatrix.jax.function(module)
        value, pullback = jax.vjp(ours, full(), POINT)
        np.testing.assert_allclose(value, module.value(close, POINT), rtol=1e-14)
        expected = module.vjp(close, POINT, np.ones(value.shape))
        for one, other in zip(pullback(jnp.ones(value.shape)), expected, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-12, atol=1e-14)
        check_grads(ours, (full(), POINT), order)


# Batches


def entropy(batch=()):
    """The cross-entropy of one class."""
    c, d = dx.dims("c d")
    x, W = dx.vector("x", d), dx.matrix("W", c, d)
    name = "entropies" if batch else "entropy"
    return dx.compile(dx.function(name, [x, W], -dx.log_softmax(W @ x)[0], batch=batch))


@pytest.fixture(scope="module")
def losses():
    """The loss of each sample by JAX, by one module, and by one that takes a batch; the arrays."""
    one, many = entropy(), entropy(["x"])
    axes = (0, None)
    random = np.random.default_rng(2)
    return (
        jax.vmap(lambda x, W: -jax.nn.log_softmax(W @ x)[0], axes),
        jax.vmap(derivatrix.jax.function(one), axes),
        jax.vmap(derivatrix.jax.function(one, batched=many), axes),
        derivatrix.jax.function(many),
        [jnp.asarray(random.normal(size=shape)) for shape in ((4, 3), (2, 3))],
    )


def loops(function, *arrays):
    return "scan" in str(jax.make_jaxpr(function)(*arrays))


def test_a_batched_module_is_used_where_there_is_one(losses):
    jax_function, one, batched, many, arrays = losses
    for found, looping in ((one, True), (batched, False), (many, False)):
        np.testing.assert_allclose(found(*arrays), jax_function(*arrays), rtol=1e-12)
        assert loops(found, *arrays) == looping
        assert loops(jax.grad(lambda *a, f=found: f(*a).sum(), (0, 1)), *arrays) == looping


@pytest.mark.parametrize("which", [2, 3], ids=["vmap", "many"])
def test_derivatives_for_a_batch(losses, which):
    jax_function, ours, arrays = losses[0], losses[which], losses[-1]
    check_grads(ours, arrays, 2)
    for transformed in (
        lambda f: jax.jacrev(f, (0, 1)),
        lambda f: jax.jacfwd(f, (0, 1)),
        lambda f: jax.hessian(lambda *a: jnp.sum(f(*a) ** 2), (0, 1)),
        lambda f: jax.jacrev(jax.jacrev(lambda *a: f(*a).sum(), 1), 1),
    ):
        for one, other in zip(
            jax.tree.leaves(jax.jit(transformed(ours))(*arrays)),
            jax.tree.leaves(transformed(jax_function)(*arrays)),
            strict=True,
        ):
            np.testing.assert_allclose(one, other, rtol=1e-10, atol=1e-12)


def test_gradients_sample_by_sample():
    one, many = entropy(), entropy(["x"])
    ours = derivatrix.jax.function(one, batched=many)
    random = np.random.default_rng(3)
    x, W = (jnp.asarray(random.normal(size=shape)) for shape in ((4, 3), (2, 3)))
    samples = jax.vmap(jax.grad(ours, 1), (0, None))
    assert not loops(samples, x, W)
    expected = jax.vmap(jax.grad(lambda x, W: -jax.nn.log_softmax(W @ x)[0], 1), (0, None))
    np.testing.assert_allclose(samples(x, W), expected(x, W), rtol=1e-12)
    np.testing.assert_allclose(
        jax.jacrev(samples, 1)(x, W), jax.jacrev(expected, 1)(x, W), rtol=1e-10, atol=1e-12
    )
    weights = jnp.stack([W, 2 * W])
    jax_function = jax.vmap(lambda W: ours(x[0], W))(weights)  # what that module shares is mapped
    np.testing.assert_allclose(jax_function, [ours(x[0], W), ours(x[0], 2 * W)], rtol=1e-12)


def test_a_batched_function_is_compiled():
    x, W = dx.vector("x", "d"), dx.matrix("W", "c", "d")
    loss = -dx.log_softmax(W @ x)[0]
    one, many = (dx.function(f"loss{len(b)}", [x, W], loss, batch=b) for b in ([], ["x"]))
    ours = jax.vmap(derivatrix.jax.function(one, batched=many), (0, None))
    assert not loops(ours, jnp.ones((4, 3)), jnp.ones((2, 3)))


def test_a_batched_module_of_another_function_is_refused(square):
    with pytest.raises(dx.DeclarationError, match="square: the module entropies given as batched="):
        derivatrix.jax.function(square, batched=entropy(["x"]))
