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
"""The package that a function file is in while it runs: the outermost of the folders with an
`__init__.py` that hold it, or its own. None of these `__init__.py` is run."""

_beside: dict[str, Path] = {}
"""The modules that function files have imported from beside them, and the folders of these."""


def load_functions(source: str | os.PathLike[str]) -> list[Function]:
    """The functions at the top level of a Python file, in the order of their definition; those in
    lists, tuples and values of dicts there, too.

    `source` is a path, or a path and the name of one function as in "functions.py:square". The
    file is run as a module: what stands under `if __name__ == "__main__"` is not, and it can
    import what lies beside it, by relative imports, too. Raises DeclarationError when there is no
    such file or function, two functions share a name, or the file raises; an error of derivatrix
    keeps its type.
    """
    path, name = _split(os.fspath(source))
    functions = [_loaded(function, path) for function in _functions(path, _execute(path))]
    if name is None:
        return functions
    for function in functions:
        if function.name == name:
            return [function]
    raise DeclarationError(f"{path}: {_refusal(name, [function.name for function in functions])}")


def load_files(sources: Iterable[str | os.PathLike[str]]) -> list[Function]:
    """The functions of several files, each once. Raises what `load_functions` raises, and
    DeclarationError where two that differ have one name."""
    places = [os.fspath(source) for source in sources]
    functions = [function for place in places for function in load_functions(place)]
    return require_unique(functions, ", ".join(places))


def require_unique(functions: Iterable[Function], place: str) -> list[Function]:
    """The functions, each once. Raises DeclarationError where two that differ have one name."""
    found: dict[str, Function] = {}
    for function in functions:
        other = found.setdefault(function.name, function)
        if other is not function and _declared(other) != _declared(function):
            raise DeclarationError(
                f"{place}: two functions are called {function.name!r}; give one another name"
            )
    return list(found.values())


def _declared(function: Function) -> str:
    return content((function.inputs, function.expression, function.wrt, function.batch))


def _loaded(function: Function, path: Path) -> Function:
    """The function as one of this file: another file may have imported it as well."""
    function = copy.copy(function)
    function.source = str(path.resolve())
    return function


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
    found = [each for value in vars(module).values() for each in _within(value)]
    if not found:
        raise DeclarationError(
            f"{path}: there is no function; declare one at the top level, as in "
            '`square = dx.function("square", [X], X @ X)`'
        )
    return require_unique(found, str(path))


def _within(value: object) -> Iterator[Function]:
    """The functions that a value of a file is or holds."""
    if isinstance(value, Function):
        yield value
    elif type(value) in (list, tuple, dict):
        for each in value.values() if isinstance(value, dict) else value:  # type: ignore[attr-defined]
            if isinstance(each, Function):
                yield each


def _execute(path: Path) -> ModuleType:
    code = _code(path)
    folder = path.resolve().parent
    outermost, package = _package(folder)
    _forget(folder, outermost)
    before, known = [*sys.path], {*sys.modules}
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
        sys.path[:] = before
        sys.modules.pop(module.__name__, None)
        sys.modules.pop(PACKAGE, None)
        for name in {*sys.modules} - known:
            _remember(name, folder, outermost)
    return module


def _package(folder: Path) -> tuple[Path, str]:
    """The outermost folder that a file's relative imports may reach, and the name of its own
    package; both are made, and the folders between them."""
    folders = [folder]
    if (folder / "__init__.py").is_file():
        while (folders[0].parent / "__init__.py").is_file():
            folders.insert(0, folders[0].parent)
    name = ""
    for each in folders:
        name = f"{name}.{each.name}" if name else PACKAGE
        package = ModuleType(name)
        package.__path__ = [str(each)]
        sys.modules[name] = package
    return folders[0], name


def _forget(folder: Path, outermost: Path) -> None:
    """Let names mean what lies beside this file: what lies beside others may have the same."""
    for name, place in [*_beside.items()]:
        if place != (outermost if name.startswith(f"{PACKAGE}.") else folder):
            sys.modules.pop(name, None)
            del _beside[name]


def _remember(name: str, folder: Path, outermost: Path) -> None:
    """Note a module that was imported from beside a file; the packages made for it go."""
    file = getattr(sys.modules[name], "__file__", None)
    top = name.partition(".")[0]
    if top == PACKAGE and file is None:
        del sys.modules[name]
    elif top == PACKAGE:
        _beside[name] = outermost
    elif file and (Path(file) == folder / f"{top}.py" or folder / top in Path(file).parents):
        _beside[name] = folder


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
    return traceback.format_exception_only(error)[0].strip()


def _place(path: Path, error: BaseException) -> str:
    """The file, and its line that was running when the error was raised."""
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame.lineno for frame in frames if frame.filename == str(path)]
    return f"{path}:{lines[-1]}" if lines else str(path)
