"""Python's parser, for threads that parse at the same time."""

from __future__ import annotations

import ast
from threading import RLock
from typing import Literal, overload

_PARSER_LOCK = RLock()


@overload
def parse_python(text: str | bytes) -> ast.Module: ...
@overload
def parse_python(text: str | bytes, mode: Literal["eval"]) -> ast.Expression: ...


def parse_python(text: str | bytes, mode: str = "exec") -> ast.AST:
    """Parse a Python text. Raises SyntaxError.

    CPython 3.11 counts the depth of the trees that all threads make in one number. If a garbage
    collection within `ast.parse` lets another thread parse, it raises SystemError (CPython's issue
    106905)."""
    with _PARSER_LOCK:
        return ast.parse(text, mode=mode)
