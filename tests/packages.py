"""Generated packages, as tests look into them and write parts of them."""

import importlib
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from derivatrix.compiler.driver.build import build
from derivatrix.compiler.driver.pipeline import generate
from derivatrix.compiler.driver.support_package import all_files, support_texts
from derivatrix.compiler.frontends.function import Function
from derivatrix.runtime.load import load
from derivatrix.runtime.support import FOLDER, with_support
from derivatrix.runtime.warm import import_name, warm_file


def support_of(*functions: Function, target: str = "cpu") -> set[str]:
    """The files of the support in a package of functions, as "_support/cpu/blas.py"."""
    return {*support_texts(file for each in functions for file in generate(each, target).support)}


def support_file(module: ModuleType, file: str) -> Any:
    """What a generated module's support has in a file, such as "cpu.pool"."""
    return importlib.import_module(f"{module.__package__}.{FOLDER}.{file}")


def set_everywhere(
    monkeypatch: pytest.MonkeyPatch, module: ModuleType, name: str, value: object
) -> None:
    """Give a name another value in a generated module and in its support, wherever they have it."""
    owners = [each for each in with_support(module) if hasattr(each, name)]
    assert owners, name
    for owner in owners:
        monkeypatch.setattr(owner, name, value)


def with_threads(monkeypatch: pytest.MonkeyPatch, module: ModuleType, threads: int) -> Any:
    """A thread pool that is the module's alone, where calls take so many threads."""
    pool = support_file(module, "cpu.pool")
    set_everywhere(monkeypatch, module, "_THREADS", threads)
    made = pool._Crew()
    set_everywhere(monkeypatch, module, "_CREW", made)
    return made


def write_module(folder: Path, name: str, text: str) -> Path:
    """Write a generated module with its support beside it; the module's file."""
    for file, content in {**support_texts(all_files()), f"{name}.py": text}.items():
        path = folder / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content, encoding="utf-8", newline="\n")
    return folder / f"{name}.py"


def loaded(folder: Path, name: str, text: str) -> ModuleType:
    """A generated module of this text, with its support, from a folder."""
    return load(write_module(folder, name, text))


def warmed(folder: Path, function: Function) -> Any:
    """A function's module in a package of its own in a folder, its kernels compiled ahead of their
    use. The package has the folder's name, which is to be no other's in the process."""
    build(function, folder, verify=False)
    path = folder / f"{function.name}.py"
    warm_file(str(path))
    return sys.modules[import_name(path)]
