"""Generated modules on disk: build a package, check that it is current, compile one module."""

from __future__ import annotations

import os
import reprlib
import warnings
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

from derivatrix.compiler.driver import derivation_cache
from derivatrix.compiler.driver.comparison import require_agreement
from derivatrix.compiler.driver.ownership import (
    CERTIFICATE,
    SUPPORT,
    own_files,
    published,
    support_files,
)
from derivatrix.compiler.driver.package import Package, is_current, kept_modules, package_of
from derivatrix.compiler.driver.pipeline import Generated, generate, module_name
from derivatrix.compiler.driver.support_package import support_texts, unfinished_text
from derivatrix.compiler.driver.worker_serialization import Work, generate_in_workers
from derivatrix.compiler.emit.imports import all_files, support_digest
from derivatrix.compiler.emit.targets import find_target
from derivatrix.compiler.frontends.function import Function, require_function
from derivatrix.compiler.frontends.function_file import require_unique
from derivatrix.compiler.ir.arrays import Array
from derivatrix.runtime import Report, write_certificate
from derivatrix.runtime.atomic_output import locked, staging, upwards
from derivatrix.runtime.cache import module_directory, write_if_different
from derivatrix.runtime.certificate import certificate_states, standing_reports
from derivatrix.runtime.compiled import CompiledModule, load_compiled
from derivatrix.runtime.errors import (
    BuildError,
    DeclarationError,
    LongModuleWarning,
    UnsupportedError,
    VerificationError,
)
from derivatrix.runtime.parallel import listing, verify_files
from derivatrix.runtime.support import FOLDER, HOME
from derivatrix.runtime.warm import warm_files
from derivatrix.runtime.workers import Workers

Progress = Callable[[str, int, int], None]
"""Called with a line about the work in progress, and the finished and total number of steps."""

RESERVED_NAMES = (
    *("_formulas", "_support", "_thread", "atexit", "collections", "contextlib", "copy", "ctypes"),
    *("dataclasses", "functools", "gc", "grp", "hashlib", "heapq", "html", "importlib"),
    *("itertools", "linecache", "llvmlite", "math", "numba", "numpy", "os", "pathlib", "pickle"),
    *("pwd", "queue", "re", "scipy", "stat", "struct", "sys", "tempfile", "threading", "time"),
    *("types", "typing", "warnings", "weakref"),
)
"""Packages that generated modules import, and folders beside them: a module of that name would hide
the package."""

FORMULAS = "_formulas"
"""The folder with the formulas of the modules."""

MAX_MODULE_LINES = 2000
"""Lines of a module above which `build` and `compile` warn."""

COMPILE_SECONDS_PER_LINE = 0.02
"""Numba's rough compile time of one line of loops over small arrays."""

FUNCTIONS_PER_PROCESS = 4
"""Functions to derive for which the start of a worker process pays."""


@dataclass(frozen=True)
class BuildResult:
    """The result of `build`.

    modules: the names of the modules in the package. written, removed: the files that changed.
    reports: one for each module; none without verification. verified: the modules that this build
    verified; reports of others come from the certificate that was there. outdated: modules of other
    function files by another version of derivatrix, which must be built again to be imported."""

    directory: Path
    modules: tuple[str, ...]
    written: tuple[str, ...] = field(repr=False)
    removed: tuple[str, ...]
    reports: tuple[Report, ...] = field(repr=False)
    verified: tuple[str, ...] = ()
    outdated: tuple[str, ...] = ()


@dataclass(frozen=True)
class Difference:
    """A file of a package that differs from the functions' declarations. `state` is "missing",
    "stale" (its contents differ), "extra" (no function belongs to it any more) or "foreign"
    (derivatrix did not write it); of a certificate also "damaged" or "failing" (a module has not
    passed)."""

    file: str
    state: str


def build(
    functions: Function | Iterable[Function],
    out_dir: str | os.PathLike[str],
    targets: str | Iterable[str] = ("cpu",),
    verify: bool = True,
    progress: Progress | None = None,
    warm: bool = False,
    jobs: int | None = None,
    kinds: Sequence[str] | None = None,
    second: bool = False,
) -> BuildResult:
    """Write a package with one verified module for each function and target.

    The modules are written and verified in a temporary directory and then moved into place, so a
    build that fails leaves `out_dir` as it was. With `verify` they come with a certificate. Modules
    of an earlier build of the same function files (see `load_functions`), or of functions of no
    file, are removed if no function belongs to them any more; those of other files are kept. A
    module that the certificate in `out_dir` already vouches for is not verified again.

    warm: compile all kernels for float64 and float32, so that their first call is quick in every
    process that imports `out_dir` as a package on this machine; without it only kernels that
    verification calls are compiled.
    jobs: the number of processes that work at a time; by default the number of cores.
    kinds: the kinds of functions that were declared without kinds=, as far as these have them; see
    `function`.
    second: write the module f_second, too, for each array-valued function f: adapters need it for
    second derivatives of f; see `Function.second`.

    Raises DeclarationError for arguments that are no functions, functions with one name and names
    that cannot be a module's, UnsupportedError for unknown targets, BuildError if a file that
    derivatrix did not write, or a module of another function file, would be overwritten or the
    directory cannot be written, VerificationError if a module fails, and the errors of `generate`.
    """
    declared = _functions(functions, "build", kinds, second)
    directory = _directory(out_dir, "build")
    work = _work(declared, _targets(targets, "build"), "build")
    with Workers(_jobs(jobs)) as workers:
        steps = _Steps(work, 1 + verify + warm, workers, progress)
        modules = steps.generate()
        _warn_of_length(modules)
        result = None
        try:
            while result is None:  # again if another build has changed the kept modules meanwhile
                package = package_of(work, modules, directory)
                if _foreign_files(directory, package.texts):
                    with locked(directory):  # waits for a build that is just replacing files
                        _require_own_files(directory, package.texts)
                with staging(directory) as temporary:
                    for name, text in package.texts.items():
                        (temporary / name).parent.mkdir(parents=True, exist_ok=True)
                        (temporary / name).write_text(text, encoding="utf-8", newline="\n")
                    reused = _reusable_reports(directory, package.texts) if verify else {}
                    reports = steps.verify(temporary, directory, package, reused) if verify else ()
                    result = _install(directory, temporary, package, reports, reused)
        except OSError as error:
            raise BuildError(f"{directory}: cannot be written: {error.strerror}") from error
        if warm:
            steps.warm(directory, modules)
    return result


def check(
    functions: Function | Iterable[Function],
    out_dir: str | os.PathLike[str],
    targets: str | Iterable[str] = ("cpu",),
    kinds: Sequence[str] | None = None,
    second: bool = False,
) -> list[Difference]:
    """List the files in `out_dir` that `build` would change, compared byte for byte, files beside
    the support that derivatrix did not write, and a certificate that does not vouch for the
    modules. Nothing is written.

    Raises the errors of `build` for its arguments, BuildError if a file cannot be read, and the
    errors of `generate`.
    """
    declared = _functions(functions, "check", kinds, second)
    directory = _directory(out_dir, "check")
    work = _work(declared, _targets(targets, "check"), "check")
    with Workers() as workers:
        modules = _Steps(work, 1, workers, None).generate()
    package = package_of(work, modules, directory)
    texts = package.texts
    states = {name: _state(directory / name, text.encode()) for name, text in texts.items()}
    states |= dict.fromkeys(_unknown_files(directory, texts), "foreign")
    states |= dict.fromkeys(_obsolete_files(directory, texts), "extra")
    digests = {module.name: module.digest for module in package.current}
    states |= certificate_states(directory, digests)
    return [Difference(name, state) for name, state in states.items() if state]


def compile(
    function: Function, target: str = "cpu", kinds: Sequence[str] | None = None
) -> ModuleType:
    """Generate a function's module in the cache directory, and load it.

    The directory is $DERIVATRIX_CACHE, or the user's cache directory, or a temporary one if that
    cannot be written or other users can write to it. The same function gives the same module
    object. kinds: the kinds of a function declared without kinds=; see `function`. The module is
    not verified: see `derivatrix.verify`. Raises DeclarationError if the argument is no function,
    BuildError if the file cannot be written, and the errors of `generate`.
    """
    function = require_function(function, "compile").with_kinds(kinds)
    generated = derivation_cache.generate_once(function, target)
    module = _load_from_cache(generated, generated.digest)
    if not function.is_scalar:
        module.make_second = partial(_compile_second, function, target, generated.digest)
    return module


def _compile_second(function: Function, target: str, folder: str) -> ModuleType:
    """Generate the module of `function.second` beside that of the function, and load it: other
    processes with this cache find it there."""
    return _load_from_cache(derivation_cache.generate_once(function.second, target), folder)


def _load_from_cache(generated: Generated, folder: str) -> CompiledModule:
    """Write a module to a folder of the cache, and load it. Raises BuildError if the file cannot be
    written."""
    _warn_of_length([generated])
    path = Path(f"{generated.name}.py")
    try:
        directory = module_directory(support_digest(), FOLDER, folder)
        path = directory / path
        write_if_different(directory.parent, support_texts(all_files()))
        write_if_different(directory, generated.texts)
    except OSError as error:
        raise BuildError(f"{path}: cannot be written: {error.strerror}") from error
    return load_compiled(path)


# Arguments


def _functions(
    functions: Any, caller: str, kinds: Sequence[str] | None, second: bool
) -> list[Function]:
    """Return the functions with `kinds`, and with those of second derivatives if asked for, after
    checking that they can be modules of one package."""
    is_single = isinstance(functions, (str, Array)) or not isinstance(functions, Iterable)
    values = [functions] if is_single else list(functions)
    declared = [require_function(value, caller).with_kinds(kinds) for value in values]
    if second:
        declared += [function.second for function in declared if not function.is_scalar]
    checked = require_unique(declared, caller)
    if not checked:
        raise DeclarationError(f"{caller}: no function was given; give at least one")
    names: dict[str, str] = {}
    for function in checked:
        _require_module_name(function.name, caller)
        previous = names.setdefault(function.name.casefold(), function.name)
        if previous != function.name:
            raise DeclarationError(
                f"{caller}: the modules {previous} and {function.name} would be one file, at "
                "least where file names ignore case; give one function another name"
            )
    return checked


def _work(functions: Iterable[Function], targets: Sequence[str], caller: str) -> Work:
    """List each function with each target, after checking that all modules have distinct names."""
    work = [(function, target) for function in functions for target in targets]
    names: dict[str, tuple[Function, str]] = {}
    for function, target in work:
        name = module_name(function.name, target)
        previous = names.setdefault(name.casefold(), (function, target))
        if previous != (function, target):
            raise DeclarationError(
                f"{caller}: {name} would be the module of {previous[0].name} for {previous[1]} "
                f"and of {function.name} for {target}; give one function another name"
            )
    return work


def _require_module_name(name: str, caller: str) -> None:
    if name.startswith("__") and name.endswith("__"):
        raise DeclarationError(
            f"{caller}: a function cannot be called {name!r}, which means something else to "
            "Python in a package; choose another name"
        )
    if name in RESERVED_NAMES:
        raise DeclarationError(
            f"{caller}: a function cannot be called {name!r}: its module would hide the package "
            f"{name} that generated code imports or needs; choose another name"
        )


def _directory(out_dir: object, caller: str) -> Path:
    """Return the path of the output, after checking that a directory is there or can be made."""
    path = os.fspath(out_dir) if isinstance(out_dir, (str, os.PathLike)) else None
    if not isinstance(path, str):
        raise UnsupportedError(
            f"{caller}: out_dir is {reprlib.repr(out_dir)} (of type {type(out_dir).__name__}); "
            "expected the path of a directory, as text or a Path"
        )
    if not path.strip() or "\0" in path:
        raise BuildError(f"{caller}: {path!r} is no path of a directory; '.' is the one you are in")
    directory = Path(path)
    nearest = next(path for path in upwards(directory) if os.path.lexists(path))
    if not nearest.is_dir():
        raise BuildError(f"{nearest}: is no directory; choose another place to write to")
    return directory


def _targets(targets: object, caller: str) -> list[str]:
    expected = 'expected the name of a target or several, such as ("cpu",)'
    if not isinstance(targets, Iterable):
        raise UnsupportedError(f"{caller}: targets is {reprlib.repr(targets)}; {expected}")
    names = [targets] if isinstance(targets, str) else list(targets)
    if not names:
        raise UnsupportedError(f"{caller}: targets is empty; {expected}")
    for name in names:
        find_target(name)
    return list(dict.fromkeys(names))


def _jobs(jobs: object) -> int | None:
    if jobs is None or (isinstance(jobs, int) and jobs >= 1):
        return jobs
    raise UnsupportedError(f"build: jobs is {reprlib.repr(jobs)}; expected a number from 1 up")


# The work


def _warn_of_length(modules: Iterable[Generated]) -> None:
    """Warn of modules with more than MAX_MODULE_LINES."""
    for module in modules:
        lines = module.text.count("\n")
        if lines > MAX_MODULE_LINES:
            seconds = round(lines * COMPILE_SECONDS_PER_LINE, -1)
            warnings.warn(
                f"{module.name}: the module has {lines:,} lines, and its kernels may take "
                f"{seconds:.0f} s to compile; leave out what nobody calls with kinds=, declare "
                "symbolic sizes instead of numbers, or few large inputs instead of many small ones",
                LongModuleWarning,
                stacklevel=3,
            )


class _Steps:
    """The long steps of a build, with progress: `stages` for each function and target of `work`."""

    def __init__(
        self, work: Work, stages: int, workers: Workers, progress: Progress | None
    ) -> None:
        self.work = work
        self.workers = workers
        self.progress = progress
        self.total = len(work) * stages
        self.finished = 0

    def generate(self) -> list[Generated]:
        """Return the modules: from the cache, from worker processes, or derived in this one."""
        modules = [
            derivation_cache.cached_module(function, target) for function, target in self.work
        ]
        missing = [i for i, module in enumerate(modules) if module is None]
        self.finished += len(modules) - len(missing)
        if min(self.workers.jobs, len(missing) // FUNCTIONS_PER_PROCESS) >= 2:
            work = [self.work[i] for i in missing]

            def announce_running(running: list[int], finished: int) -> None:
                names = [work[i][0].name for i in running]
                self._announce(listing(names, "deriving"), finished)

            generated = generate_in_workers(work, self.workers, announce_running)
            for i, module in zip(missing, generated, strict=True):
                modules[i] = module
        for i in missing:
            function, target = self.work[i]
            module = modules[i]
            if module is None:
                self._announce(f"{function.name}: deriving for {target}", 0)
                module = modules[i] = generate(function, target)
            derivation_cache.keep_module(module)
            self.finished += 1
        return [module for module in modules if module is not None]

    def verify(
        self, temporary: Path, directory: Path, package: Package, reused: Mapping[str, Report]
    ) -> tuple[Report, ...]:
        """Verify the modules without a `reused` report, and write the certificate of all. Their
        files are to be moved from `temporary` to `directory`. Raises VerificationError with every
        failure."""
        files = [temporary / f"{module.name}.py" for module in package.current]
        unverified = [path for path in files if path.stem not in reused]
        for (function, _), module in zip(self.work, package.modules, strict=True):
            if module.name not in reused:
                require_agreement(function)
        self.total += len(files) - len(self.work)
        self.finished = len(self.work) + len(files) - len(unverified)
        new = verify_files(unverified, self.workers, self._announce, home=directory)
        self.finished += len(unverified)
        by_name = {**reused, **{report.function: report for report in new}}
        reports = tuple(by_name[path.stem] for path in files)
        _require_passed(reports)
        write_certificate(temporary, reports)
        return reports

    def warm(self, directory: Path, modules: Sequence[Generated]) -> None:
        """Compile all kernels of the modules, for later processes."""
        files = [directory / f"{module.name}.py" for module in modules]
        warm_files(files, self.workers, self._announce)

    def _announce(self, text: str, finished: int) -> None:
        if self.progress is not None:
            self.progress(text, self.finished + finished, self.total)


def _require_passed(reports: Iterable[Report]) -> None:
    failures = []
    for report in reports:
        try:
            report.raise_for_failure()
        except VerificationError as error:
            failures.append(str(error))
    if failures:
        raise VerificationError("\n".join([*failures, "Nothing was written."]))


# Files that are in the directory already


def _foreign_files(directory: Path, texts: Iterable[str]) -> list[str]:
    """List the files that a build would overwrite although derivatrix did not write them."""
    names = [name for name in (*texts, *CERTIFICATE) if os.path.lexists(directory / name)]
    own_names = own_files(directory, names)
    return [name for name in names if name not in own_names]


def _require_own_files(directory: Path, texts: Iterable[str]) -> None:
    """Raise BuildError if a build would overwrite a file that derivatrix did not write."""
    foreign = ", ".join(_foreign_files(directory, texts))
    if foreign:
        raise BuildError(
            f"{directory}: derivatrix did not write {foreign} and will not overwrite it; move it "
            "away or choose another directory. Nothing was written."
        )


def _reusable_reports(directory: Path, texts: Mapping[str, str]) -> dict[str, Report]:
    """Return the certificate's reports of modules that passed, and whose files, and those of their
    support, are unchanged. A missing support file does not count: modules that need it are new, as
    none was verified without it."""
    support = [name for name in texts if name.startswith(f"{FOLDER}/") and name != SUPPORT]
    if any(_state(directory / name, texts[name].encode()) == "stale" for name in support):
        return {}
    return {
        name: report
        for name, report in standing_reports(directory).items()
        if f"{name}.py" in texts
        and not _state(directory / f"{name}.py", texts[f"{name}.py"].encode())
        and f"DIGEST = {report.digest!r}\n" in texts[f"{name}.py"]
    }


def _obsolete_files(directory: Path, texts: Iterable[str]) -> list[str]:
    """List the files of an earlier build that no function belongs to any more."""
    modules = [f"{name}.py" for name in published(directory)]
    beside = [name for module in modules for name in (f"{FORMULAS}/{module}", f"{module}i")]
    beside = [name for name in beside if (directory / name).exists()]
    old = [*modules, *beside, *support_files(directory)]
    own_names = own_files(directory, old)
    return [name for name in old if name in own_names and name not in set(texts)]


def _unknown_files(directory: Path, texts: Container[str]) -> list[str]:
    """List the files in the folders of support and formulas that belong to no module, without the
    `__pycache__` of Python and Numba."""
    paths = [path for folder in (FOLDER, FORMULAS) for path in (directory / folder).rglob("*")]
    names = [
        path.relative_to(directory).as_posix()
        for path in sorted(paths)
        if not path.is_dir() and path.parent.name != "__pycache__"
    ]
    return [name for name in names if name not in texts]


def _state(path: Path, contents: bytes) -> str:
    """Compare a file with its expected contents: "missing", "stale", or "" if they are equal."""
    if not path.is_file():
        return "missing"
    try:
        return "" if path.read_bytes() == contents else "stale"
    except OSError as error:
        raise BuildError(f"{path}: cannot be read: {error.strerror}") from error


def _install(
    directory: Path,
    temporary: Path,
    package: Package,
    reports: tuple[Report, ...],
    reused: Container[str],
) -> BuildResult | None:
    """Move the staged files that differ into place; None if another build has changed the modules
    to be kept meanwhile. While several files change, and if the build is killed then, no module of
    the package can be imported. Directories and temporary files are made before the first change,
    so that a full disk leaves the package as it was."""
    files = [*package.texts]
    names = [module.name for module in package.modules]
    directory.mkdir(parents=True, exist_ok=True)
    with locked(directory):
        _require_own_files(directory, files)  # again: verification took its time
        if kept_modules(directory, names, package.function_files) != package.kept:
            return None
        removed = _obsolete_files(directory, files)
        if reports:
            files += CERTIFICATE
        else:
            removed += [name for name in CERTIFICATE if (directory / name).exists()]
        contents = {name: (temporary / name).read_bytes() for name in files}
        written = [name for name, data in contents.items() if _state(directory / name, data)]
        files_to_move = [name for name in written if name != SUPPORT]
        machine_code = _machine_code_files(temporary)
        for name in (*files_to_move, *machine_code, SUPPORT):
            (directory / name).parent.mkdir(parents=True, exist_ok=True)
        if SUPPORT in written or len({*written, *removed} - {*CERTIFICATE}) > 1:
            _disable(directory, temporary, package.texts)
            files_to_move.append(SUPPORT)  # makes the package importable again, so it is the last
        for name in removed:  # before the moves: their names may differ in case only
            (directory / name).unlink()
        for name in files_to_move:
            os.replace(temporary / name, directory / name)
            _remove_cached_code(directory / name)
        for name in machine_code:
            with suppress(OSError):  # a kernel without it is compiled at its first call
                os.replace(temporary / name, directory / name)
    names += [module.name for module in package.kept]
    verified = tuple(report.function for report in reports if report.function not in reused)
    outdated = tuple(module.name for module in package.kept if not is_current(module))
    return BuildResult(
        directory, tuple(names), tuple(written), tuple(removed), reports, verified, outdated
    )


def _machine_code_files(temporary: Path) -> list[str]:
    """List Numba's cache files for devices, and those that it writes beside a module for a user
    without a cache directory; each index comes after its code."""
    paths = [path for path in sorted(temporary.rglob("*.nb[ci]")) if HOME not in path.name]
    return [os.fspath(path.relative_to(temporary)) for path in paths]


def _remove_cached_code(path: Path) -> None:
    """Remove Python's bytecode and Numba's code of a file. Python compares only the second and size
    of a source with its bytecode, and a file written just before may have the same."""
    for suffix in ("pyc", "nbi", "nbc"):
        for cached in (path.parent / "__pycache__").glob(f"{path.stem}.*.{suffix}"):
            cached.unlink(missing_ok=True)


def _disable(directory: Path, temporary: Path, texts: Mapping[str, str]) -> None:
    """Replace the support's `__init__.py` by one with which no module of the package can be
    imported. It lists old and new support files, so that a later build knows them."""
    new = [name for name in texts if name.startswith(f"{FOLDER}/") and name != SUPPORT]
    files = {name.removeprefix(f"{FOLDER}/") for name in (*support_files(directory), *new)}
    unfinished = temporary / "unfinished.py"
    unfinished.write_text(unfinished_text(files), encoding="utf-8", newline="\n")
    os.replace(unfinished, directory / SUPPORT)
