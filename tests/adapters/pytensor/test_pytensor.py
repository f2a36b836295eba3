"""The Ops of generated modules, by PyTensor's own check of gradients."""

import copy
import pickle
import warnings
from types import ModuleType
from typing import Any

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.compile.mode import Mode
from pytensor.gradient import GradientError, NullTypeGradError, Rop, verify_grad

import derivatrix as dx
from derivatrix.pytensor import operator
from tests.full_matrices import POINT, STRUCTURES, full, nearest, product, scalar
from tests.pages import run_page

n, m = dx.dims("n m")
S, C = dx.matrix("S", n, n, "spd"), dx.matrix("C", n, n)
X, A, s = dx.matrix("X", n, n), dx.matrix("A", m, n), dx.scalar("s")
x = dx.vector("x", n)
LIKELIHOOD = dx.function("likelihood", [S, C], dx.logdet(S) + dx.trace(dx.inv(S) @ C), ["S"])
PRODUCT = dx.function("product", [X, A, s], s * (A @ X @ X), ["A", "X", "s"])
LAYER = dx.function("layer", [x, A], dx.tanh(A @ x), batch=[x])
PYTHON = Mode("py")


def of_any(M: Any) -> Any:
    """The likelihood of a positive definite matrix that depends on any."""
    eye = np.eye(3, dtype=M.dtype)
    return operator(LIKELIHOOD)(M @ M.T + 3 * eye, eye)


def slope(M: Any, *others: Any) -> Any:
    """The gradient by a matrix of a function of an array-valued one."""
    return pytensor.gradient.grad((operator(PRODUCT)(M, *others) ** 2).sum(), M)


def drawn(*shapes: tuple[int, ...], dtype: Any = np.float64) -> list[np.ndarray]:
    random = np.random.default_rng(0)
    return [np.asarray(random.normal(size=shape), dtype) for shape in shapes]


CASES: dict[str, tuple[Any, list[tuple[int, ...]]]] = {
    "scalar": (of_any, [(3, 3)]),
    "array": (lambda *a: operator(PRODUCT)(*a), [(3, 3), (2, 3), ()]),
    "batch": (lambda *a: operator(LAYER)(*a), [(4, 3), (2, 3)]),
    "gradient": (lambda M: pytensor.gradient.grad(of_any(M), M), [(3, 3)]),
    "slope": (slope, [(3, 3), (2, 3), ()]),
}


@pytest.mark.filterwarnings("error:.*object mode")
@pytest.mark.parametrize(
    ("name", "mode"),
    [
        ("scalar", "NUMBA"),
        ("array", "NUMBA"),
        ("slope", "NUMBA"),
        *((name, PYTHON) for name in CASES),
    ],
    ids=lambda part: part if isinstance(part, str) else "PYTHON",
)
def test_gradients(name: str, mode: Any) -> None:
    function, shapes = CASES[name]
    random = np.random.default_rng(1)
    tight = {"abs_tol": 1e-6, "rel_tol": 1e-6}
    verify_grad(function, drawn(*shapes), rng=random, mode=mode, **tight)


def test_float32() -> None:
    function, shapes = CASES["array"]
    values = drawn(*shapes, dtype=np.float32)
    verify_grad(function, values, rng=np.random.default_rng(1), mode=PYTHON)
    made = function(*(pt.as_tensor_variable(value) for value in values))
    assert made.dtype == "float32" and made.eval(mode="NUMBA").dtype == np.float32
    mixed = operator(PRODUCT)(values[0], pt.dmatrix(), values[2])
    assert mixed.dtype == "float64"
    assert operator(PRODUCT)(*values[:2], pt.dscalar()).dtype == "float32"  # a number is no array


@pytest.mark.filterwarnings("ignore:Rop is deprecated")
@pytest.mark.parametrize("name", ["scalar", "array", "second", "slope"])
def test_forward_derivatives(name: str) -> None:
    """`R_op` and two applications of reverse mode give the same."""
    M, N = pt.dmatrices(2)
    if name == "slope":
        value = slope(M, np.ones((2, 3)), 2.0)
    elif name == "array":
        value = operator(PRODUCT)(M, np.ones((2, 3)), 2.0)
    else:
        value = operator(LIKELIHOOD)(M, np.eye(3))
        value = value if name == "scalar" else pytensor.gradient.grad(value, M)
    both = [Rop(value, M, N, use_op_rop_implementation=own) for own in (True, False)]
    point, along = drawn((3, 3), (3, 3))
    result = pytensor.function([M, N], both, mode=PYTHON)(point @ point.T + np.eye(3), along)
    assert np.abs(result[0]).max() > 0.1
    np.testing.assert_allclose(result[0], result[1], rtol=1e-12)


def test_a_value_and_its_gradient_are_one_call_which_raises() -> None:
    M = pt.dmatrix()
    value = operator(LIKELIHOOD)(M, np.eye(3))
    function = pytensor.function([M], [value, pytensor.gradient.grad(value, M)], mode="NUMBA")
    names = [str(node.op) for node in function.maker.fgraph.apply_nodes]
    assert [name for name in names if name.startswith("likelihood")] == [
        "likelihood.value_and_gradient"
    ]
    module, point = dx.compile(LIKELIHOOD), 2 * np.eye(3)
    expected = module.value_and_gradient(point, np.eye(3))
    for actual, wanted in zip(function(point), expected, strict=True):
        np.testing.assert_allclose(actual, wanted, rtol=1e-14)
    with pytest.raises(np.linalg.LinAlgError):
        function(-np.eye(3))
    with pytest.raises(ValueError, match="likelihood"):
        function(np.eye(2))
    alone = pytensor.function([M], value, mode=PYTHON).maker.fgraph.apply_nodes
    assert "likelihood.value" in {str(node.op) for node in alone}


def test_a_wrong_gradient_is_refused() -> None:
    right = dx.compile(LIKELIHOOD)

    def wrong(*arguments: Any) -> Any:
        value, gradient = right.value_and_gradient(*arguments)
        return value, gradient * (1 + 1e-4)

    module = ModuleType(right.__name__)
    vars(module).update({**vars(right), "value_and_gradient": wrong})

    def check(module: ModuleType) -> None:
        verify_grad(
            lambda M: operator(module)(M @ M.T + np.eye(3), np.eye(3)),
            drawn((3, 3)),
            rng=np.random.default_rng(1),
            mode=PYTHON,
            abs_tol=1e-5,
            rel_tol=1e-5,
        )

    check(right)
    with pytest.raises(GradientError):
        check(module)


@pytest.mark.parametrize("structure", STRUCTURES)
def test_a_full_matrix_counts_as_the_nearest_of_its_structure(structure: str) -> None:
    close = nearest(structure, full())
    for module in (product(structure), scalar(structure)):
        M, x = pt.dmatrix(), pt.dvector()
        value = operator(module)(M, x)
        gradients = pytensor.gradient.grad(value.sum(), [M, x])
        actual = pytensor.function([M, x], [value, *gradients], mode=PYTHON)(full(), POINT)
        expected = module.value(close, POINT)
        cotangents = module.vjp(close, POINT, np.ones(np.shape(expected)))
        for one, other in zip(actual, (expected, *cotangents), strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-12, atol=1e-14)
        random = np.random.default_rng(1)
        verify_grad(operator(module), [full(), POINT], rng=random, mode=PYTHON, abs_tol=1e-5)
    compiled = pytensor.function([M, x], value, mode="NUMBA")
    garbage = (
        np.where(close == 0, np.nan, full()) if structure not in ("spd", "symmetric") else close
    )
    np.testing.assert_allclose(compiled(garbage, POINT), module.value(close, POINT), rtol=1e-14)


@pytest.mark.parametrize(
    ("x_axes", "s_axes"), [((4, 5), (4, 5)), ((), ()), ((4, 1), (5,)), ((4, 5), ()), ((1,), (3,))]
)
def test_several_batch_axes(x_axes: tuple[int, ...], s_axes: tuple[int, ...]) -> None:
    scaled = operator(dx.function("scaled", [x, A, s], s * dx.tanh(A @ x), batch=[x, s]))
    values = drawn((*x_axes, 3), (2, 3), s_axes)
    inputs = [pt.tensor(shape=value.shape, dtype="float64") for value in values]

    def by_pytensor(x: Any, A: Any, s: Any) -> Any:
        return s[..., None] * pt.tanh(pt.dot(x, A.T))

    results = []
    for function in (scaled, by_pytensor):
        value = function(*inputs)
        gradients = pytensor.gradient.grad(pt.sin(value).sum(), inputs)
        results.append(pytensor.function(inputs, [value, *gradients], mode=PYTHON)(*values))
    for ours, theirs in zip(*results, strict=True):
        assert ours.shape == theirs.shape
        np.testing.assert_allclose(ours, theirs, rtol=1e-10, atol=1e-12)
    stretched = scaled(pt.dmatrix(), np.ones((2, 3)), pt.dvector())
    with pytest.raises(dx.ShapeError, match=r"lengths of the batch axes differ: \[1, 3\]"):
        pytensor.function(stretched.owner.inputs[::2], stretched, mode=PYTHON)(
            np.ones((1, 3)), np.ones(3)
        )


def test_numbers_and_names() -> None:
    values = drawn((3, 3), (2, 3), dtype=np.float32)
    for number in (2, 2.5, True, np.float32(1.5)):
        made = operator(PRODUCT)(s=number, X=values[0], A=values[1])
        assert made.dtype == "float32"
        np.testing.assert_allclose(
            made.eval(mode=PYTHON), dx.compile(PRODUCT).value(*values, number), rtol=1e-6
        )
    with pytest.raises(dx.UnsupportedError, match=r"product.value: .*; it takes X, A, s"):
        operator(PRODUCT)(values[0], A=values[1])


ERRORS = {
    "integers": ((pt.lmatrix(), np.eye(2)), dx.UnsupportedError, "S is a tensor of int64.*astype"),
    "complex": ((pt.zmatrix(), np.eye(2)), dx.UnsupportedError, "S is a tensor of complex128"),
    "no tensor": ((object(), np.eye(2)), dx.UnsupportedError, "S is object; expected a tensor"),
    "axes": ((np.eye(2), pt.dvector()), dx.ShapeError, "C has 1 axes; expected 2"),
    "count": ((np.eye(2),), dx.ShapeError, "1 arguments; expected 2"),
}


@pytest.mark.parametrize("name", ERRORS)
def test_errors(name: str) -> None:
    arguments, kind, text = ERRORS[name]
    with pytest.raises(kind, match=text):
        operator(LIKELIHOOD)(*arguments)


def test_derivatives_that_there_are_not(tmp_path: Any) -> None:
    M, N = pt.dmatrices(2)
    value = operator(LIKELIHOOD)(M, N)
    with pytest.raises(NullTypeGradError, match="no derivative by C; declare it in wrt"):
        pytensor.gradient.grad(value, N)
    curvature = pytensor.gradient.grad(slope(M, np.ones((2, 3)), 2.0).sum(), M)
    with pytest.raises(NullTypeGradError, match="there are no third derivatives"):
        pytensor.gradient.grad(curvature.sum(), M)
    dx.build(PRODUCT, tmp_path / "out", verify=False)
    product = operator(dx.load(tmp_path / "out" / "product.py"))
    squared = (product(M, np.ones((2, 3)), 2.0) ** 2).sum()
    with pytest.raises(NullTypeGradError, match=r"no second derivatives.*--second"):
        pytensor.gradient.grad(pytensor.gradient.grad(squared, M).sum(), M)
    with pytest.raises(dx.UnsupportedError, match="no derivative by C"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        Rop(value, N, N, use_op_rop_implementation=True)


def test_operators_are_pickled() -> None:
    op = operator(PRODUCT)
    assert pickle.loads(pickle.dumps(op)) == copy.deepcopy(op) == op


def test_the_page_runs() -> None:
    result = run_page("pytensor")
    assert result["gradient"].shape == (2, 2)
