"""Calls of generated modules, and what they are to return by NumPy in one thread."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from derivatrix.runtime import load

Arrays = tuple[Any, ...]

TOLERANCE = 1e-9
LARGE = {"square": 200, "score": 150, "model": 20_000, "total": 100_000}
"""Rows of arguments for which kernels take several threads, or BLAS does."""
SMALL = 5


@dataclass(frozen=True)
class Call:
    """A public function at some arguments. expected: its results; None where it is to raise
    LinAlgError."""

    function: Callable[..., Any]
    name: str
    arguments: Arrays
    expected: Arrays | None

    def problem(self, out: bool = False) -> str:
        """Check one call, whose results are new or written to given arrays; return the problem, or
        ""."""
        room = None if self.expected is None else [np.full_like(e, np.nan) for e in self.expected]
        try:
            result = self.results(room if out else None)
        except np.linalg.LinAlgError as error:
            return "" if self.expected is None else f"{self.name}: {error}"
        if self.expected is None or room is None:
            return f"{self.name}: no LinAlgError was raised"
        for one, other in zip(result, self.expected, strict=True):
            if not np.allclose(one, other, rtol=TOLERANCE, atol=TOLERANCE):
                return f"{self.name}: off by {np.abs(one - other).max()} at {np.shape(other)}"
        if out and not all(one is other for one, other in zip(result, room, strict=True)):
            return f"{self.name}: results are not in the arrays given"
        return ""

    def results(self, room: Sequence[Any] | None = None) -> Arrays:
        """Return the result of one call, with `out=` if there is room."""
        options = {} if room is None else {"out": room[0] if len(room) == 1 else tuple(room)}
        result = self.function(*self.arguments, **options)
        return tuple(result) if isinstance(result, tuple) else (result,)


def checked(calls: Sequence[Call]) -> list[str]:
    """Check each of the calls, with and without `out=`; return the problems."""
    return [result for call in calls for out in (False, True) if (result := call.problem(out))]


def calls_of(paths: Sequence[str], seed: int) -> list[Call]:
    """Calls of the modules in files at small and large arguments, and some that are to raise."""
    random = np.random.default_rng(seed)
    result: list[Call] = []
    for path in paths:
        module, name = load(path), Path(path).stem
        for rows in (SMALL, LARGE[name]):
            result += _MAKERS[name](module, rows, random)
        if name == "score":
            wrong = (-np.eye(SMALL), np.eye(SMALL))  # not positive definite
            result.append(Call(module.gradient, "score.gradient", wrong, None))
    return result


def small(calls: Sequence[Call]) -> list[Call]:
    """Select the calls with small arguments."""
    return [call for call in calls if len(call.arguments[0]) == SMALL]


def _square(module: ModuleType, rows: int, random: np.random.Generator) -> list[Call]:
    X, Y = random.normal(size=(2, rows, rows))
    return [
        Call(module.value, "square.value", (X,), (X @ X,)),
        Call(module.vjp, "square.vjp", (X, Y), (Y @ X.T + X.T @ Y,)),
        Call(module.jvp, "square.jvp", (X, Y), (Y @ X + X @ Y,)),
    ]


def _score(module: ModuleType, rows: int, random: np.random.Generator) -> list[Call]:
    B, A = random.normal(size=(2, rows, rows))
    S = B @ B.T / rows + np.eye(rows)
    inverse = np.linalg.inv(S)
    by_S = inverse - inverse @ A.T @ inverse
    value = np.linalg.slogdet(S)[1] + np.trace(inverse @ A)
    return [
        Call(module.gradient, "score.gradient", (S, A), ((by_S + by_S.T) / 2, inverse)),
        Call(module.vjp, "score.vjp", (S, A, 2.0), (by_S + by_S.T, 2 * inverse)),
        Call(module.value, "score.value", (S, A), (np.asarray(value),)),
    ]


def _model(module: ModuleType, rows: int, random: np.random.Generator) -> list[Call]:
    x, C = random.normal(size=(rows, 16)), random.normal(size=(rows, 10))
    W, b = random.normal(size=(10, 16)), random.normal(size=10)
    powers = np.exp(x @ W.T + b)
    y = powers / powers.sum(1, keepdims=True)
    G = y * (C - (y * C).sum(1, keepdims=True))
    return [
        Call(module.value, "model.value", (x, W, b), (y,)),
        Call(module.vjp, "model.vjp", (x, W, b, C), (G @ W, G.T @ x, G.sum(0))),
    ]


def _total(module: ModuleType, rows: int, random: np.random.Generator) -> list[Call]:
    x, w = random.normal(size=(rows, 8)), random.normal(size=8)
    powers = np.exp(x @ w)
    share = powers / (1 + powers)
    value = np.log1p(powers).sum()
    return [
        Call(module.value, "total.value", (x, w), (np.asarray(value),)),
        Call(module.gradient, "total.gradient", (x, w), (np.outer(share, w), x.T @ share)),
    ]


_MAKERS = {"square": _square, "score": _score, "model": _model, "total": _total}
