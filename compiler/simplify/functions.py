"""Rules for elementwise functions and for operations: a node in, its simpler form out."""

from __future__ import annotations

from collections.abc import Callable

import sympy

from derivatrix.compiler.ir import scalar_functions
from derivatrix.compiler.ir.arrays import Array, apply, elementwise, scale
from derivatrix.compiler.ir.nodes import (
    Apply,
    Delta,
    Einsum,
    Factor,
    Gather,
    Map,
    Node,
    Slice,
    Sum,
    einsum,
    full,
    is_zero,
    labels_of,
    literal,
    relabelled,
    slot,
    zeros,
)
from derivatrix.compiler.ir.structure import facts
from derivatrix.compiler.operations.determinant import (
    DETERMINANT,
    LOG_ABSOLUTE_DETERMINANT,
    LOG_DETERMINANT,
)
from derivatrix.compiler.operations.inverse import INVERSE
from derivatrix.compiler.operations.softmax import LOG_SOFTMAX, LOGSUMEXP, SOFTMAX
from derivatrix.compiler.simplify.kronecker import (
    inverse_of_kronecker,
    logarithm_of_determinant_of_kronecker,
)
from derivatrix.compiler.simplify.sigmoids import sigmoid_argument

x = slot(0)

MAX_COMPOSED_SIZE = 16
"""Most parts of a function of a function that is tried as one expression."""


def fold_numbers(node: Map) -> Node | None:
    """Substitute arguments that are one number everywhere."""
    if all(literal(argument) is None for argument in node.arguments):
        return None
    return elementwise(node.expression, *map(Array, node.arguments)).node


def extract_coefficient(node: Map) -> Node | None:
    """Write 2 exp(x) as the coefficient 2 and exp(x); x², x³ and products of arguments as
    products."""
    coefficient, rest = node.expression.as_coeff_Mul()
    powers = rest.as_powers_dict()
    product = all(base.is_Symbol and e in (1, 2, 3) for base, e in powers.items())
    if coefficient == 1 and not product:
        return None
    labels = range(node.ndim)
    if product:
        factors = [
            (node.arguments[int(base.name[1:])], labels)
            for base, exponent in powers.items()
            for _ in range(int(exponent))
        ]
        return einsum(factors, labels, coefficient)
    return scale(Array(Map(rest, node.arguments)), coefficient).node


def extract_sign(node: Map) -> Node | None:
    """Write sigmoid(-a) as a function of a, to compare it with sigmoid(a)."""
    inside = node.arguments[0]
    if not isinstance(node.expression, scalar_functions.sigmoid) or not isinstance(inside, Einsum):
        return None
    if inside.coefficient != -1 or len(node.arguments) > 1:
        return None
    return Map(node.expression.subs(x, -x), (inside.scaled(sympy.S.One),))


def split_sum(node: Map) -> Node | None:
    """Split a sum of functions of different arguments into a sum of nodes."""
    if not isinstance(node.expression, sympy.Add):
        return None
    parts = node.expression.args
    symbols = [part.free_symbols for part in parts]
    if len(node.arguments) < 2 or all(len(slots) != 1 for slots in symbols):
        return None
    arguments = [Array(argument) for argument in node.arguments]
    terms = tuple(elementwise(part, *arguments).node for part in parts)
    shape = node.shape
    return Sum(
        tuple(t if t.shape == shape else full(literal(t) or 0, shape) for t in terms),
        shape,
    )


def compose(node: Map) -> Node | None:
    """Compose functions where SymPy then finds a shorter one: log(exp(x)) = x. Maxima are left out:
    SymPy compares their arguments in pairs, which takes seconds for a few."""
    if node.expression.has(sympy.Max, sympy.Min):
        return None
    for position, inner in enumerate(node.arguments):
        if not isinstance(inner, Map):
            continue
        before = _size(node.expression) + _size(inner.expression) - 1
        if before > MAX_COMPOSED_SIZE:
            continue
        count = len(node.arguments)
        shifted = inner.expression.xreplace(
            {slot(i): slot(count + i) for i in range(len(inner.arguments))}
        )
        expression = node.expression.subs(slot(position), shifted)
        if _size(expression) < before:
            arguments = [*map(Array, node.arguments), *map(Array, inner.arguments)]
            return elementwise(expression, *arguments).node
    return None


def _size(expression: sympy.Expr) -> int:
    return sum(1 for _ in sympy.preorder_traversal(expression))


def logarithm(node: Map) -> Node | None:
    """Rewrite log det, log |det|, log Σ exp, log softmax and log sigmoid in stable form."""
    if node.expression != sympy.log(x):
        return None
    argument = node.arguments[0]
    if isinstance(argument, Apply) and argument.operation is DETERMINANT:
        return Apply(LOG_DETERMINANT, argument.arguments, argument.stack)
    if isinstance(argument, Map) and argument.expression == sympy.Abs(x):
        inner = argument.arguments[0]
        if isinstance(inner, Apply) and inner.operation is DETERMINANT:
            return Apply(LOG_ABSOLUTE_DETERMINANT, inner.arguments, inner.stack)
    if (picked := _log_of_softmax(argument)) is not None:
        return picked
    if (inside := sigmoid_argument(argument)) is not None:
        expression, arguments = inside
        return elementwise(-scalar_functions.softplus(-expression), *map(Array, arguments)).node
    return _log_sum_exp(argument)


def _log_of_softmax(argument: Node) -> Node | None:
    """Return the logarithm of softmax, or of selected entries of it; None for other nodes."""
    if isinstance(argument, Apply) and argument.operation is SOFTMAX:
        return Apply(LOG_SOFTMAX, argument.arguments, argument.stack)
    if not isinstance(argument, Einsum) or argument.coefficient != 1:
        return None
    arrays = [p for p, (f, _) in enumerate(argument.factors) if not isinstance(f, Slice | Gather)]
    inner = _log_of_softmax(argument.factors[arrays[0]][0]) if len(arrays) == 1 else None
    if inner is None or not _picks_entries(argument):
        return None
    return argument.with_factor(arrays[0], inner)


def _picks_entries(node: Einsum) -> bool:
    """Return whether the entries of a product of an array and slices are entries of the array."""
    picks = [
        (factor, labels) for factor, labels in node.factors if isinstance(factor, Slice | Gather)
    ]
    picked = [labels[1] for _, labels in picks]
    single = [labels[0] for factor, labels in picks if factor.shape[0] == 1]
    sums_only_picks = {*node.contracted} <= {*picked, *single} and {*picked} <= {*node.contracted}
    return sums_only_picks and len({*picked}) == len(picked)


def _log_sum_exp(argument: Node) -> Node | None:
    if not isinstance(argument, Einsum) or len(argument.factors) != 1:
        return None
    exponential, labels = argument.factors[0]
    if not isinstance(exponential, Map) or exponential.expression != sympy.exp(x):
        return None
    rank = argument.ndim
    if sorted(labels) != list(range(len(argument.sizes))) or labels[:rank] != tuple(range(rank)):
        return None
    if rank == exponential.ndim or argument.coefficient != 1:
        return None
    result = Array(exponential.arguments[0])
    for _ in range(exponential.ndim - rank):
        result = apply(LOGSUMEXP, result)
    return result.node


OF_ONE_PLUS_EXP = {
    sympy.log(x): scalar_functions.softplus(x),
    1 / x: scalar_functions.sigmoid(-x),
}
"""f(x) -> f(1 + exp(x)) in stable form."""


def logistic(node: Map) -> Node | None:
    """Write log(1 + exp(z)) as softplus(z), 1 / (1 + exp(z)) as sigmoid(-z)."""
    argument = node.arguments[0]
    stable = OF_ONE_PLUS_EXP.get(node.expression)
    if stable is None or not isinstance(argument, Sum) or len(argument.terms) != 2:
        return None
    for number, exponential in (argument.terms, argument.terms[::-1]):
        if (
            literal(number) == 1
            and isinstance(exponential, Map)
            and exponential.expression == sympy.exp(x)
        ):
            return Map(stable, exponential.arguments)
    return None


def linear_in_zero(node: Apply) -> Node | None:
    """Write an operation that is linear in a zero argument as zero."""
    if any(is_zero(node.arguments[position][0]) for position in node.operation.transposes):
        return zeros(node.shape)
    return None


def scaled_linear(node: Apply) -> Node | None:
    """Pull scalar factors out of an argument in which an operation is linear."""
    for position in node.operation.transposes:
        argument, labels = node.arguments[position]
        if not isinstance(argument, Einsum):
            continue
        depth = len(labels)
        outer = [f for f in argument.factors if all(label < depth for label in f[1])]
        if outer or argument.coefficient != 1:
            return _with_factors_outside(node, position, outer)
    return None


def _with_factors_outside(node: Apply, position: int, outer: list[Factor]) -> Node:
    """Move the factors `outer`, which only have stacked axes, from an argument to the result."""
    argument, labels = node.arguments[position]
    assert isinstance(argument, Einsum)
    inner = [factor for factor in argument.factors if factor not in outer]
    inner_labels = labels_of(inner)
    argument_stack = [label for label in range(len(labels)) if label in inner_labels]
    core = range(len(labels), argument.ndim)
    simpler = einsum(
        inner, [*argument_stack, *core], sizes={label: argument.sizes[label] for label in core}
    )
    arguments = list(node.arguments)
    arguments[position] = (simpler, tuple(labels[label] for label in argument_stack))
    stacked = sorted(labels_of(arguments))
    numbers = {label: number for number, label in enumerate(stacked)}
    result = Apply(
        node.operation,
        relabelled(arguments, numbers),
        tuple(node.stack[label] for label in stacked),
        node.parameters,
        node.output,
    )
    axes = range(len(node.stack), node.ndim)
    factors = [(result, (*stacked, *axes)), *relabelled(outer, labels)]
    sizes = dict(enumerate(node.shape))
    return einsum(factors, range(node.ndim), argument.coefficient, sizes)


def of_single_entries(node: Apply) -> Node | None:
    """Write an operation on 1 x 1 matrices as a function of numbers, if its record gives one."""
    rule, depth = node.operation.single, len(node.stack)
    if rule is None or any(
        size != 1 for matrix, labels in node.arguments for size in matrix.shape[len(labels) :]
    ):
        return None
    stack = range(depth)
    stack_sizes = dict(enumerate(node.stack))
    numbers = []
    for matrix, labels in node.arguments:
        core = range(depth, depth + matrix.ndim - len(labels))
        numbers.append(Array(einsum([(matrix, (*labels, *core))], stack, sizes=stack_sizes)))
    results = rule(numbers, [facts(matrix) for matrix, _ in node.arguments])
    if results is None:
        return None
    sizes = dict(enumerate(node.shape))
    return einsum([(results[node.output].node, stack)], range(node.ndim), sizes=sizes)


def inverse_of_orthogonal(node: Apply) -> Node | None:
    """Q⁻¹ = Qᵀ."""
    matrix, labels = node.arguments[0]
    if node.operation is not INVERSE or "orthogonal" not in facts(matrix):
        return None
    if labels != tuple(range(len(node.stack))):
        return None
    return einsum([(matrix, (*labels, "i", "j"))], (*labels, "j", "i"))


def of_inverse(node: Apply) -> Node | None:
    """Write (A⁻¹)⁻¹ as A, and det, logdet of A⁻¹ by those of A."""
    inner = node.arguments[0][0]
    if not isinstance(inner, Apply) or inner.operation is not INVERSE or inner.stack:
        return None
    matrix = inner.arguments[0][0]
    if node.operation is INVERSE:
        return matrix
    if node.operation is DETERMINANT:
        return Map(1 / x, (Apply(DETERMINANT, inner.arguments),))
    if node.operation in (LOG_DETERMINANT, LOG_ABSOLUTE_DETERMINANT):
        return scale(Array(Apply(node.operation, inner.arguments)), sympy.S.NegativeOne).node
    return None


def of_transpose(node: Apply) -> Node | None:
    """(c Aᵀ)⁻¹ = (A⁻¹)ᵀ / c, det(Aᵀ) = det(A), I⁻¹ = I."""
    operations = (INVERSE, DETERMINANT, LOG_DETERMINANT, LOG_ABSOLUTE_DETERMINANT)
    if node.operation not in operations or node.stack:
        return None
    inner = node.arguments[0][0]
    if isinstance(inner, Delta) and node.operation is INVERSE:
        return inner
    if not isinstance(inner, Einsum) or inner.contracted or len(inner.factors) != 1:
        return None
    matrix, labels = inner.factors[0]
    if matrix.ndim != 2 or set(labels) != {0, 1}:
        return None
    core = Apply(node.operation, ((matrix, ()),))
    if node.operation is INVERSE:
        return einsum([(core, labels)], (0, 1), 1 / inner.coefficient)
    return core if inner.coefficient == 1 else None


def inverse_of_diagonal(node: Apply) -> Node | None:
    """diag(v)⁻¹ = diag(1/v)."""
    inner = node.arguments[0][0]
    if node.operation is not INVERSE or node.stack:
        return None
    if not isinstance(inner, Einsum) or inner.contracted:
        return None
    deltas = [factor for factor, _ in inner.factors if isinstance(factor, Delta)]
    vectors = [f for f in inner.factors if not isinstance(f[0], Delta)]
    if len(deltas) != 1 or not vectors or any(len(labels) > 1 for _, labels in vectors):
        return None
    inverted = [(Map(1 / x, (factor,)), labels) for factor, labels in vectors]
    return einsum([*inverted, (deltas[0], (0, 1))], (0, 1), 1 / inner.coefficient)


MAP_RULES: tuple[Callable[[Map], Node | None], ...] = (
    fold_numbers,
    extract_coefficient,
    extract_sign,
    split_sum,
    logarithm,
    logistic,
    compose,
)

APPLY_RULES: tuple[Callable[[Apply], Node | None], ...] = (
    linear_in_zero,
    scaled_linear,
    of_inverse,
    of_transpose,
    inverse_of_diagonal,
    inverse_of_kronecker,
    logarithm_of_determinant_of_kronecker,
    of_single_entries,
)

FINAL_APPLY_RULES: tuple[Callable[[Apply], Node | None], ...] = (inverse_of_orthogonal,)
"""Rules that hold only at the points of a curved structure, not along every direction there."""
