"""Loops over time in texts: values against loops of Python, and errors that point at the place."""

from __future__ import annotations

import numpy as np
import pytest
from click.testing import CliRunner

import derivatrix as dx
from derivatrix.compiler import cli
from derivatrix.compiler.frontends.notation.declaration import input_names, text_function
from derivatrix.compiler.ir.interpret import evaluate
from derivatrix.compiler.ir.nodes import Apply, topological
from derivatrix.compiler.playground.subject import Subject
from derivatrix.runtime.errors import NotationError
from tests import loops
from tests.loops import Case, dense_likelihood
from tests.points import draw

TEXTS: dict[str, tuple[Case, str, str]] = {
    "all states, and the last": (
        loops.elman(),
        "sum(scan(h = tanh(W*h + U*x), x in X, h = h0)[1:, :].^2)"
        " + sum(scan(h = tanh(W*h + U*x), x in X, h = h0)[-1, :])",
        "W: n n, U: n m, X: T m, h0: n",
    ),
    "outputs of a reversed loop": (
        loops.backwards(),
        "scan(y = h.*x, h = sin(W*h) + x.*h, x in X, h = h0, reverse)"
        " + ones*scan(h = sin(W*h) + x.*h, x in X, reverse, h = h0)[0, :]",
        "W: n n, X: T n, h0: n",
    ),
    "numbers": (
        loops.garch(),
        "sum(scan(l = log(s) + x^2/s, s = w + a*x^2 + b*s, x in r, s = w/(1 + b)))",
        "r: T, w: positive, a: positive, b: positive",
    ),
    "several states": (
        loops.chebyshev(),
        "colsum(scan(y = c*before, before = now, now = 2*x.*now - before, c in weights,"
        " before = ones, now = x))",
        "x: n, weights: T",
    ),
    "definitions in any order": (
        loops.oscillator(),
        "sum(scan(angle = next[0], z = next, next = z + h/6*(k1 + 2*k2 + 2*k3 + k4), h = 0.1,"
        " k4 = [z3[1]; u - k*sin(z3[0])], z3 = z + h*k3,"
        " k3 = [z2[1]; u - k*sin(z2[0])], z2 = z + h/2*k2,"
        " k2 = [z1[1]; u - k*sin(z1[0])], z1 = z + h/2*k1, k1 = [z[1]; u - k*sin(z[0])],"
        " u in driving, z = start).^2)"
        " + scan(z = z + h/6*(k1 + 2*k2 + 2*k3 + k4), h = 0.1,"
        " k1 = [z[1]; u - k*sin(z[0])], z1 = z + h/2*k1, k2 = [z1[1]; u - k*sin(z1[0])],"
        " z2 = z + h/2*k2, k3 = [z2[1]; u - k*sin(z2[0])], z3 = z + h*k3,"
        " k4 = [z3[1]; u - k*sin(z3[0])], u in driving, z = start)[-1, 1]",
        "start: 2, k:, driving: T",
    ),
    "a row of a sequence": (
        loops.hidden_markov(),
        "logsumexp(scan(a = logsumexp((a*ones' + A)') + b, b in B, a = start)[-1, :])",
        "A: n n, B: T n, start: n",
    ),
    "a length": (
        loops.regulator(),
        "tr(scan(P = Q + A'*P*(A - B*K), K = solve(R + B'*P*B, B'*P*A), P = Q, length = 4)[-1])",
        "A: n n, B: n m, Q: n n spd, R: m m spd",
    ),
    "a loop in a loop": (
        loops.nested(),
        "sum(scan(h = scan(g = tanh(W*g) + u.*h, u in x, g = h)[-1, :], x in X, h = h0)[1:, :].^2)"
        " + sum(scan(h = scan(g = tanh(W*g) + u.*h, u in x, g = h)[-1], x in X, h = h0)[-1, :])",
        "W: n n, X: T m n, h0: n",
    ),
}


@pytest.mark.parametrize("name", TEXTS)
@pytest.mark.parametrize("length", (0, 1, 5))
def test_value(name: str, length: int) -> None:
    case, text, dims = TEXTS[name]
    function = text_function(text, dims)
    assert set(input_names(text)) == {leaf.name for leaf in function.inputs}
    sizes = {"T": length, "n": 3, "m": 2}
    generator = np.random.default_rng(length)
    values = {leaf.name: draw(leaf, generator, sizes) / 2 for leaf in function.inputs}
    expected = case.value(**values)
    np.testing.assert_allclose(evaluate(function.expression, values, sizes), expected, rtol=1e-12)


def test_likelihood_of_a_state_space_model() -> None:
    """The sum of an output, whose definitions are shared by two states."""
    text = """sum(scan(l = -(v'*inv(S)*v + logdet(S) + m*log(2*pi))/2,
        v = y - C*x, S = C*P*C' + R, K = P*C'*inv(S),
        x = A*(x + K*v), P = A*(P - K*C*P)*A' + Q, y in Y, x = x0, P = P0))"""
    dims = "Y: T m, A: n n, C: m n, Q: n n spd, R: m m spd, x0: n, P0: n n spd"
    function = text_function(text, dims)
    sizes = {"T": 4, "n": 3, "m": 2}
    generator = np.random.default_rng(5)
    values = {leaf.name: draw(leaf, generator, sizes) for leaf in function.inputs}
    value = evaluate(function.expression, values, sizes)
    assert value == pytest.approx(dense_likelihood(**values), rel=1e-11)


def test_loops_of_one_text_are_one_loop() -> None:
    """Whichever equation is the first, loops with the same equations are one."""
    x = "scan(x = x + z, z = s*z, x = a, z = 1, length = 3)[-1]"
    z = "scan(z = s*z, x = x + z, x = a, z = 1, length = 3)[-1]"
    both = dx.parse(f"x = {x}; z = {z}", s="", a="")
    order = topological([array.node for array in both.values()])
    result = [node for node in order if isinstance(node, Apply) and node.operation.loop]
    assert len({node.operation for node in result}) == 1
    assert {node.output for node in result} == {0, 1}


def test_size_of_a_start_follows_from_the_step() -> None:
    P = dx.parse("scan(P = W*P*W' + q*eye, P = eye, q in s)[-1]", W="n n", s="T")
    value = evaluate(P.node, {"W": np.diag([1.0, 2.0]), "s": np.array([3.0])}, {"n": 2, "T": 1})
    np.testing.assert_allclose(value, np.diag([4.0, 7.0]))


def test_derivative_in_a_step() -> None:
    text = "scan(x = x - s*grad(sum(cos(A*x)), x), x = x0, length = 2)[-1]"
    function = text_function(text, "A: n n, x0: n, s:")
    A, x, s = np.array([[0.5, 0.2], [0.1, 0.7]]), np.array([1.0, 2.0]), 0.3
    values = {"A": A, "x0": x, "s": np.array(s)}
    for _ in range(2):
        x = x + s * A.T @ np.sin(A @ x)
    np.testing.assert_allclose(evaluate(function.expression, values, {"n": 2}), x, rtol=1e-14)


DIMS = {"W": "n n", "X": "T n", "V": "S n", "r": "T", "h0": "n", "s": ""}
ERRORS = [
    ("scan(h = W*h + g, x in X, h = h0)", "               ^", "'g' is not known here"),
    ("scan(h = W*h*h', h = h0, length = 2)", "         ^^^^^^", "starts as a column"),
    ("scan(h = W*h, h = s, length = 2)", "         ^^^", "starts as a scalar; 0.ones"),
    ("scan(h = h', h = h0, length = 2)", "         ^^", "makes h a row"),
    ("scan(h = h + y, h = h0, x in X, y in V)", " " * 37 + "^", "y has S entries, the loop T"),
    ("scan(h = h + x, h = h0, x in X, length = n)", " " * 29 + "^", "x has T entries, the loop n"),
    ("scan(h = h + x, h = h0, x in s)", " " * 29 + "^", "x is in a scalar"),
    ("scan(h = W*h, h = h0)", "^" * 21, "neither a sequence nor a length"),
    ("scan(h = W*h, h = h0, length = -1)", " " * 31 + "^^", "an integer from 0 up"),
    ("scan(h = W*h, h = h0, length = s)", " " * 31 + "^", "an integer from 0 up"),
    ("scan(h = W*h, length = 2)", "         ^^^", "reads itself and has no start"),
    ("scan(a = b, b = a, length = 2)", "         ^", "reads itself"),
    ("scan(h = h, h = h0, h = h0, length = 2)", " " * 20 + "^", "another clause already"),
    ("scan(x = h0, x in X)", "             ^", "another clause already"),
    ("scan(tr = h0, x in X)", "     ^^", "is a function of the notation"),
    ("scan(W, length = 2)", "     ^", "no clause of scan"),
    ("scan(length = 2)", "^" * 16, "no equation of a step"),
    ("scan(h = exp(h = h0), x in X)", "             ^^^^^^", "is for scan alone"),
    ("sum(h = h0)", "    ^^^^^^", "is for scan alone"),
    ("scan(h = W*h, h = h0, length = 2, k = 3)", " " * 34 + "^^^^^", "no equation reads 'k'"),
    ("scan", "^^^^", "scan is a function; write scan"),
    ("scan(h = W*h, h = h0, length = 2) + h", " " * 36 + "^", "'h' is not known here"),
]


@pytest.mark.parametrize(("text", "carets", "message"), ERRORS)
def test_errors_point_at_the_place(text: str, carets: str, message: str) -> None:
    dims = {name: sizes for name, sizes in DIMS.items() if name in text}
    with pytest.raises(NotationError, match=message) as caught:
        dx.parse(text, **dims)
    assert str(caught.value).splitlines()[1:] == [f"    {text}", f"    {carets}"]


def test_explaining_a_loop() -> None:
    arguments = ["explain", "scan(s = a*s + x, x in r, s = 0)[-1]", "--dims", "r: T, a:"]
    result = CliRunner().invoke(cli.main, [*arguments, "--wrt", "a"])
    assert result.exit_code == 0, result.output
    assert "s[t + 1] = r[t] + a s[t]" in result.output


def test_loop_in_the_playground() -> None:
    """The page asks for the inputs of a text: not for what a loop binds, nor for its length."""
    text = "scan(h = W*h, h = h0, length = T)"
    names = Subject(text, {"W": "n n"}, ()).names
    assert names == ["W", "h0"]
    subject = Subject(text, {"W": "T T", "h0": "T"}, ("h0",))
    assert "h[t + 1] = W h[t]" in subject.function().formula("value")
