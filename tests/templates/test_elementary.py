"""Elementwise functions of kernels: their errors at all kinds of numbers, in both precisions, and
that loops over them become vector code."""

import math
import re
from functools import cache
from pathlib import Path

import mpmath
import numba
import numpy as np
import pytest

import derivatrix as dx
from derivatrix.compiler.driver.pipeline import generate
from derivatrix.compiler.targets.cpu import VECTORISED
from derivatrix.templates.support.cpu import elementary, normal, trigonometric
from tests import plain
from tests.packages import loaded

MODULES = {"elementary": elementary, "normal": normal, "trigonometric": trigonometric}
FUNCTIONS = {
    operator: getattr(MODULES[file], name)
    for operator, path in VECTORISED.items()
    for file, name in [path.removeprefix("cpu.").split(".")]
}
BOUNDS = {"sinh": 4, "cosh": 4, "tanh": 4, "tan": 4, "erf": 4, "erfc": 4, "scaled_normcdf": 4}
"""Largest errors in units in the last place; 2 for other functions."""
DOMAINS = {"log": 0, "log1p": -1}
"""The functions return nan below, -inf at these."""

EDGES = (
    *(0, 1e-300, 1e-30, 1e-17, 1e-10, 1e-9, 1e-5, 0.25, 0.34657, 0.3466, 0.5, 0.7071, 0.70711),
    *(1, 1.0397, 1.4142, 1.41422, 2, 4, 6, 8, 9.1, 10, 10.05, 10.6, 17, 20, 26.5, 27.2, 28, 36.8),
    *(40, 87.3, 88.7, 88.73, 89.4, 89.42, 103.2, 103.98, 104, 708.3, 708.4, 709.78, 709.79, 710),
    *(710.47, 710.48, 744.4, 745.13, 745.14, 746, 2.0**25, 2.0**53, 2.0**54, 2.0**86, 1e22, 1e300),
    6381956970095103 * 2.0**797,  # the double closest to a multiple of pi / 2
    16367173 * 2.0**72,  # the single
)


@pytest.fixture(params=[np.float64, np.float32], ids=["float64", "float32"])
def real(request: pytest.FixtureRequest) -> type:
    return request.param


@cache
def points(real: type) -> np.ndarray:
    """Numbers of all sizes and signs, subnormal ones, those next to 1 and to edges."""
    generator, info = np.random.default_rng(0), np.finfo(real)
    with np.errstate(over="ignore", under="ignore"):
        edges = np.array([*EDGES, *np.arange(1, 40) * math.pi / 4]).astype(real)
    edges = np.concatenate([edges, np.array([info.tiny, info.max, info.smallest_subnormal], real)])
    spans = [1, 3, 30, 120, 750, 1e6]
    uniform = [generator.uniform(0, span, 150).astype(real) for span in spans]
    exponents = generator.uniform(np.log2(float(info.tiny)), np.log2(float(info.max)), 300)
    near_one = 1 - generator.choice([-1, 1], 100) * np.exp2(generator.uniform(-info.nmant, -1, 100))
    subnormal = generator.uniform(0, 1, 50) * float(info.tiny)
    result = [*uniform, np.exp2(exponents), near_one, subnormal, edges]
    result += [np.nextafter(edges, real(0)), np.nextafter(edges[:-3], real(np.inf))]
    sizes = np.concatenate([part.astype(real) for part in result])
    sizes = sizes[np.isfinite(sizes)]
    return np.concatenate([sizes, -sizes])


@cache
def looped(name: str, real: type) -> numba.core.dispatcher.Dispatcher:
    """The function at each entry of an array; compiled for one precision."""
    function = FUNCTIONS[name]

    @numba.njit(error_model="numpy")
    def loop(x, out):
        for i in range(x.shape[0]):
            out[i] = function(x[i])

    loop(np.ones(4, real), np.ones(4, real))
    return loop


def applied(name: str, x: np.ndarray) -> np.ndarray:
    out = np.empty_like(x)
    looped(name, x.dtype.type)(x, out)
    return out


def exact(name: str, x: float) -> mpmath.mpf:
    if name == "erfc" and abs(x) > 50:
        return mpmath.mpf(0 if x > 0 else 2)
    with mpmath.workprec(120):
        if name == "scaled_normcdf":
            return scaled_normcdf(mpmath.mpf(x))
        return getattr(mpmath, name)(mpmath.mpf(x))


def scaled_normcdf(x: mpmath.mpf) -> mpmath.mpf:
    if x < -1000:
        return (1 - 1 / x**2 + 3 / x**4 - 15 / x**6) / (-x * mpmath.sqrt(2 * mpmath.pi))
    return mpmath.ncdf(x) * mpmath.exp(x**2 / 2 if x < 0 else 0)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_errors(name: str, real: type) -> None:
    x = points(real)
    x = x[x > DOMAINS.get(name, -np.inf)]
    for number, result in zip(x, applied(name, x), strict=True):
        value = exact(name, float(number))
        with np.errstate(over="ignore"):
            rounded = real(float(value))
        if np.isinf(rounded):
            assert result == rounded, number
        else:
            unit = float(np.spacing(abs(rounded)))
            error = float(abs(mpmath.mpf(float(result)) - value)) / unit
            assert error <= BOUNDS.get(name, 2), (number, result)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_zeros_infinite_numbers_and_outside(name: str, real: type) -> None:
    x = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, -np.nan], real)
    if name in DOMAINS:
        x = np.append(x, np.array([-1, np.nextafter(-1, -2, dtype=real), -1e-40, -7, -1e30], real))
    out = applied(name, x)
    with np.errstate(all="ignore"):
        expected = plain.function(name)(x).astype(real)
    np.testing.assert_array_equal(out, expected)
    np.testing.assert_array_equal(np.signbit(out[:2]), np.signbit(expected[:2]))


@pytest.mark.parametrize("name", FUNCTIONS)
def test_reordered_sums_of_the_caller_change_nothing(name: str, real: type) -> None:
    function = FUNCTIONS[name]

    @numba.njit(error_model="numpy", fastmath={"reassoc", "nsz"})
    def loop(x, out):
        for i in range(x.shape[0]):
            out[i] = 2 * function(x[i] * x.dtype.type(3))

    x = np.abs(points(real)) / real(8)
    out = np.empty_like(x)
    loop(x, out)
    with np.errstate(over="ignore"):
        np.testing.assert_array_equal(out, 2 * applied(name, x * real(3)))


def vectors(kernel: numba.core.dispatcher.Dispatcher) -> list[set[str]]:
    """The types of vectors that a kernel multiplies, for each type it is compiled for."""
    return [
        set(re.findall(r"fmul \w+ <\d+ x (\w+)>", text)) for text in kernel.inspect_llvm().values()
    ]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_loops_are_vectorised(name: str, real: type) -> None:
    single = real is np.float32 and not VECTORISED[name].startswith("cpu.trigonometric.")
    assert vectors(looped(name, real)) == [{"float" if single else "double"}]


n = dx.dims("n")
v = dx.vector("v", n)


def test_generated_kernels_are_vectorised(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A sum over a product of functions, and its derivative, compiled: code from the cache has no
    LLVM code to look at."""
    monkeypatch.setenv("DERIVATRIX_CACHE", str(tmp_path / "cache"))
    function = dx.function("chain", [v], (dx.exp(-(v**2)) * dx.softplus(v)).sum())
    generated = generate(function)
    module = loaded(tmp_path, "chain", generated.text, generated.data)
    for real in (np.float64, np.float32):
        x = np.ones(4, real)
        module.value_kernel(x, np.empty((), real))
        module.gradient_kernel(x, np.empty_like(x))
    for kernel in (module.value_kernel, module.gradient_kernel):
        assert vectors(kernel) == [{"double"}, {"float"}]


def test_numbers_of_other_types() -> None:
    """An integer counts as a double."""
    exponential = FUNCTIONS["exp"]
    assert numba.njit(lambda x: exponential(x))(1) == pytest.approx(math.e, rel=1e-15)
