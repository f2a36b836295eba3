"""Samples on four devices: `python -m tests.adapters.jax.shards` runs each check, and prints what
failed, by name, as JSON. It is a process of its own, as JAX takes the number of devices from the
environment when it starts."""

from __future__ import annotations

import json
import os
import traceback
from collections.abc import Callable
from typing import Any

os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=4"

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

import derivatrix as dx
import derivatrix.jax

jax.config.update("jax_enable_x64", True)

n, c = dx.dims("n c")
x, W, y, S = dx.vector("x", n), dx.matrix("W", c, n), dx.vector("y", c), dx.matrix("S", n, n, "spd")
VALUE = y * dx.tanh(W @ x)
MANY = dx.compile(dx.function("layers", [x, W, y], VALUE, batch=[x, y]))
LAYERS = derivatrix.jax.function(MANY)
LAYER = derivatrix.jax.function(dx.function("layer", [x, W, y], VALUE), batched=MANY)
LOGDETS = derivatrix.jax.function(dx.function("logdets", [S], dx.logdet(S), batch=[S]))
RANDOM = np.random.default_rng(0)
ARRAYS = [RANDOM.normal(size=shape) for shape in ((8, 3), (2, 3), (8, 2))]
SAMPLES = PartitionSpec("samples")
SPECS = (SAMPLES, PartitionSpec(), SAMPLES)
CHECKS: dict[str, Callable[[], None]] = {}


def by_jax(x: Any, W: Any, y: Any) -> Any:
    return y * jnp.tanh(x @ W.T)


def gradients(function: Any) -> Any:
    return jax.grad(lambda *arrays: jnp.sum(jnp.sin(function(*arrays))), (0, 1, 2))


def penalties(function: Any) -> Any:
    """Gradients of a function of gradients."""

    def of_gradients(*arrays: Any) -> Any:
        return sum(jnp.sum(gradient**2) for gradient in gradients(function)(*arrays))

    return jax.grad(of_gradients, (0, 1, 2))


def mesh(kind: AxisType = AxisType.Auto, **axes: int) -> Mesh:
    shape = axes or {"samples": 4}
    devices = np.array(jax.devices()).reshape(*shape.values())
    return Mesh(devices, tuple(shape), axis_types=(kind,) * len(shape))


def put(devices: Mesh, arrays: Any, specs: Any) -> list[jax.Array]:
    pairs = zip(arrays, specs, strict=True)
    return [jax.device_put(array, NamedSharding(devices, spec)) for array, spec in pairs]


def compare(function: Any, expected: Any, arrays: Any, specs: Any, collectives: set[str]) -> None:
    """Check a function of sharded arrays: its results and their shards, and which exchanges between
    devices its program has."""
    compiled = jax.jit(function)
    results = jax.tree.leaves(compiled(*arrays))
    for result, wanted, spec in zip(results, jax.tree.leaves(expected), specs, strict=True):
        np.testing.assert_allclose(result, wanted, rtol=1e-10, atol=1e-12)
        assert result.sharding.is_equivalent_to(
            NamedSharding(result.sharding.mesh, spec), result.ndim
        ), (result.sharding, spec)
    text = compiled.lower(*arrays).compile().as_text()
    names = ("all-gather", "all-reduce", "all-to-all", "collective-permute")
    assert {name for name in names if name in text} == collectives, text


def check(function: Callable[[], None]) -> Callable[[], None]:
    CHECKS[function.__name__] = function
    return function


@check
def values_and_derivatives() -> None:
    for kind in (AxisType.Auto, AxisType.Explicit):
        arrays = put(mesh(kind), ARRAYS, SPECS)
        compare(LAYERS, by_jax(*ARRAYS), arrays, [SAMPLES], set())
        for function in (gradients, penalties):
            expected = function(by_jax)(*ARRAYS)
            compare(function(LAYERS), expected, arrays, SPECS, {"all-reduce"})
        pair = jax.jvp(by_jax, ARRAYS, ARRAYS)
        compare(lambda *a: jax.jvp(LAYERS, a, a), pair, arrays, [SAMPLES] * 2, set())


@check
def vmap_of_a_batched_module() -> None:
    mapped = jax.vmap(LAYER, (0, None, 0))
    for kind in (AxisType.Auto, AxisType.Explicit):
        arrays = put(mesh(kind), ARRAYS, SPECS)
        compare(mapped, by_jax(*ARRAYS), arrays, [SAMPLES], set())


@check
def arguments_of_which_one_is_sharded() -> None:
    for kind in (AxisType.Auto, AxisType.Explicit):
        for specs in (
            (SAMPLES, PartitionSpec(), PartitionSpec()),
            (PartitionSpec(),) * 2 + SPECS[2:],
        ):
            arrays = put(mesh(kind), ARRAYS, specs)
            compare(LAYERS, by_jax(*ARRAYS), arrays, [SAMPLES], set())


@check
def several_axes() -> None:
    """Two batch axes, the first over two axes of the mesh."""
    arrays = [RANDOM.normal(size=shape) for shape in ((4, 6, 3), (2, 3), (6, 2))]
    both = PartitionSpec(("first", "second"))
    for kind in (AxisType.Auto, AxisType.Explicit):
        sharded = put(mesh(kind, first=2, second=2), arrays, (both, *[PartitionSpec()] * 2))
        compare(LAYERS, by_jax(*arrays), sharded, [both], set())


@check
def samples_that_are_not_divided_equally() -> None:
    x, W, y = ARRAYS

    def of_seven(*arrays: Any) -> Any:
        sharding = NamedSharding(mesh(), SAMPLES)
        return [jax.lax.with_sharding_constraint(array, sharding) for array in arrays]

    def gradient(function: Any) -> Any:
        return jax.grad(lambda W, x, y: jnp.sum(function(x, W, y)))

    def ours(W: Any, x: Any, y: Any) -> Any:
        return gradient(LAYERS)(W, *of_seven(x, y))

    result = jax.jit(ours)(W, x[:7], y[:7])
    np.testing.assert_allclose(result, gradient(by_jax)(W, x[:7], y[:7]), rtol=1e-10)


@check
def an_error_of_one_device() -> None:
    matrices = np.stack([np.eye(3)] * 8)
    logdets = jax.jit(LOGDETS)
    np.testing.assert_array_equal(logdets(*put(mesh(), [matrices], [SAMPLES])), np.zeros(8))
    matrices[5] *= -1
    try:
        logdets(*put(mesh(), [matrices], [SAMPLES])).block_until_ready()
    except RuntimeError as error:  # JAX's own class of errors
        assert "logdets: logdet(S[b]): the matrix is not positive definite" in str(error), error
    else:
        raise AssertionError("no error")


@check
def shard_map() -> None:
    through_python = derivatrix.jax.function(MANY, native=False)
    for kind in (AxisType.Auto, AxisType.Explicit):
        devices = mesh(kind)
        arrays, options = put(devices, ARRAYS, SPECS), {"mesh": devices, "in_specs": SPECS}
        for ours in (LAYERS, through_python):
            mapped = jax.shard_map(ours, **options, out_specs=SAMPLES)
            compare(mapped, by_jax(*ARRAYS), arrays, [SAMPLES], set())
            inside = jax.shard_map(gradients(ours), **options, out_specs=SPECS)
            for function, wanted in (
                (inside, gradients),
                (gradients(mapped), gradients),
                (penalties(mapped), penalties),
            ):
                compare(function, wanted(by_jax)(*ARRAYS), arrays, SPECS, {"all-reduce"})


def main() -> None:
    errors = {}
    for name, function in CHECKS.items():
        try:
            function()
        except Exception:
            errors[name] = traceback.format_exc()
    print(json.dumps({name: errors.get(name, "") for name in CHECKS}))


if __name__ == "__main__":
    main()
