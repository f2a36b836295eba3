"""Helper kernels for spectra and functions of matrices in the simulator, against NumPy and SciPy.

Run with NUMBA_ENABLE_CUDASIM=1, as `pytest tests/devices/spectra.py`.
"""

import types

import numpy as np
import pytest
import scipy.linalg
import scipy.special
from numba import cuda

from derivatrix.compiler.targets import cuda as targets
from derivatrix.templates.support.cuda import spectral
from tests import plain
from tests.devices.helpers import together

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")
TOLERANCES = {"float64": 1e-11, "float32": 1e-4}
KERNELS = together()
KERNELS.put("THREADS", 8)
SPECIAL = {name for name, path in targets.SCALARS.items() if path.startswith("special.")}
ELEMENTARY = targets.SPELLED.keys() - SPECIAL - targets.BESSEL.keys()


class Device:
    """A run in one precision, and arrays of it."""

    def __init__(self, dtype):
        self.dtype = np.dtype(dtype)
        self.random = np.random.default_rng(3)
        self.restart()

    def restart(self):
        """Forget failures."""
        self.run = KERNELS._Run(self.dtype, cuda.stream(), 1)

    def normal(self, *shape):
        """Random numbers in the precision of the run."""
        return self.random.normal(size=shape).astype(self.dtype)

    def call(self, name, *arrays, out, flags=(), fails=True, dtype=None):
        """Call a helper with arrays and outputs of the given shapes, and return the results."""
        shapes = out if isinstance(out, list) else [out]
        arguments = [cuda.to_device(np.ascontiguousarray(array)) for array in arrays]
        made = [cuda.to_device(np.full(shape, 7, dtype or self.dtype)) for shape in shapes]
        last = [0] if fails else []
        getattr(KERNELS, name)(self.run, *arguments, *made, *flags, *last)
        results = [array.copy_to_host() for array in made]
        return results if isinstance(out, list) else results[0]

    def close(self, found, expected):
        """Assert that arrays are equal up to rounding."""
        tolerance = TOLERANCES[self.dtype.name] * max(np.abs(expected).max(initial=0), 1)
        assert found.shape == expected.shape
        np.testing.assert_allclose(found, expected, 0, tolerance)

    @property
    def failed(self):
        """True if a check failed since the last query."""
        result = bool(self.run.failures.copy_to_host()[0])
        self.restart()
        return result


@pytest.fixture(params=["float64", "float32"])
def device(request):
    """A run in each precision."""
    return Device(request.param)


def view(array):
    """The numbers of a simulated array of the device, not a copy."""
    return array._ary


def use_library(monkeypatch):
    """Leave them to CuPy, which is NumPy here."""
    monkeypatch.setattr(spectral, "_cupy", types.SimpleNamespace(asarray=view, linalg=np.linalg))
    KERNELS.put("by_library", lambda run, what, n: n > 1, monkeypatch.setattr)


@pytest.fixture(params=["own kernels", "library"])
def way(request, monkeypatch):
    """The implementation: our kernels, or a library."""
    if request.param == "library":
        use_library(monkeypatch)


def turned(array):
    """Transposed matrices."""
    return np.swapaxes(array, -1, -2)


def signs(vectors):
    """The sign of the first of the largest entries of each column."""
    sizes = np.abs(vectors)
    lead = np.argmax(sizes >= 0.99999 * sizes.max(-2, keepdims=True), -2, keepdims=True)
    return np.sign(np.take_along_axis(vectors, lead, -2))


@pytest.mark.parametrize("stack, n", [(0, 2), (2, 0), (1, 1), (3, 2), (2, 3), (1, 5)])
def test_symmetric_eigen(device, way, stack, n):
    a = device.normal(stack, n, n)
    a = a + turned(a)
    values, vectors = device.call("symmetric_eigen", a, out=[(stack, n), (stack, n, n)])
    alone = device.call("symmetric_eigenvalues", a, out=(stack, n))
    assert not device.failed
    if a.size:
        expected = np.linalg.eigvalsh(a.astype(float))
        device.close(values, expected)
        device.close(alone, expected)
        device.close(a @ vectors, vectors * values[:, None])
        device.close(turned(vectors) @ vectors, np.broadcast_to(np.eye(n), a.shape))
        assert (signs(vectors) == 1).all()


@pytest.mark.parametrize("name", ["symmetric_eigen", "real_eigenvectors"])
def test_eigen_not_finite(device, name):
    a = np.array([[[1, np.nan], [0, 2]]], device.dtype)
    device.call(name, a, out=[(1, 2), (1, 2, 2)])
    assert device.failed


@pytest.mark.parametrize("stack, n", [(0, 2), (2, 0), (1, 1), (3, 2), (1, 5)])
def test_real_eigen(device, stack, n):
    basis = np.eye(n) + 0.2 * device.normal(stack, n, n)
    expected = np.sort(device.normal(stack, n).astype(float), axis=1)
    a = (basis * expected[:, None] @ np.linalg.inv(basis)).astype(device.dtype)
    values, vectors = device.call("real_eigenvectors", a, out=[(stack, n), (stack, n, n)])
    alone = device.call("real_eigenvalues", a, out=(stack, n))
    assert not device.failed
    if a.size:
        device.close(values, expected)
        device.close(alone, expected)
        device.close(a @ vectors, vectors * values[:, None])
        device.close((vectors**2).sum(1), np.ones((stack, n)))
        assert (signs(vectors) == 1).all()


@pytest.mark.parametrize("a", [[[0, 1], [-1, 0]], [[1, 1], [0, 1]]])
def test_real_eigen_fails(device, a):
    device.call("real_eigenvectors", np.array([a], device.dtype), out=[(1, 2), (1, 2, 2)])
    assert device.failed


@pytest.mark.parametrize(
    "stack, p, q", [(0, 2, 3), (2, 0, 3), (1, 1, 1), (3, 3, 2), (2, 2, 4), (1, 5, 5)]
)
def test_singular(device, way, stack, p, q):
    a, k = device.normal(stack, p, q), min(p, q)
    if stack > 1:
        a[-1] = np.outer(np.arange(p), np.ones(q))
    u, s, v = device.call("singular_vectors", a, out=[(stack, p, k), (stack, k), (stack, q, k)])
    alone = device.call("singular_values", a, out=(stack, k))
    norm = device.call("nuclear_norm", a, out=(stack,))
    polar = device.call("polar_factor", a, out=(stack, p, q))
    assert not device.failed
    expected = np.linalg.svd(a.astype(float), compute_uv=False) if a.size else np.zeros((stack, k))
    device.close(s, expected)
    device.close(alone, expected)
    device.close(norm, expected.sum(1))
    device.close(u * s[:, None] @ turned(v), a)
    for vectors in (u, v):
        device.close(turned(vectors) @ vectors, np.broadcast_to(np.eye(k), (stack, k, k)))
    if k:
        assert (signs(u) == 1).all()
    if stack == 1:
        device.close(polar, u @ turned(v))


@pytest.mark.parametrize("p, q", [(3, 2), (2, 3)])
def test_solve_polar(device, p, q):
    x, c = device.normal(2, p, q), device.normal(2, p, q)
    y = device.call("solve_polar", x, c, out=x.shape)
    u, _, vh = np.linalg.svd(x.astype(float), full_matrices=False)
    polar = u @ vh
    device.close(x @ turned(polar) @ y + y @ turned(polar) @ x, c)
    assert not device.failed
    x[1] = 1
    device.call("solve_polar", x, c, out=x.shape)
    assert device.failed


@pytest.mark.parametrize("stack, n", [(0, 2), (2, 0), (1, 1), (3, 2), (3, 4), (1, 7)])
def test_schur(device, stack, n):
    a = device.normal(stack, n, n)
    if stack == 3:
        a[1], a[2] = np.tril(np.ones((n, n))), np.roll(np.eye(n), 1, 0)
    form, vectors = schur_forms(device, a)
    assert not device.failed
    device.close(vectors @ form @ turned(vectors).conj(), a)
    device.close(vectors @ turned(vectors).conj(), np.broadcast_to(np.eye(n), a.shape))
    assert (form == np.triu(form)).all()


def schur_forms(device, *matrices):
    """The Schur forms and vectors of several stacks."""
    return [
        part
        for a in matrices
        for part in device.call("schur", a, out=[a.shape] * 2, dtype=np.complex128)
    ]


@pytest.mark.parametrize("flags", [(a, b) for a in (False, True) for b in (False, True)])
@pytest.mark.parametrize("stack, n, m", [(0, 2, 2), (1, 0, 2), (1, 1, 1), (2, 2, 3), (1, 4, 5)])
def test_sylvester(device, stack, n, m, flags):
    a, b, c = device.normal(stack, n, n), device.normal(stack, m, m), device.normal(stack, n, m)
    a += 3 * np.eye(n, dtype=device.dtype)
    b += 3 * np.eye(m, dtype=device.dtype)
    forms = schur_forms(device, a, b)
    x = device.call("schur_sylvester", *forms, c, out=c.shape, flags=flags)
    left, right = (turned(y) if flag else y for y, flag in zip((a, b), flags, strict=True))
    device.close(left @ x + x @ right, c)
    assert not device.failed


def test_sylvester_singular(device):
    a = np.array([[[1, 2], [0, 3]]], device.dtype)
    c = np.ones((1, 2, 2), device.dtype)
    device.call(
        "schur_sylvester", *schur_forms(device, a, -a), c, out=c.shape, flags=(False, False)
    )
    assert device.failed


@pytest.mark.parametrize("scale", [0.4, 3.0])
@pytest.mark.parametrize("stack, n", [(0, 2), (2, 0), (1, 1), (3, 2), (1, 5)])
def test_discrete_lyapunov(device, stack, n, scale):
    a, q = scale * device.normal(stack, n, n), device.normal(stack, n, n)
    a = a.astype(device.dtype)
    x = device.call("discrete_lyapunov", a, q, out=a.shape)
    assert not device.failed
    for s in range(stack if n else 0):
        device.close(x[s], scipy.linalg.solve_discrete_lyapunov(*map(np.float64, (a[s], q[s]))))


def test_discrete_lyapunov_singular(device):
    a = np.array([[[2, 1], [0, 0.5]]], device.dtype)
    device.call("discrete_lyapunov", a, a, out=a.shape)
    assert device.failed


def derivative(function, a, directions):
    """A derivative of a function of a matrix: a block of its value at a larger matrix (Mathias
    1996)."""
    n = len(a)
    big = a.astype(float)
    for direction in directions:
        times = len(big) // n
        side = np.kron(np.eye(times), direction)
        big = np.block([[big, side], [np.zeros_like(big), big]])
    return np.real(function(big))[:n, -n:]


def tanhm(a):
    """The hyperbolic tangent; SciPy's loses digits where exponentials are large."""
    halved = scipy.linalg.tanhm(a / 8)
    for _ in range(3):
        halved = 2 * halved @ np.linalg.inv(np.eye(len(a)) + halved @ halved)
    return halved


@pytest.mark.parametrize(
    "stack, n, order, scale", [(0, 2, 0, 1), (1, 1, 0, 1), (2, 2, 0, 9), (2, 3, 1, 2), (1, 2, 2, 1)]
)
@pytest.mark.parametrize("name", ["expm", "cosm", "sinm", "tanhm", "logm"])
def test_functions(device, name, stack, n, order, scale):
    a = device.normal(stack, n, n)
    a[:1] *= scale
    if name == "logm":
        a = (a @ turned(a) + np.eye(n)).astype(device.dtype)
    directions = [device.normal(stack, n, n) for _ in range(order)]
    result = device.call(name, a, *directions, out=a.shape, fails=name in ("tanhm", "logm"))
    assert not device.failed
    function = tanhm if name == "tanhm" else getattr(scipy.linalg, name)
    for s in range(stack):
        along = [direction[s] for direction in directions]
        device.close(result[s], derivative(function, a[s], along))


@pytest.mark.parametrize("name", ["sqrtm", "logm"])
@pytest.mark.parametrize("a", [[[-1, 0], [0, 1]], [[0, 0], [0, 1]], [[np.nan, 0], [0, 1]]])
def test_not_principal(device, name, a):
    device.call(name, np.array([a], device.dtype), out=(1, 2, 2))
    assert device.failed


@pytest.mark.parametrize("stack, n", [(0, 2), (2, 0), (1, 1), (3, 2), (1, 5)])
def test_sqrtm(device, stack, n):
    a = (device.normal(stack, n, n) + 4 * np.eye(n)).astype(device.dtype)
    if n == 2 and stack:
        a[0] = [[-1, 1], [-1, -1]]
    root = device.call("sqrtm", a, out=a.shape)
    assert not device.failed
    device.close(root @ root, a)


@pytest.mark.parametrize("kind", ["continuous", "discrete"])
@pytest.mark.parametrize("stack, n, m", [(0, 2, 1), (1, 1, 1), (2, 2, 1), (1, 3, 2)])
def test_riccati(device, kind, stack, n, m):
    a, b = device.normal(stack, n, n), device.normal(stack, n, m)
    q = np.broadcast_to(np.eye(n, dtype=device.dtype), (stack, n, n))
    r = np.broadcast_to(np.eye(m, dtype=device.dtype), (stack, m, m))
    x = device.call(f"{kind}_riccati", a, b, q, r, out=a.shape)
    assert not device.failed
    for s in range(stack):
        solve = getattr(scipy.linalg, f"solve_{kind}_are")
        device.close(x[s], solve(*(array[s].astype(float) for array in (a, b, q, r))))


def test_discrete_riccati_singular_weight(device):
    a = np.array([[[0, 1], [0, 0]]], device.dtype)
    one, zero = np.eye(2, dtype=device.dtype)[None], np.zeros((1, 2, 2), device.dtype)
    device.close(device.call("discrete_riccati", a, one, one, zero, out=a.shape), one)
    assert not device.failed


@pytest.mark.parametrize("kind", ["continuous", "discrete"])
def test_riccati_fails(device, kind):
    a, b = np.array([[[2, 0], [0, 0.5]]], device.dtype), np.array([[[0], [1]]], device.dtype)
    q, r = np.eye(2, dtype=device.dtype)[None], np.ones((1, 1, 1), device.dtype)
    device.call(f"{kind}_riccati", a, b, q, r, out=a.shape)
    assert device.failed


POINTS = np.array([0, -0.0, 1, -1, 0.3, -0.7, 2.5, -3.5, 800, -800, np.inf, -np.inf, np.nan])
NUMPY = {
    "abs": np.abs,
    "acos": np.arccos,
    "acosh": np.arccosh,
    "asin": np.arcsin,
    "asinh": np.arcsinh,
    "atan": np.arctan,
    "atan2": np.arctan2,
    "atanh": np.arctanh,
    "erf": scipy.special.erf,
    "erfc": scipy.special.erfc,
    "gamma": scipy.special.gamma,
    "lgamma": scipy.special.gammaln,
    "where": lambda x, y: np.where(x > 0, x, y),
}


def elementwise(text, count, *arrays):
    """A kernel's values of an expression in x and y."""
    out = np.zeros(count, arrays[0].dtype)
    names = {"cuda": cuda, **KERNELS.names()}
    lines = "def run(a, b, out):\n    for i in range(len(out)):\n        x, y = a[i], b[i]\n"
    exec(f"{lines}        out[i] = {text}\n", names)
    cuda.jit(names["run"])[1, 1](arrays[0], arrays[-1], out)
    return out


@pytest.mark.parametrize("operator", sorted(ELEMENTARY))
def test_elementary(device, operator):
    x, y = (part.ravel().astype(device.dtype) for part in np.meshgrid(POINTS, POINTS))
    two = operator in ("atan2", "mod", "maximum", "minimum", "where")
    arrays = (x, y) if two else (x,)
    given = "x > 0, x, y" if operator == "where" else "x, y" if two else "x"
    actual = elementwise(f"{targets.SPELLED[operator]}({given})", len(x), *arrays)
    expected = NUMPY.get(operator, getattr(np, operator, None))(*arrays)
    np.testing.assert_array_equal(actual, expected)


@pytest.mark.parametrize("operator", sorted({*SPECIAL, *targets.BESSEL}))
def test_special(operator):
    x = np.array([1e-3, 0.2, 0.7, 0.999, 1.5, 3.0, 7.5, 12.0, 29.0, 31.0, 90.0])
    orders = np.array([2.0, 3.0, 4.5, 2.0, 7.0, 2.0, 2.0, 1.5, 12.0, 3.0, 10.0])
    if operator == "erfinv":
        x = np.append(x[:4], -x[:4])
    if operator == "scaled_normcdf":
        x = np.append(x, -x)
    if operator in ("digamma", "zeta"):
        x, orders = np.append(x, -0.3), np.append(orders, 2.0)
    name = targets.SPELLED[operator]
    two = operator == "zeta" or (operator.endswith("v") and operator != "erfinv")
    arrays = (orders, x) if two else (x,)
    actual = elementwise(f"{name}({'x, y' if two else 'x'})", len(x), *arrays)
    expected = plain.function(operator)(*arrays)
    if operator == "zeta":
        expected[-1] = scipy.special.zeta(2, 0.7) + 1 / 0.09
    np.testing.assert_allclose(actual, expected, 1e-12, 1e-14)


BESSEL_LIMITS = {
    "bessel_k": [(2, np.inf), (1e3, 1e3), (1500, 1400), (2000, 2000), (1000, 500), (0.5, 0.0)],
    "bessel_j": [(-0.5, 0.0), (-1.5, 0.0), (-2, 0.0), (0, 0.0), (0.5, 0.0)],
}


@pytest.mark.parametrize("name", BESSEL_LIMITS)
def test_bessel_functions_at_their_limits(name):
    """At the ends of their domains, and where the terms of a sum overflow or underflow."""
    orders, x = np.array(BESSEL_LIMITS[name]).T.copy()
    function = {"bessel_k": scipy.special.kv, "bessel_j": scipy.special.jv}[name]
    actual = elementwise(f"{name}(x, y)", len(x), orders, x)
    np.testing.assert_allclose(actual, function(orders, x), 1e-11, 0)
