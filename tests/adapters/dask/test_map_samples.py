"""Functions of modules with `batch=` on dask arrays: the values, shapes, types and chunks."""

from functools import partial

import dask
import dask.array as da
import numpy as np
import pytest

import derivatrix as dx
from derivatrix.dask import map_samples
from tests.full_matrices import POINT, STRUCTURES, full, nearest, scalar

n, c = dx.dims("n c")
x, b, s = dx.vector("x", n), dx.vector("b", c), dx.scalar("s")
W, S = dx.matrix("W", c, n), dx.matrix("S", n, n, "spd")
FUNCTIONS = (
    dx.function("scalar", [x, W, b], dx.logsumexp(W @ x + b), batch=[x]),
    dx.function("shared", [s, W, x], dx.tanh(s * (W @ x)), batch=[x], wrt=[W]),
    dx.function("stacked", [S, x], x @ dx.solve(S, x), batch=[S, x]),
)
SIZES = {"n": 3, "c": 2}
SAMPLES, CHUNK = 7, 3


def values(function, real):
    """An argument for each input."""
    random = np.random.default_rng(0)
    result = []
    for leaf in function.inputs:
        shape = tuple(SIZES[str(size)] for size in leaf.shape)
        full = (SAMPLES,) * (leaf.name in function.batch) + shape
        array = random.normal(size=full)
        if leaf.structure == "spd":
            array = array @ array.swapaxes(-1, -2) + np.eye(SIZES["n"])
        result.append(array.astype(real) if shape else real(2))
    return result


def extras(module, kind, arguments, real):
    """Return the arguments of a function after the inputs."""
    random = np.random.default_rng(1)
    if kind == "vjp":
        return [random.normal(size=module.value(*arguments).shape).astype(real)]
    if kind not in ("jvp", "hvp"):
        return []
    shapes = {entry["name"]: a.shape for entry, a in zip(module.INPUTS, arguments, strict=True)}
    return [random.normal(size=shapes[name]).astype(real) for name in module.WRT]


def chunked(array):
    samples = np.ndim(array) > 0 and len(array) == SAMPLES
    return da.from_array(array, (CHUNK, *[-1] * (array.ndim - 1))) if samples else array


def leaves(result):
    return (
        [leaf for part in result for leaf in leaves(part)]
        if isinstance(result, tuple)
        else [result]
    )


def agrees(module, kind, real, other=None):
    """Assert that a function on chunks returns the same as `other`, or itself, on all samples."""
    arguments = values(next(f for f in FUNCTIONS if f.name in str(module.__file__)), real)
    arguments += extras(module, kind, arguments, real)
    expected = getattr(module, kind)(*arguments)
    lazy = map_samples(getattr(other or module, kind), *map(chunked, arguments))
    (actual,) = dask.compute(lazy, scheduler="synchronous")
    assert [type(part) for part in (lazy, actual)] == [type(expected)] * 2 or not isinstance(
        expected, tuple
    )
    tolerance = 1e-10 if real is np.float64 else 1e-4
    for one, two, three in zip(*map(leaves, (lazy, actual, expected)), strict=True):
        assert isinstance(one, da.Array)
        assert one.shape == two.shape == three.shape
        assert one.dtype == one._meta.dtype == two.dtype == three.dtype == real
        chunks = (3, 3, 1) if three.shape[:1] == (SAMPLES,) else three.shape[:1]
        assert one.chunks == (chunks, *((size,) for size in three.shape[1:]))
        np.testing.assert_allclose(two, three, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda function: function.name)
def test_what_one_call_returns(function):
    module = dx.compile(function)
    for kind in module.FUNCTIONS if function.name == "scalar" else ("value", "vjp", "jvp"):
        agrees(module, kind, np.float64)
    agrees(module, "vjp", np.float32)


def test_a_fault_is_noticed():
    module = dx.compile(FUNCTIONS[1])
    fault = (1 + 1e-4) * dx.tanh(s * (W @ x))
    wrong = dx.compile(dx.function("wrong", [s, W, x], fault, batch=[x], wrt=[W]))
    with pytest.raises(AssertionError):
        agrees(module, "vjp", np.float64, wrong)


def test_samples_in_other_chunks_are_aligned():
    module = dx.compile(FUNCTIONS[2])
    S_value, x_value = values(FUNCTIONS[2], np.float64)
    lazy = map_samples(
        module.value, da.from_array(S_value, (2, -1, -1)), da.from_array(x_value, (7, -1))
    )
    np.testing.assert_allclose(
        lazy.compute(scheduler="synchronous"), module.value(S_value, x_value)
    )


@pytest.mark.parametrize("structure", STRUCTURES)
def test_a_full_matrix_counts_as_the_nearest_of_its_structure(structure):
    module, close = scalar(structure, ("x",)), nearest(structure, full())
    points = np.stack([POINT, 2 * POINT])
    for kind, more in (("value", []), ("vjp", [np.ones(2)]), ("hvp", [full(), points])):
        lazy = map_samples(getattr(module, kind), full(), da.from_array(points, (1, -1)), *more)
        result = dask.compute(lazy, scheduler="synchronous")
        for one, other in zip(
            *map(leaves, (result, getattr(module, kind)(close, points, *more))), strict=True
        ):
            np.testing.assert_allclose(one, other, rtol=1e-12, atol=1e-13)


def test_a_matrix_of_truth_values_is_one_of_numbers():
    module, matrix = scalar("symmetric", ("x",)), np.eye(3, dtype=bool)
    lazy = map_samples(module.value, matrix, POINT[None])
    expected = module.value(np.eye(3), POINT[None])
    np.testing.assert_allclose(lazy.compute(scheduler="synchronous"), expected, rtol=1e-14)


def test_arguments_have_names_and_numbers_are_numbers():
    module = dx.compile(FUNCTIONS[1])
    _, W_value, x_value = values(FUNCTIONS[1], np.float32)
    expected = module.value(2, W_value, x_value)
    for number in (2, 2.0, np.float64(2)):
        lazy = map_samples(module.value, W=W_value, x=chunked(x_value), s=number)
        assert lazy.dtype == expected.dtype
        np.testing.assert_array_equal(lazy.compute(scheduler="synchronous"), expected)
    with pytest.raises(dx.UnsupportedError, match=r"shared.value: .*; it takes s, W, x"):
        map_samples(module.value, W=W_value, x=x_value)


X_value, W_value, b_value = values(FUNCTIONS[0], np.float64)
masked = da.from_array(X_value)[da.from_array(X_value)[:, 0] > 0]


@pytest.mark.parametrize(
    ("arrays", "error", "said"),
    [
        (
            [da.from_array(X_value, (3, 2)), W_value, b_value],
            dx.UnsupportedError,
            r"x is in chunks \(2, 1\) along axis 1.*x.rechunk\(\{1: -1\}\)",
        ),
        (
            [X_value, da.from_array(W_value, (1, 3)), b_value],
            dx.UnsupportedError,
            r"W is in chunks .*W.rechunk\(\{0: -1\}\)",
        ),
        (
            [X_value + 1j, W_value, b_value],
            dx.UnsupportedError,
            "x is of ndarrays of dtype complex128",
        ),
        ([X_value, W_value.T, b_value], dx.ShapeError, r"W has shape \(3, 2\)"),
        ([X_value, W_value], dx.UnsupportedError, r"takes 3 arrays \(x, W, b\), not 2"),
        (
            [masked, W_value, b_value],
            dx.ShapeError,
            r"shape of argument x is not known.*compute_chunk_sizes",
        ),
    ],
)
def test_arrays_that_do_not_fit(arrays, error, said):
    with pytest.raises(error, match=f"scalar.*{said}"):
        map_samples(dx.compile(FUNCTIONS[0]).value, *arrays)


def test_functions_that_do_not_fit():
    module = dx.compile(FUNCTIONS[0])
    for wrong in (
        module.value_kernel,
        module.hessian_operator,
        np.sin,
        partial(module.value),
        module,
    ):
        with pytest.raises(dx.UnsupportedError, match=r"function of a generated module.*not "):
            map_samples(wrong, X_value, W_value, b_value)
    alone = dx.compile(dx.function("alone", [x], x @ x))
    with pytest.raises(dx.UnsupportedError, match=r"alone.value: no input has a batch axis"):
        map_samples(alone.value, X_value)
    with pytest.raises(
        dx.ShapeError, match=r"scalar: argument cotangent has the batch axes \(2,\)"
    ):
        map_samples(module.vjp, X_value, W_value, b_value, np.ones(2))


@pytest.mark.parametrize(
    ("x_axes", "s_axes"),
    [((4, 6), (4, 6)), ((4, 1), (6,)), ((4, 6), ()), ((2, 4, 1), (4, 6)), ((), ())],
)
def test_several_batch_axes_in_chunks(x_axes, s_axes):
    function = dx.function("layers", [x, W, s], s * dx.tanh(W @ x), batch=[x, s])
    module = dx.compile(function)
    random = np.random.default_rng(2)
    arguments = [random.normal(size=size) for size in ((*x_axes, 3), (2, 3), s_axes)]
    lazy = [
        da.from_array(arguments[0], (*[2] * len(x_axes), -1)),
        arguments[1],
        da.from_array(arguments[2], (3,) * len(s_axes)),
    ]
    for kind in ("value", "vjp", "jacobian"):
        if kind == "vjp":
            lazy.append(da.ones_like(map_samples(module.value, *lazy)))
            arguments.append(np.ones_like(module.value(*arguments)))
        result = map_samples(getattr(module, kind), *lazy[: len(arguments)])
        expected = getattr(module, kind)(*arguments)
        if kind == "vjp":
            del lazy[-1], arguments[-1]
        for array, computed, other in zip(
            leaves(result), leaves(dask.compute(result)[0]), leaves(expected), strict=True
        ):
            assert array.shape == computed.shape == other.shape
            np.testing.assert_allclose(computed, other, rtol=1e-12, atol=1e-14)
