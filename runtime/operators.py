"""The check of a module's Jacobian or Hessian as operators, against the dense arrays."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from derivatrix.runtime import sampling
from derivatrix.runtime.checks import Trial
from derivatrix.runtime.interface import CallError, attempt
from derivatrix.runtime.measure import scale

CONDITION = 1e8
"""Systems are solved up to this condition number."""


def check_operators(trial: Trial) -> None:
    """The arrays and sparse matrices that operators become, their products with vectors and
    matrices, those of their transposes, and their solutions, against the dense array."""
    interface = trial.interface
    if not interface.operator:
        return
    kind = interface.operator.removesuffix("_operator")
    if kind not in trial.kept:
        check_products(trial)
        return
    try:
        operators = interface.operators(trial.point)
    except CallError as error:
        trial.fail("operator", kind, "", str(error))
        return
    for key, array in trial.kept.get(kind, {}).items():
        _Check(trial, kind, key, operators[key], array).run()


def check_products(trial: Trial) -> None:
    """The operators times the tangents against the JVP or the HVP."""
    interface = trial.interface
    kind = interface.operator.removesuffix("_operator")
    product = "hvp" if kind == "hessian" else "jvp"
    if not interface.operator or product not in trial.kept:
        return
    try:
        operators = interface.operators(trial.point)
        for key, expected in trial.kept[product].items():
            parts = [
                attempt(partial(operators[name].__matmul__, trial.point.tangents[last]))
                for name, last in ((name, name.split(", ")[-1]) for name in operators)
                if key in ("", name.split(", ")[0])
            ]
            actual = np.asarray(sum(parts)).reshape(expected.shape)
            size = scale(expected, trial.floor)
            trial.compare("operator", kind, key, actual, expected, 1e-9 * size, size)
    except CallError as error:
        trial.fail("operator", kind, "", str(error))


class _Check:
    def __init__(self, trial: Trial, kind: str, key: str, operator: Any, array: np.ndarray) -> None:
        self.trial = trial
        self.kind = kind
        self.key = key
        self.operator = operator
        self.array = array
        last = trial.interface.input(key.split(", ")[-1])
        self.given = last.full(trial.point.sizes)
        rank = array.ndim - len(last.core(trial.point.sizes))
        self.asked = array.shape[:rank]
        self.matrix = _matrix(array, rank, last.batched)

    def run(self) -> None:
        operator, matrix = self.operator, self.matrix
        random = np.random.default_rng(0)
        left, right = (random.standard_normal((size, 2)) for size in matrix.shape)
        shaped = right[:, 0].reshape(self.given), left[:, 0].reshape(self.asked)
        flat = matrix @ right, matrix.T @ left
        self.compare("todense", operator.todense, self.array)
        self.compare("tosparse", lambda: operator.tosparse().toarray(), matrix)
        self.compare("operator", lambda: operator @ shaped[0], flat[0][:, 0].reshape(self.asked))
        self.compare("operator", lambda: operator.T @ shaped[1], flat[1][:, 0].reshape(self.given))
        self.compare("operator", lambda: operator.matmat(right), flat[0])
        self.compare("operator", lambda: operator.rmatmat(left), flat[1])
        structured = self.trial.interface.input(self.key.split(", ")[-1]).structure
        if matrix.shape[0] == matrix.shape[1] and structured not in sampling.PROJECTED:
            self.solve(flat[0])

    def solve(self, right: np.ndarray) -> None:
        """Only what is far from singular: there is no solution to compare with elsewhere."""
        if np.linalg.cond(self.matrix) < CONDITION:
            solution = np.linalg.solve(self.matrix, right)
            self.compare("solve", lambda: self.operator.solve(right), solution, 1e-6)

    def compare(
        self,
        check: str,
        function: Callable[[], np.ndarray],
        expected: np.ndarray,
        tolerance: float = 1e-10,
    ) -> None:
        trial = self.trial
        try:
            actual = attempt(function)
        except CallError as error:
            trial.fail(check, self.kind, self.key, str(error))
            return
        if actual.shape != expected.shape:
            note = f"returns an array of shape {actual.shape}, expected {expected.shape}"
            trial.fail(check, self.kind, self.key, note)
            return
        size = scale(expected, trial.floor)
        allowed = tolerance * size + trial.rounding(self.kind)
        trial.compare(check, self.kind, self.key, actual, expected, allowed, size)


def _matrix(array: np.ndarray, rank: int, batched: bool) -> np.ndarray:
    """A Jacobian as a matrix; with a block for each sample where the input has the batch."""
    if not batched:
        return array.reshape(int(np.prod(array.shape[:rank])), -1)
    blocks = array.reshape(len(array), int(np.prod(array.shape[1:rank])), -1)
    samples, rows, columns = blocks.shape
    whole = np.zeros((samples, rows, samples, columns))
    for sample, block in enumerate(blocks):
        whole[sample, :, sample] = block
    return whole.reshape(samples * rows, samples * columns)
