"""Function files: Python files that declare functions with `derivatrix.function`."""

from __future__ import annotations

import difflib
import os
import sys
import traceback
from collections.abc import Iterable
from pathlib import Path
from types import CodeType, ModuleType

from derivatrix.compiler.function import Function
from derivatrix.runtime.errors import DeclarationError, DerivatrixError

MODULE = "derivatrix_functions"
"""What a function file's `__name__` is while it runs."""


def load_functions(source: str | os.PathLike[str]) -> list[Function]:
    """The functions at the top level of a Python file, in the order of their definition.

    `source` is a path, or a path and the name of one function as in "functions.py:square". The
    file is run as a module: what stands under `if __name__ == "__main__"` is not, and it can
    import what lies beside it. Raises DeclarationError when there is no such file or function,
    two functions share a name, or the file raises; an error of derivatrix keeps its type.
    """
    path, name = _split(os.fspath(source))
    functions = _functions(path, _execute(path))
    if name is None:
        return functions
    for function in functions:
        if function.name == name:
            return [function]
    raise DeclarationError(f"{path}: no function is called {name!r}{_hint(name, functions)}")


def require_unique(functions: Function | Iterable[Function], place: str) -> list[Function]:
    """One function or several, as a list. Raises DeclarationError where two have one name, for
    what is no function, and for none at all."""
    found: dict[str, Function] = {}
    for function in [functions] if isinstance(functions, Function) else functions:
        if not isinstance(function, Function):
            raise DeclarationError(
                f"{place}: {function!r} is no derivatrix function; declare one with "
                "`derivatrix.function(name, inputs, expression)`"
            )
        if found.setdefault(function.name, function) is not function:
            raise DeclarationError(
                f"{place}: two functions are called {function.name!r}; give one another name"
            )
    if not found:
        raise DeclarationError(
            f"{place}: there is no function; declare one at the top level, as in "
            '`square = dx.function("square", [X], X @ X)`'
        )
    return list(found.values())


def _split(source: str) -> tuple[Path, str | None]:
    path, separator, name = source.rpartition(":")
    if separator and name.isidentifier() and not os.path.exists(source):
        return Path(path), name
    return Path(source), None


def _functions(path: Path, module: ModuleType) -> list[Function]:
    found = [value for value in vars(module).values() if isinstance(value, Function)]
    return require_unique(found, str(path))


def _execute(path: Path) -> ModuleType:
    module = ModuleType(MODULE)
    module.__file__ = str(path)
    directory = str(path.resolve().parent)
    code = _code(path)
    sys.modules[MODULE] = module
    sys.path.insert(0, directory)
    try:
        exec(code, vars(module))
    except DerivatrixError as error:
        raise type(error)(f"{_place(path, error)}: {error}") from error
    except (Exception, SystemExit) as error:  # the file is the user's: it may raise anything
        raise DeclarationError(f"{_place(path, error)}: {_text(error)}") from error
    finally:
        sys.path.remove(directory)
        del sys.modules[MODULE]
    return module


def _code(path: Path) -> CodeType:
    try:
        return compile(path.read_bytes(), str(path), "exec")
    except OSError as error:
        raise DeclarationError(f"{path}: cannot be read: {error.strerror}") from error
    except SyntaxError as error:
        raise DeclarationError(f"{path}, line {error.lineno}: {_text(error)}") from error
    except ValueError as error:
        raise DeclarationError(f"{path}: no Python file: {error}") from error


def _text(error: BaseException) -> str:
    return f"{type(error).__name__}: {error.msg if isinstance(error, SyntaxError) else error}"


def _place(path: Path, error: BaseException) -> str:
    """The file, and its line that was running when the error was raised."""
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame.lineno for frame in frames if frame.filename == str(path)]
    return f"{path}, line {lines[-1]}" if lines else str(path)


def _hint(name: str, functions: list[Function]) -> str:
    names = [function.name for function in functions]
    close = difflib.get_close_matches(name, names, n=3, cutoff=0.5)
    if close:
        return f"; did you mean {' or '.join(close)}?"
    return f"; it declares {', '.join(names)}"
