"""Pickles of modules that `derivatrix.compile` made, and their import by name in other processes.

A name is derivatrix.compiled.VERSION_SUPPORT_STATE.NAME_DIGEST_STATE, with the beginnings of
digests. SUPPORT and DIGEST locate the files in a cache directory; each STATE is of the files'
contents and paths, so that versions never mix.

In place of a module that cannot be loaded stands one whose functions raise LoadError: an error
during unpickling would kill dask's worker without a message to the user.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from importlib import resources
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

from derivatrix.runtime.cache import cache_directory, module_directory, write_if_different
from derivatrix.runtime.errors import LoadError
from derivatrix.runtime.load import LoadedModule, load_file
from derivatrix.runtime.same_version import require_version
from derivatrix.runtime.support import FOLDER, HOME, assigned, file_digest, read_file, version_in
from derivatrix.version import VERSION

SUPPORT = f"{FOLDER}/__init__.py"


class Unavailable(ModuleType):
    """Stands in for a module that cannot be loaded: all its functions raise LoadError."""

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(name)
        self.reason = reason

    def __getattr__(self, name: str) -> type:
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (), {"__new__": self._refuse})

    def _refuse(self, *_: object, **__: object) -> None:
        raise LoadError(self.reason)


class CompiledModule(LoadedModule):
    """A module of the cache. Its pickle holds its text, so that another process can write it to its
    own cache and load it under the same name. make_second: compiles the module with the second
    derivatives, in a process that has the declaration."""

    make_second: Callable[[], ModuleType] | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        file = Path(str(self.__file__))
        root = file.parent.parent
        texts = {
            name: read_file(file.parent / name).decode()
            for name in (f"_formulas/{file.name}", file.name)
        }
        location = (self.SUPPORT, file.parent.name)
        return restored, (self.__name__, location, read_file(root / SUPPORT).decode(), texts)


def load_compiled(path: Path, name: str = "") -> CompiledModule:
    """Load a module of the cache, under `name` if it comes from another process. Raises LoadError
    as `load` does."""
    module = load_file(path, name)
    module.__class__ = CompiledModule
    assert isinstance(module, CompiledModule)
    return module


def restored(
    name: str, location: tuple[str, str], support: str, texts: Mapping[str, str]
) -> ModuleType:
    """Import the module of a pickle, after writing it to the cache of this process if needed.

    location: the digest of its support, and its folder. support: the text of the support's
    `__init__.py`. texts: the module's files. Raises OSError if these cannot be written."""
    if isinstance(sys.modules.get(name), CompiledModule):
        return importlib.import_module(name)
    modules = [*sys.modules.items()]
    for unavailable in [key for key, module in modules if isinstance(module, Unavailable)]:
        del sys.modules[unavailable]
    group, folder = location
    try:
        require_version(name, str(assigned(support.encode()).get("VERSION")))
        directory = module_directory(group, FOLDER, folder)
        write_if_different(directory.parent, _support_texts(name, support))
        write_if_different(directory, texts)
        return importlib.import_module(name)
    except LoadError as error:
        return Unavailable(name, str(error))


def _support_texts(name: str, init: str) -> dict[str, str]:
    """Read the files of a support from the installed derivatrix; raises LoadError if they differ
    from those that `init` lists."""
    root = resources.files("derivatrix.templates.support")
    texts = {SUPPORT: init}
    for file, digest in assigned(init.encode())["FILES"].items():
        contents = (root / file).read_bytes()
        if file_digest(contents) != digest:
            raise LoadError(
                f"{name} comes from a process with another build of derivatrix {VERSION}: their "
                f"{file} differ; install the same one everywhere"
            )
        texts[f"{FOLDER}/{file}"] = contents.decode()
    return texts


class Finder(MetaPathFinder):
    """Finds modules of the cache by the names that they have in other processes."""

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if not name.startswith(f"{HOME}."):
            return None
        package, _, module = name.removeprefix(f"{HOME}.").partition(".")
        parent = sys.modules.get(name.rpartition(".")[0])
        try:
            if isinstance(parent, Unavailable):
                raise LoadError(parent.reason)
            if not module:
                spec = ModuleSpec(name, None, is_package=True)
                spec.submodule_search_locations = [str(_support_directory(name, package))]
                return spec
            if "." in module or module == FOLDER or not path:
                return None
            return ModuleSpec(name, _Loader(partial(_load_module, name, Path(path[0]), module)))
        except LoadError as error:
            unavailable = partial(Unavailable, name, str(error))
            return ModuleSpec(name, _Loader(unavailable), is_package=True)


class _Loader(Loader):
    """Gets a module from a function that makes and runs it."""

    def __init__(self, make: Callable[[], ModuleType]) -> None:
        self._make = make

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return self._make()

    def exec_module(self, module: ModuleType) -> None:
        pass


def _support_directory(name: str, package: str) -> Path:
    """Find the folder in the cache with the support of the module `name`."""
    version, digest = version_in(package)
    if not digest:
        raise LoadError(
            f"{name}: a module that another process has loaded from a file; load the file in this "
            "process first, with `derivatrix.load(path)`, or import it as part of its package in "
            "both, as in `from generated import square`"
        )
    require_version(name, version)
    support = next(cache_directory().glob(f"{digest}*/{SUPPORT}"), None)
    if support is None:
        raise _not_in_cache(name, cache_directory())
    return module_directory(support.parents[1].name, FOLDER, FOLDER).parent


def _load_module(name: str, root: Path, module: str) -> ModuleType:
    """Load a module from a folder of the cache by its name."""
    stem, digest, _ = [*module.rsplit("_", 2), "", ""][:3]
    path = next(root.glob(f"{digest}*/{stem}.py"), None) if digest else None
    try:
        if path is None:
            raise _not_in_cache(name, root.parent)
        directory = module_directory(root.name, FOLDER, path.parent.name)
        return load_compiled(directory / path.name, name)
    except LoadError as error:
        return Unavailable(name, str(error))


def _not_in_cache(name: str, cache: Path) -> LoadError:
    return LoadError(
        f"{name}: is not in the cache of this process, {cache}. Functions go to other processes by "
        "their names alone: let all have the same DERIVATRIX_CACHE, or send the module, which "
        "takes its text along, or install a package that `derivatrix build` has written"
    )
