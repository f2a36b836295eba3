"""Kernels for CUDA devices in which a group of threads works along a row."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.special

import derivatrix as dx
from derivatrix.compiler.emit.cuda.fusion import fuse
from derivatrix.compiler.frontends.notation.declaration import text_function
from derivatrix.compiler.plan import Machine, plan
from derivatrix.compiler.plan.steps import BlockCooperative, Gemm, Step
from derivatrix.runtime.simulated import as_on_device
from derivatrix.templates.support.cuda.shares import row_by_row
from tests.emit.cuda.test_simulated import small_launches
from tests.points import leaves
from tests.simulation import simulated


def steps(text: str, dims: str, wrt: str, kind: str) -> tuple[Step, ...]:
    function = text_function(text, dims, wrt.split())
    arguments, results = function.derivatives.kernel(kind)
    kernel = plan("f", arguments, list(results.items()), Machine(fuse))
    return tuple(step for step in kernel.steps if isinstance(step, Gemm | BlockCooperative))


@pytest.mark.parametrize("kind", ["vjp", "jvp"])
def test_attention_is_products_and_one_kernel(kind: str) -> None:
    """Also where a product of matrices has to come first."""
    attention = "softmax(Q*K'/sqrt(d))*V", "Q: n d, K: m d, V: m c", "Q"
    first, second, group, last = steps(*attention, kind)
    assert isinstance(group, BlockCooperative)
    assert len(group.steps) == 3
    assert all(isinstance(step, Gemm) for step in (first, second, last))


@pytest.mark.parametrize(
    ("text", "dims", "kind"),
    [
        ("rowsum(X)*rowsum(X)'", "X: m n", "value"),  # entry (i, j) needs the sums of i and of j
        ("colsum(X)'.*x", "X: m n, x: n", "value"),  # neighbours in memory are of different sums
        ("softmax(x).*x", "x: n", "value"),  # no rows
        ("X*X'", "X: m n", "vjp"),
    ],
)
def test_no_team(text: str, dims: str, kind: str) -> None:
    assert not any(isinstance(step, BlockCooperative) for step in steps(text, dims, dims[0], kind))


@pytest.mark.parametrize(
    ("rows", "terms", "expected"),
    [(1, 100, True), (10**6, 10, True), (1, 10**6, False), (40, 10**5, False), (600, 10**5, True)],
)
def test_few_long_rows_are_shared_by_blocks(rows: int, terms: int, expected: bool) -> None:
    assert row_by_row(rows, terms) is expected


@simulated
def test_softmax_and_logsumexp_of_one_matrix() -> None:
    """A group without a nest of loops."""
    text, dims = "logsumexp(X*Y)'*softmax(X*Y)", "X: m k, Y: k n"
    assert [type(step) for step in steps(text, dims, "X", "value")][:2] == [Gemm, BlockCooperative]
    module = dx.compile(text_function(text, dims, ["X"]), target="cuda")
    X, Y = np.random.default_rng(0).normal(size=(2, 3, 3))
    with small_launches(module), as_on_device(module):
        actual = module.value(X, Y)
    expected = scipy.special.logsumexp(X @ Y, axis=1) @ scipy.special.softmax(X @ Y, axis=1)
    np.testing.assert_allclose(actual, expected, rtol=1e-12)


@pytest.mark.parametrize(
    "name", ["row_by_row", "each_row", "sums", "each", "clear", "reduced", "MAXIMUM"]
)
@simulated
def test_inputs_called_as_what_kernels_and_their_hosts_use(name: str) -> None:
    X = dx.matrix(name, "m", "n")
    module = dx.compile(dx.function("f", [X], dx.softmax(X) * X), target="cuda")
    value = np.random.default_rng(0).normal(size=(2, 3))
    with as_on_device(module):
        result = module.jvp(value, value), module.jacobian(value)
    p = scipy.special.softmax(value, axis=1)
    change = p * (value - (p * value).sum(axis=1, keepdims=True))
    np.testing.assert_allclose(result[0], change * value + p * value, rtol=1e-12)
    np.testing.assert_allclose(np.einsum("ijkl,kl->ij", result[1], value), result[0], rtol=1e-12)


@pytest.mark.parametrize("by_rows", [True, False])
@simulated
def test_rows_without_a_finite_maximum(by_rows: bool) -> None:
    rows = [[1, -np.inf, 2], [-np.inf] * 3, [np.inf, 0, 1], [np.nan, 0, 1], [0, 1, np.nan]]
    X, X_dot = np.array([*rows, [1e300, 0, -1e300]]), np.ones((6, 3))
    for text in ("softmax(X)", "logsumexp(X)"):
        function = text_function(text, "X: m n", ["X"])
        modules = [dx.compile(function, target=target) for target in ("cuda", "cpu")]
        cotangent = np.ones(modules[1].value(X).shape)
        with small_launches(modules[0], by_rows), as_on_device(modules[0]):
            for kind, argument in (("jvp", X_dot), ("vjp", cotangent)):
                actual, expected = (leaves(getattr(m, kind)(X, argument)) for m in modules)
                np.testing.assert_allclose(actual[0], expected[0], rtol=1e-12, atol=1e-12)
