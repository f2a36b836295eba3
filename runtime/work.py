"""The operations of a declaration at any sizes, extrapolated from counts at small ones.

Verification bounds its work by them and not by time, so that it is the same on every machine."""

from __future__ import annotations

import ast
import math
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Any

import numpy as np

from derivatrix.runtime import special
from derivatrix.runtime.interface import ModuleInterface, Sizes
from derivatrix.runtime.reference import OutOfDomain, Text
from derivatrix.runtime.syntax import parse_python

ENTRY_OPS = 30
"""Cost of one entry of an array, in multiplications of a matrix product."""
FACTORISATION_RATIO = 10
"""Cost of a factorisation, relative to a product of matrices of that size."""
MATRIX_FUNCTION_RATIO = 200
"""Cost of SciPy's functions and equations of matrices, relative to such a product."""
RICCATI_SOLVERS = "solve_continuous_are", "solve_discrete_are"
"""SciPy's functions for Riccati equations."""
RICCATI_RATIO = 2000
"""Cost of RICCATI_SOLVERS, relative to such a product: they decompose a pencil of up to three times
as many rows."""
ROOT_OPS = 500_000
"""Cost of a search for a root by SciPy, beside that of the equations and of its steps."""
ROOT_STEP_RATIO = 15
"""Cost of a step of a search for a root, relative to a product of matrices of that size."""
ROOT_SEARCH = "scipy.optimize.root"
MAX_VALUE_OPS = 1e9
"""Most operations of the declaration in one call at which a module is verified, about a second."""
COUNTED_SIZE = 16
"""Smallest of the sizes at which operations are counted."""
MIN_COUNTED_OPS = 3e6
"""Sizes are doubled until they take so many operations: the last doubling shows how these grow,
which constant terms hide before."""
MAX_DOUBLINGS = 10
"""Most doublings of a size, for declarations whose operations hardly grow."""


class Work:
    """The operations of a module's declaration, extrapolated as a power of its large sizes."""

    def __init__(self, interface: ModuleInterface) -> None:
        self._count = _Counter(interface)
        self._growths: dict[tuple[tuple[str, int], ...], tuple[int, float, float]] = {}
        self._has_search = ROOT_SEARCH in interface.declaration
        self._searches: dict[tuple[tuple[str, int], ...], float] = {}

    def operations(self, sizes: Sizes) -> float:
        """Extrapolate the number of operations to `sizes`, of which those from COUNTED_SIZE on grow
        together."""
        large = {name: size for name, size in sizes.items() if size >= COUNTED_SIZE}
        smallest = min(large.values(), default=COUNTED_SIZE)
        counted = {name: size + COUNTED_SIZE - smallest for name, size in large.items()}
        counted = {**sizes, **counted}
        key = tuple(counted.items())
        if key not in self._growths:
            self._growths[key] = self._growth(counted, large)
        start, operations, power = self._growths[key]
        extrapolated = operations * (smallest / start) ** power
        if not self._has_search or extrapolated > MAX_VALUE_OPS:
            return extrapolated
        # at some size, equations become hard: then a search takes hundreds of steps
        key = tuple(sizes.items())
        if key not in self._searches:
            self._searches[key] = self._count(sizes)
        return self._searches[key]

    def _growth(self, sizes: dict[str, int], large: Iterable[str]) -> tuple[int, float, float]:
        """Count operations at doubled sizes. Return the last size, the number of operations there,
        and the power of the size by which this number grows."""
        size, operations, power = COUNTED_SIZE, self._count(sizes), 0.0
        for _ in range(MAX_DOUBLINGS if large else 0):
            sizes = {name: s + size * (name in large) for name, s in sizes.items()}
            previous_count, operations, size = operations, self._count(sizes), 2 * size
            power = math.log2(max(1.0, operations / max(1.0, previous_count)))
            if operations > MIN_COUNTED_OPS:
                break
        return size, operations, power


class _Counter:
    """Counts the operations of a declaration while it is evaluated."""

    def __init__(self, interface: ModuleInterface) -> None:
        self._interface = interface
        tree = parse_python(f"(\n{interface.declaration}\n)", mode="eval")
        self._text = Text(ast.unparse(ast.fix_missing_locations(_CountCalls().visit(tree))))
        self._count: float = 0

    def __call__(self, sizes: Mapping[str, int]) -> float:
        """Count the operations at `sizes`, the arguments' entries among them; where the text has no
        value, those before it fails."""
        point = special.random_point(self._interface, sizes, np.random.default_rng(0))
        self._count = ENTRY_OPS * sum(array.size for array in point.values.values())
        scope: dict[str, Any] = {**point.sizes, **point.values}
        scope |= {"_entries": self._entries, "_product": self._product, "_root": self._root}
        with suppress(OutOfDomain):
            self._text(scope, self._interface.shape("value", "", point.sizes))
        return self._count

    def _entries(self, result: Any) -> Any:
        self._count += ENTRY_OPS * (np.size(result) if isinstance(result, np.ndarray) else 1)
        return result

    def _root(self, result: Any) -> Any:
        steps = result.get("njev", 0)  # each factorises the derivative of the equations
        self._count += ROOT_OPS + ROOT_STEP_RATIO * steps * float(result.x.size) ** 3
        return result

    def _product(self, function: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        arrays = [argument for argument in arguments if isinstance(argument, np.ndarray)]
        longest = max((size for array in arrays for size in array.shape), default=1)
        ratio = FACTORISATION_RATIO
        if function in (np.matmul, np.einsum):
            ratio = 1
        elif (getattr(function, "__module__", None) or "").startswith("scipy."):
            is_riccati = function.__name__ in RICCATI_SOLVERS
            ratio = RICCATI_RATIO if is_riccati else MATRIX_FUNCTION_RATIO
        self._count += ratio * longest * max((array.size for array in arrays), default=1)
        return function(*arguments, **options)


class _CountCalls(ast.NodeTransformer):
    """Wraps matrix products and factorisations in calls of `_product`, searches for roots in calls
    of `_root`, and all other calls and operations in calls of `_entries`."""

    def visit_BinOp(self, node: ast.BinOp) -> ast.AST:
        self.generic_visit(node)
        if not isinstance(node.op, ast.MatMult):
            return _call("_entries", [node])
        return _call(
            "_product", [parse_python("np.matmul", mode="eval").body, node.left, node.right]
        )

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        name = "" if isinstance(node.func, ast.Lambda) else ast.unparse(node.func)
        if ".linalg." in name or name == "np.einsum":
            return _call("_product", [node.func, *node.args], node.keywords)
        return _call("_root" if name == ROOT_SEARCH else "_entries", [node])


def _call(
    name: str, arguments: list[ast.expr], keywords: list[ast.keyword] | None = None
) -> ast.Call:
    return ast.Call(ast.Name(name, ast.Load()), arguments, keywords or [])
