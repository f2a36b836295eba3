"""Objectives of flat vectors for SciPy's optimisers, against its own differences."""

import copy
import pickle
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import scipy.optimize as optimize

import derivatrix as dx
from derivatrix.compiler.ir.nodes import STRUCTURES
from derivatrix.runtime.adapters.parametrisations import PARAMETRISATIONS
from derivatrix.scipy import Objective, objective
from tests.full_matrices import POINT, full, nearest, scalar
from tests.full_matrices import STRUCTURES as STRUCTURED
from tests.pages import run_page

n, m, r = dx.dims("n m r")
S, C = dx.matrix("S", n, n, "spd"), dx.matrix("C", n, n)
X, y, w, b = dx.matrix("X", m, n), dx.vector("y", m), dx.vector("w", n), dx.scalar("b")
k, a, t = dx.vector("k", r, "positive"), dx.vector("a", r), dx.vector("t", m)
q, mu = dx.vector("q", n, "simplex"), dx.vector("mu", n)
U, Q, X2 = dx.matrix("U", n, n), dx.matrix("Q", n, n, "orthogonal"), dx.matrix("X2", m, n)

LOGISTIC = dx.function(
    "logistic", [w, b, X, y], dx.sum(dx.log(1 + dx.exp(-y * (X @ w + b)))) + w @ w / 2, ["w", "b"]
)
LIKELIHOOD = dx.function("likelihood", [S, C], dx.logdet(S) + dx.trace(dx.inv(S) @ C), ["S"])
CURVE = dx.function("curve", [k, a, t, y], dx.exp(-t[:, None] * k) @ a - y, ["k", "a"])
LOSS = dx.function("loss", [q, mu], -(mu @ q), ["q"])
RISKS = dx.function("risks", [q, C], q * (C @ q), ["q"])
LAYER = dx.function("layer", [U, w, S], dx.tanh(U @ w) @ S, ["U", "w", "S"], batch=[w])
BOWL = dx.function("bowl", [w, mu], dx.sum(dx.exp(w)) - mu @ w, ["w"])

random = np.random.default_rng(0)
POINTS = random.normal(size=(40, 3))
COVARIANCE = np.cov(POINTS.T)
LABELS = np.sign(POINTS @ [1.0, -2.0, 0.5] + random.normal(size=40))
TIMES = np.linspace(0, 4, 30)
DECAY = np.exp(-TIMES[:, None] * [0.4, 2.0]) @ [1.0, 2.0] + random.normal(size=30) / 100


@pytest.fixture(name="random")
def fixture_random() -> np.random.Generator:
    return np.random.default_rng(1)


def differences(function: Any, x: np.ndarray, step: float = 1e-5) -> np.ndarray:
    """The derivative by central differences, the entries of x last."""
    steps = step * np.eye(len(x))
    columns = [(np.asarray(function(x + e)) - function(x - e)) / (2 * step) for e in steps]
    return np.stack(columns, axis=-1)


def test_the_length_gives_a_size_that_is_larger() -> None:
    x = dx.vector("x", n - 100)
    squares = objective(dx.function("squares", [x], dx.sum(x**2), kinds=["value_and_gradient"]))
    assert squares.fun(np.arange(3.0)) == 5.0


def turn(random: np.random.Generator, sign: float) -> np.ndarray:
    """An orthogonal matrix of three rows whose determinant is `sign`."""
    matrix = dx.runtime.domains.draw("orthogonal", (3, 3), random, 1)
    return matrix if sign * np.linalg.det(matrix) > 0 else matrix * [1, 1, -1]


SHAPES = {
    name: (2, 3, 3) if name not in ("positive", "simplex") else (2, 3) for name in PARAMETRISATIONS
}


def test_each_structure_has_one() -> None:
    assert {*PARAMETRISATIONS} == {*STRUCTURES}


@pytest.mark.parametrize("structure", SHAPES)
def test_parametrisations(structure: str, random: np.random.Generator) -> None:
    """Stacks are converted to free numbers and back; tangents, pullbacks and their derivatives are
    compared with differences."""
    shape, start = SHAPES[structure], turn(random, -1)
    parametrisation = PARAMETRISATIONS[structure].centred(np.stack([start, start.T]))
    free, direction = random.normal(size=(2, *parametrisation.shape(shape)))
    array, cotangent = parametrisation.array(free), random.normal(size=shape)
    assert array.shape == shape and dx.runtime.domains.contains(structure, array)
    np.testing.assert_allclose(parametrisation.free(array), free, atol=1e-12)

    def along(function: Any) -> np.ndarray:
        return differences(lambda s: function(free + s[0] * direction), np.zeros(1))[..., 0]

    tangent = parametrisation.tangent(free, direction)
    np.testing.assert_allclose(tangent, along(parametrisation.array), atol=1e-7)
    pulled = parametrisation.pullback(free, cotangent)
    np.testing.assert_allclose(np.vdot(pulled, direction), np.vdot(cotangent, tangent))
    curvature = parametrisation.curvature(free, direction, cotangent)
    expected = along(lambda point: parametrisation.pullback(point, cotangent))
    np.testing.assert_allclose(curvature, expected, atol=1e-7)


PROCRUSTES = dx.function(
    "procrustes", [Q, U, X, X2], dx.sum((X @ Q @ U - X2) ** 2) + dx.sum(dx.exp(U)), ["U", "Q"]
)
TURNED = dx.function("turned", [Q, X], dx.tanh(X @ Q) @ Q.T, ["Q"])


@pytest.mark.parametrize("sign", [1, -1])
def test_orthogonal_inputs(sign: float, random: np.random.Generator) -> None:
    """Derivatives by rotations of the first array packed, with another input beside it; the nearest
    rotation of points is that of the polar decomposition."""
    start, near, U_value = turn(random, sign), turn(random, sign), random.normal(size=(3, 3)) / 4
    problem = objective(PROCRUSTES, ["U", "Q"], X=POINTS[:3], X2=POINTS[:3] @ near)
    x = problem.pack({"U": U_value, "Q": start})
    assert len(x) == 9 + 3 and np.abs(x[9:]).max() < 1e-14
    np.testing.assert_allclose(problem.unpack(x).Q, start, atol=1e-14)
    check_derivatives(problem, x + random.normal(size=len(x)) / 4)
    at_near = problem.pack({"U": U_value, "Q": near})
    np.testing.assert_allclose(problem.unpack(at_near).Q, near, atol=1e-12)
    with pytest.raises(dx.DeclarationError, match=r"Q is declared orthogonal.*a reflection of"):
        problem.pack({"U": U_value, "Q": -near})
    with pytest.raises(dx.DeclarationError, match="half a turn"):
        problem.pack({"U": U_value, "Q": start * [1, -1, -1]})

    rotation_only = objective(PROCRUSTES, ["Q"], U=np.eye(3), X=POINTS, X2=POINTS @ near)
    fit = optimize.minimize(
        rotation_only.fun,
        rotation_only.pack(start),
        jac=rotation_only.jac,
        hess=rotation_only.hess,
        method="trust-exact",
    )
    np.testing.assert_allclose(rotation_only.unpack(fit.x).Q, near, atol=1e-6)

    residuals, v = objective(TURNED, X=POINTS), random.normal(size=120)
    x = residuals.pack(start) + random.normal(size=3)
    np.testing.assert_allclose(residuals.jac(x), differences(residuals.residual, x), atol=1e-8)
    np.testing.assert_allclose(residuals.jac_operator(x) @ np.eye(3), residuals.jac(x), atol=1e-12)
    expected = differences(lambda point: residuals.jac(point).T @ v, x)
    np.testing.assert_allclose(residuals.hess(x, v), expected, atol=1e-6)


def test_orthogonal_inputs_are_about_the_first_array_that_is_one() -> None:
    problem = objective(TURNED, X=POINTS)
    with pytest.raises(dx.DeclarationError, match="turned: Q is orthogonal: x is about the first"):
        problem.residual(np.zeros(3))
    for wrong in (np.ones((3, 3)), np.full((3, 3), np.nan), 2 * np.eye(3)):
        with pytest.raises(dx.DeclarationError, match="Q is declared orthogonal"):
            problem.pack(wrong)
    np.testing.assert_array_equal(problem.pack(-np.eye(3)), np.zeros(3))


class Counted:
    """A function that counts its calls."""

    def __init__(self, function: Any) -> None:
        self.function, self.calls = function, 0

    def __call__(self, *arguments: Any) -> Any:
        self.calls += 1
        return self.function(*arguments)


def check_derivatives(problem: Objective, x: np.ndarray) -> None:
    assert optimize.check_grad(problem.fun, problem.jac, x) < 1e-5
    hessian = problem.hess(x)
    np.testing.assert_allclose(hessian, differences(problem.jac, x), atol=1e-6)
    direction = np.cos(np.arange(len(x)))
    np.testing.assert_allclose(problem.hessp(x, direction), hessian @ direction, atol=1e-10)


SCALAR = {
    "logistic": (LOGISTIC, {"X": POINTS, "y": LABELS}, {"w": np.zeros(3), "b": 0.0}),
    "likelihood": (LIKELIHOOD, {"C": COVARIANCE}, {"S": np.eye(3)}),
}


@pytest.mark.parametrize("name", SCALAR)
def test_scalar_functions_are_minimised(name: str, random: np.random.Generator) -> None:
    function, fixed, start = SCALAR[name]
    problem = objective(function, [*start], **fixed)
    x = problem.pack(start)
    check_derivatives(problem, x + random.normal(size=len(x)) / 4)
    by_differences = optimize.minimize(problem.fun, x, method="BFGS")
    for method, derivatives in {
        "BFGS": {},
        "trust-exact": {"hess": problem.hess},
        "Newton-CG": {"hessp": problem.hessp},
        "trust-constr": {"hessp": problem.hessp},
    }.items():
        fit = optimize.minimize(problem.fun, x, jac=problem.jac, method=method, **derivatives)
        assert fit.nfev < by_differences.nfev / 2
        np.testing.assert_allclose(fit.x, by_differences.x, atol=1e-4)
    if name == "likelihood":
        np.testing.assert_allclose(problem.unpack(fit.x).S, COVARIANCE, atol=1e-5)


def test_curves_are_fitted() -> None:
    """Nonlinear least squares, the Jacobian as a matrix and as an operator."""
    problem = objective(CURVE, ["k", "a"], t=TIMES, y=DECAY)
    start = problem.pack({"k": [0.2, 1.0], "a": np.ones(2)})
    jacobian, operator = problem.jac(start), problem.jac_operator(start)
    np.testing.assert_allclose(jacobian, differences(problem.residual, start), atol=1e-7)
    np.testing.assert_allclose(operator @ np.eye(4), jacobian)
    np.testing.assert_allclose(operator.T @ np.eye(30), jacobian.T)
    counted = [Counted(problem.residual) for _ in range(3)]
    plain, matrix, products = (
        optimize.least_squares(function, start, jac=jac)
        for function, jac in zip(
            counted, ("2-point", problem.jac, problem.jac_operator), strict=True
        )
    )
    assert max(function.calls for function in counted[1:]) < counted[0].calls / 2
    for fit in (matrix, products):
        np.testing.assert_allclose(fit.x, plain.x, atol=1e-5)
        np.testing.assert_allclose(problem.unpack(fit.x).k, [0.4, 2.0], rtol=0.1)


def test_a_constrained_portfolio(random: np.random.Generator) -> None:
    """The largest return on the simplex whose risks, asset by asset, are within a bound."""
    gains = np.array([1.0, 1.5, 0.3])
    problem = objective(LOSS, mu=gains)
    risks = objective(RISKS, ["q"], C=COVARIANCE)
    x = problem.pack(np.full(3, 1 / 3))
    check_derivatives(problem, x + 0.3)
    weights = random.normal(size=3)
    expected = differences(lambda point: risks.jac(point).T @ weights, x + 0.3)
    np.testing.assert_allclose(risks.hess(x + 0.3, weights), expected, atol=1e-7)
    bound = 1.2 * risks.residual(x).max()
    fun = [Counted(problem.fun) for _ in range(2)]
    constraint = [Counted(risks.residual) for _ in range(2)]
    exact = optimize.NonlinearConstraint(constraint[0], -np.inf, bound, risks.jac, risks.hess)
    rough = optimize.NonlinearConstraint(constraint[1], -np.inf, bound)
    options = {"gtol": 1e-7, "xtol": 1e-9, "maxiter": 500}
    fit = optimize.minimize(
        fun[0],
        x,
        method="trust-constr",
        jac=problem.jac,
        hess=problem.hess,
        constraints=exact,
        options=options,
    )
    plain = optimize.minimize(fun[1], x, method="trust-constr", constraints=rough, options=options)
    assert fun[0].calls < fun[1].calls / 2 and constraint[0].calls < constraint[1].calls / 2
    shares = problem.unpack(fit.x).q
    np.testing.assert_allclose(shares, problem.unpack(plain.x).q, atol=1e-3)
    assert (risks.residual(fit.x) < bound * (1 + 1e-6)).all() and shares @ gains > gains.mean()


def test_batches(random: np.random.Generator) -> None:
    """A function with one array for each sample has inputs of samples, and shared ones."""
    problem = objective(LAYER)
    x = problem.pack(
        {"U": random.normal(size=(2, 2)), "w": random.normal(size=(3, 2)), "S": np.eye(2)}
    )
    assert len(x) == 4 + 6 + 3
    jacobian, operator = problem.jac(x), problem.jac_operator(x)
    np.testing.assert_allclose(jacobian, differences(problem.residual, x), atol=1e-8)
    np.testing.assert_allclose(operator @ np.eye(13), jacobian, atol=1e-14)
    np.testing.assert_allclose(operator.H @ np.eye(6), jacobian.T, atol=1e-14)
    shared = objective(LAYER, ["U"], w=np.ones((3, 2)), S=np.eye(2))
    assert shared.jac(np.ones(4)).shape == (6, 4)


@pytest.mark.parametrize("axes", [(), (3,), (2, 3), (1, 2, 1)])
def test_batch_axes(random: np.random.Generator, axes: tuple[int, ...]) -> None:
    function = dx.function("scaled", [U, w, mu], mu * dx.tanh(U @ w), ["U", "w"], batch=[w, mu])
    points, factors = random.normal(size=(*axes, 2)), random.normal(size=2)
    problem = objective(function, mu=factors)
    x = problem.pack(U=random.normal(size=(2, 2)), w=points)
    np.testing.assert_array_equal(problem.unpack(x).w, points)
    jacobian, operator = problem.jac(x), problem.jac_operator(x)
    np.testing.assert_allclose(jacobian, differences(problem.residual, x), atol=1e-8)
    np.testing.assert_allclose(operator @ np.eye(len(x)), jacobian, atol=1e-14)
    np.testing.assert_allclose(operator.H @ np.eye(points.size), jacobian.T, atol=1e-14)
    fixed = objective(function, ["U"], w=points, mu=np.ones((4, *[1] * len(axes), 2)))
    by_matrix = fixed.jac(x[:4]).reshape(4, -1, 4)
    expected = objective(function, ["U"], w=points, mu=np.ones(2)).jac(x[:4])
    np.testing.assert_allclose(by_matrix, np.broadcast_to(expected, by_matrix.shape), atol=1e-14)


def test_free_inputs_have_all_batch_axes() -> None:
    function = dx.function("scaled", [w, mu], mu * w, batch=[w, mu])
    problem = objective(function, ["w"], mu=np.ones((4, 2)))
    with pytest.raises(dx.ShapeError, match=r"pack: w has shape \(2,\); expected \(4, 2\): free"):
        problem.pack(w=np.ones(2))


def test_operators_in_optimisers() -> None:
    """A module's own functions, for an input that is a vector."""
    bowl, risks = dx.compile(BOWL), dx.compile(RISKS)
    target = np.array([1.0, 2.0, 3.0])
    fit = optimize.minimize(
        bowl.value,
        np.zeros(3),
        args=(target,),
        method="trust-constr",
        jac=bowl.gradient,
        hess=bowl.hessian_operator,
        options={"gtol": 1e-10},
    )
    np.testing.assert_allclose(fit.x, np.log(target), atol=1e-8)
    equal = optimize.least_squares(
        lambda q, C: risks.value(q, C) - 1,
        np.ones(3),
        risks.jacobian_operator,
        args=(COVARIANCE,),
    )
    np.testing.assert_allclose(equal.x * (COVARIANCE @ equal.x), np.ones(3), atol=1e-7)


@pytest.mark.parametrize(
    "again", [lambda o: pickle.loads(pickle.dumps(o)), copy.copy, copy.deepcopy]
)
def test_objectives_are_pickled_and_copied(again: Any) -> None:
    risks = again(objective(RISKS, ["q"], C=COVARIANCE))
    x = risks.pack(q=np.full(3, 1 / 3)) + 0.3
    assert risks.hess(x, np.ones(3)).shape == (2, 2)
    about_start = objective(
        dx.compile(dx.function("turned", [Q, C], dx.trace(Q @ C), ["Q"])), C=np.eye(2)
    )
    start = about_start.pack(np.array([[0.0, 1], [-1, 0]]))
    assert again(about_start).fun(start + 0.1) == about_start.fun(start + 0.1)
    parts = about_start.unpack(start)
    assert again(parts).Q.tolist() == parts.Q.tolist()


def test_workers_of_scipy_are_given_an_objective() -> None:
    problem = objective(BOWL, mu=np.array([1.0, 2.0]))
    fit = optimize.differential_evolution(
        problem.fun, [(-2, 2)] * 2, workers=2, updating="deferred", seed=0, tol=1e-6
    )
    np.testing.assert_allclose(fit.x, np.log([1.0, 2.0]), atol=1e-3)


def test_arrays_are_packed_by_name() -> None:
    problem = logistic()
    expected = problem.pack({"w": np.ones(3), "b": 2})
    np.testing.assert_array_equal(problem.pack(w=np.ones(3), b=2), expected)
    np.testing.assert_array_equal(problem.pack(b=2.0, w=[1, 1, 1]), expected)


@pytest.mark.parametrize("structure", STRUCTURED)
def test_a_full_matrix_counts_as_the_nearest_of_its_structure(structure: str) -> None:
    module, close = scalar(structure), nearest(structure, full())
    problem = objective(module, ["x"], M=full())
    assert problem.fun(POINT) == module.value(close, POINT)
    np.testing.assert_array_equal(problem.hess(POINT), module.hessian(close, POINT).x.x)


def test_a_wrong_gradient_is_refused() -> None:
    """check_grad notices a gradient that is off by 1e-4."""
    right = dx.compile(LIKELIHOOD)

    def wrong(*arguments: Any) -> Any:
        value, gradient = right.value_and_gradient(*arguments)
        return value, gradient * (1 + 1e-4)

    module = ModuleType(right.__name__)
    vars(module).update({**vars(right), "value_and_gradient": wrong})
    errors = []
    for tried in (right, module):
        problem = objective(tried, C=COVARIANCE)
        x = problem.pack(np.diag([1.0, 2.0, 3.0]))
        size = np.linalg.norm(problem.jac(x))
        errors.append(optimize.check_grad(problem.fun, problem.jac, x) / size)
    assert errors[0] < 1e-6 < 1e-5 < errors[1]


def logistic(**fixed: Any) -> Objective:
    return objective(LOGISTIC, ["w", "b"], **{"X": POINTS, "y": LABELS, **fixed})


ERRORS: dict[str, tuple[Any, type[Exception], str]] = {
    "missing": (lambda: objective(LOGISTIC, ["w", "b"], X=POINTS), dx.DeclarationError, "lacks y"),
    "unknown": (lambda: logistic(z=1), dx.DeclarationError, "has z, which is no such input"),
    "both": (lambda: logistic(w=np.ones(3)), dx.DeclarationError, "with values for w"),
    "twice": (lambda: objective(BOWL, ["w", "w"], mu=1), dx.DeclarationError, "each once"),
    "no derivative": (
        lambda: objective(BOWL, ["w", "mu"]),
        dx.UnsupportedError,
        "bowl: objective: there is no derivative by mu, only by w; declare",
    ),
    "no numbers": (lambda: logistic(y="text"), dx.UnsupportedError, "y is 'text'"),
    "complex": (lambda: logistic().fun(np.ones(4) * 1j), dx.UnsupportedError, "x is ndarray of"),
    "fixed shapes": (
        lambda: logistic(y=np.ones(39)),
        dx.ShapeError,
        r"y has shape \(39,\); expected \(m,\) with m = 40",
    ),
    "too short": (lambda: logistic().fun(np.ones(3)), dx.ShapeError, "3 numbers; expected 4 for w"),
    "not flat": (lambda: logistic().jac(np.ones((2, 2))), dx.ShapeError, "expected a flat vector"),
    "packed shapes": (
        lambda: logistic().pack({"w": np.ones(2), "b": 0}),
        dx.ShapeError,
        r"w has shape \(2,\)|X has shape \(40, 3\)",
    ),
    "packed names": (lambda: logistic().pack({"w": np.ones(3)}), dx.DeclarationError, "lacks b"),
    "packed twice": (
        lambda: logistic().pack({"w": np.ones(3)}, b=0),
        dx.DeclarationError,
        "both arrays and b",
    ),
    "packed count": (lambda: logistic().pack(np.ones(3)), dx.DeclarationError, "1 arrays for w, b"),
    "not definite": (
        lambda: objective(LIKELIHOOD, C=np.eye(2)).pack(-np.eye(2)),
        dx.DeclarationError,
        "S is declared spd",
    ),
    "not symmetric": (
        lambda: objective(LIKELIHOOD, C=np.eye(2)).pack(np.array([[2.0, 1], [0, 2]])),
        dx.DeclarationError,
        "S is declared spd",
    ),
    "on the boundary": (
        lambda: objective(LOSS, mu=np.ones(2)).pack(np.array([1.0, 0])),
        dx.DeclarationError,
        "q is declared simplex",
    ),
    "unknown sizes": (
        lambda: objective(LAYER).residual(np.ones(3)),
        dx.ShapeError,
        "no value tells the sizes n, batch; make x by pack",
    ),
    "residual of a scalar": (
        lambda: logistic().residual(np.ones(4)),
        dx.UnsupportedError,
        "use fun",
    ),
    "fun of an array": (
        lambda: objective(RISKS, C=COVARIANCE).fun(np.ones(2)),
        dx.UnsupportedError,
        "risks: fun is of scalar functions.*use residual",
    ),
    "hess of a module": (
        lambda: objective(dx.compile(RISKS), C=COVARIANCE).hess(np.ones(2), np.ones(3)),
        dx.UnsupportedError,
        "make the objective of the declared function",
    ),
}


@pytest.mark.parametrize("name", ERRORS)
def test_errors(name: str) -> None:
    call, kind, text = ERRORS[name]
    with pytest.raises(kind, match=text):
        call()


def test_the_page_runs() -> None:
    scope = run_page("scipy")
    assert scope["fit"].success and scope["portfolio"].success
