"""The content of values as texts: equal values have equal texts, in every process, and others do
not.

Numbers are written out in full, arrays by their bytes. A function is its source text, or its
bytecode where the source may have changed since it was compiled, with its defaults, its closure and
the globals it names; functions and modules of the user are followed in turn. Objects of Python, of
this package and of its dependencies are called by name: their versions, and a digest of the
compiler's files, are part of the cache key elsewhere.
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
from derivatrix.runtime.syntax import parse_python

TRUSTED_PACKAGES = frozenset(
    {"derivatrix", "numpy", "scipy", "sympy", "numba", *sys.stdlib_module_names}
)
"""Packages whose functions and classes are called by name instead of being read."""


class Keyed:
    """A class whose instances have an attribute `key`, a text that identifies them."""

    __slots__ = ()


def content(value: object) -> str:
    """Return the text of a value that nodes of the intermediate representation hold."""
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
    """Return a digest of any value, as of a record with functions in it. Raises DeclarationError
    for values that cannot be read, as an open file."""
    return hashlib.blake2b(_Reader().text(value).encode(), digest_size=12).hexdigest()


@lru_cache(maxsize=65536, typed=True)  # SymPy's 1 and 1.0 may be equal
def _symbolic(value: sympy.Basic) -> str:
    """Return `sympy.srepr`, but with modules of classes, and with exact, short numbers."""
    match value:
        case sympy.Integer():
            return str(value)
        case sympy.Float():
            sign, mantissa, exponent, _ = value._mpf_
            return f"Float({'-' if sign else ''}{mantissa},{exponent})"
        case _ if value.args:
            return f"{_qualified_name(type(value))}({','.join(map(_symbolic, value.args))})"
    return sympy.srepr(value)


def _qualified_name(value: Any) -> str:
    return f"{value.__module__}.{value.__qualname__}"


class _Reader:
    """Reads one value. An object met again inside the value is written as its number."""

    def __init__(self) -> None:
        self.numbers: dict[int, int] = {}
        self.objects: list[object] = []  # alive, so that no other object gets the id

    def text(self, value: Any) -> str:
        if value is None or isinstance(value, (bool, int, float, complex, str, bytes)):
            return f"{type(value).__name__} {value!r}"
        if isinstance(value, Keyed) and not dataclasses.is_dataclass(value):
            return content(value)
        if isinstance(value, sympy.Basic):
            return _symbolic(value)
        if not isinstance(value, (tuple, CodeType)):  # constants, which may be shared or not
            if id(value) in self.numbers:
                return f"met {self.numbers[id(value)]}"
            self.numbers[id(value)] = len(self.numbers)
            self.objects.append(value)
        return f"{_qualified_name(type(value))}({','.join(self._parts(value))})"

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
        yield _qualified_name(function)
        yield from self._texts([function.__defaults__, function.__kwdefaults__])
        yield from self._texts(cell.cell_contents for cell in function.__closure__ or ())
        if _is_trusted(function.__module__):
            return
        yield _source(function) or self.text(function.__code__)
        names = sorted(set(_names(function.__code__)))
        for name in names:
            if name in function.__globals__:
                yield f"{name}={self._global(function.__globals__[name], names)}"

    def _global(self, value: object, names: Iterable[str]) -> str:
        """Read the global of a function; of a user's module only the attributes called `names`."""
        if not isinstance(value, ModuleType) or _is_trusted(value.__name__):
            return self.text(value)
        attributes = {name: getattr(value, name) for name in names if hasattr(value, name)}
        return f"{value.__name__}({self.text(attributes)})"

    def _class(self, value: type) -> Iterator[str]:
        yield _qualified_name(value)
        if not _is_trusted(value.__module__):
            yield from self._texts(value.__bases__)
            for name, part in vars(value).items():
                if name not in _CLASS_BOILERPLATE:
                    yield f"{name}={self.text(part)}"

    def _code(self, code: CodeType) -> Iterator[str]:
        names = (code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars)
        return self._texts([code.co_code, code.co_consts, *names])

    def _reduced(self, value: object) -> Iterator[str]:
        """Read the parts by which pickle would rebuild an object."""
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


_CLASS_BOILERPLATE = frozenset({"__dict__", "__weakref__", "__module__", "__doc__", "__qualname__"})


def _is_trusted(module: str | None) -> bool:
    return (module or "builtins").partition(".")[0] in TRUSTED_PACKAGES


def _names(code: CodeType) -> Iterator[str]:
    """Yield the globals and attributes that a function and the functions inside it name."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)


def _source(function: FunctionType) -> str:
    """Return the text of a function, or "" where its file has changed since."""
    code = function.__code__
    linecache.checkcache(code.co_filename)
    text = "".join(linecache.getlines(code.co_filename, function.__globals__))
    return _sources(text, code.co_filename).get(code, "") if text else ""


@lru_cache(maxsize=256)
def _sources(text: str, file: str) -> dict[CodeType, str]:
    """Map the functions of a file to their texts, numbered if they begin on one line."""
    try:
        tree, compiled = parse_python(text), compile(text, file, "exec", dont_inherit=True)
    except (SyntaxError, ValueError):
        return {}
    lines = text.split("\n")
    texts: dict[int, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.Lambda):
            first_line = min(
                [node.lineno, *(d.lineno for d in getattr(node, "decorator_list", ()))]
            )
            body = "\n".join(lines[first_line - 1 : node.end_lineno])
            texts[first_line] = max(texts.get(first_line, ""), body, key=len)
    codes = [code for code in _codes(compiled) if code.co_firstlineno in texts]
    numbers: Counter[int] = Counter()
    sources = {}
    for code in codes:
        numbers[code.co_firstlineno] += 1
        sources[code] = f"{numbers[code.co_firstlineno]} in {texts[code.co_firstlineno]}"
    return sources


def _codes(code: CodeType) -> Iterator[CodeType]:
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield constant
            yield from _codes(constant)
