"""Loops over time against `jax.lax.scan`, in all kinds: each model is written once, for both."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import cache
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import derivatrix as dx
from derivatrix.compiler.frontends.function import Function
from derivatrix.compiler.frontends.notation.inputs import declare
from derivatrix.compiler.ir.interpret import evaluate
from derivatrix.compiler.ir.nodes import Leaf
from tests.points import along, draw

pytestmark = pytest.mark.peers

Library = Any
"""Functions of arrays: derivatrix, or those of JAX with the same names."""


def kalman(lib: Library, Y: Any, A: Any, C: Any, Q: Any, R: Any, x0: Any, P0: Any) -> Any:
    def step(carry: Any, y: Any) -> Any:
        x, P = carry
        S, v = C @ P @ C.mT + R, y - C @ x
        gain = P @ C.mT @ lib.inv(S)
        term = v @ lib.inv(S) @ v + lib.logdet(S)
        return (A @ (x + gain @ v), A @ (P - gain @ C @ P) @ A.mT + Q), term

    return lib.sum(lib.scan(step, (x0, P0), Y)[1])


def gru(lib: Library, W: Any, V: Any, U: Any, X: Any, h0: Any) -> Any:
    def step(h: Any, x: Any) -> Any:
        update = lib.sigmoid(W @ h + U @ x)
        candidate = lib.tanh(V @ (update * h) + U @ x)
        h = (1 - update) * h + update * candidate
        return h, h

    last, states = lib.scan(step, h0, X)
    return lib.sum(states**3) + lib.sum(last)


def oscillator(lib: Library, z0: Any, k: Any, driving: Any) -> Any:
    def slope(z: Any, u: Any) -> Any:
        return lib.stack([z[1], u - k * lib.sin(z[0])])

    def step(z: Any, u: Any) -> Any:
        k1 = slope(z, u)
        k2 = slope(z + k1 / 20, u)
        k3 = slope(z + k2 / 20, u)
        z = z + (k1 + 2 * k2 + 2 * k3 + slope(z + k3 / 10, u)) / 60
        return z, z[0]

    return lib.scan(step, z0, driving)[1]


def hidden_markov(lib: Library, A: Any, B: Any, start: Any) -> Any:
    def step(alpha: Any, b: Any) -> Any:
        return lib.logsumexp(alpha[:, None] + A, axis=0) + b, None

    return lib.logsumexp(lib.scan(step, start, B)[0], axis=0)


def regulator(lib: Library, A: Any, B: Any, Q: Any, R: Any) -> Any:
    def step(P: Any, _: Any) -> Any:
        gain = lib.inv(R + B.mT @ P @ B) @ (B.mT @ P @ A)
        return Q + A.mT @ P @ (A - B @ gain), None

    return lib.trace(lib.scan(step, Q, length=4)[0])


def garch(lib: Library, r: Any, w: Any, a: Any, b: Any) -> Any:
    def step(s: Any, x: Any) -> Any:
        return w + a * x**2 + b * s, lib.log(s) + x**2 / s

    return lib.sum(lib.scan(step, w / (1 + b), r)[1])


def sinkhorn(lib: Library, K: Any, r: Any, c: Any, relaxation: Any) -> Any:
    def step(carry: Any, x: Any) -> Any:
        u = r / (K @ carry["v"])
        return {"u": u, "v": x**2 * carry["v"] + c / (K.mT @ u)}, None

    last, _ = lib.scan(step, {"u": r, "v": c}, relaxation)
    return lib.sum(last["u"][:, None] * K * lib.log(K) * last["v"])


def chebyshev(lib: Library, x: Any, weights: Any) -> Any:
    def step(carry: Any, weight: Any) -> Any:
        before, now = carry
        return (now, 2 * x * now - before), weight * before

    return lib.sum(lib.scan(step, (x**0, x), weights)[1], axis=0)


def nested(lib: Library, W: Any, X: Any, h0: Any) -> Any:
    def outer(h: Any, x: Any) -> Any:
        g, _ = lib.scan(lambda g, u: (lib.tanh(W @ g) + u * h, None), h, x)
        return g, g

    return lib.scan(outer, h0, X)[1]


def factors(lib: Library, S: Any, X: Any) -> Any:
    """A Cholesky factor and a softmax in a step; the loop runs backwards."""

    def step(P: Any, x: Any) -> Any:
        L = lib.cholesky(P)
        return P + lib.outer(x, x), lib.softmax(L @ x)

    last, ys = lib.scan(step, S, X, reverse=True)
    return lib.logdet(last) + lib.sum(ys**2)


def descent(lib: Library, A: Any, x0: Any, rates: Any) -> Any:
    """Gradient descent: a derivative in a step."""

    def step(x: Any, rate: Any) -> Any:
        return x - rate * lib.slope(A, x), None

    return lib.sum(lib.scan(step, x0, rates)[0] ** 2)


MODELS: dict[Callable[..., Any], dict[str, str]] = {
    kalman: {
        "Y": "T m",
        "A": "n n",
        "C": "m n",
        "Q": "n n spd",
        "R": "m m spd",
        "x0": "n",
        "P0": "n n spd",
    },
    gru: {"W": "n n", "V": "n n", "U": "n m", "X": "T m", "h0": "n"},
    oscillator: {"z0": "2", "k": "", "driving": "T"},
    hidden_markov: {"A": "n n", "B": "T n", "start": "n"},
    regulator: {"A": "n n", "B": "n m", "Q": "n n spd", "R": "m m spd"},
    garch: {"r": "T", "w": "positive", "a": "positive", "b": "positive"},
    sinkhorn: {"K": "n m positive", "r": "n positive", "c": "m positive", "relaxation": "T"},
    chebyshev: {"x": "n", "weights": "T"},
    nested: {"W": "n n", "X": "T m n", "h0": "n"},
    factors: {"S": "n n spd", "X": "T n"},
    descent: {"A": "n n", "x0": "n", "rates": "T"},
}


def _slope(A: Any, x: Any) -> Any:
    """The gradient of sum(cos(A x)) by x, for a symbol x of a step."""
    return dx.grad(dx.sum(dx.cos(A @ x)), x)


NAMES = "cholesky cos inv log logdet logsumexp outer scan sigmoid sin softmax stack sum tanh trace"
DERIVATRIX = SimpleNamespace(**{name: getattr(dx, name) for name in NAMES.split()}, slope=_slope)


@cache
def _jax() -> Library:
    import jax
    import jax.numpy as jnp

    own = {
        "scan": jax.lax.scan,
        "sigmoid": jax.nn.sigmoid,
        "softmax": jax.nn.softmax,
        "logsumexp": jax.nn.logsumexp,
        "inv": jnp.linalg.inv,
        "cholesky": jnp.linalg.cholesky,
        "logdet": lambda matrix: jnp.linalg.slogdet(matrix)[1],
        "slope": lambda A, x: jax.grad(lambda x: jnp.sum(jnp.cos(A @ x)))(x),
    }
    return SimpleNamespace(**{**vars(jnp), **own})


@cache
def _declared(model: Callable[..., Any]) -> Function:
    inputs, _ = declare(MODELS[model])
    return dx.function(model.__name__, [*inputs.values()], model(DERIVATRIX, *inputs.values()))


def _values(function: Function, sizes: Mapping[str, int]) -> dict[str, np.ndarray]:
    generator = np.random.default_rng(sizes["T"])
    return {leaf.name: draw(leaf, generator, sizes) / 2 for leaf in function.inputs}


def _projected(array: Any, leaf: Leaf, axis: int) -> np.ndarray:
    """The part of a derivative, in the axes of an input that begin at `axis`, that keeps its
    structure."""
    if leaf.structure != "spd":
        return np.asarray(array)
    return (array + np.swapaxes(array, axis, axis + 1)) / 2


def _compare(function: Function, peer: Callable[..., Any], sizes: Mapping[str, int]) -> None:
    """Compare the results of all kinds with those of JAX."""
    import jax

    jax.config.update("jax_enable_x64", True)
    values = _values(function, sizes)
    arguments, generator = tuple(values.values()), np.random.default_rng(1)
    places = tuple(range(len(arguments)))
    tangents = tuple(
        along(leaf, generator.normal(size=array.shape))
        for leaf, array in zip(function.inputs, arguments, strict=True)
    )
    value, pushed = jax.jvp(peer, arguments, tangents)
    cotangent = generator.normal(size=value.shape)
    named = {f"tangent_{name}": t for name, t in zip(values, tangents, strict=True)}
    point = {**values, **named, "cotangent": cotangent}

    def expected() -> Iterator[tuple[str, tuple[str, ...], Any]]:
        yield "value", (), value
        yield "jvp", (), pushed
        pulled = jax.vjp(peer, *arguments)[1](cotangent)
        jacobians = jax.jacobian(peer, places)(*arguments)
        for leaf, cotangent_of_input, jacobian in zip(
            function.inputs, pulled, jacobians, strict=True
        ):
            yield "vjp", (leaf.name,), _projected(cotangent_of_input, leaf, 0)
            yield "jacobian", (leaf.name,), _projected(jacobian, leaf, value.ndim)
        if value.ndim:
            return
        _, products = jax.jvp(jax.grad(peer, places), arguments, tangents)
        for leaf, gradient, product in zip(function.inputs, jacobians, products, strict=True):
            yield "gradient", (leaf.name,), _projected(gradient, leaf, 0)
            yield "hvp", (leaf.name,), _projected(product, leaf, 0)
        last = function.inputs[-1]
        block = jax.hessian(peer, places[-1])(*arguments)
        yield (
            "hessian",
            (last.name, last.name),
            _projected(_projected(block, last, 0), last, last.ndim),
        )

    for kind, key, result in expected():
        node = function.derivatives.results(kind)[key]
        np.testing.assert_allclose(
            *(evaluate(node, point, sizes), result),
            rtol=1e-8,
            atol=1e-9,
            err_msg=f"{kind} {key}",
        )


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.__name__)
@pytest.mark.parametrize("length", (7, 0, 1))
def test_loop(model: Callable[..., Any], length: int) -> None:
    sizes = {"T": length, "n": 3, "m": 2}
    _compare(_declared(model), lambda *arrays: model(_jax(), *arrays), sizes)


def test_long_loop() -> None:
    """Rounding of a thousand steps stays that of a thousand steps."""
    import jax

    jax.config.update("jax_enable_x64", True)
    function, sizes = _declared(garch), {"T": 1000}
    values = _values(function, sizes) | {"b": np.array(0.7), "a": np.array(0.2)}
    gradients = jax.grad(lambda *arrays: garch(_jax(), *arrays), (0, 1, 2, 3))(*values.values())
    for leaf, expected in zip(function.inputs, gradients, strict=True):
        gradient = evaluate(function.derivatives.results("gradient")[leaf.name,], values, sizes)
        np.testing.assert_allclose(gradient, expected, rtol=1e-10)


def test_samples() -> None:
    """Batch axes are those of `jax.vmap`."""
    import jax

    jax.config.update("jax_enable_x64", True)
    inputs, _ = declare(MODELS[gru])
    states = gru(DERIVATRIX, *inputs.values())
    function = dx.function("gru", [*inputs.values()], states, batch=["X", "h0"])
    sizes = {"T": 4, "n": 3, "m": 2, "batch": 5}
    values, generator = _values(function, sizes), np.random.default_rng(1)
    values |= {"X": generator.normal(size=(5, 4, 2)), "h0": generator.normal(size=(5, 3))}
    arguments = tuple(values.values())

    def peer(*arrays: Any) -> Any:
        return gru(_jax(), *arrays)

    axes = (None, None, None, 0, 0)
    value = jax.vmap(peer, axes)(*arguments)
    gradient = jax.vmap(jax.grad(peer, (0, 3, 4)), axes)(*arguments)
    (node,) = function.derivatives.batched("value").values()
    np.testing.assert_allclose(evaluate(node, values, sizes), value, rtol=1e-12)
    results = function.derivatives.batched("gradient")
    for name, expected in zip(("W", "X", "h0"), gradient, strict=True):
        result = evaluate(results[name,], values, sizes)
        np.testing.assert_allclose(result, expected, rtol=1e-9, atol=1e-12)


def _dense_likelihood(Y: Any, A: Any, C: Any, Q: Any, R: Any, x0: Any, P0: Any) -> Any:
    """The likelihood of `kalman` by the normal distribution of all observations together."""
    import jax.numpy as jnp

    length = Y.shape[0]
    means, covariances = [x0], [P0]
    for _ in range(length - 1):
        means.append(A @ means[-1])
        covariances.append(A @ covariances[-1] @ A.T + Q)
    blocks: list[list[Any]] = [[None] * length for _ in range(length)]
    for t in range(length):
        moved = covariances[t] @ C.T
        for later in range(t, length):
            blocks[later][t] = C @ moved + (R if later == t else 0)
            blocks[t][later] = blocks[later][t].T
            moved = A @ moved
    covariance = jnp.block(blocks)
    residual = (Y - jnp.stack([C @ x for x in means])).ravel()
    return residual @ jnp.linalg.solve(covariance, residual) + jnp.linalg.slogdet(covariance)[1]


def test_kalman_filter_is_the_normal_distribution_of_all_observations() -> None:
    """The gradient by all inputs, and the Hessian by R."""
    import jax

    jax.config.update("jax_enable_x64", True)
    function, sizes = _declared(kalman), {"T": 5, "n": 3, "m": 2}
    values = _values(function, sizes)
    arguments, results = tuple(values.values()), function.derivatives.results
    (value,) = results("value").values()
    expected = _dense_likelihood(*arguments)
    assert evaluate(value, values, sizes) == pytest.approx(float(expected), rel=1e-11)
    gradients = jax.grad(_dense_likelihood, tuple(range(len(arguments))))(*arguments)
    for leaf, gradient in zip(function.inputs, gradients, strict=True):
        result = evaluate(results("gradient")[leaf.name,], values, sizes)
        expected = _projected(gradient, leaf, 0)
        np.testing.assert_allclose(result, expected, rtol=1e-9, atol=1e-10)
    place = [*values].index("R")
    R = function.inputs[place]
    block = jax.hessian(_dense_likelihood, place)(*arguments)
    block = _projected(_projected(block, R, 0), R, 2)
    result = evaluate(results("hessian")["R", "R"], values, sizes)
    np.testing.assert_allclose(result, block, rtol=1e-8, atol=1e-9)
