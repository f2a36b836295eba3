"""Operations on the same arguments are computed by one of them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import derivatrix as dx
from derivatrix.compiler.differentiate.derivatives import Derivatives
from derivatrix.compiler.ir import nodes as ir
from derivatrix.compiler.ir.interpret import evaluate_all
from derivatrix.compiler.ir.operation import OPERATIONS, kernel_name
from derivatrix.compiler.plan import threaded_plan
from derivatrix.compiler.plan.shared_operations import share_operations

n, m, k = dx.dims("n m k")
X, W, Y = dx.matrix("X", n, m), dx.matrix("W", m, k), dx.matrix("Y", n, k)
S, M = dx.matrix("S", n, n, structure="symmetric"), dx.matrix("M", m, m)
scores = X @ W
CASES = {
    "logsumexp": (
        dx.function("loss", [X, W], dx.sum(dx.logsumexp(scores, axis=1)), wrt=[W]),
        "softmax_and_logsumexp",
    ),
    "log_softmax": (
        dx.function("cross", [X, W, Y], dx.sum(Y * dx.log_softmax(scores, axis=1)), wrt=[W]),
        "softmax_and_log_softmax",
    ),
    "eigvalsh": (
        dx.function("eigvalsh", [S], dx.sum(dx.exp(dx.eigvalsh(S))), wrt=[S]),
        "symmetric_eigen",
    ),
    "eigvals": (
        dx.function("eigvals", [M], dx.sum(dx.exp(dx.eigvals(M))), wrt=[M]),
        "real_eigenvectors",
    ),
    "svdvals": (
        dx.function("svdvals", [X], dx.sum(dx.exp(dx.svdvals(X))), wrt=[X]),
        "singular_vectors",
    ),
    "nuclear norm": (dx.function("nuclear", [X], dx.norm(X, "nuc"), wrt=[X]), "polar_factor"),
}


@pytest.mark.parametrize(("function", "kernel"), CASES.values(), ids=CASES)
def test_value_and_gradient_by_one_kernel(function: dx.Function, kernel: str) -> None:
    arguments, results = Derivatives(function).kernel("value_and_gradient")
    outputs = [(f"out_{number}", node) for number, node in enumerate(results.values())]
    plan = threaded_plan("value_and_gradient", arguments, outputs)
    parts = [partition.kernel for partition in plan.partitions if partition.has_sums]
    part = parts[0] if parts else plan
    is_helper = ["softmax", "logsumexp", "eigen", "singular", "polar", "nuclear"]
    names = [kernel_name(helper) for helper in part.kernels]
    assert [name for name in names if any(word in name for word in is_helper)] == [kernel]


@pytest.mark.parametrize("function", [f for f, _ in CASES.values()], ids=CASES)
def test_values_stay_what_they_are(function: dx.Function) -> None:
    arguments, results = Derivatives(function).kernel("value_and_gradient")
    sizes = {"n": 4, "m": 3, "k": 5}
    generator = np.random.default_rng(0)
    values = {x.name: generator.normal(size=[sizes[str(s)] for s in x.shape]) for x in arguments}
    for name in {"S", "M"} & values.keys():
        values[name] += values[name].T
    nodes = list(results.values())
    shared = share_operations(nodes, has_joint_kernels=True)
    assert shared != nodes
    expected = evaluate_all(nodes, values, sizes)
    for actual, array in zip(evaluate_all(shared, values, sizes), expected, strict=True):
        np.testing.assert_allclose(actual, array, rtol=1e-12, atol=1e-12)


def test_operations_within_arguments_of_shared_operations() -> None:
    nested = dx.logsumexp(dx.softmax(scores) * dx.logsumexp(scores, axis=1)[:, None], axis=1)
    function = dx.function("nested", [X, W], dx.sum(nested), wrt=[W])
    _, results = Derivatives(function).kernel("value_and_gradient")
    nodes = list(results.values())
    sizes, generator = {"n": 4, "m": 3, "k": 5}, np.random.default_rng(0)
    values = {"X": generator.normal(size=(4, 3)), "W": generator.normal(size=(3, 5))}
    shared = share_operations(nodes, has_joint_kernels=True)
    names = {x.operation.name for x in ir.topological(shared) if isinstance(x, ir.Apply)}
    assert names == {"softmax_and_logsumexp"}
    expected = evaluate_all(nodes, values, sizes)
    for actual, array in zip(evaluate_all(shared, values, sizes), expected, strict=True):
        np.testing.assert_allclose(actual, array, rtol=1e-12, atol=1e-12)


def test_single_operations_stay() -> None:
    _, results = Derivatives(CASES["svdvals"][0]).kernel("value")
    nodes = list(results.values())
    assert share_operations(nodes, has_joint_kernels=True) == nodes


def test_an_operation_says_what_it_follows_from() -> None:
    rules = {OPERATIONS["eigh"]: lambda at: 2 * at.results[0]}
    doubled = replace(OPERATIONS["eigvalsh"], name="doubled", follows_from=rules)
    vectors = ir.Apply(OPERATIONS["eigh"], ((S.node, ()),), output=1)
    values = ir.Apply(doubled, ((S.node, ()),))
    shared = share_operations([vectors, values], has_joint_kernels=False)
    assert shared == [vectors, (2 * dx.Array(vectors.sibling(0))).node]


def test_only_operations_that_are_there_without_joint_kernels() -> None:
    nodes = [dx.softmax(scores, axis=1).node, dx.logsumexp(scores, axis=1).node]
    assert share_operations(nodes, has_joint_kernels=False) == nodes
