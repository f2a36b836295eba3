"""Modules that `derivatrix.compile` made, in other processes: how they are found there by their
names, and what of them is pickled.

Their names are derivatrix.compiled.VERSION_SUPPORT_STATE.NAME_DIGEST_STATE: by the beginnings of
the two digests they are found in a cache directory, and by those of what is in the files, and where
these are, versions never mix.

Where one cannot be had, another module stands in its place, and whatever is called of it raises
LoadError. An error while a task is unpickled would end dask's worker and reach nobody else.
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
from derivatrix.runtime.support import FOLDER, HOME, assigned, file_digest, version_in
from derivatrix.version import VERSION

SUPPORT = f"{FOLDER}/__init__.py"


class Unavailable(ModuleType):
    """In the place of a module: whatever is called of it raises LoadError, with the reason."""

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
    """A module of the cache. A pickle of it has its text: where the cache is another, the module is
    written there, and loaded under the same name."""

    def __reduce__(self) -> tuple[Any, ...]:
        file = Path(str(self.__file__))
        texts = {name: _text(file.parent / name) for name in (f"_formulas/{file.name}", file.name)}
        place = (self.SUPPORT, file.parent.name)
        return restored, (self.__name__, place, _text(file.parent.parent / SUPPORT), texts)


def load_compiled(path: Path, name: str = "") -> ModuleType:
    """The module in a file of the cache, under a name that it has in another process, or its own.
    Raises LoadError as `load` does."""
    module = load_file(path, name)
    module.__class__ = CompiledModule
    return module


def restored(
    name: str, place: tuple[str, str], support: str, texts: Mapping[str, str]
) -> ModuleType:
    """The module of this name, which is put into the cache of this process where it is not there.

    place: the digest of its support, and its folder; support: the text of the support's
    `__init__.py`; texts: of the module's own files. Raises OSError where nothing can be written."""
    if isinstance(sys.modules.get(name), CompiledModule):
        return importlib.import_module(name)
    for other in [each for each, found in [*sys.modules.items()] if isinstance(found, Unavailable)]:
        del sys.modules[other]
    group, folder = place
    try:
        require_version(name, str(assigned(support.encode()).get("VERSION")))
        directory = module_directory(group, FOLDER, folder)
        write_if_different(directory.parent, _support_texts(name, support))
        write_if_different(directory, texts)
        return importlib.import_module(name)
    except LoadError as error:
        return Unavailable(name, str(error))


def _support_texts(name: str, init: str) -> dict[str, str]:
    """The files of a support, which have to be those of the derivatrix that is installed here."""
    root = resources.files("derivatrix.templates.support")
    found = {SUPPORT: init}
    for file, digest in assigned(init.encode())["FILES"].items():
        contents = (root / file).read_bytes()
        if file_digest(contents) != digest:
            raise LoadError(
                f"{name} comes from a process with another build of derivatrix {VERSION}: their "
                f"{file} differ; install the same one everywhere"
            )
        found[f"{FOLDER}/{file}"] = contents.decode()
    return found


class Finder(MetaPathFinder):
    """Finds modules of the cache of this process by the names that they have in others."""

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if not name.startswith(f"{HOME}."):
            return None
        group, _, module = name.removeprefix(f"{HOME}.").partition(".")
        above = sys.modules.get(name.rpartition(".")[0])
        try:
            if isinstance(above, Unavailable):
                raise LoadError(above.reason)
            if not module:
                spec = ModuleSpec(name, None, is_package=True)
                spec.submodule_search_locations = [str(_group(name, group))]
                return spec
            if "." in module or module == FOLDER or not path:
                return None
            return ModuleSpec(name, _Loader(partial(_loaded, name, Path(path[0]), module)))
        except LoadError as error:
            absent = partial(Unavailable, name, str(error))
            return ModuleSpec(name, _Loader(absent), is_package=True)


class _Loader(Loader):
    """Makes a module by a function, which has run it already."""

    def __init__(self, made: Callable[[], ModuleType]) -> None:
        self._made = made

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return self._made()

    def exec_module(self, module: ModuleType) -> None:
        pass


def _group(name: str, group: str) -> Path:
    """The folder in the cache with the support that a module of this name stands on."""
    version, digest = version_in(group)
    if not digest:
        raise LoadError(
            f"{name}: a module that another process has loaded from a file; load the file in this "
            "process first, with `derivatrix.load(path)`, or import it as part of its package in "
            "both, as in `from generated import square`"
        )
    require_version(name, version)
    found = next(cache_directory().glob(f"{digest}*/{SUPPORT}"), None)
    if found is None:
        raise _absent(name, cache_directory())
    return module_directory(found.parents[1].name, FOLDER, FOLDER).parent


def _loaded(name: str, root: Path, module: str) -> ModuleType:
    """The module of a name below a folder of the cache."""
    stem, digest, _ = [*module.rsplit("_", 2), "", ""][:3]
    found = next(root.glob(f"{digest}*/{stem}.py"), None) if digest else None
    try:
        if found is None:
            raise _absent(name, root.parent)
        directory = module_directory(root.name, FOLDER, found.parent.name)
        return load_compiled(directory / found.name, name)
    except LoadError as error:
        return Unavailable(name, str(error))


def _absent(name: str, cache: Path) -> LoadError:
    return LoadError(
        f"{name}: is not in the cache of this process, {cache}. Functions go to other processes by "
        "their names alone: let all have the same DERIVATRIX_CACHE, or send the module, which "
        "takes its text along, or install a package that `derivatrix build` has written"
    )


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise LoadError(f"{path}: cannot be read: {error.strerror}") from error
