"""Lengths at zero: derivatives of what is made of them, where there are any, compared with
differences in 50 digits, and where there are none."""

from __future__ import annotations

import mpmath
import numpy as np
import pytest
import scipy.special

import derivatrix as dx
from derivatrix.compiler.frontends.function import Function
from derivatrix.compiler.frontends.notation.declaration import text_function
from derivatrix.compiler.ir.interpret import evaluate
from derivatrix.compiler.ir.nodes import leaves
from derivatrix.compiler.simplify import finite_parts, simplify
from derivatrix.compiler.simplify.squares import degree_of
from tests.campaign import Outcome
from tests.campaign.points import SIZES, Case, check, closed_form, tangents
from tests.points import draw

n = dx.dims("n")
x, y = dx.vector("x", n), dx.vector("y", n)

SMOOTH = {
    "a vector": ("x*norm2(x)", "x: n", "x"),
    "a cube": ("norm2(x)^3", "x: n", "x"),
    "several": ("norm2(x)*norm2(y)*y", "x: n, y: n", "x y"),
    "a matrix": ("X*normF(X)", "X: m n", "X"),
    "a deviation": ("(x - mean(x)*ones)*sqrt(var(x))", "x: n", "x"),
    "a definite form": ("sqrt(x'*A*x)*x", "x: n, A: n n spd", "x"),
    "a cubed form": ("sqrt(x'*A*x)^3", "x: n, A: n n spd", "x"),
    "of a function": ("norm2(sin(x))^5", "x: n", "x"),
    "Matern 3/2": ("exp(-norm2(x))*(1+norm2(x))", "x: n", "x"),
    "Matern 5/2": ("(1+norm2(x-y)+norm2(x-y)^2/3)*exp(-norm2(x-y))", "x: n, y: n", "x y"),
    "a scaled Matern 5/2": ("(1+2.3*norm2(x)+2.3^2*x'*x/3)*exp(-2.3*norm2(x))", "x: n", "x"),
    "a rational quadratic": ("(1+norm2(x)^2/3)^(-1.5)", "x: n", "x"),
    "Huber": ("sqrt(1+norm2(x)^2)", "x: n", "x"),
    "a logarithm": ("norm2(x)-log(1+norm2(x))", "x: n", "x"),
    "a cosine": ("cos(norm2(x))", "x: n", "x"),
    "of the shape": ("exp(-sqrt(x'*A*x))*(1+sqrt(x'*A*x))", "x: n, A: n n spd", "x"),
    "of a linear map": ("exp(-norm2(A*x))*(1+norm2(A*x))", "x: n, A: n n", "x"),
    "Frobenius": ("exp(-normF(X))*(1+normF(X))", "X: m n", "X"),
    "a standard deviation": ("exp(-sqrt(var(x)))*(1+sqrt(var(x)))", "x: n", "x"),
    "two lengths": ("(1+norm2(x))*(1+norm2(y))*exp(-norm2(x)-norm2(y))", "x: n, y: n", "x y"),
    "a quotient": ("norm2(x)^2/(1+norm2(x))", "x: n", "x"),
    "of a matrix": ("logdet(A+exp(-norm2(x))*(1+norm2(x))*A)", "x: n, A: n n spd", "x"),
    "absolute values": ("sum(exp(-abs(x)).*(1+abs(x)))", "x: n", "x"),
    "Hellinger": ("sqrt(1-exp(-x'*x))^3", "x: n", "x"),
    "of a logarithm": ("sqrt(log(1+x'*x))^3", "x: n", "x"),
    "of an arctangent": ("exp(-sqrt(sum(atan(x.^2))))*(1+sqrt(sum(atan(x.^2))))", "x: n", "x"),
    "powers of a number": ("2^(-norm2(x))*(1+norm2(x)*log(2))", "x: n", "x"),
    "powers of a scalar": ("s^(-norm2(x))*(1+norm2(x)*log(s))", "x: n, s: positive", "x"),
    "two matrices": ("sqrt(tr(inv(X)*U*inv(X)*U))^3", "X: n n spd, U: n n symmetric", "U"),
}
"""Functions with first derivatives at zero; the scalars have second ones."""
DIVIDED = [
    "x/norm2(x)",
    "norm2(x)^0.5",
    "sqrt(sum(x))",
    "log(norm2(x))",
    "log(abs(x))",
    "x*norm2(x)/norm2(x)^2",
]


def near_zero(function: Function, size: float = 0) -> Case:
    """All inputs that it is differentiated by as small as this."""
    random = np.random.default_rng(3)
    values = {
        leaf.name: size * draw(leaf, random, SIZES)
        if leaf.name in function.wrt
        else draw(leaf, random, SIZES)
        for leaf in function.inputs
    }
    return Case(function, values, tangents(function, values, random))


def checked(function: Function, size: float = 0) -> Outcome:
    outcome, random = Outcome(), np.random.default_rng(0)
    for kind in ("jvp", "hvp"):
        if kind in function.kinds:
            check(kind, near_zero(function, size), random, outcome)
    return outcome


@pytest.mark.parametrize("name", SMOOTH)
@pytest.mark.parametrize("size", [0, 1e-12, 1e-8, 1e-3])
def test_derivatives_at_zero_and_near_it(name: str, size: float) -> None:
    text, dims, wrt = SMOOTH[name]
    function = text_function(text, dims, wrt.split())
    outcome = checked(function, size)
    assert outcome.tried == 2 - bool(function.expression.shape)
    assert not outcome.failures


@pytest.mark.parametrize("size", [0, 1e-8])
def test_branches_that_other_inputs_decide(size: float) -> None:
    s, length = dx.scalar("s"), dx.norm(x)
    matern = dx.exp(-length) * (1 + length)
    for value in (
        dx.where(s > 0, length**3, s * matern),
        dx.where(s > length, matern, dx.where(s < -1, 2, length**3)),
        dx.where((s > 0) & (length < 1), s * length**3, matern),
    ):
        function = dx.function("f", [x, s], value, wrt=["x"])
        for number in (-2.0, -0.5, 0.7):
            case = near_zero(function, size)
            case.values["s"] = np.array(number)
            outcome = Outcome()
            for kind in ("jvp", "hvp"):
                check(kind, case, np.random.default_rng(0), outcome)
            assert outcome.tried == 2
            assert not outcome.failures


@pytest.mark.parametrize(("exponent", "slope"), [(0.5, np.nan), (1, 0), (1.5, 0), (2, 0), (3, 0)])
def test_slopes_of_powers_with_exponents_that_are_inputs(exponent: float, slope: float) -> None:
    s = dx.scalar("s")
    for value in (dx.norm(x) ** s, s * (x @ x) ** (s / 2) + dx.sum(x**3)):
        function = dx.function("f", [x, s], value, wrt=["x"])
        gradient = written(function, "gradient", x=np.zeros(3), s=np.array(float(exponent)))
        np.testing.assert_array_equal(gradient, np.full(3, slope))
        at = np.array([3.0, 0, 4])
        gradient = written(function, "gradient", x=at, s=np.array(float(exponent)))
        assert np.isfinite(gradient).all()
        assert gradient[1] == 0


def test_entries_and_other_norms() -> None:
    lengths_of_two = [dx.hypot(x, y), dx.vector_norm(x - y, 3), dx.vector_norm(x + y, 1.5)]
    for length in lengths_of_two:
        outcome = checked(dx.function("f", [x, y], x * length))
        assert outcome.tried == 1
        assert not outcome.failures


@pytest.mark.parametrize(
    "length",
    [
        dx.norm(x[1:]),
        dx.norm(dx.take(x, [0, 2])),
        dx.norm(dx.outer(x, x)[0]),
        dx.sum(dx.norm(dx.outer(x, x)[1:], axis=1)),
        dx.sum(dx.norm(dx.outer(x, y)[:-1] * y, axis=0)),
    ],
    ids=str,
)
def test_lengths_of_selected_entries(length: dx.Array) -> None:
    function = dx.function("f", [x, *([y] if y.node in leaves([length.node]) else [])], length)
    values = {leaf.name: np.zeros(3) for leaf in function.inputs}
    for key in function.derivatives.results("gradient"):
        with np.errstate(all="ignore"):
            gradient = evaluate(function.derivatives.kernel("gradient")[1][key], values, {"n": 3})
        np.testing.assert_array_equal(gradient, np.zeros(3))


@pytest.mark.parametrize("product", [x[1:] @ x[:-1], x * dx.sum(x), x[1:] * x[:-1], x[0] * x])
def test_products_of_different_entries_are_no_squares(product: dx.Array) -> None:
    assert degree_of(*simplify([product.node])) is None
    assert degree_of(*simplify([(product**2).node])) == 2


@pytest.mark.parametrize("text", DIVIDED)
def test_what_has_no_derivative_and_no_slopes_at_zero(text: str) -> None:
    case = near_zero(text_function(text, "x: n", ["x"]))
    with np.errstate(all="ignore"):
        assert not np.isfinite(closed_form("jvp", case, case.tangents)).all()


def test_lengths_of_sums_that_have_no_slopes_at_zero() -> None:
    """The derivative orders the terms of the second length by their simplified functions."""
    A = dx.matrix("A", n, n)
    first = dx.tanh(dx.sqrt(dx.norm(y))) + A @ y + x
    second = dx.tanh(dx.sqrt(dx.norm(first))) + A @ first + x
    gradient = dx.function("f", [A, x, y], dx.sum(second)).derivatives.kernel("gradient")[1]["x",]
    with np.errstate(all="ignore"):
        zeros = {"A": np.zeros((3, 3)), "x": np.zeros(3), "y": np.zeros(3)}
        assert np.isnan(evaluate(gradient, zeros, {"n": 3})).all()


def test_products_of_lengths_are_zero_where_one_is() -> None:
    function = dx.function("f", [x, y], dx.sqrt(dx.norm(x) * dx.norm(y)))
    gradient = function.derivatives.kernel("gradient")[1]["x",]
    with np.errstate(all="ignore"):
        result = evaluate(gradient, {"x": np.zeros(3), "y": np.ones(3)}, {"n": 3})
    assert np.isnan(result).all()


@pytest.mark.usefixtures("forgotten")
def test_a_planted_fault_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    function = text_function("x*norm2(x)", "x: n", ["x"])
    monkeypatch.setattr(finite_parts, "_finite", lambda expression, bases: expression)
    assert checked(function).failures


@pytest.mark.parametrize("real", [np.float64, np.float32])
def test_kernels(real: type) -> None:
    """The subgradient is 0, what is no number stays none, and verification knows of the kink."""
    function = dx.compile(dx.function("f", [x], dx.norm(x)))
    zero = np.zeros(5, real)
    np.testing.assert_array_equal(function.gradient(zero), zero)
    np.testing.assert_array_equal(function.hessian(zero), np.zeros((5, 5)))
    assert np.isnan(function.gradient(np.full(5, np.nan, real))).all()
    np.testing.assert_allclose(function.gradient(zero + 3), zero + 5**-0.5, rtol=1e-6)
    assert dx.verify(function).passed


def written(function: Function, kind: str, **values: np.ndarray) -> np.ndarray:
    """A result by its formula in NumPy's style."""
    with np.errstate(all="ignore"):
        return eval(function.formula(kind, style="numpy"), {"np": np, "scipy": scipy, **values})


@pytest.mark.parametrize("real", [np.float64, np.float32])
@pytest.mark.parametrize("size", [1, 4])
def test_the_length_of_a_tangent_at_a_definite_matrix(real: type, size: int) -> None:
    """sqrt(tr(X⁻¹ U X⁻¹ U)) at U = 0, where its derivatives by both are 0."""
    text = "sqrt(tr(inv(X)*U*inv(X)*U))"
    function = text_function(text, "X: n n spd, U: n n symmetric", ["X", "U"])
    module, random = dx.compile(function), np.random.default_rng(0)
    along = random.normal(size=(2, size, size)).astype(real)
    point = along[0] @ along[0].T + np.eye(size, dtype=real), np.zeros((size, size), real)
    given = {"vjp": [real(3)], "jvp": [*along], "hvp": [*along]}
    tangents = ["tangent_X", "tangent_U"]
    names = {"vjp": ["cotangent"], "jvp": tangents, "hvp": tangents}
    for kind in function.kinds:
        arguments = given.get(kind, [])
        results = np.hstack(
            [np.ravel(part) for part in _parts(getattr(module, kind)(*point, *arguments))]
        )
        assert not results.any(), kind
        if kind == "value_and_gradient":
            continue
        values = dict(zip(["X", "U", *names.get(kind, [])], [*point, *arguments], strict=True))
        for key in function.derivatives.results(kind):
            formula = function.formula(kind, key, style="numpy")
            with np.errstate(divide="ignore"):
                assert not np.any(eval(formula, {"np": np, **values})), kind


def _parts(result: object) -> list[np.ndarray]:
    """The arrays of a result, also of nested named tuples."""
    if not isinstance(result, tuple):
        return [np.asarray(result)]
    return [array for part in result for array in _parts(part)]


RADIUS = dx.norm(x)
HESSIANS = [
    (RADIUS, 0),
    (dx.exp(-RADIUS), 1),
    (dx.exp(-RADIUS) * (1 + RADIUS), -1),
    (dx.where(RADIUS > 0, dx.sin(RADIUS) / RADIUS, 1), -1 / 3),
    (dx.where(RADIUS > 0, (1 - dx.cos(RADIUS)) / RADIUS**2, 0.5), -1 / 12),
    (dx.where(RADIUS > 0, dx.tanh(RADIUS) / RADIUS, 1), -2 / 3),
    (dx.where(RADIUS > 0, RADIUS**4 * dx.log(RADIUS), 0), 0),
    (dx.maximum(1 - RADIUS, 0) ** 4 * (4 * RADIUS + 1), -20),
    (dx.maximum(RADIUS - 1, 0) ** 2, 0),
    (dx.maximum(RADIUS + 1, 0) ** 2, 2),
    (dx.minimum(RADIUS, 1) ** 2 + dx.maximum(RADIUS, 1), 2),
    (dx.sum(dx.exp(-abs(x))), 1),
    (dx.sin(RADIUS) / RADIUS, np.nan),
]
"""Functions of x, and the diagonals of their Hessians at 0: of φ(‖x‖) it is φ''(0) without the odd
powers of ‖x‖ in φ."""


@pytest.mark.parametrize(("expression", "diagonal"), HESSIANS)
def test_hessians_at_zero(expression: dx.Array, diagonal: float) -> None:
    function = dx.function("f", [x], expression)
    result = written(function, "hessian", x=np.zeros(3))
    np.testing.assert_allclose(np.diag(result), np.full(3, diagonal), atol=1e-15)
    gradient = written(function, "gradient", x=np.zeros(3))
    np.testing.assert_allclose(gradient, np.full(3, 0 * diagonal))


LIMIT, OTHER = dx.scalar("s"), dx.norm(y)
DECIDED = [
    (dx.maximum(RADIUS - LIMIT, 0) ** 2, {1.0: 0, -1.0: 2}),
    (dx.minimum(RADIUS, LIMIT) ** 2, {1.0: 2, -1.0: 0}),
    (dx.maximum(RADIUS, OTHER + LIMIT) ** 2, {1.0: 0, -4.0: 2}),
    (dx.maximum(RADIUS - OTHER + 3 * LIMIT, 0) ** 2, {0.1: 0, 1.0: 2}),
    (RADIUS**2 / dx.maximum(RADIUS, LIMIT), {0.5: 4, -0.5: np.nan}),
    (RADIUS**2 * dx.minimum(1, LIMIT / RADIUS), {0.5: 2}),
    (RADIUS**2 * dx.maximum(1 - LIMIT / RADIUS, 0), {0.5: 0, -0.5: np.nan}),
]
"""Functions, and for values of s the diagonals of their Hessians by x at x = 0 and ‖y‖ = 2."""


@pytest.mark.parametrize(("expression", "diagonals"), DECIDED)
def test_extremes_that_other_inputs_decide(
    expression: dx.Array, diagonals: dict[float, float]
) -> None:
    function = dx.function("f", [x, y, LIMIT], expression, wrt=[x], keep=[y])
    for limit, diagonal in diagonals.items():
        values = {"x": np.zeros(3), "y": np.full(3, 2 / 3**0.5), "s": np.array(limit)}
        result = written(function, "hessian", **values)
        np.testing.assert_allclose(np.diag(result), np.full(3, diagonal), atol=1e-15)
        gradient = written(function, "gradient", **values)
        np.testing.assert_allclose(gradient, np.full(3, 0 * diagonal))


@pytest.mark.parametrize("size", [1e-12, 1e-8, 1e-5, 1e-3, 0.3, 0.6, 2.0])
def test_quotients_near_zero(size: float) -> None:
    """sin(r)/r, which has no value at 0, has accurate derivatives beside it."""
    function = dx.function("f", [x], dx.sin(RADIUS) / RADIUS)
    unit = np.array([1.0, -2.0, 2.0]) / 3
    with mpmath.workdps(60):
        radius = mpmath.mpf(float(np.linalg.norm(size * unit)))
        slope = (mpmath.cos(radius) - mpmath.sin(radius) / radius) / radius**2
        second = -mpmath.sin(radius) / radius - 2 * slope
    expected = float(slope) * np.eye(3) + float(second - slope) * np.outer(unit, unit)
    result = written(function, "hessian", x=size * unit)
    np.testing.assert_allclose(result, expected, rtol=1e-13, atol=1e-13)


def test_lengths_that_are_always_zero() -> None:
    """The distances of points from themselves; squared distances by products of points."""
    points = np.random.default_rng(0).normal(size=(4, 3))
    X = dx.matrix("X", n, 3)
    distances = dx.norm(X[:, None, :] - X[None, :, :], axis=2)
    squares = dx.sum(X**2, axis=1)
    gram = dx.sqrt(squares[:, None] + squares[None, :] - 2 * X @ X.T)
    results = []
    for lengths_of_pairs in (distances, gram):
        function = dx.function("f", [X], dx.sum(dx.log1p(lengths_of_pairs)))
        results.append([written(function, kind, X=points) for kind in ("gradient", "hessian")])
    for a, b in zip(*results, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-12)
    steps = 1e-5 * np.eye(12).reshape(12, 4, 3)
    ends = [[written(function, "gradient", X=points + s * h) for s in (1, -1)] for h in steps]
    changes = np.array([(up - down) / 2e-5 for up, down in ends]).reshape(4, 3, 4, 3)
    np.testing.assert_allclose(results[0][1], changes, atol=1e-8)


def test_lengths_of_differences_of_entries() -> None:
    """Hessians do not multiply out x[1:] - x[:-1], whose terms would cancel, and whose square would
    be no length."""
    jumps = dx.norm(x[1:] - x[:-1])
    differences = np.eye(4, k=1)[:3] - np.eye(4)[:3]
    function = dx.function("f", [x], dx.cos(jumps))
    result = written(function, "hessian", x=np.full(4, 0.5))
    np.testing.assert_allclose(result, -differences.T @ differences, rtol=1e-14)
    point = 1000 + 1e-3 * np.random.default_rng(0).normal(size=4)
    unit = differences @ point / np.linalg.norm(differences @ point)
    expected = differences.T @ (np.eye(3) - np.outer(unit, unit)) @ differences
    result = written(dx.function("f", [x], jumps), "hessian", x=point)
    expected /= np.linalg.norm(differences @ point)
    np.testing.assert_allclose(result, expected, rtol=1e-12, atol=1e-9)
    X = dx.matrix("X", n, 2)
    columns = dx.hypot(X[:, None, 0] - X[None, :, 0], X[:, None, 1] - X[None, :, 1])
    rows = dx.norm(X[:, None, :] - X[None, :, :], axis=2)
    points = np.random.default_rng(0).normal(size=(4, 2))
    one, other = (
        written(dx.function("f", [X], dx.sum((1 + D) * dx.exp(-D))), "hessian", X=points)
        for D in (columns, rows)
    )
    np.testing.assert_allclose(one, other, rtol=1e-12, atol=1e-12)


def test_formulas_are_short() -> None:
    kernel = dx.function("f", [x], dx.exp(-RADIUS) * (1 + RADIUS))
    assert kernel.formula("gradient") == "−exp(−‖x‖) x"
    assert kernel.formula("hessian") == "exp(−‖x‖) (x xᵀ / ‖x‖ − I)"
    assert dx.function("f", [x], RADIUS).formula("hessian") == "I/‖x‖ − x xᵀ / ‖x‖³"


@pytest.mark.parametrize("real", [np.float64, np.float32])
def test_the_gradient_of_a_process(real: type) -> None:
    """The covariance of its values' slopes at one point is positive definite: 5/3 I."""
    radius = 5**0.5 * dx.norm(x - y)
    kernel = (1 + radius + radius**2 / 3) * dx.exp(-radius)
    module = dx.compile(dx.function("f", [x, y], kernel, batch=[x]))
    point = np.arange(3, dtype=real)
    hessian = module.hessian(np.stack([point, point + 1]), point)
    np.testing.assert_allclose(hessian.x.y[0], 5 / 3 * np.eye(3), rtol=1e-6)
    product = module.hvp(np.stack([point] * 2), point, np.ones((2, 3), real), 0 * point)
    np.testing.assert_allclose(product.x, np.full((2, 3), -5 / 3), rtol=1e-6)


r = dx.norm(x)
AT_ZERO = {
    "an infinite logarithm": (dx.log(r), -np.inf, 0.5 * np.log(12)),
    "an infinite power of one": (dx.exp(-dx.log(r)), np.inf, 12**-0.5),
    "a guarded reciprocal": (dx.where(r > 0, 1 / r, 0), 0, 12**-0.5),
    "a guarded square of one": (dx.where(r > 0, 1 / r**2, 0), 0, 1 / 12),
    "a guarded gradient": (dx.sum(dx.grad(dx.where(r > 0, r, 0), x)), 0, 6 * 12**-0.5),
    "a clipped reciprocal": (dx.minimum(1, 1 / r), 1, 12**-0.5),
    "a compared reciprocal": (dx.where(1 / r > 1, r, 1), 0, 1),
}


@pytest.mark.parametrize("name", AT_ZERO)
def test_values_at_zero_are_those_of_the_declaration(name: str) -> None:
    """Values that are infinite at a zero length stay so, and what selects one can be declared."""
    expression, at_zero, beside = AT_ZERO[name]
    function = dx.function("f", [x], expression)
    assert function.formula("gradient", style="numpy")
    with np.errstate(all="ignore"):
        module = dx.compile(function, kinds=["value"])
        np.testing.assert_allclose(module.value(np.zeros(3)), at_zero)
        np.testing.assert_allclose(module.value(np.full(3, 2.0)), beside, rtol=1e-14)


def test_functions_of_reciprocals_at_zero() -> None:
    function = dx.function("f", [x], 1 / (1 + 1 / r))
    assert written(function, "value", x=np.zeros(3)) == 0
