"""The functions of the notation: the shapes of their arguments, and the functions that compute
them.

Operations are looked up by the `notation` of their records, so that a new record needs no entry
here; a row adds shapes, for error messages and for the sizes of `eye` and `ones`."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from derivatrix.compiler.frontends import arrays as library
from derivatrix.compiler.frontends.operations import calling, find
from derivatrix.compiler.ir.arrays import Array, apply
from derivatrix.compiler.operations import OPERATIONS
from derivatrix.compiler.operations.lyapunov import LYAPUNOV
from derivatrix.compiler.operations.singular import SVDVALS

Function = Callable[..., Array]
Shapes = tuple[tuple[str, ...], ...]
"""The shape of each argument, a letter for each axis; equal letters are equal sizes."""

ANY_SHAPE = "any"


class Row(NamedTuple):
    """One function of the notation.

    signature: the shapes of its arguments, as in "n n, n m" for a square matrix and one with as
    many rows, alternatives separated by "|"; or ANY_SHAPE for one array. function: the function
    that computes it, or its name if that differs. kind: whether a resulting vector is a "column", a
    loose "row", or as the arguments ("same")."""

    signature: str
    function: Function | str = ""
    kind: str = "column"


class Rule(NamedTuple):
    """A row with its function. choices: the alternatives of the signature; none for ANY_SHAPE."""

    function: Function
    choices: tuple[Shapes, ...]
    kind: str = "column"

    @property
    def arity(self) -> int:
        """The number of arguments."""
        return len(self.choices[0]) if self.choices else 1


def _frobenius(array: Array) -> Array:
    return library.sqrt(library.sum(array**2))


def _singular_value(position: int, matrix: Array) -> Array:
    return apply(SVDVALS, matrix)[position]


ROWS = {
    **{
        name: Row(ANY_SHAPE, kind="same")
        for name in (
            *("exp", "expm1", "log", "log1p", "sqrt", "abs", "sign", "erf", "erfc", "normcdf"),
            *("sin", "cos", "tan", "sinh", "cosh", "tanh", "sigmoid", "relu", "softplus"),
            *("sinc", "gammaln"),
        )
    },
    "asin": Row(ANY_SHAPE, "arcsin", "same"),
    "acos": Row(ANY_SHAPE, "arccos", "same"),
    "atan": Row(ANY_SHAPE, "arctan", "same"),
    **{name: Row(ANY_SHAPE) for name in ("sum", "prod", "mean", "var")},
    **{
        name: Row("n n")
        for name in (
            *("det", "logdet", "inv", "vech", "expm", "logm", "sqrtm", "sinm", "cosm", "tanhm"),
            *("luL", "luU", "eigvalsh", "eighV", "lambda_max", "lambda_min", "eigvals"),
        )
    },
    **{name: Row("p k") for name in ("polar", "svdvals", "svdU", "svdV")},
    "qrQ": Row("p k", lambda matrix: library.qr(matrix).Q),
    "qrR": Row("p k", lambda matrix: library.qr(matrix).R),
    "sigma_max": Row("p k", lambda matrix: _singular_value(0, matrix)),
    "sigma_min": Row("p k", lambda matrix: _singular_value(-1, matrix)),
    **{name: Row("m n") for name in ("tril", "triu", "vec")},
    **{name: Row("n") for name in ("diag", "cumsum", "cumprod", "logcumsumexp")},
    **{name: Row("n n, n m, n n, m m") for name in ("care", "dare")},
    "tr": Row("n n", "trace"),
    "diagvec": Row("n n", "diagonal"),
    "chol": Row("n n", "cholesky"),
    "rowsum": Row("m n", partial(library.sum, axis=1)),
    "rowmean": Row("m n", partial(library.mean, axis=1)),
    "colsum": Row("m n", partial(library.sum, axis=0), "row"),
    "colmean": Row("m n", partial(library.mean, axis=0), "row"),
    "kron": Row("m n, p q | m, p", kind="same"),
    "skew": Row("3"),
    "axial": Row("3 3"),
    "rotation": Row("3"),
    "cross": Row("3, 3"),
    "dot": Row("n, n", "vdot"),
    "sort": Row("n", kind="same"),
    "cdist": Row("m k, n k"),
    "norm1": Row(ANY_SHAPE, lambda array: library.sum(abs(array))),
    "norm2": Row("n", _frobenius),
    "normF": Row(ANY_SHAPE, _frobenius),
    "normnuc": Row("p k", partial(library.norm, ord="nuc")),
    "normspec": Row("p k", partial(library.norm, ord=2)),
    "softmax": Row("n | m n", kind="same"),
    "logsumexp": Row("n | m n", partial(library.logsumexp, axis=-1)),
    "sylvester": Row("n n, m m, n m", "solve_sylvester"),
    "lyap": Row("n n, n n", lambda matrix, constant: apply(LYAPUNOV, matrix, -constant)),
    "dlyap": Row("n n, n n"),
}

SPECIAL = ("max", "min", "solve", "pinv", "besseli", "einsum", "norm", "scan")
"""Functions whose arguments `Meaning` reads by methods `call_...`."""

DERIVATIVES = {
    "grad": ("X",),
    "jacobian": ("expr", "X"),
    "hessian": ("X", "X"),
    "hessian_diagonal": ("X",),
    "laplacian": (),
    "divergence": (),
}
"""Derivatives of an expression by an input X, and whose axes they have."""

ADVICE = {
    "ln": "log(x)",
    "e": "exp(x) for e^x",
    "I": "eye for the identity",
    "std": "sqrt(var(x))",
    "trace": "tr(X)",
    "transpose": "X'",
    "inverse": "inv(X)",
    "eig": "eigvalsh(S) and eighV(S), or eigvals(X) and eigV(X)",
    "svd": "svdvals(X), svdU(X) and svdV(X)",
    "qr": "qrQ(X) and qrR(X)",
    "lu": "luL(X) and luU(X)",
    "solve_triangular": "solve(tril(A), B) or solve(triu(A), B)",
}
"""Names of other notations -> what to write."""

UNSIZED = ("eye", "ones")
"""Names of arrays whose sizes follow from the expression around them."""


def shapes(signature: str) -> tuple[Shapes, ...]:
    """Parse a signature such as "m n, p q | m, p"."""
    return tuple(
        tuple(tuple(argument.split()) for argument in choice.split(","))
        for choice in signature.split("|")
    )


def names() -> list[str]:
    """List all predefined names, which inputs and sizes cannot have."""
    return sorted({*ROWS, *SPECIAL, *DERIVATIVES, *UNSIZED, *_recorded()})


def is_name(name: str) -> bool:
    """Check whether a name is predefined: one of `names`, or sigma_1, sigma_2, ..."""
    return name in names() or _numbered(name) is not None


def _numbered(name: str) -> Row | None:
    """Return the row of a singular value sigma_k, of which sigma_1 is the largest; None for another
    name."""
    stem, _, number = name.rpartition("_")
    if stem != "sigma" or not number.isdecimal() or not number.isascii() or int(number) == 0:
        return None
    return Row("p k", partial(_singular_value, int(number) - 1))


def rule(name: str) -> Rule:
    """Return the rule of a name that is none of SPECIAL, DERIVATIVES and UNSIZED."""
    recorded = _recorded()
    row = ROWS.get(name) or _numbered(name)
    if row is None:
        return recorded[name]
    if callable(row.function):
        function: Function | None = row.function
    elif name in recorded:
        function = recorded[name].function
    else:
        library_name = row.function or name
        function = library.FUNCTIONS.get(library_name) or find(library_name)
    assert function is not None, f"nothing computes {name}"
    return Rule(function, () if row.signature == ANY_SHAPE else shapes(row.signature), row.kind)


def _recorded() -> dict[str, Rule]:
    """Collect the rules of operations with names of the notation in their records."""
    rules = {}
    for operation in OPERATIONS.values():
        choice = tuple(
            tuple(f"{position}.{axis}" for axis in range(rank))
            for position, rank in enumerate(operation.ranks)
        )
        call = calling(operation)
        for output, name in enumerate(operation.notation):
            if name:
                function = partial(_output, call, output) if operation.outputs else call
                rules[name] = Rule(function, (choice,))
    return rules


def _output(call: Callable[..., Any], output: int, *arrays: Array) -> Array:
    """Call an operation with several results, and take one."""
    return call(*arrays)[output]
