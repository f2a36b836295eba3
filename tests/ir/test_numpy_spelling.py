"""The precedence that parts of NumPy texts are said to have is the one that Python reads."""

import ast
from collections.abc import Sequence

import pytest
import sympy

from derivatrix.compiler.ir import scalar_functions
from derivatrix.compiler.ir.nodes import slot
from derivatrix.compiler.ir.numpy_spelling import (
    ATOM,
    POWER,
    PRODUCT,
    SUM,
    TERNARY,
    Text,
    count_uses,
    expression_level,
    multiplied,
    scalar_text,
    scaled,
    sum_text,
)
from derivatrix.compiler.operations import OPERATIONS

OPERATORS: dict[type, int] = {ast.Add: SUM, ast.Sub: SUM, ast.Pow: POWER}
x, y = slot(0), slot(1)


def level(text: str) -> int:
    """The precedence of a text that is not in parentheses as a whole."""
    tree = ast.parse(text, mode="eval").body
    match tree:
        case ast.BinOp():
            return OPERATORS.get(type(tree.op), PRODUCT)
        case ast.UnaryOp():
            return PRODUCT
        case ast.Call() | ast.Name() | ast.Attribute() | ast.Subscript() | ast.Constant():
            return ATOM
    return TERNARY


def is_enclosed(text: str) -> bool:
    """Return whether the text is an expression in parentheses."""
    tree = ast.parse(text, mode="eval").body
    return text.startswith("(") and (tree.col_offset, tree.end_col_offset) == (1, len(text) - 1)


EXPRESSIONS = [
    *(x + y, x * y, x / y, x**2, 1 / x, sympy.sqrt(x), 1 / sympy.sqrt(x), x**y, -x, 2 - x),
    *(sympy.Mod(x, y), sympy.pi, sympy.pi * x, sympy.Float(0.5), sympy.Integer(3)),
    *(
        sympy.Rational(1, 3),
        -sympy.S.Half,
        sympy.oo,
        sympy.nan,
        sympy.Piecewise((x, x > 0), (y, True)),
    ),
]


@pytest.mark.parametrize("expression", EXPRESSIONS, ids=str)
def test_levels_of_expressions(expression: sympy.Expr) -> None:
    assert expression_level(expression) <= level(scalar_text(expression).unsigned)


@pytest.mark.parametrize("name", scalar_functions.FUNCTIONS)
def test_levels_of_functions(name: str) -> None:
    function = scalar_functions.FUNCTIONS[name]
    for arguments in ((x,), (x, y)):
        try:
            expression = function(*arguments)
        except TypeError:  # of another number of arguments
            continue
        assert expression_level(expression) <= level(scalar_text(expression).unsigned)


@pytest.mark.parametrize("name", OPERATIONS)
def test_operations_are_operands_of_any_operator(name: str) -> None:
    operation = OPERATIONS[name]
    arguments, parameters = [f"a{n}" for n in range(len(operation.ranks))], (1, 2, 3)
    for output in range(max(len(operation.outputs), 1)):
        text = operation.numpy(arguments, parameters, output)
        assert level(text) == ATOM or is_enclosed(text), text


A, B, C = Text("a"), Text("b + c", SUM), Text("d", PRODUCT, "-")


@pytest.mark.parametrize(
    ("parts", "total", "product"),
    [
        ([A, B], "a + (b + c)", "a * (b + c)"),
        ([B, A], "b + c + a", "(b + c) * a"),
        ([C, A], "-d + a", "-d * a"),
        ([A, C], "a - d", "a * (-d)"),
    ],
)
def test_sums_and_products(parts: Sequence[Text], total: str, product: str) -> None:
    assert str(sum_text(parts)) == total and str(multiplied(parts)) == product


def test_multiples() -> None:
    assert str(scaled(sympy.Integer(-2), [A])) == "-2 * a"
    assert str(scaled(-sympy.S.Half, [B])) == "-(b + c) / 2"
    assert str(scaled(sympy.Float(0.5), [A])) == "0.5 * a"


@pytest.mark.parametrize(
    ("expression", "text", "uses"),
    [
        (x + y, "(b + c) + a", (1, 1)),
        (2 - x, "2 - (b + c)", (1, 0)),
        (x / y, "(b + c)/a", (1, 1)),
        (sympy.exp(x) - sympy.Max(x, y), "np.exp(b + c) - np.maximum(b + c, a)", (2, 1)),
        (x, "b + c", (1, 0)),
    ],
    ids=str,
)
def test_operands_of_scalar_expressions(
    expression: sympy.Expr, text: str, uses: tuple[int, int]
) -> None:
    assert str(scalar_text(expression, {x: B, y: A})) == text
    counts = count_uses(expression, (x, y))
    assert (counts[x], counts[y]) == uses


@pytest.mark.parametrize("name", OPERATIONS)
def test_operations_write_each_argument_once(name: str) -> None:
    operation = OPERATIONS[name]
    arguments = [f"argument{n}" for n in range(len(operation.ranks))]
    for output in range(max(len(operation.outputs), 1)):
        text = operation.numpy(arguments, (1, 2, 3), output)
        assert [text.count(argument) for argument in arguments] == [1] * len(arguments)
