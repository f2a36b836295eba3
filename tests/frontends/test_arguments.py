"""Every argument of every NumPy and SciPy function that takes symbolic arrays: NumPy's result, or
an error that names the argument."""

import inspect
from typing import Any

import numpy as np
import pytest
import scipy.special
import sympy

import derivatrix as dx
from derivatrix.compiler.frontends.numpy import _find, _qualified
from derivatrix.compiler.ir import dimensions
from derivatrix.compiler.ir.arrays import Array
from derivatrix.compiler.ir.interpret import evaluate
from derivatrix.runtime.errors import DerivatrixError, UnsupportedError

generator = np.random.default_rng(0)
POINTS = {
    "X": np.exp(generator.normal(size=(3, 4))),
    "G": np.eye(3) * 4 + generator.normal(size=(3, 3)),
    "T": np.exp(generator.normal(size=(2, 3, 3))),
    "x": generator.uniform(0.1, 0.9, size=3),
}
SYMBOLS = {
    "X": dx.matrix("X", "n", "m"),
    "G": dx.matrix("G", "n", "n"),
    "T": dx.tensor("T", 2, 3, 3),
    "x": dx.vector("x", "n"),
}
SIZES = {"n": 3, "m": 4}


class Sample:
    """An expression of the samples, at symbols or at numbers."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __repr__(self) -> str:
        return self.text

    def at(self, values: dict[str, Any]) -> Any:
        return eval(self.text, {"np": np}, values)


ARGUMENTS: dict[str, tuple[str, ...]] = {
    "numpy.block": ("[[X, X], [X, X]]",),
    "numpy.cross": ("X[:, :3]", "X[:, 1:4]"),
    "numpy.linalg.cross": ("X[:, :3]", "X[:, 1:4]"),
    "numpy.broadcast_to": ("X[:1, :2]", "(2, 2)"),
    "numpy.column_stack": ("[x, x]",),
    "numpy.concatenate": ("[X, X]",),
    "numpy.cumprod": ("x",),
    "numpy.cumsum": ("x",),
    "numpy.cumulative_prod": ("x",),
    "numpy.cumulative_sum": ("x",),
    "numpy.diag": ("G",),
    "numpy.diagonal": ("G",),
    "numpy.dot": ("G", "x"),
    "numpy.einsum": ("'ij,j->i'", "G", "x"),
    "numpy.expand_dims": ("X", "1"),
    "numpy.full_like": ("X", "2.5"),
    "numpy.hstack": ("[x, x]",),
    "numpy.i0": ("x",),
    "numpy.inner": ("G", "x"),
    "numpy.kron": ("X", "G"),
    "numpy.matvec": ("G", "x"),
    "numpy.moveaxis": ("T", "0", "2"),
    "numpy.outer": ("x", "x"),
    "numpy.reshape": ("T", "(6, 3)"),
    "numpy.roll": ("x", "1"),
    "numpy.select": ("[X > 1, X > 0.5]", "[X, 2 * X]"),
    "numpy.stack": ("[X, X]",),
    "numpy.swapaxes": ("T", "0", "2"),
    "numpy.take": ("T", "[1, 0]"),
    "numpy.tensordot": ("G", "G"),
    "numpy.trace": ("G",),
    "numpy.result_type": ("X", "np.float64"),
    "numpy.vecmat": ("x", "G"),
    "numpy.vstack": ("[x, x]",),
    "numpy.where": ("X > 1", "X", "2 * X"),
    "numpy.linalg.matrix_power": ("G", "3"),
    "numpy.linalg.multi_dot": ("[G, G, x]",),
    "numpy.linalg.norm": ("X",),
    "numpy.linalg.outer": ("x", "x"),
    "numpy.linalg.lstsq": ("G", "x"),
}
"""Arguments of functions that do not take any array, as texts."""
CONDITIONS = ("bitwise_and", "bitwise_or", "invert", "logical_and", "logical_or", "logical_not")
BESSEL = ("jv", "yv", "iv", "kv")
OTHER_VALUES: dict[str, tuple[Any, ...]] = {
    "axis": (0, -1, (0, 1), 7),
    "axes": (1, (1, 0), ([0], [1])),
    "axis1": (1, -1),
    "axisa": (0,),
    "axisb": (0,),
    "axisc": (0,),
    "kind": ("stable", "quicksort"),
    "stable": (True,),
    "axis2": (-1, 2),
    "keepdims": (True,),
    "ddof": (1, 2),
    "correction": (1,),
    "dtype": (np.float64, np.float32, int),
    "out": (np.zeros((3, 4)), (np.zeros(3),)),
    "where": (np.array([[True, False, True, False]] * 3), False),
    "initial": (2.0,),
    "include_initial": (True,),
    "order": ("F", "A", "K", "C"),
    "casting": ("unsafe", "no"),
    "subok": (False, True),
    "shape": ((2, 2),),
    "device": ("gpu",),
    "copy": (True, False),
    "mode": ("clip", "r", "complete", "raw"),
    "ord": (1, 2, -2, np.inf, 3, 0, "nuc", "fro"),
    "p": (1, -2, np.inf, "fro", "nuc", 0),
    "rcond": (0.3, -1),
    "rtol": (0.3,),
    "hermitian": (True,),
    "full_matrices": (False,),
    "compute_uv": (False,),
    "UPLO": ("U", "l", "X"),
    "upper": (True,),
    "offset": (1, -1),
    "k": (1, -1),
    "n": (2, 0),
    "prepend": (1.0,),
    "append": (1.0,),
    "optimize": (True, "greedy"),
    "mean": (0.5,),
    "default": (3.0,),
    "a_min": (0.5,),
    "a_max": (1.5,),
    "min": (0.5,),
    "max": (1.5,),
    "signature": ("dd->d",),
}
UFUNC_ARGUMENTS = {"dtype": None, "casting": "same_kind", "order": "K", "subok": True}
LENIENT = [("numpy.clip", "a_min"), ("numpy.clip", "a_max")]
"""Arguments that NumPy has only together with others."""
WORDS = dict.fromkeys(["axes", "axis", "axis1", "axis2"], "ax")
"""Argument -> the text that error messages contain in place of its name."""
UNORDERED = ("numpy.linalg.eig", "numpy.linalg.eigvals")
"""Functions whose eigenvalues NumPy leaves in an order of its own."""


def accepted() -> dict[str, Any]:
    """The functions that have a meaning for symbolic arrays, by their names."""
    functions = {}
    for module in (np, np.linalg, np.fft, np.emath, scipy.special):
        for name in dir(module):
            function = getattr(module, name)
            is_dispatched = hasattr(function, "_implementation") and not inspect.isclass(function)
            if name.startswith("_") or not (isinstance(function, np.ufunc) or is_dispatched):
                continue
            try:
                _find(_qualified(function))
            except UnsupportedError:
                continue
            functions[_qualified(function)] = function
    return functions


FUNCTIONS = accepted()


def sample_arguments(name: str, function: Any) -> list[Sample]:
    if name in ARGUMENTS:
        return list(map(Sample, ARGUMENTS[name]))
    short = name.rpartition(".")[2]
    if short in CONDITIONS:
        return [Sample("X > 1"), Sample("X > 0.5")][: function.nin]
    if short in BESSEL:
        return [Sample("1.0"), Sample("X")]
    if isinstance(function, np.ufunc):
        text = "G" if function.signature else "x + 1"
        if short in ("arctanh", "erfinv", "logit", "arcsin", "arccos"):
            text = "x"
        return [Sample(text), Sample("G" if function.signature else "2 - x")][: function.nin]
    required = [
        parameter
        for parameter in inspect.signature(function).parameters.values()
        if parameter.default is parameter.empty and parameter.kind is not parameter.VAR_KEYWORD
    ]
    return [Sample("G" if "linalg" in name else "X")] * len(required)


def arguments_with_defaults(function: Any) -> dict[str, Any]:
    if isinstance(function, np.ufunc):
        core = {"axis": -1} if function.__name__ == "vecdot" else {}
        return UFUNC_ARGUMENTS | (core if function.signature else {"where": True})
    parameters = inspect.signature(function).parameters.values()
    passed = ("x", "y") if function is np.where else ()
    return {
        parameter.name: parameter.default
        for parameter in parameters
        if parameter.default is not parameter.empty and parameter.name not in passed
    }


def numbers(result: Any) -> Any:
    if isinstance(result, Array):
        return evaluate(result.node, POINTS, SIZES)
    if isinstance(result, (tuple, list)):
        return [numbers(part) for part in result]
    if isinstance(result, np.dtype):
        return numbers(result.num)
    if isinstance(result, sympy.Expr):
        result = dimensions.evaluate(result, SIZES)
    return np.asarray(result, dtype=float)


def require_equal(name: str, actual: Any, expected: Any) -> None:
    """Equal shapes and numbers; of vectors that are determined but for a sign, absolute values."""
    if isinstance(actual, list):
        assert len(actual) == len(expected)
        for one, two in zip(actual, expected, strict=True):
            require_equal(name, one, two)
        return
    assert np.shape(actual) == np.shape(expected)
    if name.rpartition(".")[2] in ("eigh", "svd", "qr", "eig"):
        actual, expected = abs(actual), abs(np.real(expected))
    if name in UNORDERED:
        actual, expected = np.sort(actual, None), np.sort(expected, None)
    np.testing.assert_allclose(actual, expected, rtol=1e-9, atol=1e-9)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", FUNCTIONS)
def test_every_argument_is_understood_or_named(name: str) -> None:
    function = FUNCTIONS[name]
    samples = sample_arguments(name, function)
    symbols = [sample.at(SYMBOLS) for sample in samples]
    points = [sample.at(POINTS) for sample in samples]
    require_equal(name, numbers(function(*symbols)), numbers(function(*points)))
    for argument, default in arguments_with_defaults(function).items():
        if default is not np._NoValue:
            explicit = function(*symbols, **{argument: default})
            require_equal(name, numbers(explicit), numbers(function(*points)))
        for value in OTHER_VALUES[argument]:
            try:
                actual = function(*symbols, **{argument: value})
            except DerivatrixError as error:
                assert WORDS.get(argument, argument) in str(error), f"{argument}={value!r}: {error}"
                continue
            if argument == "dtype":
                require_equal(name, numbers(actual), numbers(function(*points)))
            elif (name, argument) not in LENIENT:
                expected = function(*points, **{argument: value})
                require_equal(name, numbers(actual), numbers(expected))


ODD = np.array([-2.5, -2.0, -1.0, -0.5, 0.0, 0.5, 1.0, 2.0, 3.5])
PAIRS = np.meshgrid(ODD, ODD)
UFUNCS = [
    name
    for name, function in FUNCTIONS.items()
    if isinstance(function, np.ufunc)
    and not function.signature
    and name.rpartition(".")[2] not in CONDITIONS
]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", UFUNCS)
def test_ufuncs_mean_what_they_mean_outside_their_domains(name: str) -> None:
    function = FUNCTIONS[name]
    shape = PAIRS[0].shape
    a, b = dx.tensor("a", *shape), dx.tensor("b", *shape)
    if name.rpartition(".")[2] in BESSEL:
        orders = (0.0, 1.0, 2.0, 0.5, -1.0, -0.5)
        actual = [function(order, a) for order in orders]
        expected = [function(order, PAIRS[0]) for order in orders]
    else:
        actual = function(*[a, b][: function.nin])
        expected = function(*PAIRS[: function.nin])
    if isinstance(actual, Array):
        actual, expected = [actual], [expected]
    for one, two in zip(actual, expected, strict=True):
        values = evaluate(one.node, {"a": PAIRS[0], "b": PAIRS[1]}, {})
        np.testing.assert_allclose(values, np.asarray(two, float), rtol=1e-9)


def at_points(text: str, values: dict[str, Any]) -> Any:
    return eval(text, {"np": np, "integers": np.arange(12).reshape(3, 4) - 5}, values)


LARGE = {
    "X": generator.normal(size=(3, 4)),
    "G": generator.normal(size=(3, 3)),
    "T": generator.normal(size=(2, 3, 4)),
    "W": generator.normal(size=(2, 3, 3)),
    "x": generator.normal(size=3),
    "y": np.array([1.0, 1.0, 0.0]),
    "s": np.array(-1.5),
    "B": generator.normal(size=(5, 3)),
    "h": generator.normal(size=(3, 1)),
    "Q": np.array([[2.0, 1, 0], [0, 3, 1], [0, 0, 5]]),
}
SAME = """np.ravel(X, "F") | np.ravel(T, order="F") | X.flatten("F") | X.ravel(order="F")
np.reshape(T, (4, 6), order="F") | T.reshape(-1, 4, order="F") | T.reshape((4, 3, -1), order="F")
np.linalg.eigvalsh(G) | np.linalg.eigvalsh(G, "U") | np.linalg.eigh(W)[0]
np.linalg.eigh(W, UPLO="U").eigenvalues | np.linalg.cholesky(W * 0.1 + np.eye(3))
np.linalg.cholesky(W * 0.1 + np.eye(3), upper=True) | np.linalg.svd(G, hermitian=True)[1]
np.linalg.svd(W, compute_uv=False, hermitian=True) | np.linalg.pinv(G, hermitian=True)
np.linalg.eigvals(Q) | np.linalg.lstsq(B, B[:, 0])[1] | np.linalg.lstsq(B, B)[1]
np.linalg.lstsq(X, x)[1] | np.linalg.lstsq(G, X)[1] | np.linalg.lstsq(G, x)[0]
np.linalg.slogdet(1e-200 * Q)[0] | np.linalg.slogdet(W)[0] | np.linalg.slogdet(0 * G)[0]
np.linalg.slogdet(-Q)[0] | np.linalg.norm(T, 1, (2, 0)) | np.linalg.norm(T, -1, (-1, 0), True)
np.linalg.matrix_norm(X, ord=1) | np.linalg.norm(x, -2) | np.linalg.matrix_power(G, np.int64(3))
np.einsum("...,i->i...", X[0], x) | np.einsum("...i,j->j...i", T, x) | np.einsum("ij...->...", T)
np.block([[s, 1], [2, 3]]) | np.block([[x], [x]]) | np.block([s, s]) | np.block(x)
np.block([[1, x], [y, 2]]) | np.block([[G], [x]]) | np.block([[[s]], [[s]]]) | np.block([[T]])
np.concatenate([X, X], None) | np.vstack([s, s]) | np.hstack([s, x]) | np.column_stack([s, s])
np.trace(W, axis1=-2, axis2=-1) | np.trace(W, 1, 1, 2) | np.diagonal(T, axis1=2, axis2=0)
np.diagonal(T, 1, 1, 2) | np.diag(G, np.int64(1)) | np.var(x, ddof=np.int64(1))
np.tensordot(T, X, np.int64(2)) | np.broadcast_to(x, 3) | np.vecdot(X, X) | np.take(X, -1, axis=-1)
np.atleast_2d(x, X)[0] | X.take([0, -1], 1) | X.clip(min=0) | X.std(0, ddof=1) | X.cumsum(0)
np.var(X, 0, correction=1) | np.clip(integers, x[0], x[1]) | np.where(integers > 0, X, integers)
np.select([x > 1, x > 0], [x, y], -3) | x[np.array(1)] | np.sum(T, ()) | np.max(y)
np.add.accumulate(X) | np.multiply.accumulate(X, 1) | np.logaddexp.accumulate(x)
np.maximum.reduce(X) | np.minimum.reduce(X, axis=(0, 1)) | np.logaddexp.reduce(X, 1)
X.cumprod(1) | G // G | G[:, None] % G[None]"""
REFUSED = """np.maximum.accumulate(x) | np.add.reduceat(x, [0]) | x[x > 0]
np.argmin(x) | np.emath.sqrt(x) | X.cumsum() | T.trace() | np.trace(T) | X.ravel("A")
np.reshape(X, -1, "K") | np.reshape(X, (5, -1)) | np.diff(x, -1) | np.block([[x], x])
np.select([x > 0], [x, y]) | np.roll(X, (1, 2), (0, 1)) | np.linalg.cond(G, 3)
np.vecdot(h, X) | np.add(x, 1, casting="unsafe") | X.sum(initial=2.0) | X.mean(where=X > 0)
[v for v in symbolic] | list(s) | sum(symbolic) | symbolic.diff(symbolic)"""


def listed(texts: str) -> list[str]:
    return [text.strip() for text in texts.replace("\n", "|").split("|")]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("text", listed(SAME))
def test_what_numpy_users_type_means_the_same(text: str) -> None:
    symbols = {name: dx.tensor(name, *value.shape) for name, value in LARGE.items()}
    expected = at_points(text, LARGE)
    actual = at_points(text, symbols)
    values = evaluate(actual.node, LARGE, {}) if isinstance(actual, Array) else actual
    assert np.shape(values) == np.shape(expected)
    np.testing.assert_allclose(values, expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("text", listed(REFUSED))
def test_what_has_no_meaning_is_refused(text: str) -> None:
    symbols = {name: dx.tensor(name, *value.shape) for name, value in LARGE.items()}
    with pytest.raises(DerivatrixError):
        at_points(text, symbols | {"symbolic": dx.vector("symbolic", "n")})
