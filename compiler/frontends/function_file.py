"""Function files: Python files that declare functions with `derivatrix.function`."""

from __future__ import annotations

import difflib
import os
import sys
import traceback
from collections.abc import Iterable
from pathlib import Path
from types import CodeType, ModuleType

from derivatrix.compiler.frontends.function import Function
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
    raise DeclarationError(f"{path}: {_refusal(name, [function.name for function in functions])}")


def require_unique(functions: Iterable[Function], place: str) -> list[Function]:
    """The functions, each once. Raises DeclarationError where two have one name."""
    found: dict[str, Function] = {}
    for function in functions:
        if found.setdefault(function.name, function) is not function:
            raise DeclarationError(
                f"{place}: two functions are called {function.name!r}; give one another name"
            )
    return list(found.values())


def _split(source: str) -> tuple[Path, str | None]:
    path, separator, name = source.rpartition(":")
    if not separator or os.path.exists(source):
        return Path(source), None
    if name.isidentifier() or os.path.exists(path):
        return Path(path), name
    return Path(source), None


def _refusal(name: str, names: list[str]) -> str:
    declared = f"it declares {', '.join(names)}"
    if not name:
        return f"the name of a function is missing after the colon; {declared}"
    close = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
    hint = f"; did you mean {close[0]}?" if close else ""
    return f"no function is called {name!r} ({declared}){hint}"


def _functions(path: Path, module: ModuleType) -> list[Function]:
    found = [value for value in vars(module).values() if isinstance(value, Function)]
    if not found:
        raise DeclarationError(
            f"{path}: there is no function; declare one at the top level, as in "
            '`square = dx.function("square", [X], X @ X)`'
        )
    return require_unique(found, str(path))


def _execute(path: Path) -> ModuleType:
    code = _code(path)
    module = ModuleType(MODULE)
    module.__file__ = str(path)
    before = [*sys.path]
    sys.modules[MODULE] = module
    sys.path.insert(0, str(path.resolve().parent))
    try:
        exec(code, vars(module))
    except DerivatrixError as error:
        raise type(error)(f"{_place(path, error)}: {error}") from error
    except KeyboardInterrupt as error:
        error.add_note(_place(path, error))
        raise
    except BaseException as error:  # the file is the user's: it may raise anything
        raise DeclarationError(f"{_place(path, error)}: {_text(error)}") from error
    finally:
        sys.path[:] = before
        sys.modules.pop(MODULE, None)
    return module


def _code(path: Path) -> CodeType:
    if path.is_dir():
        raise DeclarationError(f"{path}: a directory; name a Python file that declares functions")
    try:
        return compile(path.read_bytes(), str(path), "exec", dont_inherit=True)
    except OSError as error:
        raise DeclarationError(f"{path}: cannot be read: {error.strerror}") from error
    except SyntaxError as error:
        place = f"{path}:{error.lineno}" if error.lineno else str(path)
        raise DeclarationError(f"{place}: {type(error).__name__}: {error.msg}") from error
    except (ValueError, MemoryError, RecursionError) as error:
        raise DeclarationError(f"{path}: no Python file: {_text(error)}") from error


def _text(error: BaseException) -> str:
    """The error's type and text, as Python prints them at the end of a traceback."""
    if isinstance(error, SyntaxError):
        return f"{type(error).__name__}: {error}"  # its text names the file and line
    lines = traceback.format_exception_only(error)
    return lines[0].strip().removeprefix(f"{MODULE}.")


def _place(path: Path, error: BaseException) -> str:
    """The file, and its line that was running when the error was raised."""
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame.lineno for frame in frames if frame.filename == str(path)]
    return f"{path}:{lines[-1]}" if lines else str(path)
