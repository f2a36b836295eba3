"""Equations of several unknowns, and least squares: values, derivatives, failures."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import scipy.optimize

import derivatrix as dx
from derivatrix.compiler.ir.interpret import evaluate
from derivatrix.runtime.simulated import as_on_device
from tests.operations.test_root import check_derivatives
from tests.points import draw_all
from tests.simulation import simulated

n, m = dx.dims("n m")
A, b, c = dx.matrix("A", m, n), dx.vector("b", m), dx.vector("c", n)
x, y = dx.vector("x", n), dx.vector("y", m)
G, C = dx.matrix("G", n + m, n + m, "spd"), dx.matrix("C", m, n + m)
d, w = dx.vector("d", n + m), dx.vector("w", n + m)
T = dx.tensor("T", n, m, 2)
P, Q, S = dx.matrix("P", n, n), dx.matrix("Q", m, n), dx.matrix("S", n, n, "spd")
u, v, s = dx.scalar("u"), dx.scalar("v"), dx.scalar("s")
r, z = dx.vector("r", 2), dx.vector("z", 2, "positive")

# C has fewer rows than columns whatever n and m are, so there is always a solution
OPTIMUM, PRICES = dx.root([G @ w + d + C.T @ y, C @ w - b], [w, y], [dx.zeros(n + m), dx.zeros(m)])
QUADRATIC = dx.function("quadratic", [G, C, d, b], OPTIMUM, wrt=[C])
SHADOW = dx.function("shadow", [G, C, d, b], dx.sum(PRICES**2), wrt=[b])
HARES, FOXES = dx.root([1 - u - z[0] * u * v, 1 - v + z[1] * u * (2 - v)], [u, v], [1, 1])
SPECIES = dx.function("species", [z], HARES * FOXES)
_, SIDE = dx.root([P @ P - S, Q @ P - A], [P, Q], [S, A])
MATRICES = dx.function("matrices", [A, S], SIDE, wrt=[A])
FIT = dx.function("fit", [b, A], dx.least_squares([A @ x - b, x, x**2], x, dx.zeros(n)), wrt=[b])
FUNCTIONS = [QUADRATIC, SHADOW, SPECIES, MATRICES, FIT]
SIZES = {"n": 3, "m": 2}


@pytest.mark.thorough
@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda function: function.name)
def test_modules_of_systems(function: dx.Function) -> None:
    report = dx.verify(dx.compile(function))
    assert report.passed, str(report)


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda function: function.name)
def test_derivatives_of_systems(function: dx.Function) -> None:
    check_derivatives(function, SIZES)


def test_a_quadratic_program() -> None:
    """Compiled: of w' G w / 2 + d' w with C w = b both unknowns are one linear solution."""
    values = draw_all(QUADRATIC, 3, SIZES)
    given, tangent = values["C"], values["tangent"]
    matrix = np.block([[values["G"], given.T], [given, np.zeros((2, 2))]])
    solution = np.linalg.solve(matrix, np.concatenate([-values["d"], values["b"]]))
    np.testing.assert_allclose(evaluate(PRICES.node, values, SIZES), solution[5:])
    module = dx.compile(QUADRATIC)
    arguments = [values[name] for name in ("G", "C", "d", "b")]
    np.testing.assert_allclose(module.value(*arguments), solution[:5])
    change = np.concatenate([tangent.T @ solution[5:], tangent @ solution[:5]])
    expected = -np.linalg.solve(matrix, change)[:5]
    np.testing.assert_allclose(module.jvp(*arguments, tangent), expected)
    assert QUADRATIC.formula("value") == "root(w, y: d + G w + Cᵀ y; C w − b)[:m + n]"


def test_a_program_without_a_solution() -> None:
    module = dx.compile(QUADRATIC)
    told = (
        "Newton's iteration did not converge .* in 0 steps .* was 1, where the Jacobian is singular"
    )
    with pytest.raises(np.linalg.LinAlgError, match=rf"^quadratic: root\(w, y: .*{told}$"):
        module.value(np.eye(2), np.zeros((1, 2)), np.ones(2), np.ones(1))


def test_two_species() -> None:
    values = {"z": np.array([0.7, 0.4])}

    def changes(point: np.ndarray) -> list[float]:
        hares, foxes = point
        return [1 - hares - 0.7 * hares * foxes, 1 - foxes + 0.4 * hares * (2 - foxes)]

    expected = scipy.optimize.fsolve(changes, [1, 1], xtol=1e-13)
    actual = [evaluate(array.node, values, {}) for array in (HARES, FOXES)]
    np.testing.assert_allclose(actual, expected)


@simulated
def test_a_system_on_a_device() -> None:
    """Simulated; scalars there are arrays of one entry."""
    values = draw_all(SPECIES, 0)
    module = dx.compile(SPECIES, target="cuda", kinds=["value"])
    unsolvable = dx.function("bad", [s], dx.root(u**2 + s**2 + 1, u, s), kinds=["value"])
    bad = dx.compile(unsolvable, target="cuda")
    with as_on_device(module):
        expected = evaluate(SPECIES.expression, values, {})
        assert float(module.value(values["z"])) == pytest.approx(float(expected))
    with as_on_device(bad), pytest.raises(np.linalg.LinAlgError, match=r"^bad: .* in 10 steps .*"):
        bad.value(0.3)


def test_least_squares_as_scipy_has_them() -> None:
    values = draw_all(FIT, 5, SIZES)

    def residual(point: np.ndarray) -> np.ndarray:
        return np.concatenate([values["A"] @ point - values["b"], point, point**2])

    exact = {"xtol": 1e-15, "ftol": 1e-15, "gtol": 1e-15}
    expected = scipy.optimize.least_squares(residual, np.zeros(3), **exact).x
    assert np.abs(residual(expected)).max() > 0.1
    actual = evaluate(FIT.expression, values, SIZES)
    np.testing.assert_allclose(actual, expected, atol=1e-7)
    shown = "least_squares(A x − b; x; x∘²)"
    assert FIT.formula("value") == shown
    assert FIT.formula("jvp") == f"(I + Aᵀ A + 6 diag({shown}∘²))⁻¹ Aᵀ ḃ"


def test_unknowns_of_all_ranks_at_once() -> None:
    target = dx.tensor("target", n, m, 2)
    gap = dx.sum((T - target) ** 2) + dx.sum((Q - A) ** 2) + dx.sum(dx.exp(x) - x) + dx.cosh(u - s)
    actual = dx.argmin(gap, [T, u, Q, x], [target / 2, s + 1, A + 1, dx.ones(n)])
    values = {"target": np.ones((3, 2, 2)), "A": np.arange(6.0).reshape(2, 3), "s": np.array(2.0)}
    expected = [values["target"], 2.0, values["A"], np.zeros(3)]
    for one, other in zip(actual, expected, strict=True):
        np.testing.assert_allclose(evaluate(one.node, values, SIZES), other, atol=1e-9)


def test_fixed_points_of_two_unknowns() -> None:
    first, second = dx.fixed_point([dx.cos(v) / 2, v**2 + s], [u, v], (0, s))
    values = {"s": np.array(0.2)}
    one, two = (float(evaluate(array.node, values, {})) for array in (first, second))
    assert (one, two) == pytest.approx((np.cos(two) / 2, two**2 + 0.2))


@pytest.mark.parametrize(
    ("problem", "call"),
    [
        ("^root: the unknown u is given twice", lambda: dx.root([u - s, u + s], [u, u], [s, s])),
        ("^root: there are 1 starts of 2 unknowns", lambda: dx.root([u - v, v - s], [u, v], [s])),
        ("^root: no equation depends on v", lambda: dx.root([u - s, u + s], [u, v], [s, s])),
        ("^root: equation 2 depends on no unk", lambda: dx.root([u - v, s], [u, v], [s, s])),
        ("start must not depend on v", lambda: dx.root([u - v, v - s], [u, v], [v, s])),
        ("^argmin: there is nothing to solve", lambda: dx.argmin(u**2, [], [])),
        ("^fixed_point: there are 1 images of 2", lambda: dx.fixed_point([u * v], [u, v], [s, s])),
        ("^least_squares: the unknown is a symb", lambda: dx.least_squares(x - c, 3, c)),
        ("^least_squares: on_failure is", lambda: dx.least_squares(x - c, x, c, "ignore")),
        ("^least_squares: the start must not", lambda: dx.least_squares(x - c, x, x)),
    ],
)
def test_wrong_systems(problem: str, call: Callable[[], object]) -> None:
    with pytest.raises(dx.DeclarationError, match=problem):
        call()


@pytest.mark.parametrize(
    ("problem", "call"),
    [
        (
            r"^root: the equations have shape \(n,\), \(n,\), and the unknown is x \(n",
            lambda: dx.root([x - c, x + dx.sum(y)], [x, y], [c, b]),
        ),
        (
            r"^root: the start has shape \(n,\); y has \(m,\)",
            lambda: dx.root([x, y], [x, y], [c, c]),
        ),
        (
            "^root: the size [mn] of [xy] cannot be read off the shape of any input",
            lambda: dx.root([x**3 + x - s, y + dx.sum(x) - s], [x, y], [c, b]),
        ),
        ("^argmin: the objective is a scalar", lambda: dx.argmin(x + dx.sum(y), [x, y], [c, b])),
        ("^least_squares: there are fewer", lambda: dx.least_squares(dx.sum(r) - s, r, z)),
    ],
)
def test_wrong_shapes(problem: str, call: Callable[[], object]) -> None:
    with pytest.raises(dx.ShapeError, match=problem):
        call()
