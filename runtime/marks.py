"""A private copy of a generated module that notes which of its branches run.

The copy is made from the module's own text: every compiled function, and every branch and loop in
one, begins with a store of 1 to a byte of its own. It is for finding out what a point reaches,
never for proof: that is of the module itself.
"""

from __future__ import annotations

import ast
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
from numba import types
from numba.core.dispatcher import Dispatcher
from numba.extending import intrinsic

MARK = "_reached_"
"""The name of the store in the copy."""


class Copy:
    """The copy of a module that was loaded from a file. `module` has the same functions as the
    module; `places` are the function and the line that each mark is for; `marks` are bytes."""

    def __init__(self, original: ModuleType) -> None:
        path = Path(str(original.__file__))
        tree = ast.parse(path.read_bytes())
        marker = _Marker()
        for statement in tree.body:
            if isinstance(statement, ast.FunctionDef) and isinstance(
                getattr(original, statement.name, None), Dispatcher
            ):
                marker.enter(statement)
        self.places = tuple(marker.places)
        self.constants = _constants(tree, original)
        self.marks = np.zeros(len(self.places), np.uint8)
        self.module = ModuleType(f"{original.__name__}_marked")
        self.module.__dict__.update({MARK: _store(self.marks.ctypes.data), "__file__": str(path)})
        sys.modules[self.module.__name__] = self.module  # Numba looks for functions there
        code = compile(ast.fix_missing_locations(tree), f"<{original.__name__}>", "exec")
        exec(code, self.module.__dict__)

    def taken(self) -> list[int]:
        """The marks made since the last call, by their positions."""
        found = [int(place) for place in np.flatnonzero(self.marks)]
        self.marks[:] = 0
        return found


class _Marker(ast.NodeTransformer):
    """Puts marks into functions. A branch that ends in an error is none that a right call takes,
    so that neither it nor its other side is marked."""

    def __init__(self) -> None:
        self.places: list[tuple[str, int]] = []
        self.function = ""

    def enter(self, function: ast.FunctionDef) -> None:
        self.function = function.name
        line = function.lineno
        self.generic_visit(function)
        function.body = self._marked(function.body, line)

    def visit_If(self, node: ast.If) -> ast.AST:
        self.generic_visit(node)
        branches = (node.body, node.orelse)
        if not any(branch and isinstance(branch[-1], ast.Raise) for branch in branches):
            node.body = self._marked(node.body, node.body[0].lineno)
            after = node.orelse[0].lineno if node.orelse else node.lineno
            node.orelse = self._marked(node.orelse, after)
        return node

    def visit_For(self, node: ast.For) -> ast.AST:
        self.generic_visit(node)
        node.body = self._marked(node.body, node.body[0].lineno)
        return node

    def visit_While(self, node: ast.While) -> ast.AST:
        self.generic_visit(node)
        node.body = self._marked(node.body, node.body[0].lineno)
        return node

    def _marked(self, body: list[ast.stmt], line: int) -> list[ast.stmt]:
        self.places.append((self.function, line))
        mark = ast.parse(f"{MARK}({len(self.places) - 1})").body
        return [*mark, *body]


def _constants(tree: ast.Module, module: ModuleType) -> tuple[int, ...]:
    """The whole numbers that the module compares something with, sorted."""
    parts = [
        part for node in ast.walk(tree) if isinstance(node, ast.Compare) for part in ast.walk(node)
    ]
    values = [
        part.value if isinstance(part, ast.Constant) else getattr(module, part.id, None)
        for part in parts
        if isinstance(part, ast.Constant | ast.Name)
    ]
    return tuple(sorted({value for value in values if type(value) is int and value > 1}))


def _store(address: int) -> Any:
    """A function of kernels that sets the byte at a place, counted from the address, to 1."""

    @intrinsic
    def store(context, place):  # type: ignore[no-untyped-def]
        def generate(context, builder, signature, values):  # type: ignore[no-untyped-def]
            byte = context.get_value_type(types.uint8)
            start = context.get_constant(types.intp, address)
            where = builder.inttoptr(builder.add(start, values[0]), byte.as_pointer())
            builder.store(byte(1), where)
            return context.get_dummy_value()

        return types.void(types.intp), generate

    return store
