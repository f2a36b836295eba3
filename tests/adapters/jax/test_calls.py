"""Calls of kernels by XLA, by threads and through Python; their errors, and refused arguments."""

import copy
import inspect
import pickle
import subprocess
import sys
from ctypes import addressof, c_int64
from threading import Thread
from types import ModuleType

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import export

import derivatrix as dx
import derivatrix.jax
from derivatrix.runtime.adapters import jax_calls, xla_handlers
from derivatrix.runtime.errors import MissingPackageError, ShapeError, UnsupportedError
from tests.pages import run_page

n = dx.dims("n")
X, S, t = dx.matrix("X", n, n), dx.matrix("S", n, n, "spd"), dx.scalar("t")
square = dx.function("square", [X], X @ X)
likelihood = dx.function("likelihood", [S, t], t * dx.logdet(S), wrt=[S])


@pytest.fixture(scope="module")
def ours():
    return derivatrix.jax.function(square)


@pytest.fixture(scope="module")
def logdet():
    return derivatrix.jax.function(likelihood)


def test_the_page():
    run_page("jax")


# Errors of kernels


@pytest.mark.parametrize("native", [True, False])
def test_what_a_kernel_raises_is_raised_by_jax(native):
    logdet = derivatrix.jax.function(likelihood, native=native)
    wrong = -jnp.eye(3)
    for call in (
        lambda: logdet(wrong, 1.0),
        lambda: jax.jit(jax.value_and_grad(logdet))(wrong, 1.0),
        lambda: jax.hessian(logdet)(wrong, 1.0),
        lambda: jax.vmap(logdet, (0, None))(jnp.stack([jnp.eye(3), wrong]), 1.0),
    ):
        with pytest.raises(Exception, match=r"likelihood: logdet\(S\): .*not positive definite"):
            jax.block_until_ready(call())
    assert logdet(2 * jnp.eye(3), 1.0) == pytest.approx(3 * np.log(2))  # and goes on


def test_an_iteration_that_fails_says_how_it_went():
    P, S = dx.matrix("P", n, n), dx.matrix("S", n, n)
    root = derivatrix.jax.function(dx.function("root", [S], dx.root(P @ P - S, P, S)))
    np.testing.assert_allclose(root(4 * jnp.eye(2)), 2 * np.eye(2), rtol=1e-8)
    with pytest.raises(Exception, match=r"root: .*residual"):
        root(-jnp.eye(2)).block_until_ready()


def test_ten_thousand_calls_from_four_threads(ours, logdet):
    A = jnp.asarray(np.random.default_rng(0).normal(size=(4, 4)))
    backward = jax.jit(lambda A: jax.vjp(ours, A)[1](A)[0])
    expected, right = np.asarray(A @ A.T + A.T @ A), []

    def call(place):
        for number in range(2500):
            if number % 500 == place:
                with pytest.raises(Exception, match="not positive definite"):
                    logdet(-jnp.eye(3), 1.0).block_until_ready()
            actual = backward(A).block_until_ready()
        right.append(np.allclose(actual, expected))

    threads = [Thread(target=call, args=(place,), daemon=True) for place in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert right == [True] * 4


def test_without_jit(ours):
    with jax.disable_jit():
        np.testing.assert_array_equal(jax.vjp(ours, jnp.eye(2))[1](jnp.eye(2))[0], 2 * np.eye(2))


def test_sizes_of_zero(ours, logdet):
    assert ours(jnp.zeros((0, 0))).shape == (0, 0)
    assert logdet(jnp.zeros((0, 0)), 2.0) == 0


# Which way


def test_xla_calls_kernels_itself_unless_told_otherwise(ours):
    through_python = derivatrix.jax.function(square, native=False)
    for function, calls in ((ours, "derivatrix."), (through_python, "callback")):
        text = jax.jit(function).lower(jnp.eye(3)).as_text()
        assert calls in text
    np.testing.assert_array_equal(through_python(jnp.eye(3) * 2), 4 * np.eye(3))


def test_a_version_that_is_not_known_is_left_to_python(monkeypatch):
    monkeypatch.setattr(xla_handlers, "KNOWN_VERSIONS", set())
    jax_calls._ffi_target.cache_clear()
    other = derivatrix.jax.function(dx.function("other", [X], X @ X - X))
    with pytest.warns(UserWarning, match="value is called through Python.*does not know"):
        result = other(2 * jnp.eye(2))
    np.testing.assert_array_equal(result, 2 * np.eye(2))
    jax_calls._ffi_target.cache_clear()


@pytest.mark.parametrize(
    ("version", "size", "answered"),
    [((0, 1), 21, 1), ((0, 3), 22, 3), ((0, 9), 22, None), ((1, 0), 22, None), ((0, 3), 15, None)],
)
def test_the_version_that_a_handler_answers(version, size, answered):
    api, metadata, extension, frame = ((c_int64 * 22)() for _ in range(4))
    api[4] = version[0] | version[1] << 32
    extension[1], extension[3] = xla_handlers.METADATA, addressof(metadata)
    frame[0], frame[1], frame[2] = 8 * size, addressof(extension), addressof(api)
    xla_handlers._answer_version(frame)
    assert metadata[3] == (-1 if answered is None else answered << 32)


# What is refused


@pytest.mark.parametrize(
    ("arguments", "error", "said"),
    [
        ([jnp.ones((2, 3))], ShapeError, r"square: argument X has shape \(2, 3\); expected"),
        ([jnp.ones(3)], ShapeError, r"square: argument X has shape \(3,\); expected \(n, n\)"),
        ([jnp.ones((2, 2), jnp.float16)], UnsupportedError, "X has dtype float16"),
    ],
)
def test_wrong_arguments(ours, arguments, error, said):
    for function in (ours, jax.jit(ours), jax.jacrev(ours)):
        with pytest.raises(error, match=said):
            function(*arguments)


@pytest.mark.parametrize("kind", [complex, int, bool])
def test_arrays_that_are_not_real(ours, kind):
    for function in (ours, jax.jit(ours)):
        with pytest.raises(UnsupportedError, match=r"X has dtype (complex|int|bool).*float32"):
            function(jnp.ones((2, 2), kind))


def test_arguments_of_another_number(ours):
    with pytest.raises(UnsupportedError, match=r"square: missing a required .*'X'; it takes X"):
        ours()
    with pytest.raises(UnsupportedError, match=r"square: too many .*; it takes X"):
        ours(jnp.eye(2), jnp.eye(2))


def test_derivatives_that_a_module_does_not_have(ours, logdet):
    A, two = jnp.eye(2), 2.0
    for call, said in (
        (lambda: jax.grad(logdet, 1)(A, two), "derivative by t is asked for, .* by S only"),
        (lambda: jax.jacrev(jax.hessian(logdet))(A, two), "likelihood: a third derivative"),
    ):
        with pytest.raises(UnsupportedError, match=said):
            call()


def test_a_module_without_the_function_that_is_asked_for():
    module, less = dx.compile(likelihood), ModuleType("likelihood")
    vars(less).update(vars(module), FUNCTIONS=("value", "vjp", "jvp", "value_and_gradient"))
    logdet = derivatrix.jax.function(less)
    with pytest.raises(UnsupportedError, match="likelihood: this module was built without hvp"):
        jax.hessian(logdet)(jnp.eye(2), 1.0)


def test_places_and_shapes_that_are_not_those_of_the_kernels(ours):
    exported = export.export(jax.jit(ours), platforms=["cuda"])
    with pytest.raises(UnsupportedError, match="square: the module is for the CPU"):
        exported(jnp.eye(2))
    unknown = jax.ShapeDtypeStruct(export.symbolic_shape("a, a"), np.float64)
    with pytest.raises(ShapeError, match=r"X has shape \(a, a\), which is not known"):
        export.export(jax.jit(ours))(unknown)


def test_types_of_arguments(ours, logdet):
    assert ours(jnp.eye(2, dtype=np.float32)).dtype == np.float32
    assert ours(np.eye(2)).dtype == ours(X=[[1.0, 0.0], [0.0, 1.0]]).dtype == np.float64
    assert logdet(jnp.eye(2, dtype=np.float32), 2).dtype == np.float32
    assert logdet(jnp.eye(2, dtype=np.float32), np.float64(2)).dtype == np.float64
    try:
        jax.config.update("jax_enable_x64", False)
        assert ours(np.eye(2)).dtype == np.float32
    finally:
        jax.config.update("jax_enable_x64", True)


def test_jax_is_imported_when_it_is_used(monkeypatch):
    text = "import sys, derivatrix.jax; print('jax' in sys.modules)"
    process = subprocess.run(
        [sys.executable, "-c", text], capture_output=True, text=True, check=True
    )
    assert process.stdout == "False\n"
    monkeypatch.setitem(sys.modules, "jax", None)
    with pytest.raises(MissingPackageError, match=r"derivatrix\[jax\]"):
        derivatrix.jax.function(square)


@pytest.mark.parametrize(
    "again", [lambda f: pickle.loads(pickle.dumps(f)), copy.copy, copy.deepcopy]
)
def test_functions_are_pickled_and_copied(again):
    n = dx.dims("n")
    s, x = dx.scalar("self"), dx.vector("x", n)
    one = dx.function("one", [s, x], s * x @ x)
    many = dx.function("many", [s, x], s * x @ x, batch=[x])
    ours = derivatrix.jax.function(one, batched=many)
    result = again(ours)
    points = jnp.ones((4, 3))
    np.testing.assert_array_equal(jax.vmap(result, (None, 0))(2.0, points), [6.0] * 4)
    assert result(self=2, x=points[0]) == ours(2, points[0]) == ours(np.int64(2), points[0]) == 6
    assert result.__name__ == "one" and str(inspect.signature(result)) == "(self, x)"


def test_kernels_are_not_exported(ours):
    through_python = derivatrix.jax.function(square, native=False)
    for function, error, said in (
        (ours, ValueError, "Cannot serialize code with custom calls"),
        (through_python, NotImplementedError, "serialization of host_callbacks"),
    ):
        with pytest.raises(error, match=said):
            export.export(jax.jit(function))(jnp.eye(2))


def test_eager_calls_do_not_trace_again(monkeypatch, ours):
    gradient = jax.grad(lambda A: jnp.sum(ours(A)))
    expected = gradient(jnp.eye(3))
    monkeypatch.setattr(jax_calls.Calls, "__call__", None)
    np.testing.assert_array_equal(gradient(jnp.eye(3)), expected)
