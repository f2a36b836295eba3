"""A row of the benchmark."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from derivatrix.compiler.frontends.function import Function
from tests.points import draw_all

Arrays = dict[str, np.ndarray]
Sizes = Mapping[str, int]
Program = Callable[..., Any]
"""(library, *inputs) -> the function's value, for one sample where the function is batched."""

TRANSCENDENTAL = 20
"""Floating-point operations that one exp, log or tanh counts for."""


@dataclass(frozen=True)
class Row:
    """One derivative of one function, at several sizes.

    function: derivatrix's declaration; kind: vjp, gradient, jacobian, hessian, or newton (the
    Hessian's solution for the gradient); program: the same function in the words of a
    contestant's `library`; programs: other ways to write it, which are tried too; closed: the
    derivative in NumPy and SciPy, of the inputs and for a vjp the cotangent, independent of
    derivatrix; flops: of the leanest method known, of the sizes; draw: inputs that are not drawn
    as their structure says; without: contestants that cannot do the row, and why; larger: sizes
    for devices, which only pay there.
    """

    title: str
    kind: str
    function: Function
    program: Program
    closed: Callable[..., Any]
    sizes: tuple[Sizes, ...]
    flops: Callable[..., float]
    draw: Callable[[np.random.Generator, Sizes], Arrays] | None = None
    dtypes: tuple[str, ...] = ("float64",)
    programs: tuple[Program, ...] = ()
    without: Mapping[str, str] = field(default_factory=dict)
    tolerance: float = 1e-8
    larger: tuple[Sizes, ...] = ()

    @property
    def name(self) -> str:
        return f"{self.title} {self.kind}"

    @property
    def inputs(self) -> tuple[str, ...]:
        return tuple(leaf.name for leaf in self.function.inputs)

    @property
    def wrt(self) -> tuple[int, ...]:
        """The positions of the inputs to differentiate by."""
        return tuple(self.inputs.index(name) for name in self.function.wrt)

    @property
    def batched(self) -> tuple[bool, ...]:
        """The inputs that have a batch axis."""
        return tuple(name in self.function.batch for name in self.inputs)

    def symmetric(self) -> list[bool]:
        """The inputs by which only the symmetric part of the derivative is compared."""
        return [
            self.function.inputs[position].structure in ("symmetric", "spd")
            for position in self.wrt
        ]


class Case(NamedTuple):
    """A row at one size in one type."""

    row: Row
    size: int
    dtype: str

    @property
    def sizes(self) -> Sizes:
        return (*self.row.sizes, *self.row.larger)[self.size]

    @property
    def label(self) -> str:
        text = ", ".join(f"{name}={size}" for name, size in self.sizes.items())
        return text if self.dtype == "float64" else f"{text}, {self.dtype}"

    def reference(self) -> tuple[str, int, str]:
        """The text by which another process finds the case."""
        return self.row.name, self.size, self.dtype

    def arguments(self) -> list[np.ndarray]:
        """The inputs, and for a vjp the cotangent; the same in every process."""
        values = draw_all(self.row.function, seed=self.size, sizes=self.sizes)
        if self.row.draw:
            values |= self.row.draw(np.random.default_rng(self.size), self.sizes)
        names = [*self.row.inputs, *(["cotangent"] if self.row.kind == "vjp" else [])]
        return [np.array(values[name], dtype=self.dtype, order="C") for name in names]

    def expected(self) -> list[np.ndarray]:
        """The closed form, computed in float64."""
        wide = [argument.astype(np.float64) for argument in self.arguments()]
        return flat(self.row.closed(*wide))

    def error(self, results: list[np.ndarray], expected: list[np.ndarray]) -> float:
        """The largest difference, relative to the largest entry of the array it is in."""
        if [result.shape for result in results] != [array.shape for array in expected]:
            return float("inf")
        worst = 0.0
        for result, array, symmetric in zip(results, expected, self._symmetric(), strict=True):
            difference = np.abs(result - array)
            if symmetric:
                difference = np.abs(_symmetric_part(result) - _symmetric_part(array))
            scale = max(float(np.abs(array).max(initial=0)), 1e-300)
            worst = max(worst, float(difference.max(initial=0)) / scale)
        return worst if not np.isnan(worst) else float("inf")

    def _symmetric(self) -> list[bool]:
        single = self.row.kind in ("hessian", "newton")
        return [False] * len(self.row.wrt) if single else self.row.symmetric()

    @property
    def tolerance(self) -> float:
        """The error that rounding may bring."""
        return self.row.tolerance * (1 if self.dtype == "float64" else 2e5)


def cases(rows: list[Row], quick: bool = False) -> Iterator[Case]:
    """Every row at every size in every type; `quick`: at two sizes, in its first type."""
    for row in rows:
        positions = range(len(row.sizes))
        for dtype in row.dtypes[:1] if quick else row.dtypes:
            for size in sorted({0, len(positions) // 2}) if quick else positions:
                yield Case(row, size, dtype)


def device_cases(rows: list[Row]) -> Iterator[Case]:
    """Every row at its largest size, and at those for devices, in every type."""
    for row in rows:
        count = len(row.sizes)
        for dtype in row.dtypes:
            for size in range(count - 1, count + len(row.larger)):
                yield Case(row, size, dtype)


def flat(result: Any) -> list[np.ndarray]:
    """Arrays, as they lie in nested tuples and lists."""
    if isinstance(result, list | tuple):
        return [array for part in result for array in flat(part)]
    return [np.asarray(result)]


def _symmetric_part(array: np.ndarray) -> np.ndarray:
    return (array + array.swapaxes(-1, -2)) / 2
