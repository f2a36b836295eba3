"""For any array given for a structured input, functions return what they return for the nearest
array of the structure, and derivatives are those of this function of the full array."""

from collections.abc import Iterator, Sequence
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import derivatrix as dx
from derivatrix.runtime.simulated import as_on_device
from tests.full_matrices import STRUCTURES, nearest, product, scalar, scalar_function
from tests.simulation import simulated

RANDOM = np.random.default_rng(11)


def point(batch: Sequence[str] = (), n: int = 3, samples: int = 7) -> list[np.ndarray]:
    """A matrix of no structure, whose nearest ones are invertible and definite, and a vector."""
    matrices, vectors = [(samples,) if name in batch else () for name in ("M", "x")]
    matrix = 2 * np.eye(n) + RANDOM.uniform(-0.6, 0.6, (*matrices, n, n)) / n
    return [matrix, RANDOM.standard_normal((*vectors, n))]


def arrays(result: Any) -> Iterator[np.ndarray]:
    """The arrays of a result, operators as matrices."""
    if isinstance(result, tuple):
        for part in result:
            yield from arrays(part)
    else:
        yield result.todense() if hasattr(result, "todense") else np.asarray(result)


def assert_reads_nearest(
    module: ModuleType, structure: str, arguments: list[np.ndarray], kinds: Sequence[str]
) -> None:
    matrix, x = arguments
    for kind in kinds:
        likes = {"vjp": [module.value(*arguments)], "jvp": arguments, "hvp": arguments}
        more = [RANDOM.standard_normal(np.shape(like)) for like in likes.get(kind, [])]
        results = arrays(getattr(module, kind)(matrix, x, *more))
        expected = arrays(getattr(module, kind)(nearest(structure, matrix), x, *more))
        for one, other in zip(results, expected, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-9, err_msg=kind)


@pytest.mark.parametrize("structure", STRUCTURES)
def test_all_kinds(structure: str) -> None:
    module = scalar(structure)
    assert_reads_nearest(module, structure, point(), [*module.FUNCTIONS, module.OPERATOR])


@pytest.mark.parametrize("structure", STRUCTURES)
def test_derivatives_are_those_of_the_function_of_the_full_array(structure: str) -> None:
    module, (matrix, x), step = scalar(structure), point(), 1e-6
    gradient, hessian = module.gradient(matrix, x).M, module.hessian(matrix, x).M.M
    for i, j in np.ndindex(matrix.shape):
        unit = np.zeros_like(matrix)
        unit[i, j] = step
        ahead, behind = matrix + unit, matrix - unit
        slope = (module.value(ahead, x) - module.value(behind, x)) / (2 * step)
        assert abs(slope - gradient[i, j]) < 1e-6
        change = (module.gradient(ahead, x).M - module.gradient(behind, x).M) / (2 * step)
        np.testing.assert_allclose(change, hessian[i, j], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("structure", ["spd", "lower"])
@pytest.mark.parametrize("batch", [("M", "x"), ("x",)])
def test_samples(structure: str, batch: tuple[str, ...]) -> None:
    assert_reads_nearest(scalar(structure, batch), structure, point(batch), ["value", "vjp", "hvp"])


@pytest.mark.parametrize("structure", STRUCTURES)
def test_straight_line_code(structure: str) -> None:
    module = dx.compile(scalar_function(structure, 3), kinds=("value", "vjp"))
    assert_reads_nearest(module, structure, point(), module.FUNCTIONS)


@pytest.mark.parametrize("structure", STRUCTURES)
@pytest.mark.parametrize("n", [9, 70])
def test_copies(structure: str, n: int) -> None:
    """Sizes with several tiles and rows left, `out`, and the kernel called by itself."""
    module, (matrix, x) = product(structure), point((), n)
    assert_reads_nearest(module, structure, [matrix, x], ["value", "vjp"])
    expected, out = nearest(structure, matrix) @ x, np.empty(n)
    assert module.value(matrix, x, out=out) is out
    np.testing.assert_allclose(out, expected, rtol=1e-12)
    module.value_kernel(matrix, x, out[:])
    np.testing.assert_allclose(out, expected, rtol=1e-12)


@pytest.mark.parametrize("structure", STRUCTURES)
def test_every_entry_is_compared(structure: str) -> None:
    module, x = product(structure), np.ones(19)
    for i, j in np.ndindex(19, 19):
        matrix = np.eye(19)
        matrix[i, j] += 1
        np.testing.assert_array_equal(module.value(matrix, x), nearest(structure, matrix) @ x)


def test_samples_that_threads_share() -> None:
    module = product("symmetric", ("M", "x"))
    assert_reads_nearest(module, "symmetric", point(("M", "x"), 24, 900), ["value", "vjp"])


@pytest.mark.parametrize("structure", ["lower", "upper", "diagonal"])
def test_entries_beside_the_structure_may_be_nan(structure: str) -> None:
    module, (matrix, x) = product(structure), point()
    other = np.where(nearest(structure, np.ones((3, 3))), matrix, np.nan)
    np.testing.assert_allclose(module.value(other, x), nearest(structure, matrix) @ x, rtol=1e-12)
    assert np.isfinite(module.vjp(other, x, x).x).all()


def test_read_only_arrays() -> None:
    module, (matrix, x) = product("spd"), point()
    expected = nearest("spd", matrix) @ x
    matrix.flags.writeable = False
    np.testing.assert_allclose(module.value(matrix, x), expected, rtol=1e-12)


@pytest.mark.parametrize("structure", ["symmetric", "lower", "upper", "diagonal"])
@simulated
def test_devices(structure: str) -> None:
    function = scalar_function(structure, dx.dims("n"))
    module = dx.compile(function, target="cuda", kinds=("value", "gradient"))
    with as_on_device(module):
        assert_reads_nearest(module, structure, point(), module.FUNCTIONS)
