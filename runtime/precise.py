"""NumPy texts in 50 digits: what they call of NumPy and SciPy, for arrays of mpmath's numbers.

What NumPy does with arrays of any objects (sums, products, selections, shapes) it does here; the
rest is mpmath's. What neither has raises Imprecise.
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

DIGITS = 50
NUMBERS = mpmath.MPContext()
NUMBERS.dps = DIGITS
ROUNDING = NUMBERS.mpf(10) ** (8 - DIGITS)
"""What counts as rounding, relative to the largest number."""
STEPS = 8
"""The most steps by which what SciPy found in 16 digits is refined."""


class Imprecise(NotImplementedError):
    """A function that is not known in 50 digits."""


class _Names:
    """Names as attributes; Imprecise for those that are not there."""

    def __init__(self, path: str, names: Mapping[str, Any]) -> None:
        self._path = path
        self.__dict__.update(names)

    def __getattr__(self, name: str) -> Any:
        raise Imprecise(f"{self._path}.{name}")


def each(function: Callable[..., Any], count: int = 1) -> Callable[..., Any]:
    """A function of numbers for arrays, entry by entry."""
    return np.frompyfunc(function, count, 1)


def numbers(array: Any) -> Any:
    """The same numbers in 50 digits; a number for an array of rank 0."""
    return each(NUMBERS.convert)(np.asarray(array, dtype=object))


def _matrix(array: np.ndarray) -> mpmath.matrix:
    rows, columns = array.shape
    made = NUMBERS.matrix(rows, columns)
    for place, entry in np.ndenumerate(array):
        made[place] = NUMBERS.convert(entry)
    return made


def _array(matrix: Any) -> np.ndarray:
    """A matrix of mpmath's as an array; imaginary parts that are rounding are dropped."""
    entries = np.array([NUMBERS.convert(entry) for entry in matrix], dtype=object)
    return _without_rounding(entries).reshape(matrix.rows, matrix.cols)


def _without_rounding(entries: np.ndarray) -> np.ndarray:
    small = ROUNDING * max((abs(entry) for entry in entries.flat), default=0)
    return each(lambda entry: NUMBERS.re(entry) if abs(NUMBERS.im(entry)) <= small else entry)(
        entries
    )


def stacked(signature: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """A function of matrices or vectors for stacks of them."""
    outputs = signature.partition("->")[2].count("(")
    return np.vectorize(function, otypes=[object] * outputs, signature=signature)


def _unary(function: Callable[[Any], Any]) -> Callable[..., Any]:
    """A function of mpmath's of one square matrix, for stacks."""
    return stacked("(n,n)->(n,n)", lambda a: _array(function(_matrix(a))) if len(a) else a)


def _eliminated(array: np.ndarray, right: np.ndarray) -> tuple[Any, np.ndarray]:
    """The determinant of a matrix A, and A⁻¹ B, by elimination; where the determinant is 0, B."""
    rows, size = np.concatenate([array, right], axis=1), len(array)
    determinant = NUMBERS.one
    for place in range(size):
        largest = place + int(np.argmax(np.abs(rows[place:, place])))
        pivot = rows[largest, place]
        if not pivot:
            return NUMBERS.zero, right
        if largest != place:
            rows[[place, largest]] = rows[[largest, place]]
            determinant = -determinant
        determinant = determinant * pivot
        rows[place] = rows[place] / NUMBERS.convert(pivot)
        for other in range(size):
            if other != place:
                rows[other] = rows[other] - rows[other, place] * rows[place]
    return determinant, rows[:, size:]


def _determinant(array: np.ndarray) -> Any:
    return _eliminated(array, EYE(len(array)))[0]


def _inverse(array: np.ndarray) -> np.ndarray:
    determinant, inverse = _eliminated(array, EYE(len(array)))
    if not determinant:
        raise ZeroDivisionError("the matrix is singular")
    return inverse


def _sign_and_log(array: np.ndarray) -> tuple[Any, Any]:
    found = _determinant(array)
    return NUMBERS.sign(found), NUMBERS.log(abs(found)) if found else NUMBERS.ninf


def _of_lower(array: np.ndarray) -> np.ndarray:
    """The symmetric matrix that LAPACK reads: of the lower triangle."""
    return np.tril(array) + np.tril(array, -1).T


def _symmetric_eigen(array: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    values, vectors = NUMBERS.eigsy(_matrix(_of_lower(array)))
    values = np.array(list(values), dtype=object)
    order = np.argsort(values)
    return values[order], _array(vectors)[:, order]


def _cholesky(array: np.ndarray) -> np.ndarray:
    return _array(NUMBERS.cholesky(_matrix(_of_lower(array))))


def _eigen(array: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    values, vectors = NUMBERS.eig(_matrix(array))
    lengths = [NUMBERS.norm(vectors.column(place)) for place in range(len(values))]
    columns = np.array(vectors.tolist(), dtype=object) / np.array(lengths, dtype=object)
    return _without_rounding(np.array(values, dtype=object)), _without_rounding(columns)


def _singular(array: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    if array.shape[0] < array.shape[1]:
        u, s, v = _singular(array.T)
        return v.T, s, u.T
    u, s, v = NUMBERS.svd_r(_matrix(array))
    return _array(u), np.array(list(s), dtype=object), _array(v)


def _svd(array: np.ndarray, full_matrices: bool = True, compute_uv: bool = True) -> Any:
    if full_matrices and compute_uv and array.shape[-1] != array.shape[-2]:
        raise Imprecise("numpy.linalg.svd with full matrices")
    found = stacked("(m,n)->(m,k),(k),(k,n)", _singular)(array)
    return found if compute_uv else found[1]


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
    return each(NUMBERS.sqrt)(np.sum(array * array, axis=axis, keepdims=keepdims))


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
    """The X, of the shape of `right`, for which a linear operator gives it."""
    columns = [operator(unit.reshape(right.shape)).ravel() for unit in EYE(right.size)]
    return (INV(np.stack(columns, axis=1)) @ right.ravel()).reshape(right.shape)


def _refined(
    residual: Callable[[np.ndarray], np.ndarray],
    slope: Callable[[np.ndarray, np.ndarray], np.ndarray],
    start: np.ndarray,
) -> np.ndarray:
    """The X near `start` with residual 0, by Newton's method; `slope` is the residual's derivative
    at the first array along the second."""
    found = numbers(start)
    for _ in range(STEPS):
        step = _linear(functools.partial(slope, found), residual(found))
        found = found - step
        if max(map(abs, step.flat), default=0) <= ROUNDING * max(map(abs, found.flat), default=0):
            break
    return found


def _floats(*arrays: np.ndarray) -> list[np.ndarray]:
    return [array.astype(np.float64) for array in arrays]


def _care(a: np.ndarray, b: np.ndarray, q: np.ndarray, r: np.ndarray) -> np.ndarray:
    gain = b @ INV(r) @ b.T
    start = scipy.linalg.solve_continuous_are(*_floats(a, b, q, r))
    return _refined(
        lambda x: a.T @ x + x @ a - x @ gain @ x + q,
        lambda x, d: a.T @ d + d @ a - d @ gain @ x - x @ gain @ d,
        start,
    )


def _dare(a: np.ndarray, b: np.ndarray, q: np.ndarray, r: np.ndarray) -> np.ndarray:
    def closed(x: np.ndarray) -> np.ndarray:
        return a - b @ INV(r + b.T @ x @ b) @ b.T @ x @ a

    start = scipy.linalg.solve_discrete_are(*_floats(a, b, q, r))
    return _refined(
        lambda x: a.T @ x @ closed(x) - x + q, lambda x, d: closed(x).T @ d @ closed(x) - d, start
    )


def _root(
    function: Callable[[np.ndarray], Any],
    start: np.ndarray,
    jac: Callable[[np.ndarray], Any],
    **options: Any,
) -> Any:
    """The root that `scipy.optimize.root` finds, refined."""
    rough = scipy.optimize.root(
        lambda x: np.float64(function(numbers(x))),
        np.float64(start),
        jac=lambda x: np.float64(jac(numbers(x))),
        **options,
    )
    found = _refined(
        lambda x: numbers(function(x)), lambda x, step: numbers(jac(x)) @ step, rough.x
    )
    return SimpleNamespace(x=found)


def _softmax(array: np.ndarray, axis: int) -> Any:
    powers = each(NUMBERS.exp)(array)
    return powers / np.sum(powers, axis=axis, keepdims=True)


PLAIN = (
    "abs add all append arange array asarray broadcast_to concatenate cross cumsum diag diagonal "
    "einsum equal expand_dims full greater greater_equal kron less less_equal logical_and "
    "logical_not logical_or matmul max maximum min minimum nan ndim not_equal ones outer prod "
    "ravel reshape select shape sign sort stack sum swapaxes take_along_axis tensordot trace "
    "transpose tri triu tril tril_indices vectorize where zeros argsort inf split block square"
)
"""What NumPy does with any objects."""
RENAMED = {
    "arcsin": "asin",
    "arccos": "acos",
    "arctan": "atan",
    "arcsinh": "asinh",
    "arccosh": "acosh",
    "arctanh": "atanh",
}
MATRIX_FUNCTIONS = "expm logm sqrtm sinm cosm"
ENTRYWISE = "exp log sqrt sin cos tan sinh cosh tanh log1p expm1 floor ceil sinc conj"
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
    "iv": NUMBERS.besseli,
    "jv": NUMBERS.besselj,
    "kv": NUMBERS.besselk,
    "yv": NUMBERS.bessely,
}

LINALG = _Names(
    "numpy.linalg",
    {
        "inv": INV,
        "solve": lambda a, b: INV(a) @ b,
        "det": stacked("(n,n)->()", _determinant),
        "slogdet": stacked("(n,n)->(),()", _sign_and_log),
        "cholesky": stacked("(n,n)->(n,n)", _cholesky),
        "eigh": stacked("(n,n)->(n),(n,n)", _symmetric_eigen),
        "eigvalsh": stacked("(n,n)->(n)", lambda a: _symmetric_eigen(a)[0]),
        "eig": stacked("(n,n)->(n),(n,n)", _eigen),
        "eigvals": stacked("(n,n)->(n)", lambda a: _eigen(a)[0]),
        "svd": _svd,
        "qr": stacked("(m,n)->(m,k),(k,n)", _qr),
        "pinv": stacked("(m,n)->(n,m)", _pinv),
        "matrix_rank": stacked("(m,n)->()", _rank),
        "norm": _norm,
        "matrix_power": _power,
    },
)
NUMPY = _Names(
    "numpy",
    {
        **{name: getattr(np, name) for name in PLAIN.split()},
        **{name: each(getattr(NUMBERS, name)) for name in ENTRYWISE.split()},
        **{name: each(getattr(NUMBERS, theirs)) for name, theirs in RENAMED.items()},
        "real": each(NUMBERS.re),
        "imag": each(NUMBERS.im),
        "arctan2": each(NUMBERS.atan2, 2),
        "hypot": each(NUMBERS.hypot, 2),
        "power": each(lambda x, y: NUMBERS.convert(x) ** y, 2),
        "logaddexp": each(lambda x, y: NUMBERS.log(NUMBERS.exp(x) + NUMBERS.exp(y)), 2),
        "heaviside": each(lambda x, at: (1 + NUMBERS.sign(x)) / 2 if x else at, 2),
        "eye": EYE,
        "finfo": lambda dtype: SimpleNamespace(eps=NUMBERS.eps),
        "pi": NUMBERS.pi,
        "e": NUMBERS.e,
        "linalg": LINALG,
    },
)
SCIPY = _Names(
    "scipy",
    {
        "linalg": _Names(
            "scipy.linalg",
            {
                **{name: _unary(getattr(NUMBERS, name)) for name in MATRIX_FUNCTIONS.split()},
                "tanhm": _unary(_tanhm),
                "solve_sylvester": lambda a, b, q: _linear(lambda x: a @ x + x @ b, q),
                "solve_continuous_lyapunov": lambda a, q: _linear(lambda x: a @ x + x @ a.T, q),
                "solve_discrete_lyapunov": lambda a, q: _linear(lambda x: x - a @ x @ a.T, q),
                "solve_continuous_are": _care,
                "solve_discrete_are": _dare,
            },
        ),
        "constants": _Names("scipy.constants", {"pi": NUMBERS.pi}),
        "optimize": _Names("scipy.optimize", {"root": _root}),
        "special": _Names(
            "scipy.special",
            {
                **{name: each(function) for name, function in SPECIAL.items()},
                **{name: each(function, 2) for name, function in SPECIAL_OF_TWO.items()},
                "softmax": _softmax,
                "log_softmax": lambda x, axis: each(NUMBERS.log)(_softmax(x, axis)),
                "logsumexp": lambda x, axis: each(NUMBERS.log)(
                    np.sum(each(NUMBERS.exp)(x), axis=axis)
                ),
            },
        ),
    },
)


class _Quotients(ast.NodeTransformer):
    """Quotients and powers in 50 digits, where those of Python's whole numbers have 16; a quotient
    by zero is NumPy's."""

    def visit_BinOp(self, node: ast.BinOp) -> ast.AST:
        self.generic_visit(node)
        whole = isinstance(node.right, ast.Constant) and isinstance(node.right.value, int)
        if isinstance(node.op, ast.Div):
            called = ast.Name("_quotient", ast.Load())
            return ast.fix_missing_locations(ast.Call(called, [node.left, node.right], []))
        if isinstance(node.op, ast.Pow) and not whole:
            called = ast.Name("_number", ast.Load())
            node.left = ast.Call(called, [node.left], [])
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
    "_quotient": each(_quotient, 2),
    "__builtins__": {"__import__": __import__},
}


class PreciseText:
    """A NumPy expression evaluated in 50 digits."""

    def __init__(self, text: str) -> None:
        tree = _Quotients().visit(ast.parse(f"(\n{text}\n)", mode="eval"))
        self._code = compile(tree, "<formula>", "eval")

    def __call__(self, values: Mapping[str, Any], shape: tuple[int, ...]) -> np.ndarray:
        """The value for arrays of mpmath's numbers, an array of them.

        Raises Imprecise where the text calls what is not known in 50 digits, ArithmeticError or
        ValueError where it has no finite real value."""
        found = numbers(eval(self._code, {**SCOPE, **values}))
        array = np.empty(shape, dtype=object)
        array[...] = found
        if np.shape(found) != shape or not all(map(NUMBERS.isfinite, array.flat)):
            raise ValueError("the text has no finite value")
        if any(NUMBERS.im(entry) for entry in array.flat):
            raise ValueError("the value is complex")
        return array
