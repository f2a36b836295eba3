"""Declaring functions: what is accepted, and the error for what is not."""

from typing import Any

import numpy as np
import pytest
import sympy

import derivatrix
import derivatrix.compiler.frontends.arrays as dx
from derivatrix.compiler.differentiate.derivatives import KINDS, SCALAR_KINDS
from derivatrix.compiler.frontends.function import derive, function
from derivatrix.compiler.ir.operation import OPERATIONS
from derivatrix.runtime.errors import DeclarationError, ShapeError, UnsupportedError

n, m = dx.dims("n m")
X, Y = dx.matrix("X", n, n), dx.matrix("Y", n, m)
x, s = dx.vector("x", n), dx.scalar("s")
S, G = dx.matrix("S", n, n, "spd"), dx.matrix("S", n, n)
P = sympy.MatrixSymbol("P", sympy.Symbol("a"), sympy.Symbol("b"))


BAD: list[tuple[Any, type[Exception], str]] = [
    (lambda: function("f", [X], X @ Y), DeclarationError, "'Y'.*not among the inputs"),
    (lambda: function("f", [X, Y], X @ X), DeclarationError, "'Y' is never used.*keep="),
    (lambda: function("f", [X, Y, x], X @ X, keep=[Y]), DeclarationError, "'x' is never used"),
    (lambda: function("f", [X], X, keep=["Z"]), DeclarationError, "keep names 'Z'"),
    (lambda: function("f", [X, X], X @ X), DeclarationError, "two inputs are called 'X'"),
    (lambda: function("2f", [X], X), DeclarationError, "identifier"),
    (lambda: function("my f", [X], X), DeclarationError, "identifier"),
    (lambda: function("lambda", [X], X), DeclarationError, "keyword"),
    (lambda: function("print", [X], X), DeclarationError, "builtin"),
    (lambda: function(None, [X], X), DeclarationError, "identifier"),
    (lambda: function("f", [], 1), DeclarationError, "at least one input"),
    (lambda: function("f", [X @ X], X), DeclarationError, "no input"),
    (lambda: function("f", [3], X), DeclarationError, "no input"),
    (lambda: function("f", [X], X, wrt=["Z"]), DeclarationError, "wrt names 'Z'"),
    (lambda: function("f", [X], X, wrt=[X, X]), DeclarationError, "twice"),
    (lambda: function("f", [X], X, wrt=[]), DeclarationError, "wrt is empty"),
    (lambda: function("f", [X], X, batch=["Z"]), DeclarationError, "batch names 'Z'"),
    (lambda: function("f", [X], "X"), UnsupportedError, "str"),
    (lambda: function("f", [X], None), UnsupportedError, "NoneType"),
    (lambda: function("f", [X], X * dx.dims("k")), DeclarationError, "dimension k"),
    (lambda: function("f", [x], dx.outer(x, dx.ones("k"))), DeclarationError, "dimension k"),
    (lambda: function("f", [dx.vector("n", n)], dx.vector("n", n)), DeclarationError, "both"),
    (lambda: function("f", [dx.scalar("out")], dx.scalar("out")), DeclarationError, "taken"),
    (lambda: function("f", [dx.scalar("sum")], dx.scalar("sum")), DeclarationError, "builtin"),
    (lambda: function("f", [X, dx.matrix("X", n, m)], X), DeclarationError, "two inputs"),
    (lambda: function("f", [dx.matrix("X", n, m)], X), ShapeError, "declared with shape"),
    (
        lambda: function("f", [P], P * P),
        ShapeError,
        r"f: .*P has shape \(a, b\); expected a square",
    ),
    (
        lambda: function("f", [P], P[sympy.Symbol("i"), 0]),
        DeclarationError,
        "dimension i",
    ),
    (lambda: function("f", [n], X), DeclarationError, "dimension"),
    (lambda: function("f", [X], X, wrt=3), DeclarationError, "wrt"),
    (lambda: function("f", ["Z"], X), DeclarationError, "'Z'.*does not use"),
    (lambda: function("f", [S], dx.trace(G)), DeclarationError, "f: S is spd .*general"),
    (lambda: function("f", [G], dx.trace(S)), DeclarationError, "f: S is general .*spd"),
    (
        lambda: function("f", [sympy.MatrixSymbol("S", n, n)], dx.trace(S)),
        DeclarationError,
        "S is general in inputs and spd",
    ),
    (lambda: function("f", [x], dx.scalar("n") * x), DeclarationError, "'n'.*not among the inputs"),
    (lambda: dx.scalar("share", "simplex"), ShapeError, "share: simplex needs an axis"),
    (lambda: function("f", [x], x * float("nan")), DeclarationError, "nan"),
    (lambda: dx.eye(X), DeclarationError, "eye: a dimension is .*Array"),
    (lambda: dx.matrix("A", n, dx.scalar("n")), DeclarationError, "A: .*a dimension is .*Array"),
    (lambda: function("f", [x], x + 1j), UnsupportedError, "1j is complex"),
]


@pytest.mark.parametrize(("build", "error", "text"), BAD, ids=[str(i) for i in range(len(BAD))])
def test_bad_declaration(build: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        build()


def test_names_stand_for_symbols() -> None:
    declared = function("f", [x, S], x @ S @ x, wrt=["x"], batch="x")
    assert declared.wrt == ("x",)
    assert declared.batch == ("x",)


def test_sympy_symbols_take_the_declared_structure() -> None:
    symbol = sympy.MatrixSymbol("S", n, n)
    declared = function("f", [S], dx.logdet(S) + sympy.Trace(symbol.I))
    assert declared.inputs == (S.node,)
    assert declared.formula("gradient") == function(
        "g", [S], dx.logdet(S) + dx.trace(dx.inv(S))
    ).formula("gradient")


def test_inputs_by_name() -> None:
    declared = function("f", ["S", "x"], x @ S @ x + sympy.Trace(sympy.MatrixSymbol("S", n, n)))
    assert declared.inputs == (S.node, x.node)


def test_a_domain_of_sympy_is_kept() -> None:
    rate = sympy.Symbol("rate", positive=True)
    assert function("f", [rate], sympy.log(rate)).inputs[0].structure == "positive"


def test_dimension_names_are_numbers() -> None:
    k = sympy.Symbol("k")
    vector = sympy.MatrixSymbol("v", k, 1)
    declared = function("f", [vector], sympy.log(k) * (vector.T * vector)[0, 0] / k)
    assert str(declared.expression.shape) == "()"
    assert not [leaf for leaf in declared.inputs if leaf.name == "k"]


def test_an_unused_input_may_be_kept() -> None:
    """It is an argument of all functions of the module, and the derivatives by it are zero."""
    kept = function("kept", [x, s, S], dx.tanh(x) * 2, wrt=[x, s], batch=[x], keep=[s, "S"])
    assert kept.formula("vjp", wrt=s) == kept.formula("jacobian", wrt=s) == "0"
    module = derivatrix.compile(kept)
    assert [entry["name"] for entry in module.INPUTS] == ["x", "s", "S"]
    by = module.vjp(np.ones((3, 2)), 1.0, np.eye(2), np.ones((3, 2)))
    assert by.s == 0 and by.x.shape == (3, 2)
    report = derivatrix.verify(module)
    assert report.passed, str(report)
    scalar = function("scalar", [x, s], x @ x, keep=[s])
    assert not derivatrix.compile(scalar, kinds=["hessian"]).hessian(np.ones(2), 1.0).x.s.any()
    assert kept.second.inputs[:3] == kept.inputs


def test_formula_choices() -> None:
    declared = function("f", [x, S], x @ S @ x)
    assert declared.formula("gradient", wrt=x) == declared.formula("gradient", wrt="x")
    with pytest.raises(DeclarationError, match="which gradient"):
        declared.formula("gradient")
    with pytest.raises(DeclarationError, match="no gradient by 'Z'"):
        declared.formula("gradient", wrt="Z")
    with pytest.raises(DeclarationError, match="no 'curl'"):
        declared.formula("curl")
    with pytest.raises(DeclarationError, match="style"):
        declared.formula("gradient", wrt="x", style="roman")
    with pytest.raises(DeclarationError, match="no 'gradient'"):
        function("g", [X], X @ X).formula("gradient")


def test_derive_shows_every_formula() -> None:
    text = str(derive(function("f", [X], X @ X)))
    assert "Ȳ Xᵀ + Xᵀ Ȳ" in text
    assert len(text.splitlines()) == 4


def test_an_operation_without_a_rule_is_named() -> None:
    with pytest.raises(UnsupportedError, match=r"f: .*airyai"):
        function("f", [s], sympy.airyai(sympy.Symbol("s")))


def test_arrays_in_lists() -> None:
    rotation = dx.asarray([[dx.cos(s), -dx.sin(s)], [dx.sin(s), dx.cos(s)]])
    declared = function("rotate", [s], rotation @ np.array([1.0, 2.0]))
    assert declared.expression.shape == (2,)


def test_registry_is_complete() -> None:
    """Every operation has a value, differential, spellings and a test case."""
    from tests.cases import CASES, EVALUATED

    used: set[str] = set()
    for kind in (*KINDS, *SCALAR_KINDS):  # all that is quickly derived first
        for case in (*CASES, *EVALUATED):
            if kind in case.kinds and not OPERATIONS.keys() <= used:
                for node in case.derivatives.results(kind).values():
                    used |= operations_below(node)
    assert OPERATIONS.keys() <= used
    for record in OPERATIONS.values():
        arguments = [f"a{i}" for i in range(len(record.ranks))]
        for output in range(max(1, len(record.outputs))):
            texts = [record.formula(s, output).format(*arguments) for s in ("unicode", "latex")]
            for text in (*texts, record.numpy(arguments, (), output)):
                assert all(a in text for a in arguments)
        assert callable(getattr(derivatrix, record.name))


def operations_below(node: Any) -> set[str]:
    from derivatrix.compiler.ir.nodes import Apply, topological

    return {below.operation.name for below in topological([node]) if isinstance(below, Apply)}
