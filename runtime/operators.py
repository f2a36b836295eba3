"""Checks of a module's Jacobian or Hessian as operators."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from derivatrix.runtime import sampling
from derivatrix.runtime.checks import Trial
from derivatrix.runtime.interface import CallError, attempt
from derivatrix.runtime.measure import scale

MAX_CONDITION = 1e8
"""Largest condition number of a matrix whose systems are solved."""
SOLUTION_TOLERANCE = 1e-6
"""Allowed relative error of solutions."""


def check_operators(trial: Trial) -> None:
    """Compare an operator's products, transposed products, solutions, and its dense and sparse form
    with the dense array, or without that its products with JVP or HVP."""
    interface = trial.interface
    if not interface.operator:
        return
    kind = interface.operator.removesuffix("_operator")
    if kind not in trial.copies:
        check_products(trial)
        return
    try:
        operators = interface.operators(trial.point)
    except CallError as error:
        trial.fail("operator", kind, "", str(error))
        return
    for key, array in trial.copies[kind].items():
        _check_operator(trial, kind, key, operators[key], array)


def check_products(trial: Trial) -> None:
    """Compare the operators times the tangents with the JVP or the HVP."""
    interface = trial.interface
    kind = interface.operator.removesuffix("_operator")
    product = "hvp" if kind == "hessian" else "jvp"
    if not interface.operator or product not in trial.copies:
        return
    try:
        operators = interface.operators(trial.point)
        for key, expected in trial.copies[product].items():
            terms = [
                attempt(partial(operator.__matmul__, trial.point.tangents[name.split(", ")[-1]]))
                for name, operator in operators.items()
                if key in ("", name.split(", ")[0])
            ]
            actual = np.asarray(sum(terms)).reshape(expected.shape)
            size = scale(expected, trial.floor)
            trial.compare("operator", kind, key, actual, expected, 1e-9 * size, size)
    except CallError as error:
        trial.fail("operator", kind, "", str(error))


def _check_operator(trial: Trial, kind: str, key: str, operator: Any, array: np.ndarray) -> None:
    """Compare one operator with its dense array."""
    column = trial.interface.input(key.split(", ")[-1])
    row_rank = array.ndim - len(column.shape)
    row_shape, column_shape = array.shape[:row_rank], column.full(trial.point.sizes)
    matrix = _matrix(array, row_rank, column.batched)

    def compare(
        check: str,
        function: Callable[[], np.ndarray],
        expected: np.ndarray,
        tolerance: float = 1e-10,
    ) -> None:
        try:
            actual = attempt(function)
        except CallError as error:
            trial.fail(check, kind, key, str(error))
            return
        if actual.shape != expected.shape:
            note = f"returns an array of shape {actual.shape}, expected {expected.shape}"
            trial.fail(check, kind, key, note)
            return
        size = scale(expected, trial.floor)
        allowed = tolerance * size + trial.rounding(kind)
        trial.compare(check, kind, key, actual, expected, allowed, size)

    random = np.random.default_rng(0)
    left_vectors, right_vectors = (random.standard_normal((size, 2)) for size in matrix.shape)
    product, transposed = matrix @ right_vectors, matrix.T @ left_vectors
    compare("todense", operator.todense, array)
    compare("tosparse", lambda: operator.tosparse().toarray(), matrix)
    vector = right_vectors[:, 0].reshape(column_shape)
    covector = left_vectors[:, 0].reshape(row_shape)
    compare("operator", lambda: operator @ vector, product[:, 0].reshape(row_shape))
    compare("operator", lambda: operator.T @ covector, transposed[:, 0].reshape(column_shape))
    compare("operator", lambda: operator.matmat(right_vectors), product)
    compare("operator", lambda: operator.rmatmat(left_vectors), transposed)
    is_square = matrix.shape[0] == matrix.shape[1]
    if is_square:
        compare("operator", operator.diagonal, np.diagonal(matrix).reshape(column_shape))
    if is_square and column.structure not in sampling.PROJECTED:
        singular_values = np.linalg.svd(matrix, compute_uv=False)
        # smaller singular values may be all rounding of terms that cancel
        floor = max(singular_values[0] / MAX_CONDITION, trial.rounding(kind) / SOLUTION_TOLERANCE)
        if singular_values[-1] > floor:
            solution = np.linalg.solve(matrix, product)
            compare("solve", lambda: operator.solve(product), solution, SOLUTION_TOLERANCE)


def _matrix(array: np.ndarray, rank: int, batched: bool) -> np.ndarray:
    """Reshape a Jacobian to a matrix, block-diagonal if the input has the batch axis, too."""
    if not batched:
        return array.reshape(int(np.prod(array.shape[:rank])), -1)
    blocks = array.reshape(len(array), int(np.prod(array.shape[1:rank])), -1)
    samples, rows, columns = blocks.shape
    matrix = np.zeros((samples, rows, samples, columns))
    for sample, block in enumerate(blocks):
        matrix[sample, :, sample] = block
    return matrix.reshape(samples * rows, samples * columns)
