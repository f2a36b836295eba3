"""NumPy texts evaluated in 50 digits: functions of NumPy and SciPy for arrays of mpmath's numbers.

NumPy itself computes sums, products, selections and shapes, which work for arrays of any objects;
mpmath computes the rest. A function that neither has raises Imprecise.
"""

from __future__ import annotations

import ast
import functools
from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any

import mpmath
import numpy as np
import scipy.linalg
import scipy.optimize

from derivatrix.runtime.syntax import parse_python

DIGITS = 50
NUMBERS = mpmath.MPContext()
NUMBERS.dps = DIGITS
ROUNDING = NUMBERS.mpf(10) ** (8 - DIGITS)
"""Rounding errors, relative to the largest number."""
MAX_NEWTON_STEPS = 8
"""Most steps to refine SciPy's results from 16 to 50 digits."""


class Imprecise(NotImplementedError):
    """A function without an implementation in 50 digits, or with one that fails."""


class _Namespace:
    """A module or submodule that raises Imprecise for the functions it lacks."""

    def __init__(self, path: str, names: Mapping[str, Any]) -> None:
        self._path = path
        self.__dict__.update(names)

    def __getattr__(self, name: str) -> Any:
        raise Imprecise(f"{self._path}.{name}")


def entrywise(function: Callable[..., Any], count: int = 1) -> Callable[..., Any]:
    """Apply a function of `count` numbers to arrays, entry by entry."""
    return np.frompyfunc(function, count, 1)


def numbers(array: Any) -> Any:
    """Convert an array to numbers of 50 digits; an array of rank 0 becomes a number."""
    return entrywise(NUMBERS.convert)(np.asarray(array, dtype=object))


def floats(array: np.ndarray) -> np.ndarray:
    """Round numbers of 50 digits to float64."""
    return np.asarray(array).astype(np.float64)


def _matrix(array: np.ndarray) -> mpmath.matrix:
    return NUMBERS.matrix(numbers(array).tolist()) if array.size else NUMBERS.matrix(*array.shape)


def _array(matrix: Any) -> np.ndarray:
    """Convert a matrix of mpmath to an array, without imaginary parts that are rounding."""
    entries = np.array([NUMBERS.convert(entry) for entry in matrix], dtype=object)
    return _real_but_for_rounding(entries).reshape(matrix.rows, matrix.cols)


def _real_but_for_rounding(entries: np.ndarray) -> np.ndarray:
    """Drop imaginary parts that are rounding."""
    small = ROUNDING * max((abs(entry) for entry in entries.flat), default=0)
    return entrywise(lambda z: NUMBERS.re(z) if abs(NUMBERS.im(z)) <= small else z)(entries)


def stacked(signature: str, function: Callable[..., Any], outputs: int = 1) -> Callable[..., Any]:
    """Apply a function of matrices or vectors to stacks of them."""
    return np.vectorize(function, otypes=[object] * outputs, signature=signature)


def _matrix_function(function: Callable[[Any], Any]) -> Callable[..., Any]:
    """Apply mpmath's function of a square matrix to stacks."""
    return stacked("(n,n)->(n,n)", lambda a: _array(function(_matrix(a))) if len(a) else a)


def _eliminate(array: np.ndarray, right: np.ndarray) -> tuple[Any, np.ndarray]:
    """Compute det(A) and A⁻¹ B by Gauss-Jordan elimination; if det(A) is 0, return B instead."""
    rows, size = np.concatenate([array, right], axis=1), len(array)
    determinant = NUMBERS.one
    for k in range(size):
        pivot_row = k + int(np.argmax(np.abs(rows[k:, k])))
        pivot = rows[pivot_row, k]
        if not pivot:
            return NUMBERS.zero, right
        if pivot_row != k:
            rows[[k, pivot_row]] = rows[[pivot_row, k]]
            determinant = -determinant
        determinant = determinant * pivot
        rows[k] = rows[k] / NUMBERS.convert(pivot)
        for i in range(size):
            if i != k:
                rows[i] = rows[i] - rows[k] * rows[i, k]  # mpmath prints arrays on the right
    return determinant, rows[:, size:]


def _determinant(array: np.ndarray) -> Any:
    return _eliminate(array, array[:, :0])[0]


def _inverse(array: np.ndarray) -> np.ndarray:
    determinant, inverse = _eliminate(array, EYE(len(array)))
    if not determinant:
        raise ZeroDivisionError("the matrix is singular")
    return inverse


def _sign_and_log(array: np.ndarray) -> tuple[Any, Any]:
    determinant = _determinant(array)
    log = NUMBERS.log(abs(determinant)) if determinant else NUMBERS.ninf
    return NUMBERS.sign(determinant), log


def _from_lower_triangle(array: np.ndarray) -> np.ndarray:
    """Mirror the lower triangle, the only one that LAPACK reads."""
    return np.tril(array) + np.tril(array, -1).T


def _decomposed(decompose: Callable[..., Any], array: np.ndarray) -> Any:
    """Decompose a matrix by a function of mpmath. Raises Imprecise where its iterations do not
    converge, as for some matrices without full rank."""
    try:
        return decompose(_matrix(array))
    except RuntimeError as error:
        raise Imprecise(f"mpmath's {error}") from error


def _symmetric_eigen(array: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    values, vectors = _decomposed(NUMBERS.eigsy, _from_lower_triangle(array))
    values = np.array(list(values), dtype=object)
    order = np.argsort(values)
    return values[order], _array(vectors)[:, order]


def _cholesky(array: np.ndarray) -> np.ndarray:
    return _array(NUMBERS.cholesky(_matrix(_from_lower_triangle(array))))


def _eigen(array: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    values, vectors = _decomposed(NUMBERS.eig, array)
    norms = [NUMBERS.norm(vectors.column(k)) for k in range(len(values))]
    columns = np.array(vectors.tolist(), dtype=object) / np.array(norms, dtype=object)
    return _real_but_for_rounding(np.array(values, dtype=object)), _real_but_for_rounding(columns)


def _singular(array: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    if array.shape[0] < array.shape[1]:
        u, s, v = _singular(array.T)
        return v.T, s, u.T
    u, s, v = _decomposed(NUMBERS.svd_r, array)
    return _array(u), np.array(list(s), dtype=object), _array(v)


def _svd(array: np.ndarray, full_matrices: bool = True, compute_uv: bool = True) -> Any:
    if full_matrices and compute_uv and array.shape[-1] != array.shape[-2]:
        raise Imprecise("numpy.linalg.svd with full matrices")
    factors = stacked("(m,n)->(m,k),(k),(k,n)", _singular, 3)(array)
    return factors if compute_uv else factors[1]


def _qr(array: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    q, r = NUMBERS.qr(_matrix(array), mode="skinny")
    return _array(q), _array(r)


def _pinv(array: np.ndarray) -> np.ndarray:
    u, s, v = _singular(array)
    return (v.T / s) @ u.T


def _rank(array: np.ndarray) -> Any:
    s = _singular(array)[1]
    return np.sum(s > max(array.shape) * NUMBERS.eps * s[:1])


def _norm(array: np.ndarray, order: Any = None, axis: Any = None, keepdims: bool = False) -> Any:
    if order == "nuc":
        return np.sum(_svd(array, compute_uv=False), -1)
    if order not in (None, 2, "fro") or (order == 2 and np.ndim(array) > 1 and axis is None):
        raise Imprecise(f"numpy.linalg.norm of order {order}")
    return entrywise(NUMBERS.sqrt)(np.sum(array * array, axis=axis, keepdims=keepdims))


def _power(array: np.ndarray, exponent: int) -> Any:
    base = INV(array) if exponent < 0 else array
    identity = np.broadcast_to(np.eye(array.shape[-1], dtype=object), array.shape)
    return functools.reduce(np.matmul, [base] * abs(exponent), identity)


def _tanhm(array: mpmath.matrix) -> mpmath.matrix:
    up, down = NUMBERS.expm(array), NUMBERS.expm(-array)
    return NUMBERS.inverse(up + down) * (up - down)


EYE = functools.partial(np.eye, dtype=object)
INV = stacked("(n,n)->(n,n)", _inverse)


def _linear(operator: Callable[[np.ndarray], np.ndarray], right: np.ndarray) -> np.ndarray:
    """Solve operator(X) = right for a linear operator, by its dense matrix."""
    columns = [operator(unit.reshape(right.shape)).ravel() for unit in EYE(right.size)]
    return (INV(np.stack(columns, axis=1)) @ right.ravel()).reshape(right.shape)


def _refine(
    residual: Callable[[np.ndarray], np.ndarray],
    jvp: Callable[[np.ndarray, np.ndarray], np.ndarray],
    start: np.ndarray,
) -> np.ndarray:
    """Solve residual(X) = 0 by Newton's method from `start`; jvp(X, D) is the derivative of the
    residual along D."""
    x = numbers(start)
    for _ in range(MAX_NEWTON_STEPS):
        step = _linear(functools.partial(jvp, x), residual(x))
        x = x - step
        if max(map(abs, step.flat), default=0) <= ROUNDING * max(map(abs, x.flat), default=0):
            break
    return x


def _care(a: np.ndarray, b: np.ndarray, q: np.ndarray, r: np.ndarray) -> np.ndarray:
    gain = b @ INV(r) @ b.T
    start = scipy.linalg.solve_continuous_are(*map(floats, (a, b, q, r)))
    return _refine(
        lambda x: a.T @ x + x @ a - x @ gain @ x + q,
        lambda x, d: a.T @ d + d @ a - d @ gain @ x - x @ gain @ d,
        start,
    )


def _dare(a: np.ndarray, b: np.ndarray, q: np.ndarray, r: np.ndarray) -> np.ndarray:
    def closed_loop(x: np.ndarray) -> np.ndarray:
        return a - b @ INV(r + b.T @ x @ b) @ b.T @ x @ a

    start = scipy.linalg.solve_discrete_are(*map(floats, (a, b, q, r)))
    return _refine(
        lambda x: a.T @ x @ closed_loop(x) - x + q,
        lambda x, d: closed_loop(x).T @ d @ closed_loop(x) - d,
        start,
    )


def _root(
    function: Callable[[np.ndarray], Any],
    start: np.ndarray,
    jac: Callable[[np.ndarray], Any],
    **options: Any,
) -> Any:
    """Refine the root that `scipy.optimize.root` finds."""
    rough = scipy.optimize.root(
        lambda x: np.float64(function(numbers(x))),
        np.float64(start),
        jac=lambda x: np.float64(jac(numbers(x))),
        **options,
    )
    root = _refine(lambda x: numbers(function(x)), lambda x, d: numbers(jac(x)) @ d, rough.x)
    return SimpleNamespace(x=root)


def _softmax(array: np.ndarray, axis: int | None = None) -> Any:
    powers = entrywise(NUMBERS.exp)(array)
    return powers / np.sum(powers, axis=axis, keepdims=True)


NUMPY_OBJECT_FUNCTIONS = (
    "abs add all append arange array asarray broadcast_arrays broadcast_to concatenate cross "
    "cumsum diag diagonal einsum equal expand_dims full greater greater_equal kron less "
    "less_equal logical_and logical_not logical_or matmul max maximum min minimum nan ndim "
    "not_equal ones outer prod ravel reshape select shape sign sort stack sum swapaxes "
    "take_along_axis tensordot trace transpose tri triu tril tril_indices vectorize where zeros "
    "argsort inf split block square"
)
"""NumPy's functions that work for arrays of any objects."""
MPMATH_NAMES = {
    "arcsin": "asin",
    "arccos": "acos",
    "arctan": "atan",
    "arcsinh": "asinh",
    "arccosh": "acosh",
    "arctanh": "atanh",
    "sinc": "sincpi",
}
MATRIX_FUNCTIONS = "expm logm sqrtm sinm cosm"
ENTRYWISE = "exp log sqrt sin cos tan sinh cosh tanh log1p expm1 floor ceil conj"
SPECIAL = {
    "erf": NUMBERS.erf,
    "erfc": NUMBERS.erfc,
    "erfinv": NUMBERS.erfinv,
    "gamma": NUMBERS.gamma,
    "loggamma": NUMBERS.loggamma,
    "gammaln": NUMBERS.loggamma,
    "digamma": NUMBERS.digamma,
    "psi": NUMBERS.digamma,
    "expit": lambda x: 1 / (1 + NUMBERS.exp(-x)),
    "ndtr": NUMBERS.ncdf,
}
SPECIAL_OF_TWO = {
    "polygamma": NUMBERS.polygamma,
    "zeta": NUMBERS.zeta,
    "hyp0f1": NUMBERS.hyp0f1,
    "iv": NUMBERS.besseli,
    "jv": NUMBERS.besselj,
    "kv": NUMBERS.besselk,
    "yv": NUMBERS.bessely,
}

LINALG = _Namespace(
    "numpy.linalg",
    {
        "inv": INV,
        "solve": lambda a, b: INV(a) @ b,
        "det": stacked("(n,n)->()", _determinant),
        "slogdet": stacked("(n,n)->(),()", _sign_and_log, 2),
        "cholesky": stacked("(n,n)->(n,n)", _cholesky),
        "eigh": stacked("(n,n)->(n),(n,n)", _symmetric_eigen, 2),
        "eigvalsh": stacked("(n,n)->(n)", lambda a: _symmetric_eigen(a)[0]),
        "eig": stacked("(n,n)->(n),(n,n)", _eigen, 2),
        "eigvals": stacked("(n,n)->(n)", lambda a: _eigen(a)[0]),
        "svd": _svd,
        "qr": stacked("(m,n)->(m,k),(k,n)", _qr, 2),
        "pinv": stacked("(m,n)->(n,m)", _pinv),
        "matrix_rank": stacked("(m,n)->()", _rank),
        "norm": _norm,
        "matrix_power": _power,
    },
)
NUMPY = _Namespace(
    "numpy",
    {
        **{name: getattr(np, name) for name in NUMPY_OBJECT_FUNCTIONS.split()},
        **{name: entrywise(getattr(NUMBERS, name)) for name in ENTRYWISE.split()},
        **{name: entrywise(getattr(NUMBERS, mp_name)) for name, mp_name in MPMATH_NAMES.items()},
        "real": entrywise(NUMBERS.re),
        "imag": entrywise(NUMBERS.im),
        "arctan2": entrywise(NUMBERS.atan2, 2),
        "hypot": entrywise(NUMBERS.hypot, 2),
        "power": entrywise(lambda x, y: NUMBERS.convert(x) ** y, 2),
        "logaddexp": entrywise(lambda x, y: NUMBERS.log(NUMBERS.exp(x) + NUMBERS.exp(y)), 2),
        "heaviside": entrywise(lambda x, at: (1 + NUMBERS.sign(x)) / 2 if x else at, 2),
        "eye": EYE,
        "finfo": lambda dtype: SimpleNamespace(eps=NUMBERS.eps),
        "pi": NUMBERS.pi,
        "e": NUMBERS.e,
        "linalg": LINALG,
    },
)
SCIPY = _Namespace(
    "scipy",
    {
        "linalg": _Namespace(
            "scipy.linalg",
            {
                **{
                    name: _matrix_function(getattr(NUMBERS, name))
                    for name in MATRIX_FUNCTIONS.split()
                },
                "tanhm": _matrix_function(_tanhm),
                "solve_sylvester": lambda a, b, q: _linear(lambda x: a @ x + x @ b, q),
                "solve_continuous_lyapunov": lambda a, q: _linear(lambda x: a @ x + x @ a.T, q),
                "solve_discrete_lyapunov": lambda a, q: _linear(lambda x: x - a @ x @ a.T, q),
                "solve_continuous_are": _care,
                "solve_discrete_are": _dare,
            },
        ),
        "constants": _Namespace("scipy.constants", {"pi": NUMBERS.pi}),
        "optimize": _Namespace("scipy.optimize", {"root": _root}),
        "special": _Namespace(
            "scipy.special",
            {
                **{name: entrywise(function) for name, function in SPECIAL.items()},
                **{name: entrywise(function, 2) for name, function in SPECIAL_OF_TWO.items()},
                "softmax": _softmax,
                "log_softmax": lambda x, axis=None: entrywise(NUMBERS.log)(_softmax(x, axis)),
                "logsumexp": lambda x, axis=None: entrywise(NUMBERS.log)(
                    np.sum(entrywise(NUMBERS.exp)(x), axis=axis)
                ),
            },
        ),
    },
)


class _PreciseOperators(ast.NodeTransformer):
    """Divides, and raises to powers, in 50 digits: for whole numbers Python has 16. Division by
    zero gives NumPy's infinity or nan."""

    def visit_BinOp(self, node: ast.BinOp) -> ast.AST:
        self.generic_visit(node)
        exponent = node.right.value if isinstance(node.right, ast.Constant) else None
        if isinstance(node.op, ast.Div):
            function = ast.Name("_quotient", ast.Load())
            return ast.fix_missing_locations(ast.Call(function, [node.left, node.right], []))
        if isinstance(node.op, ast.Pow) and not isinstance(exponent, int):
            function = ast.Name("_number", ast.Load())
            node.left = ast.Call(function, [node.left], [])
        return ast.fix_missing_locations(node)


def _number(base: Any) -> Any:
    return NUMBERS.mpf(base) if isinstance(base, int) else base


def _quotient(dividend: Any, divisor: Any) -> Any:
    if not divisor:
        return NUMBERS.sign(dividend) * NUMBERS.inf if dividend else NUMBERS.nan
    return NUMBERS.convert(dividend) / divisor


SCOPE = {
    "np": NUMPY,
    "scipy": SCIPY,
    "_number": _number,
    "_quotient": entrywise(_quotient, 2),
    "__builtins__": {"__import__": __import__},
}


class PreciseText:
    """A NumPy expression evaluated in 50 digits."""

    def __init__(self, text: str) -> None:
        tree = _PreciseOperators().visit(parse_python(f"(\n{text}\n)", mode="eval"))
        self._code = compile(tree, "<formula>", "eval")

    def __call__(self, values: Mapping[str, Any], shape: tuple[int, ...]) -> np.ndarray:
        """Evaluate the text for arrays of mpmath's numbers, to an array of them.

        Raises Imprecise where the text calls a function without an implementation in 50 digits,
        ArithmeticError or ValueError where it has no finite real value."""
        result = numbers(eval(self._code, {**SCOPE, **values}))
        array = np.empty(shape, dtype=object)
        array[...] = result
        if np.shape(result) != shape or not all(map(NUMBERS.isfinite, array.flat)):
            raise ValueError("the text has no finite value")
        if any(NUMBERS.im(entry) for entry in array.flat):
            raise ValueError("the value is complex")
        return array
