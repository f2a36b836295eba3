"""Divided differences, and derivatives of every order of functions of eigenvalues and singular
values where these are repeated, nearly so, or apart."""

from collections.abc import Callable
from functools import cache
from itertools import pairwise

import mpmath
import numpy as np
import pytest
import scipy
import sympy

import derivatrix as dx
from derivatrix.compiler.ir import scalar_functions
from derivatrix.compiler.ir.divided_differences import VARIABLE, difference, differences
from derivatrix.compiler.ir.interpret import evaluate
from derivatrix.compiler.ir.nodes import Node, leaves, slot
from derivatrix.runtime.errors import UnsupportedError

z = VARIABLE
ELEMENTARY = [
    (sympy.exp(z), mpmath.exp),
    (sympy.log(z), mpmath.log),
    (sympy.erf(z), mpmath.erf),
    (sympy.tanh(z), mpmath.tanh),
    (sympy.atan(z), mpmath.atan),
    (sympy.besseli(0, z), lambda x: mpmath.besseli(0, x)),
    (scalar_functions.sigmoid(z), lambda x: 1 / (1 + mpmath.exp(-x))),
    (z ** sympy.Rational(3, 10), lambda x: x ** mpmath.mpf("0.3")),
]
GAPS = (0, 1e-9, 1e-6, 1e-3, 1e-2, 1e-1, 1)


def exactly(function: Callable, points: list[float]) -> float:
    """The recursion in many digits, with points that are equal set a very little apart."""
    with mpmath.workdps(150):
        apart = [mpmath.mpf(point) + mpmath.mpf(10) ** -20 * i for i, point in enumerate(points)]
        table = [function(point) for point in apart]
        for order in range(1, len(points)):
            table = [
                (table[i + 1] - table[i]) / (apart[i + order] - apart[i])
                for i in range(len(table) - 1)
            ]
        return float(table[0])


@pytest.mark.parametrize(
    ("function", "exact"), ELEMENTARY, ids=[str(function) for function, _ in ELEMENTARY]
)
@pytest.mark.parametrize(("count", "tolerance"), [(2, 1e-12), (3, 1e-11), (4, 1e-9)])
def test_differences_at_points_close_and_apart(function, exact, count, tolerance):
    slots = [slot(i) for i in range(count)]
    expression = differences(function)(*slots)
    for gap in GAPS:
        for start in (0.4, 1.3):
            for places in ((0, 1, 2, 3), (3, 0, 0, 1), (0, 0, 0, 1), (0, 9 / max(gap, 9), 0, 0)):
                points = [start + gap * place for place in places[:count]]
                actual = float(scalar_functions.evaluate(expression, [np.array(p) for p in points]))
                assert actual == pytest.approx(exactly(exact, points), rel=tolerance)


x, y = slot(0), slot(1)
COMPOSED = [
    x**4 - 3 * x,
    1 / (1 + x**2),
    sympy.sqrt(x),
    x ** sympy.Rational(-3, 2),
    abs(x - 1) + sympy.sign(x),
    sympy.Max(x, 1) * sympy.Min(x, sympy.exp(-x)) + sympy.Max(-1, sympy.Min(x, 1)),
    sympy.exp(-(x**2)) * sympy.sin(slot(2) * x),
    x**x,
    1 / sympy.log(2 + x),
    differences(sympy.exp(z))(x, x, slot(2)),
]


@pytest.mark.parametrize("function", COMPOSED, ids=str)
def test_differences_of_what_is_composed(function):
    actual = difference(function, x, y)
    at = {slot(2): 0.7}
    apart = {**at, x: 0.4, y: 1.3}
    expected = (function.subs(apart) - function.xreplace({x: y}).subs(apart)) / (0.4 - 1.3)
    arguments = [np.array(float(apart[slot(i)])) for i in range(3)]
    assert float(scalar_functions.evaluate(actual, arguments)) == pytest.approx(
        number(expected), rel=1e-10
    )
    arguments[1] = arguments[0]
    slope = scalar_functions.evaluate(scalar_functions.derivative(function, x), arguments)
    assert float(scalar_functions.evaluate(actual, arguments)) == pytest.approx(
        float(slope), rel=1e-10
    )


def number(expression: sympy.Expr) -> float:
    return float(scalar_functions.evaluate(expression, []))


@pytest.mark.parametrize(
    "function", [sympy.Piecewise((x, x > 1), (0, True)), sympy.floor(x), sympy.atan2(x, 1 + x)]
)
def test_functions_without_differences(function):
    with pytest.raises(UnsupportedError, match="no divided differences"):
        difference(function, x, y)


n = dx.dims("n")
C, A, w = dx.matrix("C", n, n, "symmetric"), dx.matrix("A", n, n), dx.vector("w", n)
values, vectors = dx.eigh(C)
beside, turned = dx.eigh(A + A.T)


def by_values(weights: dx.Array) -> dx.Array:
    return (vectors * weights) @ vectors.T


FUNCTIONS = {
    "funm": (dx.sum(dx.funm(C, sympy.erf) * A), C),
    "funm in a square": (dx.sum(dx.funm(C, sympy.atan) @ A) ** 2, C),
    "two": (dx.trace(dx.funm(C, sympy.erf) @ A @ dx.funm(C, sympy.atan) @ A.T), C),
    "root by vectors": (dx.sum(by_values(dx.sqrt(4 + values)) * A), C),
    "absolute": (dx.sum(by_values(abs(values + 5)) * A), C),
    "logsumexp": (dx.logsumexp(dx.eigvalsh(C)), C),
    "entropy": (-dx.sum(dx.softmax(values) * dx.log(dx.softmax(values))), C),
    "variance": (dx.sqrt(1 + dx.var(values)), C),
    "softmax": (w @ by_values(dx.softmax(values)) @ w, C),
    "normalised": (w @ by_values(values / dx.norm(values)) @ w, C),
    "pairs": (dx.sum(dx.log(1 + (values[:, None] - values) ** 2)), C),
    "Gaussian": (
        dx.sum(
            vectors
            @ (dx.exp(-((values[:, None] - values) ** 2)) * (vectors.T @ A @ vectors))
            @ vectors.T
            * A
        ),
        C,
    ),
    "of a general matrix": (w @ ((turned * dx.sigmoid(beside)) @ turned.T) @ w, A),
}


def moved(found: Callable[[np.ndarray], np.ndarray], at: np.ndarray, e: np.ndarray) -> np.ndarray:
    """The five-point central difference along `e`."""
    near, far = (found(at + h * e) - found(at - h * e) for h in (1e-3, 2e-3))
    return (8 * near - far) / 12e-3


def at_sizes(node: Node, arrays: dict[str, np.ndarray]) -> np.ndarray:
    return evaluate(node, arrays, {"n": 3})


def points(names: set[str], at: np.ndarray, by: str) -> dict[str, np.ndarray]:
    generator = np.random.default_rng(2)
    all_ = {"A": generator.normal(size=(3, 3)), "w": generator.normal(size=3), by: at}
    return {name: all_[name] for name in names}


def derived(expression: dx.Array, by: str, third: bool) -> tuple[set[str], list[Node], Node]:
    """The names of the inputs; gradient, Hessian and maybe the third derivative; HVP."""
    inputs = {leaf.name for leaf in leaves([expression.node])}
    f = dx.function("f", sorted(inputs), expression, wrt=[by])
    nodes = [f.derivatives.results("gradient")[(by,)], f.derivative(by, by).expression]
    nodes += [f.derivative(by, by, by).expression] if third else []
    return inputs, nodes, f.derivatives.results("hvp")[(by,)]


@cache
def derived_by_symmetric(name: str) -> tuple[set[str], list[Node], Node]:
    third = name in ("funm", "logsumexp", "of a general matrix")
    return derived(FUNCTIONS[name][0], FUNCTIONS[name][1].node.name, third)


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("gap", [0, 1e-9, 1e-6, 1e-3, 0.5])
def test_second_and_third_derivatives(name: str, gap: float) -> None:
    inputs, nodes, product = derived_by_symmetric(name)
    own = FUNCTIONS[name][1].node.name
    generator = np.random.default_rng(1)
    turn = np.linalg.qr(generator.normal(size=(3, 3)))[0]
    e = generator.normal(size=(3, 3))
    e = e + e.T
    for basis in (turn, np.eye(3)):
        at = basis @ np.diag([1, 1 + gap, 1 if gap == 0 else 0.4]) @ basis.T
        arrays = {**points(inputs, at, own), "tangent": e}
        for before, after in pairwise(nodes):
            expected = moved(
                lambda a, node=before, all_=arrays: at_sizes(node, {**all_, own: a}), at, e
            )
            actual = np.tensordot(at_sizes(after, arrays), e, 2)
            close(actual, expected)
        hvp = at_sizes(product, arrays)
        close(hvp, np.tensordot(at_sizes(nodes[1], arrays), e, 2))


@pytest.mark.parametrize("gap", [0, 1e-9, 1e-3])
def test_the_largest_of_repeated_eigenvalues(gap: float) -> None:
    inputs, nodes, product = derived(dx.max(values) * dx.sum(A * C), "C", False)
    generator = np.random.default_rng(1)
    turn = np.linalg.qr(generator.normal(size=(3, 3)))[0]
    at = turn @ np.diag([1, 1 + gap, 2]) @ turn.T
    e = generator.normal(size=(3, 3))
    e = e + e.T
    arrays = {**points(inputs, at, "C"), "tangent": e}
    expected = moved(lambda a: at_sizes(nodes[0], {**arrays, "C": a}), at, e)
    close(at_sizes(product, arrays), expected)
    close(np.tensordot(at_sizes(nodes[1], arrays), e, 2), expected)


def close(found: np.ndarray, wanted: np.ndarray) -> None:
    scale = max(1.0, float(np.abs(wanted).max()))
    np.testing.assert_allclose(found, wanted, rtol=0, atol=3e-8 * scale)


p, q = dx.dims("p q")
X, G = dx.matrix("X", p, q), dx.matrix("G", p, q)
singular = dx.svdvals(X)
left, middle, right = dx.svd(X)
SINGULAR = {
    "cubes": dx.sum(singular**3),
    "logarithms": dx.sum(dx.log(singular)),
    "softmax": dx.logsumexp(singular),
    "of both": dx.sum(((left * dx.sqrt(1 + middle)) @ right) * G),
    "of the left": dx.sum(((left * dx.exp(-middle)) @ left.T) * (G @ G.T)),
    "of the right": dx.sum(((right.T * dx.tanh(middle)) @ right) * (G.T @ G)),
}


@pytest.mark.parametrize("name", SINGULAR)
@pytest.mark.parametrize("shape", [(5, 3), (3, 3), (3, 4)])
def test_second_derivatives_by_singular_values(name: str, shape: tuple[int, int]) -> None:
    inputs = {leaf.name for leaf in leaves([SINGULAR[name].node])}
    derivatives = dx.function("f", sorted(inputs), SINGULAR[name], wrt=["X"]).derivatives
    nodes = {kind: derivatives.results(kind) for kind in ("gradient", "hvp", "hessian")}
    gradient, product, hessian = (next(iter(nodes[kind].values())) for kind in nodes)
    generator, sizes = np.random.default_rng(3), dict(zip("pq", shape, strict=True))
    u = np.linalg.qr(generator.normal(size=(shape[0], shape[0])))[0]
    v = np.linalg.qr(generator.normal(size=(shape[1], shape[1])))[0]
    e, g = generator.normal(size=(2, *shape))
    for gap in (0, 1e-9, 1e-3, 0.5):
        stretch = np.zeros(shape)
        stretch[range(3), range(3)] = [1, 1 + gap, 1 if gap == 0 else 0.6]
        for at in [u @ stretch @ v] if gap else [u @ stretch @ v, stretch]:
            values = {"X": at, "G": g, "tangent": e}
            expected = moved(
                lambda a, all_=values: evaluate(gradient, {**all_, "X": a}, sizes), at, e
            )
            close(evaluate(product, values, sizes), expected)
            close(np.tensordot(evaluate(hessian, values, sizes), e, 2), expected)


L, S = dx.matrix("L", n, n), dx.matrix("S", n, n, "symmetric")
general, columns = dx.eig(L @ S)
GENERAL = {
    "exponentials": dx.sum(dx.exp(dx.eigvals(L @ S))),
    "logsumexp": dx.logsumexp(dx.eigvals(L @ S)),
    "by vectors": w @ ((columns * dx.sqrt(1 + general)) @ dx.solve(columns, L @ w)),
    "by the inverse": w @ ((columns * dx.tanh(general)) @ dx.inv(columns)) @ L @ w,
}


@cache
def derived_by_general(name: str) -> tuple[set[str], list[Node], Node]:
    return derived(GENERAL[name], "S", name == "exponentials")


@pytest.mark.parametrize("name", GENERAL)
@pytest.mark.parametrize("gap", [0, 1e-9, 1e-6, 1e-3, 0.5])
def test_second_and_third_derivatives_by_eigenvalues_of_general_matrices(
    name: str, gap: float
) -> None:
    """Derivatives at L S, whose eigenvalues are real where L is positive definite and S
    symmetric."""
    inputs, nodes, product = derived_by_general(name)
    generator = np.random.default_rng(5)
    e = generator.normal(size=(3, 3))
    weights, e = generator.normal(size=3), e + e.T
    middle = np.diag([1, 1 + gap, 1 if gap == 0 else 0.4])
    turn = np.linalg.qr(generator.normal(size=(3, 3)))[0]
    for factor in (np.diag([1.0, 2.0, 0.5]), *([turn * [1.0, 2.0, 0.5]] if gap else [])):
        at = np.linalg.solve(factor, np.linalg.solve(factor, middle).T)
        values = {"L": factor @ factor.T, "S": (at + at.T) / 2, "w": weights, "tangent": e}
        arrays = {key: values[key] for key in (*inputs, "tangent")}
        for before, after in pairwise(nodes):
            expected = moved(
                lambda a, node=before, all_=arrays: at_sizes(node, {**all_, "S": a}),
                values["S"],
                e,
            )
            close(np.tensordot(at_sizes(after, arrays), e, 2), expected)
        close(at_sizes(product, arrays), np.tensordot(at_sizes(nodes[1], arrays), e, 2))


def test_formulas() -> None:
    f = dx.function("f", ["C", "w"], w @ dx.funm(C, sympy.erf) @ w, wrt=["C"])
    assert f.formula("jvp") == (
        "wᵀ V ((Vᵀ Ċ V) ⊙ erf[eigvalsh(C) 𝟏ᵀ, 𝟏 eigvalsh(C)ᵀ]) Vᵀ w  where V = eighV(C)"
    )
    assert r"\operatorname{erf}\left[T_{2}, T_{3}, T_{4}\right]" in f.formula("hvp", style="latex")


@pytest.mark.thorough
def test_a_second_derivative_is_compiled() -> None:
    """A kernel at a matrix with repeated eigenvalues, verified at points with others."""
    module = dx.compile(dx.function("f", ["C", "w"], w @ dx.funm(C, sympy.erf) @ w, wrt=["C"]))
    report = dx.verify(module)
    assert report.passed, str(report)
    f = dx.function("f", ["C", "w"], w @ dx.funm(C, sympy.erf) @ w, wrt=["C"])
    arrays = {"C": np.eye(3), "w": np.arange(3.0), "tangent": np.ones((3, 3))}
    expected = evaluate(f.derivatives.results("hvp")[("C",)], arrays, {"n": 3})
    close(module.hvp(*arrays.values()), expected)


# Weights with constants: projectors, low-rank approximations, Procrustes

D = dx.matrix("D", 4, 4, "symmetric")
SHAPES = {"square": (4, 4), "wide": (4, 6)}
THOROUGH = pytest.mark.thorough
lambdas, columns_of_d = dx.eigh(D)
first, last = columns_of_d[:, :2], columns_of_d[:, -2:]
SIGNS = np.array([1, 1, -1, -1])
SYMMETRIC = {
    "first": (first @ first.T, lambda w: [1, 1, 0, 0]),
    "last": (last @ last.T, lambda w: [0, 0, 1, 1]),
    "picked": (columns_of_d[:, [1, 0]] @ columns_of_d[:, [1, 0]].T, lambda w: [1, 1, 0, 0]),
    "reflection": (columns_of_d * SIGNS @ columns_of_d.T, lambda w: SIGNS),
    "clipped": (
        (columns_of_d * dx.clip(lambdas, 0.5, 3.5)) @ columns_of_d.T,
        lambda w: np.clip(w, 0.5, 3.5),
    ),
    "positive part": (
        (columns_of_d * dx.relu(lambdas - 2.5)) @ columns_of_d.T,
        lambda w: np.maximum(w - 2.5, 0),
    ),
    "part of exp": ((first * dx.exp(lambdas[:2])) @ first.T, lambda w: [*np.exp(w[:2]), 0, 0]),
}


def text_value(f: dx.Function, kind: str, **arrays: np.ndarray) -> np.ndarray:
    return eval(f.formula(kind, style="numpy"), {"np": np, "scipy": scipy, **arrays})


def check_texts(expression: dx.Array, exact: Callable, name: str, *points: np.ndarray) -> None:
    """JVP, VJP and HVP as texts, against differences of `exact` and of the JVP."""
    generator = np.random.default_rng(4)
    shapes = (points[0].shape, points[0].shape, exact(points[0]).shape)
    e, other, cotangent = (generator.normal(size=shape) for shape in shapes)
    if name == "D":
        e, other = e + e.T, other + other.T
    f = dx.function("f", [name], expression)
    g = dx.function("g", [name], dx.sum(expression * dx.constant(cotangent)))
    for at in points:
        expected = moved(exact, at, e)
        close(text_value(f, "jvp", tangent=e, **{name: at}), expected)
        pulled = text_value(f, "vjp", cotangent=cotangent, **{name: at})
        close(np.vdot(pulled, e), np.vdot(expected, cotangent))
        turned = moved(lambda a: moved(exact, a, e), at, other)
        product = np.vdot(text_value(g, "hvp", tangent=e, **{name: at}), other)
        np.testing.assert_allclose(product, np.vdot(turned, cotangent), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", SYMMETRIC)
def test_projectors_need_a_gap_across_the_cut_alone(name: str) -> None:
    expression, weights = SYMMETRIC[name]

    def exact(a: np.ndarray) -> np.ndarray:
        w, v = np.linalg.eigh((a + a.T) / 2)
        return (v * weights(w)) @ v.T

    turn = np.linalg.qr(np.random.default_rng(1).normal(size=(4, 4)))[0]
    spectra = ((1, 2, 4, 7), (1, 1, 4, 7), (0, 0, 3, 3))
    points = [b @ np.diag(spectrum) @ b.T for spectrum in spectra for b in (turn, np.eye(4))]
    check_texts(expression, exact, "D", *points)


def parts(shape: tuple[int, int]) -> dict[str, tuple[dx.Array, Callable]]:
    u, s, vh = dx.svd(dx.matrix("Y", *shape))
    return {
        "left": (u[:, :2] @ u[:, :2].T, lambda u, s, vh: u @ u.T),
        "right": (vh[:2].T @ vh[:2], lambda u, s, vh: vh.T @ vh),
        "both": (u[:, :2] @ vh[:2], lambda u, s, vh: u @ vh),
        "nearest": ((u[:, :2] * s[:2]) @ vh[:2], lambda u, s, vh: (u * s) @ vh),
        "pinv": (dx.pinv(dx.matrix("Y", *shape), rank=2), lambda u, s, vh: (vh.T / s) @ u.T),
    }


@pytest.mark.parametrize("name", parts((4, 4)))
@pytest.mark.parametrize(
    "shape",
    ["tall", *(pytest.param(shape, marks=pytest.mark.thorough) for shape in ("square", "wide"))],
)
def test_parts_of_singular_value_decompositions(name: str, shape: str) -> None:
    """Also of matrices of rank 2, for which the others are zero."""
    expression, part = parts(SHAPES.get(shape, (5, 4)))[name]

    def exact(a: np.ndarray) -> np.ndarray:
        u, s, vh = np.linalg.svd(a, full_matrices=False)
        return part(u[:, :2], s[:2], vh[:2])

    p, q = SHAPES.get(shape, (5, 4))
    generator = np.random.default_rng(7)
    u = np.linalg.qr(generator.normal(size=(p, p)))[0]
    v = np.linalg.qr(generator.normal(size=(q, q)))[0]
    stretches = np.zeros((2, p, q))
    stretches[:, range(4), range(4)] = (4, 4, 2, 1), (3, 2, 0, 0)
    check_texts(expression, exact, "Y", *(u @ stretches @ v))


Z = dx.matrix("Z", 3, 3)
zu, _, zvh = dx.svd(Z)
sign = dx.det(zu @ zvh)
KABSCH = {
    "diagonal": zu @ dx.diag(dx.concatenate([dx.ones(2), sign[None]])) @ zvh,
    "weights": (zu * (np.array([1.0, 1, 0]) + dx.sign(dx.det(Z)) * np.array([0, 0, 1.0]))) @ zvh,
    "each": zu @ dx.diag(dx.stack([1.0, 1.0, dx.det(zu) * dx.det(zvh)])) @ zvh,
}


def nearest_rotation(a: np.ndarray) -> np.ndarray:
    u, _, vh = np.linalg.svd(a)
    return u @ np.diag([1, 1, np.sign(np.linalg.det(u @ vh))]) @ vh


@pytest.mark.parametrize("name", KABSCH)
def test_nearest_rotations_where_singular_values_are_repeated(name: str) -> None:
    turn = np.linalg.qr(np.random.default_rng(3).normal(size=(3, 3)))[0]
    turn *= np.sign(np.linalg.det(turn))
    points = [turn @ np.diag(stretch) for stretch in ((1.0, 1, 1), (3.0, 3, 1), (3.0, 3, -1))]
    check_texts(KABSCH[name], nearest_rotation, "Z", *points)


def test_determinants_of_orthogonal_products_do_not_vary() -> None:
    f = dx.function("f", ["Z"], dx.det(zu @ zvh.T @ dx.eye(3)))
    at = np.random.default_rng(1).normal(size=(3, 3))
    assert text_value(f, "value", Z=at) in (1, -1)
    assert not np.any(text_value(f, "gradient", Z=at))


NOWHERE = {
    "vectors": (columns_of_d, "D", np.eye(4)),
    "a cut through": (first @ first.T, "D", np.diag([1.0, 2, 2, 3])),
    "singular vectors": (zu, "Z", np.eye(3)),
    "weights that differ": (zu * np.array([1, 2, 3]) @ zvh, "Z", np.eye(3)),
    "a rotation": (KABSCH["weights"], "Z", np.diag([1.0, 1, -1])),
    "polar": (zu @ zvh, "Z", np.diag([1.0, 0, 0])),
    "polar of a rounded matrix": (zu @ zvh, "Z", np.diag([1.0, 1e-17, 1e-18])),
}


@pytest.mark.parametrize("name", NOWHERE)
def test_texts_are_nan_where_there_is_no_derivative(name: str) -> None:
    expression, leaf, at = NOWHERE[name]
    f = dx.function("f", [leaf], expression)
    arrays = {leaf: at, "tangent": np.random.default_rng(1).normal(size=at.shape)}
    with np.errstate(invalid="ignore"):
        assert np.isnan(text_value(f, "jvp", **arrays)).any()
    assert np.isnan(evaluate(f.derivatives.results("jvp")[()], arrays, {})).any()


@pytest.mark.thorough
def test_weights_with_constants_are_compiled() -> None:
    """Kernels in both precisions, for stacks, verified."""
    rotations = dx.compile(dx.function("f", ["Z"], KABSCH["diagonal"], batch=["Z"]))
    projector = dx.compile(dx.function("g", ["D"], dx.sum(first @ first.T * np.ones((4, 4)))))
    assert dx.verify(rotations).passed
    assert dx.verify(projector).passed
    at, e = np.stack([np.eye(3), np.diag([1.0, 1, -1])]), np.ones((2, 3, 3)) + np.tri(3)
    expected = moved(nearest_rotation, at[0], e[0])
    for real in (np.float64, np.float32):
        actual = rotations.jvp(at.astype(real), e.astype(real))
        np.testing.assert_allclose(actual[0], expected, atol=1e-6)
        assert np.isnan(actual[1]).any()
    at = np.diag([1.0, 1, 2, 2])
    f = dx.function("g", ["D"], dx.sum(first @ first.T * np.ones((4, 4))))
    close(projector.hessian(at), np.asarray(text_value(f, "hessian", D=at)))
