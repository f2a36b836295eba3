"""A private copy of a generated module that notes which of its branches run.

The copy is made from the text of the module and of its support: every compiled function, and every
branch and loop in one, begins with a store of 1 to a byte of its own. It is for finding out what a
point reaches: verification is of the module itself.
"""

# mypy: allow-untyped-defs, allow-untyped-calls

from __future__ import annotations

import ast
import itertools
import sys
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest import mock

import numpy as np
from numba import types
from numba.extending import intrinsic

from derivatrix import runtime
from derivatrix.runtime import reach
from derivatrix.runtime.interface import ModuleInterface
from derivatrix.runtime.report import Reach, Report
from derivatrix.runtime.support import FOLDER

ENVIRONMENT = {"NUMBA_OPT": "0"}
"""The environment of processes that run copies: without LLVM's optimisation they compile in half
the time."""
MARK = "_reached_"
"""The name of the store in the copy."""
SHARING = f"{FOLDER}/cpu/thread_pool.py"
"""The file where it depends on the moment which thread comes first, and so which branches run."""
MOST = 1 << 16
"""More marks than all files of the support have."""
_numbers = itertools.count()
"""Numbers for the names of copies in this process, each of which has its own support."""


class Copy:
    """The copy of a module that was loaded from a file, with a copy of its support. `module` has
    the same functions as the module; `places` are the function and the line that each mark is
    for; `marks` are bytes."""

    def __init__(self, original: ModuleType) -> None:
        self._marker = _Marker()
        self.marks = np.zeros(MOST, np.uint8)
        self._compiled: set[int] = set()
        self._store = byte_setter(self.marks.ctypes.data, self._compiled)
        name, path = original.__name__, Path(str(original.__file__))
        if original.__package__:
            package = ModuleType(f"{original.__package__}_marked_{next(_numbers)}")
            package.__path__ = sys.modules[original.__package__].__path__
            sys.modules[package.__name__] = package
            sys.meta_path.insert(0, _Finder(self, original.__package__, package.__name__))
            name = f"{package.__name__}.{name.rpartition('.')[2]}"
        self.module = ModuleType(f"{name}_marked")
        vars(self.module).update(__file__=str(path), __package__=name.rpartition(".")[0])
        sys.modules[self.module.__name__] = self.module  # Numba looks for functions there
        self.run(path, original, self.module, "")

    @property
    def places(self) -> Sequence[tuple[str, int]]:
        return self._marker.places

    @property
    def counted(self) -> set[int]:
        """The marks of the module itself, and those of its support that are in compiled code and do
        not depend on the moment."""
        names = [name for name, _ in self.places]
        own = {number for number, name in enumerate(names) if name.isidentifier()}
        return own | {number for number in self._compiled if SHARING not in names[number]}

    def run(self, path: Path, original: ModuleType, copy: ModuleType, label: str) -> None:
        """Define in `copy` what a file defines in `original`, with marks."""
        tree = ast.parse(path.read_bytes())
        for statement in tree.body:
            result = getattr(original, getattr(statement, "name", ""), None)
            if isinstance(statement, ast.FunctionDef) and hasattr(result, "py_func"):
                self._marker.enter(statement, f"{statement.name}{label}")
        setattr(copy, MARK, self._store)
        code = compile(ast.fix_missing_locations(tree), f"<{copy.__name__}>", "exec")
        exec(code, vars(copy))

    def taken(self) -> list[int]:
        """The marks made since the last call, by their positions."""
        result = [int(place) for place in np.flatnonzero(self.marks)]
        self.marks[:] = 0
        return sorted(self.counted.intersection(result))


def byte_setter(address, compiled):
    """The function of kernels that sets the byte at a place, counted from the address, to 1. The
    places are added to `compiled`, a set, when the kernels are."""

    @intrinsic(prefer_literal=True)
    def store(context, place):
        compiled.add(place.literal_value)

        def generate(context, builder, signature, values):
            byte = context.get_value_type(types.uint8)
            start = context.get_constant(types.intp, address + place.literal_value)
            builder.store(byte(1), builder.inttoptr(start, byte.as_pointer()))
            return context.get_dummy_value()

        return types.void(place), generate

    return store


def verified(copy: Copy, original: ModuleType) -> Report:
    """The report of the copy, at the points at which verification calls the module itself."""
    runs, reached = reach.choose_runs(ModuleInterface(original))

    def make_chosen(
        interface: ModuleInterface, make: Callable[[reach.Run], bool]
    ) -> tuple[list[reach.Run], Reach]:
        return [run for run in runs if make(run)], reached

    with mock.patch.object(reach, "choose_runs", make_chosen):
        return runtime.verify(copy.module)


class _Finder:
    """Finds the files of a package's support for its copy."""

    def __init__(self, copy: Copy, original: str, package: str) -> None:
        self.copy, self.original, self.prefix = copy, original, f"{package}.{FOLDER}"

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        if not name.startswith(self.prefix):
            return None
        spec = PathFinder.find_spec(name, path)
        if spec is not None and spec.submodule_search_locations is None and spec.origin is not None:
            original = f"{self.original}.{FOLDER}{name.removeprefix(self.prefix)}"
            spec.loader = _Loader(self.copy, original, name, spec.origin)
        return spec


class _Loader(SourceFileLoader):
    """Loads a file of the support with marks."""

    def __init__(self, copy: Copy, original: str, name: str, path: str) -> None:
        super().__init__(name, path)
        self._copy, self._original = copy, original

    def exec_module(self, module: ModuleType) -> None:
        path = Path(self.path)
        label = f" ({FOLDER}/{path.parent.name}/{path.name})"
        self._copy.run(path, sys.modules[self._original], module, label)


class _Marker(ast.NodeTransformer):
    """Puts marks into functions. A branch that ends in an error is none that a right call takes,
    so that neither it nor its other side is marked."""

    def __init__(self) -> None:
        self.places: list[tuple[str, int]] = []
        self.function = ""

    def enter(self, function: ast.FunctionDef, name: str) -> None:
        self.function = name
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

    def visit_For(self, node: ast.For | ast.While) -> ast.AST:
        self.generic_visit(node)
        node.body = self._marked(node.body, node.body[0].lineno)
        return node

    visit_While = visit_For

    def _marked(self, body: list[ast.stmt], line: int) -> list[ast.stmt]:
        self.places.append((self.function, line))
        mark = ast.parse(f"{MARK}({len(self.places) - 1})").body
        return [*mark, *body]
