"""How many operations a declaration takes at any sizes, from counts at small ones: a bound on the
work of verification that is the same on every machine."""

from __future__ import annotations

import ast
import math
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

import numpy as np

from derivatrix.runtime import sampling, special
from derivatrix.runtime.interface import ModuleInterface, Sizes
from derivatrix.runtime.reference import OutOfDomain, Text

ENTRY_OPS = 30
"""Multiplications of a matrix product that take as long as computing an entry of an array."""
FACTORISATION_OPS = 10
"""The factor by which a factorisation takes longer than a product of such matrices."""
MATRIX_FUNCTION_OPS = 200
"""The same of SciPy's functions and equations of matrices."""
MIN_SIZE = 4
"""The least size at which operations are counted: there, and at twice each size."""


class Work:
    """The operations of a module's declaration, extrapolated as a product of powers of sizes."""

    def __init__(self, interface: ModuleInterface) -> None:
        count = _Counter(interface)
        self._sizes = sampling.enlarged(interface, MIN_SIZE)[0]
        self._operations = count(self._sizes)
        self._powers = {
            name: math.log2(max(1.0, count({**self._sizes, name: 2 * size}) / self._operations))
            for name, size in self._sizes.items()
        }

    def operations(self, sizes: Sizes) -> float:
        """The operations at some sizes."""
        growth = ((sizes[name] / size) ** self._powers[name] for name, size in self._sizes.items())
        return self._operations * math.prod(growth)


class _Counter:
    """Counts the operations of a declaration while it is evaluated."""

    def __init__(self, interface: ModuleInterface) -> None:
        self._interface = interface
        tree = ast.parse(f"(\n{interface.module.DECLARATION}\n)", mode="eval")
        self._text = Text(ast.unparse(ast.fix_missing_locations(_Counted().visit(tree))))
        self._count = 1.0

    def __call__(self, sizes: Mapping[str, int]) -> float:
        """The operations at some sizes; those before it fails where the text has no value."""
        self._count = 1.0
        point = special.usual(self._interface, sizes, np.random.default_rng(0))
        scope: dict[str, Any] = {**point.sizes, **point.values}
        scope |= {"_entries": self._entries, "_product": self._product}
        with suppress(OutOfDomain):
            self._text(scope, self._interface.shape("value", "", point.sizes))
        return self._count

    def _entries(self, result: Any) -> Any:
        self._count += ENTRY_OPS * (np.size(result) if isinstance(result, np.ndarray) else 1)
        return result

    def _product(self, function: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        arrays = [argument for argument in arguments if isinstance(argument, np.ndarray)]
        longest = max((size for array in arrays for size in array.shape), default=1)
        factor = FACTORISATION_OPS
        if function in (np.matmul, np.einsum):
            factor = 1
        elif function.__module__.startswith("scipy."):
            factor = MATRIX_FUNCTION_OPS
        self._count += factor * longest * max((array.size for array in arrays), default=1)
        return function(*arguments, **options)


class _Counted(ast.NodeTransformer):
    """Calls of `_product` around matrix products and factorisations, of `_entries` around all
    other calls and operations."""

    def visit_BinOp(self, node: ast.BinOp) -> ast.AST:
        self.generic_visit(node)
        if not isinstance(node.op, ast.MatMult):
            return _call("_entries", [node])
        return _call("_product", [ast.parse("np.matmul", mode="eval").body, node.left, node.right])

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        name = ast.unparse(node.func)
        if ".linalg." in name or name == "np.einsum":
            return _call("_product", [node.func, *node.args], node.keywords)
        return _call("_entries", [node])


def _call(
    name: str, arguments: list[ast.expr], keywords: list[ast.keyword] | None = None
) -> ast.Call:
    return ast.Call(ast.Name(name, ast.Load()), arguments, keywords or [])
