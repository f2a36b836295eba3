"""Generated packages, as tests look into them and write parts of them."""

import importlib
import inspect
import itertools
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from derivatrix.compiler.driver.build import build
from derivatrix.compiler.driver.pipeline import generate
from derivatrix.compiler.driver.support_package import support_texts
from derivatrix.compiler.emit.imports import all_files
from derivatrix.compiler.frontends.function import Function
from derivatrix.runtime.load import import_name, load
from derivatrix.runtime.support import FOLDER, with_support
from derivatrix.runtime.warm import warm_file


def support_of(*functions: Function, target: str = "cpu") -> set[str]:
    """The files of the support in a package of functions, as "_support/cpu/blas.py"."""
    return {
        *support_texts(
            file for function in functions for file in generate(function, target).support
        )
    }


def package_of(*functions: Function, targets: Sequence[str] = ("cpu",)) -> set[str]:
    """The files of a package of functions, without a certificate."""
    result = {"__init__.py", "py.typed"}
    for function, target in itertools.product(functions, targets):
        result |= {*generate(function, target).texts, *support_of(function, target=target)}
    return result


def support_file(module: ModuleType, file: str) -> Any:
    """Return a file of a generated module's support, such as "cpu.thread_pool", as a module."""
    return importlib.import_module(f"{module.__package__}.{FOLDER}.{file}")


def set_everywhere(
    monkeypatch: pytest.MonkeyPatch, module: ModuleType, path: str, value: object
) -> None:
    """Put another value in the place of what a file of a generated module's support defines, such
    as "cuda.base.THREADS": there, wherever it is imported, and where public functions have it."""
    file, _, name = path.rpartition(".")
    result = getattr(support_file(module, file), name)
    functions = filter(inspect.isfunction, vars(module).values())
    scopes = [vars(file) for file in with_support(module)] + [f.__globals__ for f in functions]
    for scope in scopes:
        for own in {name, name.lower()} & scope.keys():
            if scope[own] is result:
                monkeypatch.setitem(scope, own, value)


def with_threads(monkeypatch: pytest.MonkeyPatch, module: ModuleType, threads: int) -> Any:
    """A thread pool that is the module's alone, where calls take so many threads."""
    monkeypatch.setattr(support_file(module, "cpu.kernels"), "_THREADS", threads)
    pool = support_file(module, "cpu.thread_pool")._ThreadPool()
    set_everywhere(monkeypatch, module, "cpu.thread_pool._THREAD_POOL", pool)
    return pool


def texts_of(name: str, text: str, data: str) -> dict[str, str]:
    """The files of a generated module of these texts, with its support."""
    own = {f"_formulas/{name}.py": data, f"{name}.py": text}
    return support_texts(all_files()) | own


def write_files(folder: Path, texts: Mapping[str, str]) -> Path:
    """Write files, given by their names, to a folder; the folder."""
    for name, text in texts.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8", newline="\n")
    return folder


def loaded(folder: Path, name: str, text: str, data: str) -> ModuleType:
    """A generated module of these texts, from a folder."""
    return load(write_files(folder, texts_of(name, text, data)) / f"{name}.py")


def warmed(folder: Path, function: Function) -> Any:
    """A function's module in a package of its own in a folder, its kernels compiled ahead of their
    use. The package has the folder's name, which is to be no other's in the process."""
    build(function, folder, verify=False)
    path = folder / f"{function.name}.py"
    warm_file(str(path))
    return sys.modules[import_name(path)]


def sharing(module: Any, kernel: str, cut: str = "parts") -> Any:
    """Return the object by which threads share the work of a kernel of a generated module, in
    "parts" or "batch_last"; None if there is none."""
    return module.generated.data.get(f"_{getattr(module, kernel).__name__}_in_{cut}")
