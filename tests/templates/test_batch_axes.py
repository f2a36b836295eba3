"""Any number of batch axes, which broadcast, against calls of one sample at a time."""

import itertools

import numpy as np
import pytest

import derivatrix as dx

n, c = dx.dims("n c")
x, W, y, s = dx.vector("x", n), dx.matrix("W", c, n), dx.vector("y", c), dx.scalar("s")
WEIGHTS = np.random.default_rng(0).normal(size=(2, 3))
LENGTHS = {"x": (3,), "y": (2,), "s": (), "cotangent": (2,), "tangent_x": (3,), "tangent_y": (2,)}
LENGTHS |= {"tangent_s": (), "tangent": (3,)}
AXES = {
    "two": {"x": (4, 5), "y": (4, 5), "s": (4, 5), "cotangent": (4, 5)},
    "none": {"x": (), "y": (), "s": (), "cotangent": ()},
    "broadcast": {"x": (4, 1), "y": (1, 5), "s": (), "cotangent": (4, 5)},
    "stretched": {"x": (4, 5), "y": (1,), "s": (5,), "cotangent": (1, 1)},
    "one": {"x": (4,), "y": (1,), "s": (4,), "cotangent": (1,)},
    "three": {"x": (2, 1, 3), "y": (2, 3), "s": (1,), "cotangent": (2, 2, 3)},
    "empty": {"x": (4, 0), "y": (1, 1), "s": (), "cotangent": (0,)},
}


@pytest.fixture(scope="module")
def layer():
    return dx.compile(dx.function("layer", [x, W, y, s], s * y * dx.tanh(W @ x), batch=[x, y, s]))


@pytest.fixture(scope="module")
def loss():
    return dx.compile(dx.function("loss", [x, W], dx.logsumexp(W @ x), batch=[x]))


def arguments(kind, axes, strided=False):
    """The arguments of `layer`'s function by name; `strided`: not contiguous."""
    random = np.random.default_rng(1)
    names = {"vjp": ["cotangent"], "jvp": ["tangent_x", "tangent_W", "tangent_y", "tangent_s"]}
    arrays = {}
    for name in ("x", "W", "y", "s", *names.get(kind, ())):
        if name.endswith("W"):
            arrays[name] = WEIGHTS
            continue
        shape = axes[name.removeprefix("tangent_")] + LENGTHS[name]
        array = random.normal(size=shape)
        arrays[name] = np.stack([array, array], -1)[..., 0] if strided else array
    return arrays


def leaves(result):
    if isinstance(result, tuple):
        return [array for part in result for array in leaves(part)]
    return [result]


def by_sample(module, kind, arrays):
    """The results of one call for each sample, stacked; the cotangent of W is a sum."""
    stacks = {name: a for name, a in arrays.items() if not name.endswith("W")}
    leading = {name: a.shape[: a.ndim - len(LENGTHS[name])] for name, a in stacks.items()}
    axes = np.broadcast_shapes(*leading.values())
    full = {name: np.broadcast_to(a, axes + LENGTHS[name]) for name, a in stacks.items()}
    single = {
        name: a[(0,) * len(axes)] if a.size else np.ones(LENGTHS[name]) for name, a in full.items()
    }
    results = [
        np.empty(axes + np.shape(part)) for part in leaves(call(module, kind, arrays | single))
    ]
    for place in itertools.product(*map(range, axes)):
        sample = {name: a[place] for name, a in full.items()}
        for result, part in zip(results, leaves(call(module, kind, arrays | sample)), strict=True):
            result[place] = part
    if kind == "vjp":
        results[1] = results[1].sum(tuple(range(len(axes))))
    return results


def call(module, kind, arrays, **options):
    return getattr(module, kind)(*arrays.values(), **options)


@pytest.mark.parametrize("axes", AXES.values(), ids=AXES)
@pytest.mark.parametrize("kind", ["value", "vjp", "jvp", "jacobian"])
def test_results_are_those_of_each_sample(layer, kind, axes):
    for strided in (False, True):
        arrays = arguments(kind, axes, strided)
        results, expected = leaves(call(layer, kind, arrays)), by_sample(layer, kind, arrays)
        for result, array in zip(results, expected, strict=True):
            assert np.shape(result) == array.shape
            np.testing.assert_allclose(result, array, rtol=1e-12, atol=1e-12)


def test_kinds_of_scalar_functions(loss):
    points = np.random.default_rng(2).normal(size=(2, 4, 3))
    flat = points.reshape(8, 3)
    for kind in ("value", "gradient", "value_and_gradient", "hessian"):
        several, one = (leaves(getattr(loss, kind)(a, WEIGHTS)) for a in (points, flat))
        for result, expected in zip(several, one, strict=True):
            assert result.shape == (2, 4, *expected.shape[1:])
            np.testing.assert_array_equal(result.reshape(expected.shape), expected)
        single = leaves(getattr(loss, kind)(points[0, 0], WEIGHTS))
        for result, expected in zip(single, one, strict=True):
            np.testing.assert_allclose(result, expected[0], rtol=1e-13, atol=1e-15)
    value = loss.value(points[0, 0], WEIGHTS)
    assert type(value) is np.float64
    product = loss.hvp(points, WEIGHTS, points[0], 0 * WEIGHTS).x  # the tangent broadcasts
    hessians = loss.hessian(points, WEIGHTS).x.x
    np.testing.assert_allclose(product, np.einsum("bhij,hj->bhi", hessians, points[0]), atol=1e-14)


def test_large_batches_are_shared_by_threads(loss):
    points = np.random.default_rng(3).normal(size=(40, 3000, 3))
    expected = loss.value_and_gradient(points.reshape(-1, 3), WEIGHTS)
    value, gradient = loss.value_and_gradient(points, WEIGHTS)
    np.testing.assert_array_equal(value, expected.value.reshape(40, 3000))
    np.testing.assert_array_equal(gradient.x, expected.gradient.x.reshape(40, 3000, 3))
    by_weights = loss.vjp(points, WEIGHTS, np.ones((40, 1))).W
    np.testing.assert_allclose(by_weights, expected.gradient.W.sum(0), rtol=1e-10)


def test_contiguous_arrays_are_not_copied(layer, monkeypatch):
    arrays = arguments("value", AXES["two"])
    taken = []
    destinations = layer.value.__globals__["_destinations"]

    def spy(*passed):
        taken.extend(passed[-1])
        return destinations(*passed)

    monkeypatch.setitem(layer.value.__globals__, "_destinations", spy)
    layer.value(*arrays.values())
    for argument, array in zip(arrays.values(), taken, strict=True):
        assert np.shares_memory(argument, array)


@pytest.mark.parametrize("axes", AXES.values(), ids=AXES)
def test_out_has_the_shape_of_the_result(layer, axes):
    for kind in ("value", "vjp"):
        arrays = arguments(kind, axes)
        results = leaves(call(layer, kind, arrays))
        contiguous = [np.full_like(result, np.nan) for result in results]
        strided = [np.full((*np.shape(result), 2), np.nan)[..., 0] for result in results]
        for targets in (contiguous, strided):
            out = tuple(targets) if kind == "vjp" else targets[0]
            returned = leaves(call(layer, kind, arrays, out=out))
            for target, array, result in zip(targets, returned, results, strict=True):
                assert array is target
                np.testing.assert_array_equal(target, result)


def test_results_are_float32_if_all_arrays_are(loss, layer):
    points = np.ones((2, 4, 3), np.float32)
    assert loss.value(points, WEIGHTS.astype(np.float32)).dtype == np.float32
    numbers = [points, WEIGHTS.astype(np.float32), np.ones(2, np.float32), 2.0]
    assert layer.value(*numbers).dtype == np.float32
    assert layer.value([[1, 2, 3]], WEIGHTS, [1, 2], 2).dtype == np.float64


def changed(kind, axes, **arrays):
    return {**arguments(kind, AXES[axes]), **arrays}


REFUSED = [
    (
        changed("value", "two", y=np.ones((4, 2))),
        r"argument y has the batch axes \(4,\); expected axes that broadcast with \(4, 5\), those",
    ),
    (changed("value", "two", s=np.ones(3)), r"argument s has the batch axes \(3,\); expected axes"),
    (
        changed("vjp", "two", cotangent=np.ones((5, 4, 2))),
        r"argument cotangent has the batch axes \(5, 4\)",
    ),
    (
        changed("value", "two", x=np.ones((4, 5, 2))),
        r"argument W has shape \(2, 3\); expected \(c, n\) with c = 2, n = 2",
    ),
    (changed("value", "two", x=1.0), r"argument x has shape \(\); expected \(\*batch, n\)$"),
    (
        changed("value", "two", y=np.ones((4, 5, 3))),
        r"argument y has shape \(4, 5, 3\); expected \(\*batch, c\) with c = 2$",
    ),
    (changed("value", "two", W=np.ones((4, 2, 3))), r"argument W has shape .* batch=\[W\]$"),
]


@pytest.mark.parametrize(("arrays", "message"), REFUSED, ids=[text for _, text in REFUSED])
def test_axes_that_do_not_fit_are_refused(layer, arrays, message):
    with pytest.raises(ValueError, match=f"^layer: {message}"):
        call(layer, "vjp" if "cotangent" in arrays else "value", arrays)


def test_out_with_other_batch_axes_is_refused(layer):
    arrays = arguments("value", AXES["two"])
    with pytest.raises(ValueError, match=r"out has shape \(20, 2\); expected \(4, 5, 2\)"):
        call(layer, "value", arrays, out=np.empty((20, 2)))


@pytest.mark.parametrize("axes", AXES.values(), ids=AXES)
def test_operators_have_the_batch_axes(layer, axes):
    """By an input with batch axes, and by one that the samples share."""
    arrays = arguments("vjp", axes)
    cotangent = arrays.pop("cotangent")
    operators, jacobians = call(layer, "jacobian_operator", arrays), call(layer, "jacobian", arrays)
    values = call(layer, "value", arrays)
    cotangent = np.broadcast_to(cotangent, np.shape(values))
    cotangents = call(layer, "vjp", {**arrays, "cotangent": cotangent})
    for operator, jacobian, by_input in zip(operators, jacobians, cotangents, strict=True):
        assert operator.output_shape == cotangent.shape
        assert operator.input_shape == operator.T.output_shape == np.shape(by_input)
        close = {"rtol": 1e-12, "atol": 1e-12}
        np.testing.assert_allclose(operator.todense(), jacobian, **close)
        np.testing.assert_allclose(operator.T @ cotangent, by_input, **close)
        tangent = np.ones(operator.input_shape)
        flat = (operator @ tangent.reshape(-1)).reshape(operator.output_shape)
        np.testing.assert_allclose(operator @ tangent, flat, **close)
        assert operator.tosparse().shape == operator.shape
    assert operators.y.T.todense().shape == (*cotangent.shape, 2)
    diagonal = np.broadcast_to(np.diagonal(jacobians.y, axis1=-2, axis2=-1), cotangent.shape)
    np.testing.assert_allclose(operators.y.diagonal(), diagonal, rtol=1e-12)
    if cotangent.size:
        solution = operators.y.solve(cotangent)
        np.testing.assert_allclose(operators.y @ solution, cotangent, rtol=1e-9)


def test_hessian_operators_have_the_batch_axes(loss):
    points = np.random.default_rng(4).normal(size=(2, 4, 3))
    hessian = loss.hessian_operator(points, WEIGHTS).x.x
    dense = loss.hessian(points, WEIGHTS).x.x
    np.testing.assert_allclose(hessian.todense(), dense, atol=1e-14)
    product = np.einsum("bhij,bhj->bhi", dense, points)
    np.testing.assert_allclose(hessian @ points, product, atol=1e-14)


def test_axes_that_are_taken_for_sizes_exceed_no_memory():
    """A Jacobian with the axes of samples in place of n would have 10¹⁴ entries."""
    square = dx.compile(dx.function("square", [x], x**2, batch=[x]))
    assert square.jacobian(np.ones((1, 10_000_000, 1))).shape == (1, 10_000_000, 1, 1)


def test_a_size_of_the_name_batch_is_no_batch_axis():
    batch = dx.dims("batch")
    v = dx.vector("v", batch)
    total = dx.compile(dx.function("total", [v], dx.sum(v) * v))
    with pytest.raises(ValueError, match=r"v has shape \(2, 3\); expected \(batch,\); a stack of"):
        total.value(np.ones((2, 3)))
