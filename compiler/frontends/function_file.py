"""Function files: Python files that declare functions with `derivatrix.function`."""

from __future__ import annotations

import copy
import difflib
import os
import sys
import traceback
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import CodeType, ModuleType

from derivatrix.compiler.frontends.function import Function
from derivatrix.compiler.ir.content import content
from derivatrix.runtime.errors import DeclarationError, DerivatrixError

PACKAGE = "derivatrix_functions"
"""The name, while a function file runs, of the outermost package around it; without packages, that
of its folder. No `__init__.py` is run."""

_sibling_modules: dict[str, Path] = {}
"""Module that a function file imported from its own folder or package -> that folder."""


def load_functions(source: str | os.PathLike[str]) -> list[Function]:
    """Load the functions at the top level of a Python file, in the order of their definition, also
    those in lists, tuples and values of dicts.

    source: a path, or a path and the name of one function as in "functions.py:square". The file is
    run as a module, without code under `if __name__ == "__main__"`; it can import modules of its
    folder, also by relative imports. Raises DeclarationError when there is no such file or
    function, two functions share a name, or the file raises; an error of derivatrix keeps its type.
    """
    path, name = _split_source(os.fspath(source))
    functions = [_with_source(function, path) for function in _functions(path, _execute(path))]
    if name is None:
        return functions
    for function in functions:
        if function.name == name:
            return [function]
    raise DeclarationError(f"{path}: {_refusal(name, [function.name for function in functions])}")


def load_files(sources: Iterable[str | os.PathLike[str]]) -> list[Function]:
    """Load the functions of several files, each once. Raises as `load_functions`, and
    DeclarationError for two different functions of one name."""
    places = [os.fspath(source) for source in sources]
    functions = [function for place in places for function in load_functions(place)]
    return require_unique(functions, ", ".join(places))


def require_unique(functions: Iterable[Function], place: str) -> list[Function]:
    """Remove duplicates. Raises DeclarationError for two different functions of one name."""
    by_name: dict[str, Function] = {}
    for function in functions:
        earlier = by_name.setdefault(function.name, function)
        if earlier is not function and _fingerprint(earlier) != _fingerprint(function):
            raise DeclarationError(
                f"{place}: two functions are called {function.name!r}; give one another name"
            )
    return list(by_name.values())


def _fingerprint(function: Function) -> str:
    """Digest a declaration: files that import one another load equal functions, not the same."""
    return content((function.inputs, function.outputs, function.wrt, function.batch))


def _with_source(function: Function, path: Path) -> Function:
    """Copy the function, with this file as its source: other files may have imported it,
    too."""
    function = copy.copy(function)
    function.source = str(path.resolve())
    return function


def _split_source(source: str) -> tuple[Path, str | None]:
    """Split "functions.py:square"; a path may have a colon of its own, as C:\\functions.py has."""
    path, separator, name = source.rpartition(":")
    has_name = separator and (name.isidentifier() or os.path.exists(path))
    return (Path(path), name) if has_name and not os.path.exists(source) else (Path(source), None)


def _refusal(name: str, names: list[str]) -> str:
    declared = f"it declares {', '.join(names)}"
    if not name:
        return f"the name of a function is missing after the colon; {declared}"
    close = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
    hint = f"; did you mean {close[0]}?" if close else ""
    return f"no function is called {name!r} ({declared}){hint}"


def _functions(path: Path, module: ModuleType) -> list[Function]:
    functions = [function for value in vars(module).values() for function in _functions_in(value)]
    if not functions:
        raise DeclarationError(
            f"{path}: there is no function; declare one at the top level, as in "
            '`square = dx.function("square", [X], X @ X)`'
        )
    return require_unique(functions, str(path))


def _functions_in(value: object) -> Iterator[Function]:
    """Yield a value if it is a function, or the functions in a list, tuple or dict."""
    if isinstance(value, Function):
        yield value
    elif type(value) in (list, tuple, dict):
        for item in value.values() if isinstance(value, dict) else value:  # type: ignore[attr-defined]
            if isinstance(item, Function):
                yield item


def _execute(path: Path) -> ModuleType:
    """Run a function file as a module. Raises DeclarationError for any error of the file, and an
    error of derivatrix with its own type; each names the line."""
    code = _code(path)
    folder = path.resolve().parent
    outermost, package = _package(folder)
    _forget(folder, outermost)
    path_before, modules_before = [*sys.path], {*sys.modules}
    module = ModuleType(f"{package}.{path.stem}")
    module.__file__, module.__package__ = str(path), package
    sys.modules[module.__name__] = module
    sys.path.insert(0, str(folder))
    try:
        exec(code, vars(module))
    except DerivatrixError as error:
        raise type(error)(f"{_place(path, error)}: {error}") from error
    except KeyboardInterrupt as error:
        error.add_note(_place(path, error))
        raise
    except BaseException as error:  # the file is the user's: it may raise anything
        text = _text(error).removeprefix(f"{module.__name__}.")
        raise DeclarationError(f"{_place(path, error)}: {text}") from error
    finally:
        sys.path[:] = path_before
        sys.modules.pop(module.__name__, None)
        sys.modules.pop(PACKAGE, None)
        for name in {*sys.modules} - modules_before:
            _remember(name, folder, outermost)
    return module


def _package(folder: Path) -> tuple[Path, str]:
    """Create the packages from the outermost folder that relative imports may reach down to
    `folder`; return that outermost folder and the name of the innermost package."""
    folders = [folder]
    if (folder / "__init__.py").is_file():
        while (folders[0].parent / "__init__.py").is_file():
            folders.insert(0, folders[0].parent)
    name = ""
    for directory in folders:
        name = f"{name}.{directory.name}" if name else PACKAGE
        package = ModuleType(name)
        package.__path__ = [str(directory)]
        sys.modules[name] = package
    return folders[0], name


def _forget(folder: Path, outermost: Path) -> None:
    """Remove modules of other function files' folders from `sys.modules`: this file's own may have
    the same names."""
    for name, place in [*_sibling_modules.items()]:
        if place != (outermost if name.startswith(f"{PACKAGE}.") else folder):
            sys.modules.pop(name, None)
            del _sibling_modules[name]


def _remember(name: str, folder: Path, outermost: Path) -> None:
    """Note a module that was imported from a file's own folder, and remove the packages created for
    it."""
    file = getattr(sys.modules[name], "__file__", None)
    top = name.partition(".")[0]
    if top == PACKAGE and file is None:
        del sys.modules[name]
    elif top == PACKAGE:
        _sibling_modules[name] = outermost
    elif file and (Path(file) == folder / f"{top}.py" or folder / top in Path(file).parents):
        _sibling_modules[name] = folder


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
    """Return the last line of the error's traceback: its type and message."""
    if isinstance(error, SyntaxError):
        return f"{type(error).__name__}: {error}"  # its text names the file and line
    return traceback.format_exception_only(error)[0].strip()


def _place(path: Path, error: BaseException) -> str:
    """Return the file, with the line that raised the error where it is known."""
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame.lineno for frame in frames if frame.filename == str(path)]
    return f"{path}:{lines[-1]}" if lines else str(path)
