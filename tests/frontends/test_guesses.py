"""Guesses of the sizes of inputs that a text does not declare, and remarks on spread scalars."""

import pytest

import derivatrix as dx
from derivatrix.compiler.frontends.notation.declaration import split_dims
from derivatrix.compiler.frontends.notation.guesses import guess_inputs, remarks

GUESSES = [
    ("x'*A*x + c*sin(y)'*x", "x: n, A: n n, c:, y: n"),
    ("(x-mu)'*inv(S)*(x-mu)/2", "x: n, mu: n, S: n n"),
    ("A*x - b", "A: m n, x: n, b: m"),
    ("c'*x", "c: n, x: n"),
    ("a'*X*b", "a: m, X: m n, b: n"),
    ("a*x + b", "a:, x: n, b: n"),
    ("normF(X*W - Y)^2 + s*sum(W.^2)", "X: m n, W: n p, Y: m p, s:"),
    ("softmax(Q*K'/sqrt(d))*V", "Q: m n, K: p n, d:, V: p q"),
    ("[A, X]*b", "A: m n, X: m p, b: n+p"),
    ("X - ones*colmean(X)", "X: m n"),
    ("sigma^2*eye + X*X'", "sigma:, X: m n"),
    ("r = A*x - b; loss = r'*r", "A: m n, x: n, b: m"),
    ("A\\b", "A: n n, b: n"),
    ("rotation(w)*v", "w: 3, v: 3"),
    ("x/n", "x: n"),
    ("-N/2*logdet(S) - tr(inv(S)*X'*X)/2", "S: N N, X: m N"),
    ('einsum("ijk,j,k->i", T, x, y)', "T: m n p, x: n, y: p"),
]


@pytest.mark.parametrize(("text", "dims"), GUESSES, ids=[text for text, _ in GUESSES])
def test_guesses(text, dims):
    guesses = guess_inputs(text, {})
    assert guesses == split_dims(dims)
    dx.parse(text, **guesses)
    assert not remarks(text, guesses)


def test_declared_inputs_are_kept():
    assert guess_inputs("A*x + b", {"A": "5 n", "b": "5"}) == {"x": "n"}
    assert guess_inputs("A*x", {"A": "k 3"}) == {"x": "3"}
    assert guess_inputs("x + mu", {"mu": ""}) == {"x": "n"}


@pytest.mark.parametrize("text", ["", "x +", "f(x", "x = A*y; y"])
def test_texts_with_errors_have_no_guesses(text):
    assert guess_inputs(text, {}) == {}
    assert guess_inputs("x + y", {"x": "n+"}) == {}


def test_texts_that_fit_no_sizes_have_usual_ones():
    assert guess_inputs("tr(X, x)", {}) == {"X": "n n", "x": "n"}


def test_remarks_name_spread_scalars():
    (remark,) = remarks("A*x - mu", {"A": "m n", "x": "n", "mu": ""})
    assert remark == "mu is a scalar, added to every entry of A*x, a column (m,)"
    assert remarks("1 + 2*x", {"x": "n"}) == []
    (remark,) = remarks("s'*x", {"s": "", "x": "n"})
    assert remark == "s is a scalar, so its transpose is s"
