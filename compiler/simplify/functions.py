"""Rules for elementwise functions and for operations: a node in, its simpler form out."""

from __future__ import annotations

from collections.abc import Callable

import sympy

from derivatrix.compiler.ir import nodes as ir
from derivatrix.compiler.ir import scalar_functions
from derivatrix.compiler.ir.arrays import Array, apply, elementwise, scale
from derivatrix.compiler.ir.signs import is_positive
from derivatrix.compiler.ir.structure import facts
from derivatrix.compiler.operations.determinant import (
    DETERMINANT,
    LOG_ABSOLUTE_DETERMINANT,
    LOG_DETERMINANT,
)
from derivatrix.compiler.operations.inverse import INVERSE
from derivatrix.compiler.operations.softmax import LOG_SOFTMAX, LOGSUMEXP, SOFTMAX
from derivatrix.compiler.simplify.complements import with_complements
from derivatrix.compiler.simplify.kronecker import (
    inverse_of_kronecker,
    logarithm_of_determinant_of_kronecker,
)
from derivatrix.compiler.simplify.repeats import of_single_column
from derivatrix.compiler.simplify.sigmoids import sigmoid_argument

x = ir.slot(0)

MAX_COMPOSED_SIZE = 16
"""Most parts of a function of a function that is tried as one expression."""


def fold_numbers(node: ir.Map) -> ir.Node | None:
    """Substitute arguments that are one number everywhere."""
    if all(ir.literal(argument) is None for argument in node.arguments):
        return None
    return elementwise(node.expression, *map(Array, node.arguments)).node


def extract_coefficient(node: ir.Map) -> ir.Node | None:
    """2 exp(x) is a coefficient and exp(x); x², x³ and products of arguments are products."""
    coefficient, function = node.expression.as_coeff_Mul()
    powers = function.as_powers_dict()
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
        return ir.einsum(factors, labels, coefficient)
    return scale(Array(ir.Map(function, node.arguments)), coefficient).node


def powers_of(expression: sympy.Expr) -> dict[sympy.Expr, sympy.Expr]:
    """Return the exponents of the bases in a product; 2 - 2x is a power of 2 and one of 1 - x."""
    exponents: dict[sympy.Expr, sympy.Expr] = {}
    for base, exponent in expression.as_powers_dict().items():
        content, primitive = base.primitive() if base.is_Add else (sympy.S.One, base)
        for factor in (content, primitive) if content != 1 else (primitive,):
            exponents[factor] = exponents.get(factor, 0) + exponent
    return exponents


TANGENTS = {sympy.cosh: (sympy.sinh, sympy.tanh), sympy.cos: (sympy.sin, sympy.tan)}
"""Denominator -> the numerator and the quotient."""


def sine_of(base: sympy.Expr) -> sympy.Expr | None:
    """Return sinh(t) for cosh(t), sin(t) for cos(t), None for others."""
    return TANGENTS[base.func][0](*base.args) if base.func in TANGENTS else None


def with_tangents(product: sympy.Expr) -> sympy.Expr:
    """Write quotients of sinh(t) and cosh(t), or sin(t) and cos(t), as powers of tangents."""
    powers = powers_of(product)
    for base, exponent in powers.items():
        sine = sine_of(base)
        if sine in powers and powers[sine].is_integer and exponent.is_integer:
            count = max(0, min(powers[sine], -exponent))
            product *= (TANGENTS[base.func][1](*base.args) * base / sine) ** count
    return product


def combine_powers(node: ir.Map) -> ir.Node | None:
    """(2 - 2t²) / √(1 - t²) = 2 √(1 - t²), which has a value where rounding makes the base 0."""
    if not node.expression.is_Mul or not node.expression.has(sympy.Pow):
        return None
    powers = powers_of(node.expression).items()
    combined = with_tangents(sympy.Mul(*(base**exponent for base, exponent in powers)))
    if _size(combined) >= _size(node.expression):
        return None
    return elementwise(combined, *map(Array, node.arguments)).node


def logarithms_of_positive(node: ir.Map) -> ir.Node | None:
    """Write xlogy(x, y) as x log(y), and xlog1py(x, y) as x log1p(y), if y is known to be
    positive."""
    if not node.expression.has(scalar_functions.xlogy):
        return None
    positive = {
        ir.slot(place): sympy.Dummy(positive=True)
        for place, argument in enumerate(node.arguments)
        if is_positive(argument)
    }

    def is_plain(part: sympy.Expr) -> bool:
        is_product = isinstance(part, scalar_functions.xlogy)  # or xlog1py, its subclass
        return is_product and bool(part.args[1].xreplace(positive).is_positive)

    expression = node.expression.replace(
        is_plain, lambda part: part.args[0] * part.logarithm(part.args[1])
    )
    if expression == node.expression:
        return None
    return elementwise(expression, *map(Array, node.arguments)).node


def extract_sign(node: ir.Map) -> ir.Node | None:
    """Write sigmoid(-a) as a function of a, to compare it with sigmoid(a)."""
    if not isinstance(node.expression, scalar_functions.sigmoid) or len(node.arguments) > 1:
        return None
    (inside,) = node.arguments
    if not isinstance(inside, ir.Einsum) or inside.coefficient != -1:
        return None
    return ir.Map(node.expression.subs(x, -x), (inside.scaled(sympy.S.One),))


def split_sum(node: ir.Map) -> ir.Node | None:
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
    return ir.Sum(
        tuple(t if t.shape == shape else ir.full(ir.literal(t) or 0, shape) for t in terms),
        shape,
    )


def compose(node: ir.Map) -> ir.Node | None:
    """Compose functions where SymPy then finds a shorter one: log(exp(x)) = x. Maxima are left out:
    SymPy compares their arguments in pairs, which takes seconds for a few."""
    if node.expression.has(sympy.Max, sympy.Min):
        return None
    for position, inner in enumerate(node.arguments):
        if not isinstance(inner, ir.Map):
            continue
        before = _size(node.expression) + _size(inner.expression) - 1
        if before > MAX_COMPOSED_SIZE:
            continue
        count = len(node.arguments)
        shifted = inner.expression.xreplace(
            {ir.slot(i): ir.slot(count + i) for i in range(len(inner.arguments))}
        )
        expression = with_complements(node.expression.subs(ir.slot(position), shifted))
        if _size(expression) < before:
            arguments = [*map(Array, node.arguments), *map(Array, inner.arguments)]
            return elementwise(expression, *arguments).node
    return None


def _size(expression: sympy.Expr) -> int:
    return sum(1 for _ in sympy.preorder_traversal(expression))


def logarithm(node: ir.Map) -> ir.Node | None:
    """Rewrite log det, log |det|, log Σ exp, log of softmax, sigmoid, normcdf in stable form."""
    if node.expression != sympy.log(x):
        return None
    argument = node.arguments[0]
    if isinstance(argument, ir.Apply) and argument.operation is DETERMINANT:
        return ir.Apply(LOG_DETERMINANT, argument.arguments, argument.stack)
    if isinstance(argument, ir.Map) and argument.expression == sympy.Abs(x):
        inner = argument.arguments[0]
        if isinstance(inner, ir.Apply) and inner.operation is DETERMINANT:
            return ir.Apply(LOG_ABSOLUTE_DETERMINANT, inner.arguments, inner.stack)
    if isinstance(argument, ir.Map) and isinstance(argument.expression, scalar_functions.normcdf):
        tail = scalar_functions.log_normcdf(*argument.expression.args)
        return ir.Map(tail, argument.arguments)
    if (picked := _log_of_softmax(argument)) is not None:
        return picked
    if (inside := sigmoid_argument(argument)) is not None:
        expression, arguments = inside
        return elementwise(-scalar_functions.softplus(-expression), *map(Array, arguments)).node
    return _log_sum_exp(argument)


def _log_of_softmax(argument: ir.Node) -> ir.Node | None:
    """Return the logarithm of softmax, or of selected entries of it; None for other nodes."""
    if isinstance(argument, ir.Apply) and argument.operation is SOFTMAX:
        return ir.Apply(LOG_SOFTMAX, argument.arguments, argument.stack)
    if not isinstance(argument, ir.Einsum) or argument.coefficient != 1:
        return None
    picks = [f for f in argument.factors if isinstance(f[0], ir.Slice | ir.Gather)]
    arrays = [position for position, f in enumerate(argument.factors) if f not in picks]
    inner = _log_of_softmax(argument.factors[arrays[0]][0]) if len(arrays) == 1 else None
    picked = [labels[1] for _, labels in picks]
    single = [labels[0] for factor, labels in picks if factor.shape[0] == 1]
    summed = {*argument.contracted}
    sums_only_picks = {*picked} <= summed <= {*picked, *single} and len({*picked}) == len(picked)
    return argument.with_factor(arrays[0], inner) if inner and sums_only_picks else None


def _log_sum_exp(argument: ir.Node) -> ir.Node | None:
    if not isinstance(argument, ir.Einsum) or len(argument.factors) != 1:
        return None
    exponential, labels = argument.factors[0]
    if not isinstance(exponential, ir.Map) or exponential.expression != sympy.exp(x):
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


def logistic(node: ir.Map) -> ir.Node | None:
    """Write log(1 + exp(z)) as softplus(z), 1 / (1 + exp(z)) as sigmoid(-z)."""
    argument = node.arguments[0]
    stable = OF_ONE_PLUS_EXP.get(node.expression)
    if stable is None or not isinstance(argument, ir.Sum) or len(argument.terms) != 2:
        return None
    for number, exponential in (argument.terms, argument.terms[::-1]):
        if (
            ir.literal(number) == 1
            and isinstance(exponential, ir.Map)
            and exponential.expression == sympy.exp(x)
        ):
            return ir.Map(stable, exponential.arguments)
    return None


def linear_in_zero(node: ir.Apply) -> ir.Node | None:
    """Replace an operation by zero if an argument in which it is linear is zero."""
    if any(ir.is_zero(node.arguments[position][0]) for position in node.operation.transposes):
        return ir.zeros(node.shape)
    return None


def scaled_linear(node: ir.Apply) -> ir.Node | None:
    """Pull scalar factors out of an argument in which an operation is linear."""
    for position in node.operation.transposes:
        argument, labels = node.arguments[position]
        if not isinstance(argument, ir.Einsum):
            continue
        depth = len(labels)
        outer = [f for f in argument.factors if all(label < depth for label in f[1])]
        if outer or argument.coefficient != 1:
            return _with_factors_outside(node, position, outer)
    return None


def _with_factors_outside(node: ir.Apply, position: int, outer: list[ir.Factor]) -> ir.Node:
    """Move the factors `outer`, which only have stacked axes, from an argument to the result."""
    argument, labels = node.arguments[position]
    assert isinstance(argument, ir.Einsum)
    inner = [factor for factor in argument.factors if factor not in outer]
    inner_labels = ir.labels_of(inner)
    argument_stack = [label for label in range(len(labels)) if label in inner_labels]
    core = range(len(labels), argument.ndim)
    simpler = ir.einsum(
        inner, [*argument_stack, *core], sizes={label: argument.sizes[label] for label in core}
    )
    arguments = list(node.arguments)
    arguments[position] = (simpler, tuple(labels[label] for label in argument_stack))
    stacked = sorted(ir.labels_of(arguments))
    numbers = {label: number for number, label in enumerate(stacked)}
    result = ir.Apply(
        node.operation,
        ir.relabelled(arguments, numbers),
        tuple(node.stack[label] for label in stacked),
        node.parameters,
        node.output,
    )
    axes = range(len(node.stack), node.ndim)
    factors = [(result, (*stacked, *axes)), *ir.relabelled(outer, labels)]
    sizes = dict(enumerate(node.shape))
    return ir.einsum(factors, range(node.ndim), argument.coefficient, sizes)


def of_single_entries(node: ir.Apply) -> ir.Node | None:
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
        numbers.append(Array(ir.einsum([(matrix, (*labels, *core))], stack, sizes=stack_sizes)))
    results = rule(numbers, [facts(matrix) for matrix, _ in node.arguments])
    if results is None:
        return None
    entry = results[node.output].node
    axes = range(entry.ndim)  # none where it is one number for all stacked axes
    return ir.einsum([(entry, axes)], range(node.ndim), sizes=dict(enumerate(node.shape)))


def inverse_of_orthogonal(node: ir.Apply) -> ir.Node | None:
    """Q⁻¹ = Qᵀ."""
    matrix, labels = node.arguments[0]
    is_unbroadcast = labels == tuple(range(len(node.stack)))
    if node.operation is not INVERSE or "orthogonal" not in facts(matrix) or not is_unbroadcast:
        return None
    return ir.einsum([(matrix, (*labels, "i", "j"))], (*labels, "j", "i"))


def of_inverse(node: ir.Apply) -> ir.Node | None:
    """Write (A⁻¹)⁻¹ as A, and det, logdet of A⁻¹ by those of A."""
    inner = node.arguments[0][0]
    if not isinstance(inner, ir.Apply) or inner.operation is not INVERSE or inner.stack:
        return None
    matrix = inner.arguments[0][0]
    if node.operation is INVERSE:
        return matrix
    if node.operation is DETERMINANT:
        return ir.Map(1 / x, (ir.Apply(DETERMINANT, inner.arguments),))
    if node.operation in (LOG_DETERMINANT, LOG_ABSOLUTE_DETERMINANT):
        return scale(Array(ir.Apply(node.operation, inner.arguments)), sympy.S.NegativeOne).node
    return None


def of_transpose(node: ir.Apply) -> ir.Node | None:
    """(c Aᵀ)⁻¹ = (A⁻¹)ᵀ / c, det(Aᵀ) = det(A), I⁻¹ = I."""
    operations = (INVERSE, DETERMINANT, LOG_DETERMINANT, LOG_ABSOLUTE_DETERMINANT)
    if node.operation not in operations or node.stack:
        return None
    inner = node.arguments[0][0]
    if isinstance(inner, ir.Delta) and node.operation is INVERSE:
        return inner
    if not isinstance(inner, ir.Einsum) or inner.contracted or len(inner.factors) != 1:
        return None
    matrix, labels = inner.factors[0]
    if matrix.ndim != 2 or set(labels) != {0, 1}:
        return None
    core = ir.Apply(node.operation, ((matrix, ()),))
    if node.operation is INVERSE:
        return ir.einsum([(core, labels)], (0, 1), 1 / inner.coefficient)
    return core if inner.coefficient == 1 else None


def inverse_of_diagonal(node: ir.Apply) -> ir.Node | None:
    """diag(v)⁻¹ = diag(1/v)."""
    inner = node.arguments[0][0]
    is_inverse = node.operation is INVERSE and not node.stack
    if not is_inverse or not isinstance(inner, ir.Einsum) or inner.contracted:
        return None
    deltas = [factor for factor, _ in inner.factors if isinstance(factor, ir.Delta)]
    vectors = [f for f in inner.factors if not isinstance(f[0], ir.Delta)]
    if len(deltas) != 1 or not vectors or any(len(labels) > 1 for _, labels in vectors):
        return None
    inverted = [(ir.Map(1 / x, (factor,)), labels) for factor, labels in vectors]
    return ir.einsum([*inverted, (deltas[0], (0, 1))], (0, 1), 1 / inner.coefficient)


MAP_RULES: tuple[Callable[[ir.Map], ir.Node | None], ...] = (
    fold_numbers,
    extract_coefficient,
    combine_powers,
    logarithms_of_positive,
    extract_sign,
    split_sum,
    logarithm,
    logistic,
    compose,
    of_single_column,
)

APPLY_RULES: tuple[Callable[[ir.Apply], ir.Node | None], ...] = (
    linear_in_zero,
    scaled_linear,
    of_inverse,
    of_transpose,
    inverse_of_diagonal,
    inverse_of_kronecker,
    logarithm_of_determinant_of_kronecker,
    of_single_entries,
)

FINAL_APPLY_RULES: tuple[Callable[[ir.Apply], ir.Node | None], ...] = (inverse_of_orthogonal,)
"""Rules that hold only at the points of a curved structure, not along every direction there."""
