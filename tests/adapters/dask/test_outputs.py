"""Functions of modules with several outputs on dask arrays."""

import dask
import dask.array as da
import numpy as np
import pytest

import derivatrix as dx
from derivatrix.dask import map_samples

n = dx.dims("n")
x, P = dx.vector("x", n), dx.matrix("P", n, n)
PARTS = {"mean": dx.tanh(P @ x), "energy": dx.trace(P @ P) * dx.sum(x**2)}
SAMPLES = 7


@pytest.fixture(scope="module")
def module():
    return dx.compile(dx.function("moments", [x, P], PARTS, batch=[x]))


@pytest.fixture
def arrays():
    random = np.random.default_rng(0)
    return random.normal(size=(SAMPLES, 3)), random.normal(size=(3, 3))


def chunked(array):
    return da.from_array(array, (3, *[-1] * (array.ndim - 1))) if len(array) == SAMPLES else array


def assert_same(lazy, expected):
    (computed,) = dask.compute(lazy)
    assert type(lazy).__name__ == type(expected).__name__ and lazy._fields == expected._fields
    for ours, other in zip(computed, expected, strict=True):
        if isinstance(other, tuple):
            assert ours._fields == other._fields
            for part, array in zip(ours, other, strict=True):
                np.testing.assert_allclose(part, array, rtol=1e-12, atol=1e-12)
        else:
            np.testing.assert_allclose(ours, other, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("kind", ["value", "jvp", "jacobian"])
def test_results_by_output(module, arrays, kind):
    arguments = arrays * 2 if kind == "jvp" else arrays
    lazy = map_samples(getattr(module, kind), *map(chunked, arguments))
    assert lazy._fields == ("mean", "energy")
    assert_same(lazy, getattr(module, kind)(*arguments))


@pytest.mark.parametrize("used", [(0,), (1,), (0, 1)])
def test_cotangents_of_some_outputs(module, arrays, used):
    all_cotangents = np.cos(np.arange(21.0)).reshape(7, 3), np.sin(np.arange(7.0))
    cotangents = tuple(part if place in used else None for place, part in enumerate(all_cotangents))
    zeros = tuple(
        part if place in used else np.zeros_like(part) for place, part in enumerate(all_cotangents)
    )
    lazy_cotangents = tuple(None if part is None else chunked(part) for part in cotangents)
    inputs = tuple(map(chunked, arrays))
    expected = module.vjp(*arrays, zeros)
    assert_same(map_samples(module.vjp, *inputs, lazy_cotangents), expected)
    assert_same(map_samples(module.vjp, *inputs, cotangent=lazy_cotangents), expected)


def test_cotangents_that_are_no_tuple_of_all_outputs_are_refused(module, arrays):
    for cotangent in (arrays[0], (arrays[0],)):
        with pytest.raises(dx.UnsupportedError, match=r"expected a tuple .* of mean, energy"):
            map_samples(module.vjp, *arrays, cotangent)
    with pytest.raises(dx.ShapeError, match="argument cotangent_energy has the batch axes"):
        map_samples(module.vjp, *arrays, (arrays[0], arrays[0]))
    with pytest.raises(dx.UnsupportedError, match="argument P is of"):
        map_samples(module.value, arrays[0], None)
