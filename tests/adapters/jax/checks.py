"""JAX's own check of a function's derivatives, for functions of derivatrix.

`python -m tests.adapters.jax.checks NAME ...` checks examples and cases of these names, all without
one, and prints a line for each.
"""

from __future__ import annotations

import sys

import jax
import jax.numpy as jnp
import numpy as np
from jax.test_util import check_grads

import derivatrix.jax
from derivatrix.compiler.frontends.function import Function
from tests.cases import CASES
from tests.driver.test_examples import FUNCTIONS
from tests.points import SIZES, draw_all

STEPS = {"float64": 2e-5, "float32": 2e-3}
"""Steps of finite differences. JAX's own, 1e-4, is too long for second derivatives in double
precision."""
ALLOWED = {"float64": 1e-5, "float32": 2e-2}
"""Errors, absolute and relative. JAX multiplies what it is given by the number of entries, so that
what it allows of itself lets a fault of 1e-4 in a matrix of ten entries pass."""


def checked(function: Function, real: str, module=None) -> None:  # type: ignore[no-untyped-def]
    """Check derivatives of first and second order, at once and jitted, forward and backward, in a
    precision; of `module`, if another one is to be checked.

    JAX raises AssertionError where they are wrong. Orthogonal inputs are moved by rotations."""
    of_all = derivatrix.jax.function(module or function)
    values = draw_all(function, sizes=SIZES | {"d": 3, "N": 4})
    inputs = {leaf.name: jnp.asarray(values[leaf.name], real) for leaf in function.inputs}
    moving = [leaf for leaf in function.inputs if leaf.name in function.wrt]

    def of_moving(*arrays: jax.Array) -> jax.Array:
        actual = dict(inputs)
        for leaf, array in zip(moving, arrays, strict=True):
            turned = leaf.structure == "orthogonal"
            actual[leaf.name] = rotated(inputs[leaf.name], array) if turned else array
        return of_all(**actual)

    at = [inputs[leaf.name] for leaf in moving]
    result = of_moving(*at)
    assert result.dtype == real
    allowed = ALLOWED[real] / max(each.size for each in [result, *at])
    for each in (of_moving, jax.jit(of_moving)):
        check_grads(each, at, 2, atol=allowed, rtol=allowed, eps=STEPS[real])


def rotated(matrix: jax.Array, array: jax.Array) -> jax.Array:
    """An orthogonal matrix, and how it moves when `array` moves from there: Cayley's rotation."""
    half, one = (array - matrix - (array - matrix).T) / 4, jnp.eye(len(matrix), dtype=matrix.dtype)
    return matrix @ jnp.linalg.solve(one - half, one + half)


def main(names: list[str]) -> int:
    jax.config.update("jax_enable_x64", True)
    failed = 0
    for function in [*FUNCTIONS.values(), *CASES]:
        for real in STEPS if function.name in names or not names else ():
            try:
                checked(function, real)
            except Exception as error:
                failed += 1
                print(f"{function} {real}: {type(error).__name__}: {error}", flush=True)
            else:
                print(f"{function} {real}: right", flush=True)
    return int(failed > 0)


if __name__ == "__main__":
    np.seterr(all="ignore")
    sys.exit(main(sys.argv[1:]))
