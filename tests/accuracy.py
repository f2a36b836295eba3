"""Accuracy of the kernels: `python -m tests.accuracy` prints, for every operation, the error of its
value and of its derivative against 50 digits, in units of the last place of the largest entry; also
the errors of NumPy's and SciPy's values, and of JAX. `--write` writes docs/developers/accuracy.md.
It needs `pip install jax`. Points are well conditioned (random), or badly conditioned (matrices
with singular values from 1 to 1e-6). The derivative is along a random direction."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from statistics import median
from types import ModuleType
from typing import NamedTuple

import jax
import numpy as np
from rich.console import Console
from rich.progress import track
from rich.table import Table

import derivatrix as dx
from derivatrix.compiler.frontends.operations import calling
from derivatrix.compiler.operations import OPERATIONS, Operation
from derivatrix.runtime.exact import Declared
from derivatrix.runtime.interface import ModuleInterface
from derivatrix.runtime.precise import Imprecise
from derivatrix.runtime.reference import OutOfDomain, Text
from tests import ROOT
from tests.jax_texts import UNKNOWN, jax_function

SIZE = 4
POINTS = 5
SMALLEST = 1e-6
"""The smallest singular value of badly conditioned matrices."""
PAGE = ROOT / "docs" / "developers" / "accuracy.md"
HEADER = """# Accuracy of the kernels

Errors in units in the last place of the largest entry (float64), against 50 digits. Each cell has
the median and the largest error of {points} points, for 4 by 4 matrices.

- "ours": the generated kernels.
- "NumPy": NumPy and SciPy.
- "JAX": JAX's evaluation of the same text.
- "-": no such function or derivative, or none that is finite.

At well conditioned points ("good"), matrices are random; where the operation needs it, they are
positive definite or dominated by their diagonal. At badly conditioned points ("bad"), their
singular values go from 1 to 1e-6. There, errors grow with the condition number, in every
implementation. `python -m tests.accuracy --write` makes this page.

Ours are worse, by a factor of up to ten, for:

- `solve_discrete_lyapunov`: ours uses a Schur form; SciPy solves small equations directly, which
  takes n^6 operations;
- `adjugate` of badly conditioned matrices: ours uses the inverse; the singular values would lose
  fewer digits;
- functions of small matrices such as `cosm`.

Derivatives:

- `adjugate_derivative` (third derivatives of determinants) multiplies inverses. At badly
  conditioned matrices it loses three digits more than JAX's.
- `svd` and `eig` lose digits where singular values or eigenvalues are close, as their condition
  numbers say.
- `det` at badly conditioned matrices: JAX's error is 25 times smaller. JAX solves for the
  cofactors with the factors of the matrix; ours multiplies the inverse by the determinant.
- Singular vectors at well conditioned matrices: JAX's errors are two to five times smaller. The
  smallest gaps decide.
- `pinv` and `cholesky`: our errors are smaller.

"""
COLUMNS = (
    *("operation", "point", "value, ours", "value, NumPy", "value, JAX"),
    *("derivative, ours", "derivative, JAX"),
)


Random = np.random.Generator
Values = dict[str, np.ndarray]


class Errors(NamedTuple):
    """The errors of values and derivatives at one point; nan for JAX without the operation."""

    value: float
    numpy: float
    jax_value: float
    derivative: float
    jax_derivative: float


def matrix(size: int, domain: str, bad: bool, random: Random) -> np.ndarray:
    """A square matrix of a domain of operations."""
    left, right = (np.linalg.qr(random.normal(size=(size, size)))[0] for _ in range(2))
    values = np.geomspace(1, SMALLEST, size) if bad else random.uniform(0.5, 2, size)
    matrix = (left * values) @ (left.T if domain in ("spd", "real spectrum") else right)
    if domain == "spd":
        matrix = (matrix + matrix.T) / 2
    return matrix + 2 * np.eye(size) * np.abs(matrix).max() if domain == "dominant" else matrix


def array(shape: tuple[int, ...], domain: str, bad: bool, random: Random) -> np.ndarray:
    if len(shape) < 2:
        return np.asarray(random.normal(size=shape))
    return matrix(shape[0], domain, bad, random)


def function(operation: Operation, output: int) -> dx.Function:
    """One output of an operation, of inputs called x0, x1, ..."""
    size = 3 if operation.name in ("skew", "axial") else SIZE
    inputs = [
        dx.matrix(f"x{place}", size, size) if rank == 2 else dx.vector(f"x{place}", size)
        for place, rank in enumerate(operation.ranks)
    ]
    result = calling(operation)(*inputs)
    expression = result[output] if operation.outputs else result
    return dx.function("f", inputs, expression)


def errors(module: ModuleType, values: Values, random: Random) -> Errors | None:
    """The errors at a point; None where the operation has no value or derivative there."""
    interface = ModuleInterface(module)
    tangents = {name: random.normal(size=array.shape) for name, array in values.items()}
    try:
        declared = Declared(module.DECLARATION, interface.shape("value", "", {}), values)
        value, slope = declared.value().astype(float), declared.first(tangents).derivative
        theirs = Text(module.DECLARATION)(values, value.shape)
        ours = module.value(*values.values())
        derivative = module.jvp(*values.values(), *tangents.values())
    except (OutOfDomain, Imprecise, np.linalg.LinAlgError):
        return None
    jax_value, jax_slope = jax_results(module.DECLARATION, values, tangents)
    return Errors(
        places(ours, value),
        places(theirs, value),
        places(jax_value, value),
        places(derivative, slope),
        places(jax_slope, slope),
    )


def jax_results(text: str, values: Values, tangents: Values) -> tuple[np.ndarray, np.ndarray]:
    """JAX's value of a text and its derivative along tangents, nan for what it has not."""
    function, nothing = jax_function(text), np.array(np.nan)
    try:
        value = np.asarray(function(values))
    except UNKNOWN:
        return nothing, nothing
    try:
        return value, np.asarray(jax.jvp(function, (values,), (tangents,))[1])
    except UNKNOWN:
        return value, nothing


def places(found: np.ndarray, exact: np.ndarray) -> float:
    """The largest error in units of the last place of the largest entry."""
    unit = np.finfo(float).eps * np.abs(exact).max()
    found = found.real  # JAX's eigenvalues are complex
    return float(np.abs(found - exact).max() / unit) if unit else float(np.abs(found).max())


def rows() -> Iterator[tuple[str, ...]]:
    """A row for each output of each operation and kind of point."""
    every = [
        (operation, output)
        for operation in OPERATIONS.values()
        for output in range(max(len(operation.outputs), 1))
    ]
    for operation, output in track(every):
        declared = function(operation, output)
        module = dx.compile(declared)
        name = operation.name + (f" ({operation.outputs[output]})" if operation.outputs else "")
        for bad in (False, True) if operation.ranks[0] == 2 else (False,):
            random = np.random.default_rng(0)
            points = [drawn(operation, declared, bad, random) for _ in range(POINTS)]
            result = [errors(module, values, random) for values in points]
            known = [error for error in result if error is not None]
            if known:
                yield (name, "bad" if bad else "good", *map(shown, zip(*known, strict=True)))


def drawn(operation: Operation, declared: dx.Function, bad: bool, random: Random) -> Values:
    """Values for the inputs; where they are to be bad, the first one is."""
    domains = operation.domain or ("",) * len(declared.inputs)
    return {
        leaf.name: array(tuple(map(int, leaf.shape)), domain, bad and not place, random)
        for place, (leaf, domain) in enumerate(zip(declared.inputs, domains, strict=True))
    }


def shown(numbers: tuple[float, ...]) -> str:
    if not np.isfinite(numbers).all():
        return "-"
    return f"{median(numbers):.2g} / {max(numbers):.2g}"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.accuracy", description=__doc__)
    parser.add_argument("--write", action="store_true", help="write docs/developers/accuracy.md")
    results = [*rows()]
    if parser.parse_args().write:
        lines = [COLUMNS, ("---",) * len(COLUMNS), *results]
        text = "\n".join(f"| {' | '.join(line)} |" for line in lines)
        PAGE.write_text(f"{HEADER.format(points=POINTS)}{text}\n", "utf-8")
    table = Table(*COLUMNS)
    for row in results:
        table.add_row(*row)
    Console().print(table)


if __name__ == "__main__":
    main()
