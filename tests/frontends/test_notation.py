"""The text notation: what texts mean, and the errors for those that mean nothing.

Values and derivatives of texts are in test_identities; here a text is compared with the array it
should be, which is the same object if it is built of the same parts."""

from __future__ import annotations

from contextlib import suppress

import pytest
import sympy
from click.testing import CliRunner, Result
from hypothesis import given, settings
from hypothesis import strategies as st

import derivatrix as dx
from derivatrix.compiler import cli
from derivatrix.compiler.frontends.notation import functions
from derivatrix.compiler.frontends.notation.declaration import (
    input_names,
    split_dims,
    text_function,
)
from derivatrix.compiler.ir.arrays import Array, scale
from derivatrix.compiler.simplify import simplify
from derivatrix.runtime.errors import DeclarationError, NotationError

MATRICES = {"A": "m n", "B": "n m", "X": "n n", "F": "3 3", "T": "n n m"}
DIMS = MATRICES | {"x": "n", "y": "n", "z": "m", "w": "3", "s": ""}
n, m = dx.dims("n m")
A, B, X = dx.matrix("A", m, n), dx.matrix("B", n, m), dx.matrix("X", n, n)
F, T = dx.matrix("F", 3, 3), dx.tensor("T", n, n, m)
x, y, z, w = dx.vector("x", n), dx.vector("y", n), dx.vector("z", m), dx.vector("w", 3)
s = dx.scalar("s")


def parse(text: str) -> Array:
    """The text with those inputs of `DIMS` that it names."""
    tokens = set("".join(c if c.isalnum() else " " for c in text).split())
    return dx.parse(text, **{name: sizes for name, sizes in DIMS.items() if name in tokens})


SAME: list[tuple[str, object]] = [
    ("-x.^2", -(x**2)),
    ("-s^2", -(s**2)),
    ("2^-1*x", x * sympy.Rational(1, 2)),
    ("s^2^3", (s**2) ** 3),
    ("s - x[0] - 1", s - x[0] - 1),
    ("s/x[0]*2", s / x[0] * 2),
    ("x[y]", x[y]),
    ("X[y[1:]]*x", X[y[1:]] @ x),
    ("A[z] - A", A[z] - A),
    ("s/x[0]/2", s / x[0] / 2),
    ("- - s", s),
    ("+s", s),
    ("s*-s", s * -s),
    ("B*A.*X", (B @ A) * X),
    ("X'^2", X.mT @ X.mT),
    ("X^2'", (X @ X).mT),
    ("x''", x),
    ("X\\x", dx.solve(X, x)),
    ("2*X\\A'", dx.solve(2 * X, A.mT)),
    ("|s|^2", abs(s) ** 2),
    ("| |s| - 1|*x", abs(abs(s) - 1) * x),
    ("||x||", dx.norm(x)),
    ("||x - y||_2^2", dx.norm(x - y) ** 2),
    ("||x'||_1", dx.norm(x, 1)),
    ("norm(A*x)", dx.norm(A @ x)),
    ("dot(x, y)", x @ y),
    ("gammaln(x) + sinc(x)", dx.gammaln(x) + dx.sinc(x)),
    ("cross(w, w)", dx.cross(w, w)),
    ("rotation(w)*w", dx.rotation(w) @ w),
    ("sort(x)", dx.sort(x)),
    ("kron(x', z')*kron(x, z)", dx.kron(x, z) @ dx.kron(x, z)),
    ("kron(X[0], z)'*kron(x, z)", dx.kron(X[0], z) @ dx.kron(x, z)),
    ("cdist(A, X)", dx.cdist(A, X)),
    ("s'", s),
    ("X''", X.mT.mT),
    ("A*x", A @ x),
    ("x'*B", x @ B),
    ("x'*y", x @ y),
    ("x*z'", dx.outer(x, z)),
    ("(x'*X)*y", x @ X @ y),
    ("(x'*X)'", x @ X),
    ("2*x", 2 * x),
    ("x*2", x * 2),
    ("A + s", A + s),
    ("s - x", s - x),
    ("x + 1", x + 1),
    ("A/s", A / s),
    ("A./A", A / A),
    ("1./x", 1 / x),
    ("2.*x", 2 * x),
    ("x.^y", x**y),
    ("s.^x", s**x),
    ("X^0", dx.matrix_power(X, 0)),
    ("X^-1", dx.inv(X)),
    ("X^3", X @ X @ X),
    ("X^0.5", dx.sqrtm(X)),
    ("X^1.7", dx.fractional_matrix_power(X, 1.7)),
    ("X^s", dx.fractional_matrix_power(X, s)),
    ("1e-3*x", x * 1e-3),
    (".5*x", x * 0.5),
    ("2.5*x", x * 2.5),
    ("n/2*x", x * (n / 2)),
    ("x/sqrt(n)", scale(x, 1 / sympy.sqrt(n))),
    ("sqrt(4)*x", x * 2),
    ("pi*x", x * sympy.pi),
    ("(n^2 - 1)*x", x * (n**2 - 1)),
    ("X[0,1]", X[0, 1]),
    ("X[0]", X[0]),
    ("X[-1, :]", X[-1, :]),
    ("F[::2, 1:]", F[::2, 1:]),
    ("w[::-1]", w[::-1]),
    ("x[n-1]", x[n - 1]),
    ("A'[0, 1:]", A.mT[0, 1:]),
    ("T[0]", T[0]),
    ("x[1:]'*y[:n-1]", x[1:] @ y[: n - 1]),
    ("[x; z]", dx.concatenate([x, z])),
    ("[x', 1, z']", dx.concatenate([x, dx.constant(1)[None], z])),
    ("[s]", s),
    ("[A]", A),
    ("[A; x']", dx.concatenate([A, x[None, :]])),
    ("[B, x]", dx.concatenate([B, x[:, None]], axis=1)),
    ("[A, z; x', s]", dx.block([[A, z[:, None]], [x[None, :], s[None, None]]])),
    ("eye + X", dx.eye(n) + X),
    ("s*eye - X", s * dx.eye(n) - X),
    ("A*eye*x", A @ dx.eye(n) @ x),
    ("x + ones", x + dx.ones(n)),
    ("A + ones", A + dx.ones(m, n)),
    ("x' + ones", x + dx.ones(n)),
    ("ones'*x", dx.ones(n) @ x),
    ("ones*A", dx.ones(m) @ A),
    ("A*ones", A @ dx.ones(n)),
    ("A + ones*X", A + dx.ones(m, n) @ X),
    ("A + ones*x'", A + dx.outer(dx.ones(m), x)),
    ("[ones, A]", dx.concatenate([dx.ones(m)[:, None], A], axis=1)),
    ("x'*ones + s", x @ dx.ones(n) + s),
    ("tr(X)", dx.trace(X)),
    ("sum(A)", dx.sum(A)),
    ("rowsum(A)'*z", dx.sum(A, axis=1) @ z),
    ("colsum(A)*x", dx.sum(A, axis=0) @ x),
    ("colmean(A)", dx.mean(A, axis=0)),
    ("z'*rowsum(A) - colsum(A)*x", z @ dx.sum(A, axis=1) - dx.sum(A, axis=0) @ x),
    ("x'*colsum(A)", x @ dx.sum(A, axis=0)),
    ("ones*colsum(A) - A", dx.outer(dx.ones(m), dx.sum(A, axis=0)) - A),
    ("A*colsum(A)", A @ dx.sum(A, axis=0)),
    ("solve(X, colmean(A))", dx.inv(X) @ dx.mean(A, axis=0)),
    ("x + exp(-2*colsum(A))", x + dx.exp(-2 * dx.sum(A, axis=0))),
    ("max(x', A[0, :])", dx.maximum(x, A[0, :])),
    ("A[0, :]*x", A[0, :] @ x),
    ("A[0, :]'*x", A[0, :] @ x),
    ("A[0, :]*B", A[0, :] @ B),
    ("z*A[0, :]", dx.outer(z, A[0, :])),
    ("A[:, 0]*x'", dx.outer(A[:, 0], x)),
    ("[A; A[0, :]]", dx.concatenate([A, A[0][None, :]])),
    ("[A[0, :]; A]", dx.concatenate([A[0][None, :], A])),
    ("[X[0, :], x]", dx.concatenate([X[0, :, None], x[:, None]], axis=1)),
    ("diag(x)", dx.diag(x)),
    ("diagvec(X)", dx.diagonal(X)),
    ("solve(X, x)", dx.inv(X) @ x),
    ("softmax(A)", dx.softmax(A)),
    ("logsumexp(A)", dx.logsumexp(A, axis=1)),
    ("softmax(x')*y", dx.softmax(x) @ y),
    ("max(0, x)", dx.maximum(0, x)),
    ("min(x', y')", dx.minimum(x, y)),
    ("atan(x)", dx.arctan(x)),
    ('einsum("ij,j", A, x)', dx.einsum("ij,j", A, x)),
    ('einsum("ijk -> kij", T)', dx.einsum("ijk->kij", T)),
    ("grad(x'*X*x + ones'*x, x)", dx.grad(x @ X @ x + dx.ones(n) @ x, x)),
    ("X*hessian(x'*X*x, x)*x", X @ (X + X.T) @ x),
    ("hessian_diagonal(sum(exp(X)), X) + X", dx.exp(X) + X),
    ("jacobian(A*x, x)*y", A @ y),
    ("laplacian(logsumexp(x), x)*x", dx.laplacian(dx.logsumexp(x), x) * x),
    ("divergence(X*x, x)", dx.trace(X)),
    ("sylvester(X, X, X)", dx.solve_sylvester(X, X, X)),
    ("chol(X'*X)", dx.cholesky(X.T @ X)),
    ("qrQ(A)*qrR(A)", dx.qr(A).Q @ dx.qr(A).R),
    ("luL(X) + luU(X)", dx.lu(X).L + dx.lu(X).U),
    ("eighV(X)*eigvalsh(X)", dx.eigh(X).eigenvectors @ dx.eigvalsh(X)),
    ("lambda_max(X) - lambda_min(X)", dx.lambda_max(X) - dx.lambda_min(X)),
    ("eigV(X)*eigvals(X)", dx.eig(X).eigenvectors @ dx.eigvals(X)),
    ("svdU(A)*diag(svdvals(A))*svdV(A)'", dx.svd(A).U * dx.svdvals(A) @ dx.svd(A).Vh),
    ("polar(A)*pinv(A)", dx.polar(A).U @ dx.pinv(A)),
    ("normnuc(A) + normspec(A)", dx.norm(A, "nuc") + dx.norm(A, 2)),
    ("sigma_max(A) - sigma_min(A)", dx.svdvals(A)[0] - dx.svdvals(A)[-1]),
    ("sigma_2(A)", dx.svdvals(A)[1]),
    (" x +\n\ty ", x + y),
    ("((((x))))", x),
]


@pytest.mark.parametrize(("text", "expected"), SAME, ids=[text for text, _ in SAME])
def test_meaning(text: str, expected: Array) -> None:
    array = parse(text)
    assert array.shape == expected.shape
    read_node, expected_node = simplify([array.node, expected.node])
    assert read_node is expected_node


BAD: list[tuple[str, str, str]] = [
    # the text, what stands under it, what the message says
    ("", "^", "text is empty"),
    ("A*", "  ^", "ends where a value"),
    ("A*)", "  ^", "closes nothing"),
    ("A*x)", "   ^", "closes nothing"),
    ("(A*x", "^", "never closed"),
    ("tr(X", "  ^", "never closed"),
    ("[x, y", "^", "never closed"),
    ("[x, y)", "     ^", "does not close"),
    ("x[0", " ^", "never closed"),
    ("x[0, ]", "     ^", "expected a value, came '\\]'"),
    ("tr(X) x", "      ^", "expected an operator, came 'x'"),
    ("2x", " ^", "products are written with \\*"),
    ("(x y)", "   ^", "products are written with \\*"),
    ("x, y", " ^", "unexpected ','"),
    ("x # y", "  ^", "unexpected '#'"),
    ("X**2", " ^^", "a power is written \\^"),
    ("A@x", " ^", "product is written \\*"),
    ("A\\z", "^", r"\\ takes a square matrix, not a matrix \(m, n\)"),
    ("X\\s", "  ^", r"\\ takes a column or a matrix here, not a scalar"),
    ("X\\z", " ^", "inner sizes n and m differ"),
    ("A^t", "  ^", "'t' is not known"),
    ("y + |x|", "    ^^^", r"several meanings; write norm2\(x\) for its length"),
    ("|X*X|", "^^^^^", r"write det\(X\*X\) for its determinant, or abs\(X\*X\)"),
    ("||X||", "^^^^^", r"several norms; write normF\(X\), normspec\(X\) or normnuc\(X\)"),
    ("||s||", "^^^^^", r"write abs\(s\)"),
    ("||X||_1", "^^^^^^^", "several norms"),
    ("norm(A)", "^^^^^^^", r"write normF\(A\)"),
    ("|s", "^", "never closed"),
    ("|s||", "  ^^", r"'\|\|' does not close '\|'"),
    ("s|", " ^", "closes nothing"),
    ("dot(A, B)", "    ^", "a vector here"),
    ("trace(X)", "^^^^^", r"write tr\(X\)"),
    ("eig(X)", "^^^", "write eigvalsh"),
    ("X\u1d40", "^^", "the transpose is written '"),
    ("x\u2019", " ^", "apostrophe"),
    ("x.T", " ^", "the transpose is '"),
    ("y + (y = x)", "       ^", "has no ="),
    ('einsum("ij', "       ^", "never closed"),
    ("q + x", "^", "'q' is not known"),
    ("x'*y + Y", "       ^", "did you mean y"),
    ("trr(X)", "^^^", "did you mean tr"),
    ("Sum(x)", "^^^", "did you mean sum"),
    ("x + tr", "    ^^", r"write tr\(\.\.\.\)"),
    ("x(1)", "^", "no function"),
    ("n(1)*x", "^", "no function"),
    ("eye(3)*w", "^^^^^^", "takes no size"),
    ("tr()", "^^", "takes 1 argument, came 0"),
    ("s + tr(X, X)", "    ^^", "takes 1 argument, came 2"),
    ("max(x)", "^^^", "takes 2 arguments"),
    ("solve(X)", "^^^^^", "takes 2 arguments"),
    ("A + B", "  ^", r"a matrix \(n, m\) to a matrix \(m, n\)"),
    ("s + x - z", "      ^", r"subtract a column \(m,\) from a column \(n,\)"),
    ("x + y'", "  ^", "transpose one"),
    ("A + z", "  ^", "x\\*ones' repeats a column"),
    ("x.*z", " ^^", r"column \(n,\) and a column \(m,\)"),
    ("x*y", " ^", "x'\\*y is the inner product"),
    ("x'*y'", "  ^", "x'\\*y is the inner product"),
    ("2*A*z", "   ^", "inner sizes n and m differ"),
    ("x*A", " ^", "x'\\*A"),
    ("A*x'", " ^", "A\\*x"),
    ("T*x", " ^", "einsum"),
    ("T'", "^^", "einsum"),
    ("A/B", " ^", "inv"),
    ("1/x", " ^", "\\./"),
    ("x/0", " ^", "division by 0"),
    ("s + 1/(2 - 2)", "     ^", "division by 0"),
    ("x^2", " ^", "\\.\\^"),
    ("2^x", " ^", "\\.\\^"),
    ("A^2", " ^", r"square matrix, not a matrix \(m, n\)"),
    ("X^A", " ^", "\\.\\^"),
    ("A^1.7", " ^", r"square matrix, not a matrix \(m, n\)"),
    ("sigma_0(X)", "^^^^^^^", "not known"),
    ("sigma_max(x)", "          ^", "a matrix here"),
    ("sqrt(-1)*x", "^^^^^^^^", "constant"),
    ("(0 - 1)^0.5*x", "^^^^^^^^^^^", "no real number"),
    ("det(A)", "    ^", r"square matrix, not a matrix \(m, n\)"),
    ("tr(x)", "   ^", r"square matrix here, not a column \(n,\)"),
    ("norm2(A)", "      ^", "a vector here"),
    ("diag(A)", "     ^", "a vector here"),
    ("skew(x)", "     ^", "a vector of 3"),
    ("logsumexp(s)", "          ^", "a vector or a matrix"),
    ("solve(X, z)", "^^^^^", "inner sizes n and m"),
    ("solve(X, x')", "         ^^", "a column or a matrix"),
    ("sylvester(X, X, A)", "                ^", "does not fit"),
    ("max(x, A)", "^^^", "shapes differ"),
    ("kron(x', z)", "^^^^", "of a row and a column"),
    ("besseli(s, x)", "        ^", "integer"),
    ("einsum(A, x)", "       ^", "quotation marks"),
    ('einsum("ij,j->i", A)', "^^^^^^", "takes 3 arguments"),
    ('einsum("ij,j->i", A, s)', "                     ^", "a scalar"),
    ('einsum("ij,j->i", A, z)', "                     ^", "does not fit"),
    ('einsum("ij,j->k", A, x)', "       ^^^^^^^^^", "output"),
    ("grad(x'*x)", "^^^^", "takes 2 arguments, came 1"),
    ("grad(x'*x, 2*x)", "           ^^^", "takes the name of an input here"),
    ("1 + grad(x, x)", "    ^^^^^^^^^^", "grad: expr is a scalar"),
    ("grad(x'*x, z)", "^^^^^^^^^^^^^", "has no symbol z"),
    ('x + "a"', "    ^^^", "einsum alone"),
    ("x[0, 1]", "     ^", "2 indices"),
    ("s[0]", "  ^", "1 index for a scalar"),
    ("x[s]", "  ^", "an index is an integer"),
    ("A[x, 0]", "  ^", "or a vector of positions alone"),
    ("x[0:y]", "    ^", "an index is an integer"),
    ("x[1/2]", "  ^^^", "an index is an integer"),
    ("w[3]", "^^^^", "out of bounds"),
    ("[A; B]", "    ^", "does not fit below"),
    ("[x, A]", "    ^", "does not fit beside"),
    ("[A, T]", "    ^", "is no block"),
    ("eye", "^^^", "does not follow from the expression"),
    ("ones*x'", "^^^^", "does not follow from the expression"),
    ("ones'*ones", "^^^^", "does not follow from the expression"),
    ("A + eye", "  ^", r"a matrix \(m, m\) to a matrix \(m, n\)"),
    ("x + ones + z", "         ^", r"column \(m,\) to a column \(n,\)"),
    ("x + ones*y'", "  ^", "cannot add"),
    ("x +\n  A*z", "   ^", "inner sizes"),
    ("(" * 40 + "x", " " * 30 + "^", "brackets deep"),
    ("x" + "'" * 50, " " * 31 + "^", "behind a value"),
]


@pytest.mark.parametrize(("text", "carets", "message"), BAD, ids=[text for text, *_ in BAD])
def test_errors_point_at_the_place(text: str, carets: str, message: str) -> None:
    with pytest.raises(NotationError, match=message) as caught:
        parse(text)
    told, line, under = str(caught.value).rsplit("\n", 2)
    assert line[4:] in text.split("\n") and line.startswith("    ")
    assert under[4:] == carets
    assert "?" not in told.replace("did you mean", "").rstrip("?") or "?," in told


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("A^T*z", A.mT @ z),
        ("z^T*A*x", z @ A @ x),
        ("2*X^T^2*x", 2 * (X.mT @ X.mT) @ x),
        ("||A||_F*||x||", dx.norm(A) * dx.norm(x)),
    ],
)
def test_letters_of_notation_are_no_inputs(text: str, expected: Array) -> None:
    """Where no input is called T or F."""
    used = input_names(text)
    assert not {"T", "F", "_F"} & {*used}
    array = dx.parse(text, **{name: DIMS[name] for name in used})
    assert simplify([array.node]) == simplify([expected.node])


BAD_DIMS: list[tuple[dict[str, object], str]] = [
    ({"x": "n", "A": "n n"}, "'A' is declared and never used"),
    ({"x": 3}, "the sizes are a text"),
    ({"x": "n+"}, r"sizes of x: the text ends(.|\n)*n\+\n      \^"),
    ({"x": "n spd m"}, r"spd is a structure, which comes last(.|\n)*  \^\^\^"),
    ({"x": "n m spd"}, r"needs a square matrix, not \(n, m\)"),
    ({"x": "2.5"}, "whole number"),
    ({"x": "n/2"}, "whole number"),
    ({"x": "-1"}, "whole number"),
    ({"x": "1/n"}, "whole number"),
    ({"x": "sqrt(n)"}, "'sqrt' is a function of the notation; rename the size"),
    ({"x": "lambda"}, "'lambda' cannot name a size"),
    ({"x": "n, #"}, "unexpected '#'"),
    ({"x": "x"}, "x names both an input and a size of x"),
    ({"x": "det"}, "'det' is a function of the notation; rename the size"),
    ({"x": "n", "tr": "n n"}, "'tr' is a function of the notation; rename the input"),
    ({"x": "n", "ones": "n"}, "'ones' is a function"),
    ({"x": "n", "a b": "n"}, "identifier"),
]


@pytest.mark.parametrize(("dims", "message"), BAD_DIMS, ids=[str(dims) for dims, _ in BAD_DIMS])
def test_bad_inputs(dims: dict[str, str], message: str) -> None:
    with pytest.raises(NotationError, match=message):
        dx.parse("x", **dims)


def test_no_text() -> None:
    with pytest.raises(NotationError, match="reads a text, not 5"):
        dx.parse(5)


@pytest.mark.parametrize(
    ("sizes", "shape", "structure"),
    [
        ("", (), "general"),
        ("positive", (), "positive"),
        ("n positive", (n,), "positive"),
        ("n simplex", (n,), "simplex"),
        ("n n spd", (n, n), "spd"),
        ("3 3 invertible", (3, 3), "invertible"),
        ("n+m", (n + m,), "general"),
        ("n + m 2*n", (n + m, 2 * n), "general"),
        ("n*(n-1) (m+1)^2", (n**2 - n, m**2 + 2 * m + 1), "general"),
        ("n, m, 2", (n, m, 2), "general"),
    ],
)
def test_sizes(sizes: str, shape: tuple[object, ...], structure: str) -> None:
    leaf = dx.parse("a", a=sizes)
    assert leaf.shape == shape
    assert leaf.node.structure == structure


def test_functions_take_inputs_by_name() -> None:
    expression = dx.parse("tr(A*X)", A="p m", X="m p")
    function = dx.function("f", ["A", "X"], expression, wrt=["X"])
    assert [leaf.name for leaf in function.inputs] == ["A", "X"]
    assert function.formula("gradient") == "Aᵀ"
    with pytest.raises(DeclarationError, match="'B'"):
        dx.function("f", ["A", "B"], expression)
    with pytest.raises(DeclarationError, match=r"'X'.*not among the inputs"):
        dx.function("f", ["A"], expression)


def test_texts_mix_with_arrays() -> None:
    quadratic = dx.parse("x'*X*x", x="n", X="n n")
    assert (quadratic + s).node is (x @ X @ x + s).node


def test_a_long_text_is_no_deep_one() -> None:
    assert dx.parse(" + ".join(["x"] * 3000), x="n").shape == (n,)
    assert dx.parse("[" + ", ".join(["s"] * 50) + "]", s="").shape == (50,)
    assert dx.parse("".join(["-"] * 2001) + "x", x="n").shape == (n,)


def test_many_ones_are_read_in_bounded_time() -> None:
    with pytest.raises(NotationError, match="'q' is not known"):
        dx.parse("*".join(["ones'"] * 20) + "*x + q", x="n")


def test_the_command_lines_inputs() -> None:
    assert split_dims("A: p m, s:, x: n") == {"A": "p m", "s": "", "x": "n"}
    assert split_dims("T: n, m, p; S: n n spd") == {"T": "n, m, p", "S": "n n spd"}
    assert text_function("s*x", "s:, x: n", ["x"]).wrt == ("x",)
    for bad in ("", "A", "A p m", "A: p, A: m", "1: n"):
        with pytest.raises(NotationError):
            split_dims(bad)


WORDS = (
    *("A", "x", "s", "T", "n", "0", "2", "0.5", "eye", "ones", "tr(", "sum(", "max(", "kron("),
    *("+", "-", "*", ".*", "/", "./", "\\", "^", ".^", "'", "(", ")", "[", "]", ",", ";", ":"),
    *("|", "||", "||_F", "^T"),
    *("solve(", "inv(", "einsum(", '"ij,j"', "softmax(", "exp(", "colsum("),
)


@given(st.lists(st.sampled_from(WORDS), max_size=12))
@settings(max_examples=150, deadline=None, database=None)
def test_any_text_is_an_array_or_a_notation_error(words: list[str]) -> None:
    text = "".join(words)
    dims = {"A": "m n", "x": "n", "s": "", "T": "n m 2"}
    with suppress(NotationError):
        assert isinstance(dx.parse(text, **{k: v for k, v in dims.items() if k in words}), Array)


def explain(*arguments: str) -> Result:
    return CliRunner().invoke(cli.main, ["explain", *arguments])


def test_explaining_a_text() -> None:
    result = explain("tr(A*X*B)", "--dims", "A: p m, X: m n, B: n p", "--wrt", "X")
    assert result.exit_code == 0, result.output
    assert "gradient by X: Aᵀ Bᵀ" in result.output and "gradient by A" not in result.output
    assert "def vjp" not in result.output
    result = explain("s*x", "--dims", "s:, x: n", "--wrt", "s, x", "--stage", "declare")
    assert result.exit_code == 0, result.output
    assert "function expression" in result.output


def test_explaining_a_bad_text() -> None:
    result = explain("tr(A*X", "--dims", "A: p m, X: m p")
    assert result.exit_code == 1
    assert "'(' is never closed\n    tr(A*X\n      ^" in result.stderr
    assert explain("x", "--dims", "x: n", "--wrt", "y").exit_code == 1
    assert explain("functions.py", "--wrt", "y").exit_code == 2


def test_every_operation_has_a_rule() -> None:
    """Every name of the table is one that something computes."""
    for name in functions.ROWS:
        assert callable(functions.rule(name).function)


@pytest.mark.parametrize(
    "text", ["9" * 10_000 + "*x", "9" * 400, "1e999*x", "x^" + "9" * 5000, "x[1" + "0" * 5000 + "]"]
)
def test_numbers_that_are_too_large(text):
    with pytest.raises(NotationError, match="no finite number of float64") as raised:
        dx.parse(text, x="n")
    assert len(str(raised.value)) < 1000
