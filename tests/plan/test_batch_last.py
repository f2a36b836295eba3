"""Systems of equations of many samples, solved side by side in memory."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

import derivatrix as dx
from derivatrix.compiler.driver.pipeline import kernel_plan
from derivatrix.compiler.frontends.notation.declaration import text_function
from tests.differentiate.test_identities import SIZES
from tests.identities import IDENTITIES
from tests.packages import sharing, warmed, with_threads
from tests.plain import check_plain

KINDS = ["value", "jvp", "jacobian"]
n, k = dx.dims("n k")
A, B, x = dx.matrix("A", n, n), dx.matrix("B", n, k), dx.vector("x", n)
S, R = dx.matrix("S", n, n, structure="spd"), dx.matrix("R", n, n)
H = dx.matrix("H", k, n)
FUNCTIONS = {
    "vector": dx.function("f", [A, x], dx.solve(A, x), batch=[A, x]),
    "transposed": dx.function("f", [A, x], dx.solve(A.T, x), batch=[A, x]),
    "matrix": dx.function("f", [A, B], dx.solve(A, B), batch=[A, B]),
    "from the right": dx.function("f", [A, B], B.T @ dx.inv(A), batch=[A, B]),
    "inverse": dx.function("f", [A], dx.inv(A), batch=[A]),
    "determinant": dx.function("f", [A], dx.det(A), batch=[A]),
    "logarithm": dx.function("f", [S], dx.logdet(S), batch=[S]),
    "positive": dx.function("f", [S, x], x @ dx.solve(S, x) + dx.det(S), batch=[S, x]),
    "product": dx.function("f", [A, R], dx.solve(A @ R, R), batch=[A, R]),
    "filtered": dx.function(
        "f", [S, H, x], S @ H.T @ dx.solve(H @ S @ H.T, H @ dx.tanh(x)), batch=[S, x], wrt=[S, x]
    ),
    "softmax": dx.function("f", [S, x], dx.softmax(dx.solve(S, x)), batch=[S, x]),
}


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        (name, kind)
        for name in FUNCTIONS
        for kind in ("value", "vjp", "jvp", "jacobian")
        if name != "determinant" or kind == "value"  # adjugates have no kernel for samples last
    ],
)
def test_plans(name: str, kind: str) -> None:
    """The kernel for many samples makes what the usual one makes, and what the graph says."""
    plan = kernel_plan(FUNCTIONS[name].derivatives, kind)
    assert plan.partition is not None and plan.batch_last is not None
    check_plain(FUNCTIONS[name], kind, {"batch": 11, "n": 4, "k": 3}, 1e-9)


@pytest.mark.parametrize(
    "kind", ["vjp", *(pytest.param(kind, marks=pytest.mark.thorough) for kind in KINDS)]
)
def test_identities(kind: str) -> None:
    """All identities with systems of equations, each of their inputs a stack of samples."""
    checked = 0
    for identity in IDENTITIES:
        single = text_function(identity.text, identity.dims, identity.wrt.split())
        inputs = [dx.Array(leaf) for leaf in single.inputs]
        expression = dx.Array(single.expression)
        function = dx.function("f", inputs, expression, batch=inputs, wrt=identity.wrt.split())
        layout = kernel_plan(function.derivatives, kind).batch_last
        if layout is not None and not layout.has_sums:
            check_plain(function, kind, {**SIZES[0], "batch": 9}, 1e-8)
            checked += 1
    assert checked > 30


@pytest.mark.parametrize("module_name", ["vector", "mixture"])
def test_later_calls_refuse_wrong_arrays_too(module_name: str) -> None:
    """The short way of calls that follow one of the same types checks what it is given: lengths
    that do not fit, and results that share memory with arguments."""
    generator = np.random.default_rng(0)
    if module_name == "vector":
        module = dx.compile(FUNCTIONS["vector"])
        call, fitting = module.value, (generator.normal(size=(64, 3, 3)), np.ones((64, 3)))
        wrong = [(fitting[0], np.ones(shape)) for shape in ((64, 2), (10, 3), (0, 3))]
        out = fitting[1]
    else:
        N, m = dx.dims("N m")
        X, W = dx.matrix("X", N, n), dx.matrix("W", m, n)
        distances = dx.sum((X[:, None] - W) ** 2, axis=2)
        mixture = dx.sum(dx.logsumexp(-distances, axis=1))
        module = dx.compile(dx.function("mixture", [X, W], mixture, wrt=[W]))
        call, fitting = module.gradient, (generator.normal(size=(200, 4)), np.ones((3, 4)))
        wrong = [(fitting[0], np.ones(shape)) for shape in ((3, 5), (3, 2))]
        out = fitting[1]
    expected = call(*fitting)
    for arguments in wrong * 2:
        with pytest.raises(ValueError, match="expected"):
            call(*arguments)
        np.testing.assert_array_equal(call(*fitting), expected)
    with pytest.raises(ValueError, match="expected"):
        call(*fitting, out=np.empty((2, 2)))
    np.testing.assert_array_equal(call(*fitting, out=out), expected)


def test_where_it_is_not_done() -> None:
    """Systems of literal sizes are written out, shared ones solved once; BLAS multiplies what
    has no systems; an operation may have no such kernel."""
    small = dx.matrix("A", 3, 3)
    for function in (
        dx.function("f", [small], dx.inv(small), batch=[small]),
        dx.function("f", [R, x], dx.solve(R, x), batch=[x]),
        dx.function("f", [A, B], A @ B, batch=[A, B]),
        dx.function("f", [S, x], dx.expm(S) @ dx.solve(S, x), batch=[S, x]),
    ):
        plan = kernel_plan(function.derivatives, "value")
        assert plan.partition is not None and plan.batch_last is None


@pytest.fixture(scope="module")
def solving() -> ModuleType:
    return dx.compile(FUNCTIONS["vector"])


@pytest.fixture(scope="module")
def positive() -> ModuleType:
    return dx.compile(FUNCTIONS["positive"])


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("size", [0, 1, 2, 5, 16])
@pytest.mark.parametrize("samples", [0, 1, 15, 16, 31, 72, 75, 500])
def test_compiled(solving: ModuleType, samples: int, size: int, dtype: type) -> None:
    """Any number of samples, with rows that have to be exchanged."""
    generator = np.random.default_rng(samples + size)
    matrices = generator.normal(size=(samples, size, size)) + 2 * np.eye(size)[::-1]
    vectors, cotangents = generator.normal(size=(2, samples, size))
    tolerance = 1e-8 if dtype is np.float64 else 2e-2
    arguments = [array.astype(dtype) for array in (matrices, vectors, cotangents)]
    expected = np.linalg.solve(matrices, vectors[..., None])[..., 0]
    adjoint = np.linalg.solve(matrices.transpose(0, 2, 1), cotangents[..., None])[..., 0]
    for _ in range(2):  # as it is called at first, and when it is compiled
        value, actual = solving.value(*arguments[:2]), solving.vjp(*arguments)
        assert value.dtype == actual.A.dtype == dtype
        scale = tolerance * max(1, np.abs(expected).max(initial=0), np.abs(adjoint).max(initial=0))
        np.testing.assert_allclose(value, expected, atol=scale)
        np.testing.assert_allclose(actual.x, adjoint, atol=scale)
        by_matrix = -adjoint[:, :, None] * expected[:, None, :]
        np.testing.assert_allclose(
            actual.A, by_matrix, atol=scale * max(1, np.abs(adjoint).max(initial=0))
        )


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("position", [0, 2999])
def test_one_that_fails(
    solving: ModuleType,
    positive: ModuleType,
    monkeypatch: pytest.MonkeyPatch,
    position: int,
    threads: int,
) -> None:
    """One sample without a solution is found, whoever comes upon it."""
    matrices = np.broadcast_to(np.eye(8), (3000, 8, 8)).copy()
    vectors = np.ones((3000, 8))
    for module in (solving, positive):
        with_threads(monkeypatch, module, threads)
    np.testing.assert_array_equal(solving.value(matrices, vectors), vectors)
    np.testing.assert_allclose(positive.value(matrices, vectors), 9)
    matrices[position, 3, 3] = 0
    with pytest.raises(np.linalg.LinAlgError, match="the matrix is singular"):
        solving.value(matrices, vectors)
    matrices[position, 3, 3] = -1
    with pytest.raises(np.linalg.LinAlgError, match="not positive definite"):
        positive.value(matrices, vectors)
    np.testing.assert_allclose(
        solving.value(matrices, vectors)[position], np.where(np.arange(8) == 3, -1, 1)
    )


def test_what_is_not_a_number_stays(solving: ModuleType, positive: ModuleType) -> None:
    """Only the sample with nan is nan, as with few samples."""
    matrices, vectors = np.broadcast_to(np.eye(4), (40, 4, 4)).copy(), np.ones((40, 4))
    matrices[7, 2, 1] = matrices[7, 1, 2] = np.nan
    for module in (solving, positive):
        result = module.value(matrices, vectors)
        np.testing.assert_array_equal(
            np.isnan(result[:12]), np.isnan(module.value(matrices[:12], vectors[:12]))
        )
        assert np.isfinite(np.delete(result, 7, axis=0)).all()


@pytest.mark.thorough
def test_what_is_compiled_beforehand(tmp_path: Path) -> None:
    """The kernels for many samples too, with what threads share them by."""
    module = warmed(tmp_path, FUNCTIONS["vector"])
    shared = sharing(module, "vjp_kernel", "batch_last")
    assert shared.codes == "SSSSS"  # a part begins with a cache line
    kernels = shared.part.for_kernels(), shared.kernel, module.vjp_kernel
    assert [len(kernel.signatures) for kernel in kernels] == [2, 2, 2]
    for real in (np.float64, np.float32):
        module.vjp(*(np.ones((50, 1, *rest), real) for rest in ((1,), (), ())))
    assert [len(kernel.signatures) for kernel in kernels] == [2, 2, 2]


def test_determinants_have_signs() -> None:
    generator = np.random.default_rng(0)
    matrices = generator.normal(size=(50, 5, 5))
    expected = np.linalg.det(matrices)
    assert (expected < 0).any() and (expected > 0).any()
    np.testing.assert_allclose(
        dx.compile(FUNCTIONS["determinant"]).value(matrices), expected, rtol=1e-9
    )
    logarithm = dx.compile(dx.function("f", [A], dx.logdet(A), batch=[A])).value(matrices)
    np.testing.assert_allclose(np.exp(logarithm[expected > 0]), expected[expected > 0], rtol=1e-9)
    assert np.isnan(logarithm[expected < 0]).all()
    singular = np.zeros((50, 3, 3))
    np.testing.assert_array_equal(dx.compile(FUNCTIONS["determinant"]).value(singular), 0)
