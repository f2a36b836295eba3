"""Functions of a matrix with all of their Fréchet derivatives.

The k-th derivative of f at A in the directions E_1 ... E_k, written Dᵏf(A)[E_1, ... E_k], is linear
in each direction and symmetric in them; the next derivative is its differential. It is the top
right block of f of a block triangular matrix with A on the diagonal (Mathias 1996, Higham and
Relton 2014); no eigenvectors are involved, so eigenvalues may be repeated."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import numpy as np
import scipy
import sympy

from derivatrix.compiler.ir import nodes as ir
from derivatrix.compiler.ir.arrays import Array, apply, elementwise, subtract
from derivatrix.compiler.ir.dimensions import Shape
from derivatrix.compiler.ir.operation import Arrays, Kernel, Operation, Parameters, Point, register
from derivatrix.compiler.operations.commuting import commute
from derivatrix.compiler.operations.inverse import INVERSE
from derivatrix.compiler.operations.matrices import each_matrix
from derivatrix.compiler.operations.pivots import POSITIVE_PIVOT
from derivatrix.compiler.operations.shapes import same, square

SUPERSCRIPTS = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")
INHERITED_FACTS = frozenset({"symmetric", "lower", "upper", "diagonal"})
"""Facts of A that f(A) has, too."""


@dataclass(frozen=True)
class MatrixFunction:
    """A function f of a square matrix, called `name` in `scipy.linalg`.

    scalar: f of a number
    value: f of one matrix; raises LinAlgError outside the domain
    kernel: fills `out` from (A, E_1, ... E_k, out); returns False outside the domain
    failure: the error then
    domain: the structure of points drawn for A
    definite: whether f of a symmetric matrix is positive definite
    slope: the derivative in the direction of the identity, f'(A)
    """

    name: str
    scalar: Callable[[sympy.Expr], sympy.Expr]
    value: Callable[[np.ndarray], np.ndarray]
    kernel: Kernel
    description: str
    failure: str = ""
    domain: str = ""
    definite: bool = False
    slope: Callable[[Array], Array] | None = None


def block_triangular(matrix: np.ndarray, directions: Sequence[np.ndarray]) -> np.ndarray:
    """Build the matrix of 2**k by 2**k blocks with A on the diagonal, E_1 beside it in each pair of
    blocks, E_2 beside each pair of pairs, and so on. Stacked axes broadcast."""
    result = np.kron(np.eye(2 ** len(directions)), matrix)
    for power, direction in enumerate(directions):
        inner = np.kron(np.eye(2 ** (power + 1), k=2**power), direction)
        result = result + np.kron(np.eye(2 ** (len(directions) - power - 1)), inner)
    return result


def _corner(result: np.ndarray, blocks: int) -> np.ndarray:
    return np.split(np.split(result, blocks, -2)[0], blocks, -1)[-1]


def _text(name: str, arguments: Sequence[str]) -> str:
    """Write `block_triangular` and `_corner` as an expression."""
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
    shared = frozenset.intersection(*arguments) & INHERITED_FACTS
    positive = function.definite and len(arguments) == 1 and "symmetric" in shared
    return shared | {"psd", "spd"} if positive else shared


def _differential(function: MatrixFunction, at: Point) -> tuple[Array, ...]:
    """Dᵏ⁺¹f(A)[E_1, ... E_k, dA], and Dᵏf(A) with each E_i replaced by dE_i."""
    order = len(at.arguments) - 1
    terms = []
    for position, tangent in enumerate(at.tangents):
        if ir.is_zero(tangent.node):
            continue
        if position == 0:
            terms.append(apply(derivative(function, order + 1), *at.arguments, tangent))
        else:
            arguments = [*at.arguments[:position], tangent, *at.arguments[position + 1 :]]
            terms.append(apply(derivative(function, order), *arguments))
    return (sum(terms[1:], start=terms[0]),)


def _transpose(function: MatrixFunction, position: int) -> Callable[[Point, Array], Array]:
    """<G, Dᵏf(A)[.., E, ..]> = <Dᵏf(Aᵀ)[.., G, ..], E>, the other directions transposed."""

    def rule(at: Point, cotangent: Array) -> Array:
        arguments = [argument.mT for argument in at.arguments]
        arguments[position] = cotangent
        return apply(derivative(function, len(arguments) - 1), *arguments)

    return rule


def transposed(node: ir.Apply) -> ir.Node | None:
    """Dᵏf(Aᵀ)[E_1ᵀ, ... E_kᵀ] = Dᵏf(A)[E_1, ... E_k]ᵀ."""
    arguments = []
    for argument, labels in node.arguments:
        inner = _without_transposition(argument, len(labels))
        if inner is None:
            return None
        arguments.append((inner, labels))
    result = ir.Apply(node.operation, tuple(arguments), node.stack)
    return Array(result).mT.node


def _without_transposition(node: ir.Node, depth: int) -> ir.Node | None:
    """Return c X where `node` is c Xᵀ, after `depth` stacked axes; None for others."""
    if not isinstance(node, ir.Einsum) or node.contracted:
        return None
    factors: list[ir.Factor] = []
    transpositions = 0
    for factor, labels in node.factors:
        if labels == (*range(depth), depth + 1, depth):
            labels = (*range(depth), depth, depth + 1)
            transpositions += 1
        elif any(label >= depth for label in labels):
            return None
        factors.append((factor, labels))
    if transpositions != 1:
        return None
    sizes = {label: size for label, size in enumerate(node.sizes) if label < depth}
    return ir.einsum(factors, range(node.ndim), node.coefficient, sizes)


def _ordered(node: ir.Apply) -> ir.Node | None:
    """Sort the directions, in which the derivative is symmetric."""
    matrix, *directions = node.arguments
    ordered = sorted(directions, key=lambda argument: (argument[0].key, argument[1]))
    if ordered == directions:
        return None
    return ir.Apply(node.operation, (matrix, *ordered), node.stack)


def _along_itself(function: MatrixFunction, node: ir.Apply) -> ir.Node | None:
    """Df(A)[C] = f'(A) C if C commutes with A, as the identity does."""
    (matrix, labels), *directions = node.arguments
    if function.slope is None or len(directions) != 1:
        return None
    direction = directions[0][0]
    if isinstance(direction, ir.Delta) and labels == tuple(range(len(node.stack))):
        return function.slope(Array(matrix)).node
    if node.stack or not commute(direction, matrix):
        return None
    return (function.slope(Array(matrix)) @ Array(direction)).node


def _of_number(
    function: MatrixFunction, numbers: Sequence[Array], facts: Sequence[frozenset[str]]
) -> tuple[Array, ...]:
    """f(x), of a positive x if f is so restricted."""
    x = apply(POSITIVE_PIVOT, numbers[0]) if function.domain == "spd" else numbers[0]
    return (elementwise(function.scalar(ir.slot(0)), x),)


@cache
def derivative(function: MatrixFunction, order: int) -> Operation:
    """Return the operation Dᵏf of k + 1 matrices; for order 0 the function itself."""
    name = function.name
    power = "" if order == 1 else str(order)
    sign = f"D{power.translate(SUPERSCRIPTS)}" if order else ""
    inputs = f"[{', '.join(f'{{{i}}}' for i in range(1, order + 1))}]" if order else ""
    latex_sign = (r"\mathrm{{D}}" + (f"^{{{{{power}}}}}" if power else "")) if order else ""

    def shapes(cores: Sequence[Shape], parameters: Parameters) -> tuple[Shape, ...]:
        return (square(name, same(name, cores)),)

    def value(arguments: Arrays, parameters: Parameters) -> tuple[np.ndarray, ...]:
        matrix, *directions = arguments
        blocks = block_triangular(matrix, directions)
        (result,) = each_matrix(lambda block: (function.value(block),), [blocks])
        return (_corner(result, 2**order),)

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
        single=partial(_of_number, function) if not order else None,
        is_matrix_function=not order,
        notation=("" if order else name,),
        description=function.description,
        rules=(transposed, _ordered, partial(_along_itself, function)),
    )


def require_principal(name: str, matrix: np.ndarray) -> None:
    """Raise LinAlgError for eigenvalues on the closed negative real axis, up to rounding."""
    values = np.linalg.eigvals(matrix)
    level = len(matrix) * np.finfo(float).eps * np.max(np.abs(matrix), initial=0)
    if np.any((values.real <= level) & (np.abs(values.imag) <= level)):
        raise np.linalg.LinAlgError(f"{name}: {NOT_PRINCIPAL}")


def _logarithm(matrix: np.ndarray) -> np.ndarray:
    require_principal("logm", matrix)
    # The principal logarithm is real: an imaginary part is rounding (Higham 2008, theorem 1.31).
    return np.real(scipy.linalg.logm(matrix)) if len(matrix) else matrix


def _slope_of_tanhm(matrix: Array) -> Array:
    result = apply(TANHM, matrix)
    return subtract(Array(ir.Delta(matrix.node.shape[-1])), result @ result)


NOT_PRINCIPAL = "an eigenvalue lies on the closed negative real axis"


FUNCTIONS: dict[str, MatrixFunction] = {}


def _record(**fields: Any) -> Operation:
    function = FUNCTIONS[fields["name"]] = MatrixFunction(**fields)
    return register(derivative(function, 0))


EXPM: Operation = _record(
    name="expm",
    scalar=sympy.exp,
    value=lambda matrix: scipy.linalg.expm(matrix),
    kernel="exponential.expm",
    definite=True,
    slope=lambda matrix: apply(EXPM, matrix),
    description="The exponential of a square matrix, I + A + A²/2 + ...",
)

LOGM: Operation = _record(
    name="logm",
    scalar=sympy.log,
    value=_logarithm,
    kernel="logarithm.logm",
    failure=NOT_PRINCIPAL,
    domain="spd",
    slope=lambda matrix: apply(INVERSE, matrix),
    description=(
        "The principal logarithm of a square matrix: the X with expm(X) = A whose "
        "eigenvalues have imaginary parts between -pi and pi. LinAlgError where an "
        "eigenvalue lies on the closed negative real axis, as for a singular matrix."
    ),
)

COSM: Operation = _record(
    name="cosm",
    scalar=sympy.cos,
    value=lambda matrix: scipy.linalg.cosm(matrix),
    kernel="matrix_trigonometry.cosm",
    slope=lambda matrix: -apply(SINM, matrix),
    description="The cosine of a square matrix, I - A²/2 + A⁴/24 - ...",
)

SINM: Operation = _record(
    name="sinm",
    scalar=sympy.sin,
    value=lambda matrix: scipy.linalg.sinm(matrix),
    kernel="matrix_trigonometry.sinm",
    slope=lambda matrix: apply(COSM, matrix),
    description="The sine of a square matrix, A - A³/6 + A⁵/120 - ...",
)

TANHM: Operation = _record(
    name="tanhm",
    scalar=sympy.tanh,
    value=lambda matrix: scipy.linalg.tanhm(matrix),
    kernel="matrix_trigonometry.tanhm",
    failure="an eigenvalue is a pole of tanh",
    slope=_slope_of_tanhm,
    description=(
        "The hyperbolic tangent of a square matrix, "
        "(expm(A) - expm(-A)) @ inv(expm(A) + expm(-A)). LinAlgError where that has "
        "no inverse, at an eigenvalue (j + 1/2) pi i."
    ),
)
