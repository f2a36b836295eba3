"""Generated modules on disk: a package of them, its freshness, and one compiled in a session."""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import ModuleType

from derivatrix.compiler.function import Function
from derivatrix.compiler.functionfile import require_unique
from derivatrix.compiler.ownership import CERTIFICATE, MARK, PACKAGE, own_files, published
from derivatrix.compiler.pipeline import Generated, generate
from derivatrix.runtime import Report, load, write_certificate
from derivatrix.runtime import verify as verify_module
from derivatrix.runtime.errors import BuildError, DeclarationError, VerificationError

Progress = Callable[[str, int, int], None]
"""Called with the work that begins, how many pieces of it are done, and how many there are."""

_PACKAGE_TEXT = '''{mark}: {summary}. Do not edit; build again instead.

{lines}
"""

import importlib

__all__ = [{names}]


def __getattr__(name):
    if name in __all__:
        return importlib.import_module("." + name, __name__)
    raise AttributeError(f"module {{__name__!r}} has no attribute {{name!r}}")


def __dir__():
    return sorted({{*globals(), *__all__}})
'''


@dataclass(frozen=True)
class BuildResult:
    """What `build` did. `modules`: the names in the package; `written` and `removed`: the files
    that changed; `reports`: what verification found, one a module, none where it was left out."""

    directory: Path
    modules: tuple[str, ...]
    written: tuple[str, ...]
    removed: tuple[str, ...]
    reports: tuple[Report, ...]


@dataclass(frozen=True)
class Difference:
    """A file of a package that is not as the functions' declarations say. `state` is "missing",
    "stale" (its contents differ) or "extra" (no function belongs to it any more)."""

    file: str
    state: str


def build(
    functions: Function | Iterable[Function],
    out_dir: str | os.PathLike[str],
    targets: Sequence[str] = ("cpu",),
    verify: bool = True,
    progress: Progress | None = None,
) -> BuildResult:
    """Write a package with one module for each function and target, verified.

    The modules are written and verified in a directory beside the old ones and then put in place
    file by file, so a build that fails leaves `out_dir` as it was. With `verify` a certificate
    goes with them. Modules of an earlier build that no function belongs to any more are removed.

    Raises DeclarationError for functions with one name, BuildError where a file that derivatrix
    did not write is in the way or the directory cannot be written, VerificationError where a
    module fails, and what `generate` raises.
    """
    directory = Path(out_dir)
    steps = _Steps(require_unique(functions, "build"), targets, verify, progress)
    modules = steps.generate()
    texts = _texts(modules)
    _refuse(directory, texts)
    try:
        with _staging(directory) as staging:
            for name, text in texts.items():
                (staging / name).write_text(text, encoding="utf-8", newline="\n")
            reports = steps.verify(staging, modules)
            return _install(directory, staging, modules, reports)
    except OSError as error:
        raise BuildError(f"{directory}: cannot be written: {error.strerror}") from error


def check(
    functions: Function | Iterable[Function],
    out_dir: str | os.PathLike[str],
    targets: Sequence[str] = ("cpu",),
) -> list[Difference]:
    """What `build` would change in `out_dir`, compared byte for byte; nothing is written.

    Raises DeclarationError for functions with one name, and what `generate` raises.
    """
    directory = Path(out_dir)
    steps = _Steps(require_unique(functions, "check"), targets, False, None)
    texts = _texts(steps.generate())
    found = []
    for name, text in texts.items():
        path = directory / name
        if not path.is_file():
            found.append(Difference(name, "missing"))
        elif path.read_bytes() != text.encode():
            found.append(Difference(name, "stale"))
    return found + [Difference(name, "extra") for name in _leftovers(directory, texts)]


def compile(function: Function, target: str = "cpu") -> ModuleType:
    """The function's generated module, loaded from a file in the cache directory.

    The directory is $DERIVATRIX_CACHE, or the user's cache directory, or a temporary one where
    that cannot be written. The same function gives the same module object again. A module is not
    verified here: see `derivatrix.verify`. Raises what `generate` raises.
    """
    generated = generate(function, target)
    path = _cache_directory() / f"{generated.name}_{generated.digest[:16]}.py"
    source = generated.text.encode()
    if not path.is_file() or path.read_bytes() != source:
        _replace(path, source)
    return load(path)


class _Steps:
    """The long parts of a build, with progress."""

    def __init__(
        self,
        functions: Sequence[Function],
        targets: Sequence[str],
        verified: bool,
        progress: Progress | None,
    ) -> None:
        chosen = dict.fromkeys(targets)
        self.work = [(function, target) for function in functions for target in chosen]
        self.verified = verified
        self.progress = progress
        self.total = len(self.work) * (2 if verified else 1)
        self.done = 0

    def generate(self) -> list[Generated]:
        modules: dict[str, Generated] = {}
        for function, target in self.work:
            self._announce(f"{function.name}: deriving for {target}")
            module = generate(function, target)
            _require_free(module.name, modules)
            modules[module.name] = module
            self.done += 1
        return list(modules.values())

    def verify(self, staging: Path, modules: Iterable[Generated]) -> tuple[Report, ...]:
        """The reports, kept as a certificate too. Raises VerificationError with every failure."""
        if not self.verified:
            return ()
        reports = []
        for module in modules:
            self._announce(f"{module.name}: verifying")
            loaded = load(staging / f"{module.name}.py")
            reports.append(verify_module(loaded, progress=self._announce))
            self.done += 1
        _require_passed(reports)
        write_certificate(staging, reports)
        return tuple(reports)

    def _announce(self, text: str) -> None:
        if self.progress is not None:
            self.progress(text, self.done, self.total)


def _require_free(name: str, taken: Iterable[str]) -> None:
    if name == "__init__":
        raise DeclarationError("a function cannot be called '__init__': its file is the package's")
    for other in taken:
        if other.casefold() == name.casefold():
            raise DeclarationError(
                f"the modules {other} and {name} would be one file, at least where file names "
                "ignore case; give one function another name"
            )


def _require_passed(reports: Iterable[Report]) -> None:
    failures = []
    for report in reports:
        try:
            report.raise_for_failure()
        except VerificationError as error:
            failures.append(str(error))
    if failures:
        raise VerificationError("\n".join([*failures, "Nothing was written."]))


def _texts(modules: Sequence[Generated]) -> dict[str, str]:
    """The text of each file of the package, the package's own last."""
    texts = {f"{module.name}.py": module.text for module in modules}
    return {**texts, PACKAGE: _package_text(modules)}


def _package_text(modules: Sequence[Generated]) -> str:
    names = sorted(module.name for module in modules)
    summary = f"{len(names)} module{'s' if len(names) != 1 else ''}"
    return _PACKAGE_TEXT.format(
        mark=MARK,
        summary=summary,
        lines="\n".join(f"    {name}" for name in names),
        names=", ".join(f'"{name}"' for name in names),
    )


# What is in the directory already


def _refuse(directory: Path, texts: Iterable[str]) -> None:
    """Raise BuildError where a file to be written is in the way that derivatrix did not write."""
    nearest = next(path for path in _upwards(directory) if os.path.lexists(path))
    if not nearest.is_dir():
        raise BuildError(f"{nearest}: is no directory; choose another place to write to")
    if nearest != directory:
        return
    own = own_files(directory)
    foreign = [
        name
        for name in (*texts, *CERTIFICATE)
        if os.path.lexists(directory / name) and name not in own
    ]
    if foreign:
        raise BuildError(
            f"{directory}: derivatrix did not write {', '.join(foreign)} and will not overwrite "
            "it; move it away or choose another directory. Nothing was written."
        )


def _leftovers(directory: Path, texts: Iterable[str]) -> list[str]:
    """The files of an earlier build that no function belongs to any more."""
    if not directory.is_dir():
        return []
    own = own_files(directory)
    listed = [f"{name}.py" for name in published(directory) or ()]
    return [name for name in listed if name in own and name not in set(texts)]


# Writing


def _upwards(directory: Path) -> tuple[Path, ...]:
    """The directory and those that it is in."""
    return (directory, *directory.absolute().parents)


@contextlib.contextmanager
def _staging(directory: Path) -> Iterator[Path]:
    """A temporary directory on the file system that `directory` is or will be on."""
    existing = next(path for path in _upwards(directory) if path.is_dir())
    staging = Path(tempfile.mkdtemp(prefix=".derivatrix-", dir=existing))
    try:
        yield staging
    finally:
        shutil.rmtree(staging)


def _install(
    directory: Path, staging: Path, modules: Sequence[Generated], reports: tuple[Report, ...]
) -> BuildResult:
    """Put the staged files in place, those that differ."""
    directory.mkdir(parents=True, exist_ok=True)
    fresh = [f"{module.name}.py" for module in modules] + [PACKAGE]
    removed = _leftovers(directory, fresh)
    if reports:
        fresh += CERTIFICATE
    else:
        removed += [name for name in CERTIFICATE if (directory / name).exists()]
    written = [name for name in fresh if _differs(staging / name, directory / name)]
    for name in written:
        os.replace(staging / name, directory / name)
    for name in removed:
        (directory / name).unlink()
    names = tuple(module.name for module in modules)
    return BuildResult(directory, names, tuple(written), tuple(removed), reports)


def _differs(new: Path, old: Path) -> bool:
    return not old.is_file() or new.read_bytes() != old.read_bytes()


def _replace(path: Path, contents: bytes) -> None:
    """Write a file through a temporary one beside it, so that no reader sees half of it."""
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    with os.fdopen(handle, "wb") as file:
        file.write(contents)
    os.replace(temporary, path)


# The cache of `compile`


def _cache_directory() -> Path:
    wanted = os.environ.get("DERIVATRIX_CACHE")
    directory = Path(wanted) if wanted else _user_cache() / "derivatrix"
    try:
        directory.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=directory).close()
    except OSError:
        return _temporary_cache()
    return directory.resolve()


def _user_cache() -> Path:
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA", Path.home() / "AppData" / "Local"))
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")


@cache
def _temporary_cache() -> Path:
    """A directory that lasts as long as the process."""
    holder = tempfile.TemporaryDirectory(prefix="derivatrix-", ignore_cleanup_errors=True)
    _holders.append(holder)
    return Path(holder.name).resolve()


_holders: list[tempfile.TemporaryDirectory[str]] = []
