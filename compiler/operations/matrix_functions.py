"""Functions of a matrix that come with all of their Fréchet derivatives.

The k-th derivative of f at A in the directions E_1 ... E_k, written Dᵏf(A)[E_1, ... E_k], is linear
in each direction, symmetric in them, and its differential is made of the next one. It is the top
right block of f of a block triangular matrix with A on the diagonal (Mathias 1996, Higham and
Relton 2014); no eigenvectors are involved, so eigenvalues may be repeated.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
import scipy.linalg

from derivatrix.compiler.arrays import Array, apply
from derivatrix.compiler.dimensions import Shape
from derivatrix.compiler.ir import is_zero
from derivatrix.compiler.kernels import exponential
from derivatrix.compiler.operations.registry import Operation, Parameters, Point, register
from derivatrix.compiler.operations.shapes import same, square

SUPERSCRIPTS = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")
KEPT = frozenset({"symmetric", "lower", "upper", "diagonal"})


@dataclass(frozen=True)
class MatrixFunction:
    """A function f of a square matrix, called `name` in `scipy.linalg`.

    value: of one matrix; raises LinAlgError outside the domain. kernel: of (A, E_1, ... E_k,
    out), which returns False there; failure: what is wrong then. domain: where A is drawn.
    definite: whether f of a symmetric matrix is positive definite.
    """

    name: str
    value: Callable[[np.ndarray], np.ndarray]
    kernel: Callable[..., bool | None]
    description: str
    failure: str = ""
    domain: str = ""
    definite: bool = False


def block_triangular(matrix: np.ndarray, directions: Sequence[np.ndarray]) -> np.ndarray:
    """The matrix of 2**k blocks in a row with A on the diagonal, E_1 beside it in each pair of
    blocks, E_2 beside each pair, and so on. Stacked axes broadcast."""
    result = np.kron(np.eye(2 ** len(directions)), matrix)
    for power, direction in enumerate(directions):
        inner = np.kron(np.eye(2 ** (power + 1), k=2**power), direction)
        result = result + np.kron(np.eye(2 ** (len(directions) - power - 1)), inner)
    return result


def _corner(result: np.ndarray, blocks: int) -> np.ndarray:
    return np.split(np.split(result, blocks, -2)[0], blocks, -1)[-1]


def _text(name: str, arguments: Sequence[str]) -> str:
    """`block_triangular` and `_corner` as an expression."""
    matrix, *directions = arguments
    if not directions:
        return f"scipy.linalg.{name}({matrix})"
    blocks = 2 ** len(directions)
    terms = [f"np.kron(np.eye({blocks}), {matrix})"]
    for power, direction in enumerate(directions):
        term = f"np.kron(np.eye({2 ** (power + 1)}, k={2**power}), {direction})"
        outer = blocks // 2 ** (power + 1)
        terms.append(f"np.kron(np.eye({outer}), {term})" if outer > 1 else term)
    result = f"scipy.linalg.{name}({' + '.join(terms)})"
    return f"np.split(np.split({result}, {blocks}, -2)[0], {blocks}, -1)[-1]"


def _facts(function: MatrixFunction, arguments: Sequence[frozenset[str]]) -> frozenset[str]:
    shared = frozenset.intersection(*arguments) & KEPT
    positive = function.definite and len(arguments) == 1 and "symmetric" in shared
    return shared | {"spd"} if positive else shared


def _differential(function: MatrixFunction, at: Point) -> tuple[Array, ...]:
    """The next derivative in the direction dA, and this one with each direction replaced."""
    order = len(at.arguments) - 1
    terms = []
    for position, tangent in enumerate(at.tangents):
        if is_zero(tangent.node):
            continue
        if position == 0:
            terms.append(apply(derivative(function, order + 1), *at.arguments, tangent))
        else:
            moved = [*at.arguments[:position], tangent, *at.arguments[position + 1 :]]
            terms.append(apply(derivative(function, order), *moved))
    return (sum(terms[1:], start=terms[0]),)


def _transpose(function: MatrixFunction, position: int) -> Callable[[Point, Array], Array]:
    """<G, Dᵏf(A)[.., E, ..]> = <Dᵏf(Aᵀ)[.., G, ..], E>, the other directions transposed."""

    def rule(at: Point, cotangent: Array) -> Array:
        arguments = [argument.mT for argument in at.arguments]
        arguments[position] = cotangent
        return apply(derivative(function, len(arguments) - 1), *arguments)

    return rule


@cache
def derivative(function: MatrixFunction, order: int) -> Operation:
    """The operation Dᵏf, of k + 1 matrices; the function itself for order 0."""
    name = function.name
    power = "" if order == 1 else str(order)
    sign = f"D{power.translate(SUPERSCRIPTS)}" if order else ""
    inputs = f"[{', '.join(f'{{{i}}}' for i in range(1, order + 1))}]" if order else ""
    latex_sign = (r"\mathrm{{D}}" + (f"^{{{{{power}}}}}" if power else "")) if order else ""

    def shapes(cores: Sequence[Shape], parameters: Parameters) -> tuple[Shape, ...]:
        return (square(name, same(name, cores)),)

    def value(arguments: Sequence[np.ndarray], parameters: Parameters) -> tuple[np.ndarray, ...]:
        matrix, *directions = arguments
        every = np.vectorize(function.value, otypes=[float], signature="(n,n)->(n,n)")
        return (_corner(every(block_triangular(matrix, directions)), 2**order),)

    return Operation(
        name=f"D{power} {name}" if order else name,
        ranks=(2,) * (order + 1),
        shapes=shapes,
        value=value,
        differential=lambda at: _differential(function, at),
        transposes={position: _transpose(function, position) for position in range(1, order + 1)},
        numpy=lambda arguments, *_: _text(name, arguments),
        unicode=f"{sign}{name}({{0}}){inputs}",
        latex=rf"{latex_sign}\operatorname{{{{{name}}}}}({{0}}){inputs}",
        kernel=function.kernel,
        failure=function.failure,
        facts=lambda arguments, output: _facts(function, arguments),
        domain=(function.domain,) + ("",) * order,
        notation=("" if order else name,),
        description=function.description,
    )


EXPM = register(
    derivative(
        MatrixFunction(
            name="expm",
            value=scipy.linalg.expm,
            kernel=exponential.expm,
            definite=True,
            description="The exponential of a square matrix, I + A + A²/2 + ...",
        ),
        0,
    )
)
