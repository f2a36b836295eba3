"""What a value is, as a text: equal values have equal texts, in every process, and others do not.

Numbers are written out in full, arrays by their bytes. A function is its source text, or its
bytecode where there is none that it was surely compiled from, with its defaults, what it encloses
and the globals it names, functions and modules of the user's followed in turn. What comes with
Python or with this package and those that it needs is called by its name: their versions, and a
digest of the compiler's files, stand in for what is in them.
"""

from __future__ import annotations

import ast
import copyreg
import dataclasses
import hashlib
import linecache
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np
import sympy

from derivatrix.runtime.errors import DeclarationError

NAMED = frozenset({"derivatrix", "numpy", "scipy", "sympy", "numba", *sys.stdlib_module_names})
"""Packages whose functions and classes are called by their names."""


class Keyed:
    """What has a text of its own that tells it from everything else: its attribute `key`."""

    __slots__ = ()


def content(value: object) -> str:
    """The text of what nodes of the intermediate representation are made of."""
    if isinstance(value, Keyed):
        return str(value.key)  # type: ignore[attr-defined]
    if isinstance(value, str):
        return repr(value)
    if isinstance(value, tuple):
        return f"({','.join(map(content, value))})"
    if type(value) is int:  # equal to SymPy's integer, and of one text
        return str(value)
    if isinstance(value, sympy.Basic):
        return _symbolic(value)
    return _Reader().text(value)


def content_digest(value: object) -> str:
    """A short text for any value, as for a record with functions in it.

    Raises DeclarationError for what cannot be read, as an open file."""
    return hashlib.blake2b(_Reader().text(value).encode(), digest_size=12).hexdigest()


@lru_cache(maxsize=65536, typed=True)
def _symbolic(value: sympy.Basic) -> str:
    """`sympy.srepr`, but classes with their modules and numbers exact and in short."""
    match value:
        case sympy.Integer():
            return str(value)
        case sympy.Float():
            sign, mantissa, exponent, _ = value._mpf_
            return f"Float({'-' if sign else ''}{mantissa},{exponent})"
        case _ if value.args:
            return f"{_name(type(value))}({','.join(map(_symbolic, value.args))})"
    return sympy.srepr(value)


def _name(value: Any) -> str:
    return f"{value.__module__}.{value.__qualname__}"


class _Reader:
    """Reads one value. What is met again inside of itself is called by its number."""

    def __init__(self) -> None:
        self.met: dict[int, int] = {}
        self.kept: list[object] = []

    def text(self, value: Any) -> str:
        if value is None or isinstance(value, (bool, int, float, complex, str, bytes)):
            return f"{type(value).__name__} {value!r}"
        if isinstance(value, Keyed) and not dataclasses.is_dataclass(value):
            return content(value)
        if isinstance(value, sympy.Basic):
            return _symbolic(value)
        if not isinstance(value, (tuple, CodeType)):  # constants, which may be shared or not
            if id(value) in self.met:
                return f"met {self.met[id(value)]}"
            self.met[id(value)] = len(self.met)
            self.kept.append(value)
        return f"{_name(type(value))}({','.join(self._parts(value))})"

    def _texts(self, values: Iterable[object]) -> Iterator[str]:
        return map(self.text, values)

    def _parts(self, value: Any) -> Iterable[str]:
        match value:
            case tuple() | list():
                return self._texts(value)
            case Mapping():
                return (f"{self.text(key)}:{self.text(part)}" for key, part in value.items())
            case set() | frozenset():
                return sorted(_Reader().text(part) for part in value)
            case np.ndarray() if value.dtype != object:
                return [str(value.dtype), str(value.shape), value.tobytes().hex()]
            case ModuleType():
                return [value.__name__]
            case FunctionType():
                return self._function(value)
            case MethodType():
                return self._texts([value.__func__, value.__self__])
            case CodeType():
                return self._code(value)
            case type():
                return self._class(value)
        if hasattr(value, "py_func"):  # what Numba made of a function
            return self._texts([value.py_func])
        if dataclasses.is_dataclass(value):
            return self._texts(getattr(value, field.name) for field in dataclasses.fields(value))
        return self._reduced(value)

    def _function(self, function: FunctionType) -> Iterator[str]:
        yield _name(function)
        yield from self._texts([function.__defaults__, function.__kwdefaults__])
        yield from self._texts(cell.cell_contents for cell in function.__closure__ or ())
        if _is_named(function.__module__):
            return
        yield _source(function) or self.text(function.__code__)
        names = sorted(set(_names(function.__code__)))
        for name in names:
            if name in function.__globals__:
                yield f"{name}={self._global(function.__globals__[name], names)}"

    def _global(self, value: object, names: Iterable[str]) -> str:
        """What a name of a function's module stands for; of a module what `names` are in it."""
        if not isinstance(value, ModuleType) or _is_named(value.__name__):
            return self.text(value)
        used = {name: getattr(value, name) for name in names if hasattr(value, name)}
        return f"{value.__name__}({self.text(used)})"

    def _class(self, value: type) -> Iterator[str]:
        yield _name(value)
        if not _is_named(value.__module__):
            yield from self._texts(value.__bases__)
            for name, part in vars(value).items():
                if name not in _OF_CLASSES:
                    yield f"{name}={self.text(part)}"

    def _code(self, code: CodeType) -> Iterator[str]:
        names = (code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars)
        return self._texts([code.co_code, code.co_consts, *names])

    def _reduced(self, value: object) -> Iterator[str]:
        """As it would be pickled."""
        reduce = copyreg.dispatch_table.get(type(value), lambda value: value.__reduce_ex__(2))
        try:
            reduced = reduce(value)
        except TypeError as error:
            raise DeclarationError(
                f"{type(value).__name__} objects have no contents that can be read ({error}); an "
                "operation is known by what its functions refer to, which cannot be such an object"
            ) from error
        if isinstance(reduced, str):
            return iter([str(getattr(value, "__module__", "")), reduced])
        return self._texts(list(part) if isinstance(part, Iterator) else part for part in reduced)


_OF_CLASSES = frozenset({"__dict__", "__weakref__", "__module__", "__doc__", "__qualname__"})


def _is_named(module: str | None) -> bool:
    return (module or "builtins").partition(".")[0] in NAMED


def _names(code: CodeType) -> Iterator[str]:
    """The globals and attributes that a function and those inside of it name."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)


def _source(function: FunctionType) -> str:
    """The text of a function where it is in its file; "" where that holds another by now."""
    code = function.__code__
    linecache.checkcache(code.co_filename)
    text = "".join(linecache.getlines(code.co_filename, function.__globals__))
    return _sources(text, code.co_filename).get(code, "") if text else ""


@lru_cache(maxsize=256)
def _sources(text: str, file: str) -> dict[CodeType, str]:
    """The text of each function of a file, with its number among those that begin on its line."""
    try:
        tree, compiled = ast.parse(text), compile(text, file, "exec", dont_inherit=True)
    except (SyntaxError, ValueError):
        return {}
    lines = text.split("\n")
    texts: dict[int, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.Lambda):
            first = min(
                [node.lineno, *(each.lineno for each in getattr(node, "decorator_list", ()))]
            )
            body = "\n".join(lines[first - 1 : node.end_lineno])
            texts[first] = max(texts.get(first, ""), body, key=len)
    codes = [code for code in _codes(compiled) if code.co_firstlineno in texts]
    numbers: Counter[int] = Counter()
    found = {}
    for code in codes:
        numbers[code.co_firstlineno] += 1
        found[code] = f"{numbers[code.co_firstlineno]} in {texts[code.co_firstlineno]}"
    return found


def _codes(code: CodeType) -> Iterator[CodeType]:
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield constant
            yield from _codes(constant)
