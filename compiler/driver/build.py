"""Generated modules on disk: a package of them, its freshness, and one compiled in a session."""

from __future__ import annotations

import itertools
import os
import reprlib
import warnings
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
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
from derivatrix.compiler.driver.worker_serialization import Work, generate_elsewhere
from derivatrix.compiler.emit.imports import all_files, support_digest
from derivatrix.compiler.emit.targets import find_target
from derivatrix.compiler.frontends.function import Function, require_function
from derivatrix.compiler.frontends.function_file import require_unique
from derivatrix.compiler.ir.arrays import Array
from derivatrix.runtime import Report, write_certificate
from derivatrix.runtime.atomic_output import locked, staging, upwards
from derivatrix.runtime.cache import module_directory, write_if_different
from derivatrix.runtime.certificate import certificate_states, standing_reports
from derivatrix.runtime.compiled import load_compiled
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
"""Called with the work that begins, how many pieces of it are done, and how many there are."""

IMPORTED = (
    *("_formulas", "_support", "ast", "atexit", "collections", "contextlib", "copy", "ctypes"),
    *("dataclasses", "functools", "grp", "hashlib", "html", "importlib", "itertools", "linecache"),
    *("llvmlite", "math", "numba", "numpy", "os", "pathlib", "pickle", "pwd", "queue", "re"),
    *("scipy", "stat", "struct", "sys", "tempfile", "threading", "time", "types", "typing"),
    *("warnings", "weakref"),
)
"""What generated modules and packages import, and the folders beside them: a module of such a name
would stand in its way."""

FORMULAS = "_formulas"
"""The folder with the formulas of the modules."""

LONG_MODULE_LINES = 2000
"""A module of more lines is warned of."""

COMPILE_SECONDS_PER_LINE = 0.02
"""Numba's compile time of one line of a module of loops over small arrays, roughly."""

FUNCTIONS_PER_PROCESS = 4
"""Another process is started for as many functions to derive; for fewer it is not worth it."""


@dataclass(frozen=True)
class BuildResult:
    """What `build` did. `modules`: the names in the package; `written` and `removed`: the files
    that changed; `reports`: what verification found, one a module, none where it was left out;
    `verified`: the modules verified by this build, the others' reports are those of the
    certificate that was there; `outdated`: those of other function files that another version of
    derivatrix wrote, and that cannot be imported until they are built again."""

    directory: Path
    modules: tuple[str, ...]
    written: tuple[str, ...] = field(repr=False)
    removed: tuple[str, ...]
    reports: tuple[Report, ...] = field(repr=False)
    verified: tuple[str, ...] = ()
    outdated: tuple[str, ...] = ()


@dataclass(frozen=True)
class Difference:
    """A file of a package that is not as the functions' declarations say. `state` is "missing",
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
) -> BuildResult:
    """Write a package with one module for each function and target, verified.

    The modules are written and verified in a directory beside the old ones and then put in place
    file by file, so a build that fails leaves `out_dir` as it was. With `verify` a certificate
    goes with them. Modules of an earlier build of the same function files (see `load_functions`),
    or of functions of no file, that no function belongs to any more are removed; those of other
    files are kept. A module that is there already, as its certificate vouches for, is not verified
    again.

    warm: compile all kernels for float64 and float32, so that their first call is quick in every
    process that imports `out_dir` as a package on this machine; without it those are that
    verification calls.
    jobs: how many processes work at a time; as many as there are cores, if it is left out.
    kinds: what the modules have of functions that were declared without kinds=, as far as these
    have it; see `function`.

    Raises DeclarationError for what is no function, functions with one name and names that
    cannot be a module's, UnsupportedError for unknown targets, BuildError where a file that
    derivatrix did not write, or a module of another function file, is in the way or the directory
    cannot be written, VerificationError where a module fails, and what `generate` raises.
    """
    given = [function.with_kinds(kinds) for function in _functions(functions, "build")]
    directory = _directory(out_dir, "build")
    work = _work(given, _targets(targets, "build"), "build")
    with Workers(_jobs(jobs)) as workers:
        steps = _Steps(work, 1 + verify + warm, workers, progress)
        modules = steps.generate()
        _warn_of_length(modules)
        result = None
        try:
            while result is None:
                package = package_of(work, modules, directory)
                if _foreign(directory, package.texts):
                    with locked(
                        directory
                    ):  # a file that another build removes just now is nobody's
                        _refuse(directory, package.texts)
                with staging(directory) as place:
                    for name, text in package.texts.items():
                        (place / name).parent.mkdir(parents=True, exist_ok=True)
                        (place / name).write_text(text, encoding="utf-8", newline="\n")
                    standing = _unchanged_reports(directory, package.texts) if verify else {}
                    reports = steps.verify(place, directory, package, standing) if verify else ()
                    result = _install(directory, place, package, reports, standing)
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
) -> list[Difference]:
    """What `build` would change in `out_dir`, compared byte for byte, files beside the support that
    derivatrix did not write, and a certificate that does not vouch for the modules; nothing is
    written.

    Raises what `build` raises for its arguments, BuildError where a file cannot be read, and what
    `generate` raises.
    """
    given = [function.with_kinds(kinds) for function in _functions(functions, "check")]
    directory = _directory(out_dir, "check")
    work = _work(given, _targets(targets, "check"), "check")
    with Workers() as workers:
        modules = _Steps(work, 1, workers, None).generate()
    package = package_of(work, modules, directory)
    texts = package.texts
    states = {name: _state(directory / name, text.encode()) for name, text in texts.items()}
    states |= dict.fromkeys(_strangers(directory, texts), "foreign")
    states |= dict.fromkeys(_leftovers(directory, texts), "extra")
    digests = {module.name: module.digest for module in package.current}
    states |= certificate_states(directory, digests)
    return [Difference(name, state) for name, state in states.items() if state]


def compile(
    function: Function, target: str = "cpu", kinds: Sequence[str] | None = None
) -> ModuleType:
    """The function's generated module, loaded from a file in the cache directory.

    The directory is $DERIVATRIX_CACHE, or the user's cache directory, or a temporary one where
    that cannot be written, or other users can write to it. The same function gives the same module
    object again. kinds: what the module has, where the function does not say; see `function`. A
    module is not verified here: see `derivatrix.verify`. Raises DeclarationError
    for what is no function, BuildError where the file cannot be written, and what `generate`
    raises.
    """
    generated = derivation_cache.generate_once(
        require_function(function, "compile").with_kinds(kinds), target
    )
    _warn_of_length([generated])
    path = Path(f"{generated.name}.py")
    try:
        directory = module_directory(support_digest(), FOLDER, generated.digest)
        path = directory / path
        write_if_different(directory.parent, support_texts(all_files()))
        write_if_different(directory, generated.texts)
    except OSError as error:
        raise BuildError(f"{path}: cannot be written: {error.strerror}") from error
    return load_compiled(path)


# Arguments


def _functions(functions: Any, place: str) -> list[Function]:
    """The functions to write modules for, whose names can be those of modules of one package."""
    single = isinstance(functions, (str, Array)) or not isinstance(functions, Iterable)
    values = [functions] if single else list(functions)
    found = require_unique([require_function(value, place) for value in values], place)
    if not found:
        raise DeclarationError(f"{place}: no function was given; give at least one")
    names: dict[str, str] = {}
    for function in found:
        _require_module_name(function.name, place)
        other = names.setdefault(function.name.casefold(), function.name)
        if other != function.name:
            raise DeclarationError(
                f"{place}: the modules {other} and {function.name} would be one file, at least "
                "where file names ignore case; give one function another name"
            )
    return found


def _work(functions: Iterable[Function], targets: Sequence[str], place: str) -> Work:
    """Each function for each target, one module each."""
    work = [(function, target) for function in functions for target in targets]
    names: dict[str, tuple[Function, str]] = {}
    for function, target in work:
        name = module_name(function.name, target)
        other, for_other = names.setdefault(name.casefold(), (function, target))
        if (other, for_other) != (function, target):
            raise DeclarationError(
                f"{place}: {name} would be the module of {other.name} for {for_other} and of "
                f"{function.name} for {target}; give one function another name"
            )
    return work


def _require_module_name(name: str, place: str) -> None:
    if name.startswith("__") and name.endswith("__"):
        raise DeclarationError(
            f"{place}: a function cannot be called {name!r}, which means something else to Python "
            "in a package; choose another name"
        )
    if name in IMPORTED:
        raise DeclarationError(
            f"{place}: a function cannot be called {name!r}: its module would hide the package "
            f"{name} that generated code imports or needs; choose another name"
        )


def _directory(out_dir: object, place: str) -> Path:
    """The directory to write to, which may not be there yet, but nothing else may be."""
    path = os.fspath(out_dir) if isinstance(out_dir, (str, os.PathLike)) else None
    if not isinstance(path, str):
        raise UnsupportedError(
            f"{place}: out_dir is {reprlib.repr(out_dir)} (of type {type(out_dir).__name__}); "
            "expected the path of a directory, as text or a Path"
        )
    if not path.strip() or "\0" in path:
        raise BuildError(f"{place}: {path!r} is no path of a directory; '.' is the one you are in")
    directory = Path(path)
    nearest = next(path for path in upwards(directory) if os.path.lexists(path))
    if not nearest.is_dir():
        raise BuildError(f"{nearest}: is no directory; choose another place to write to")
    return directory


def _targets(targets: object, place: str) -> list[str]:
    expected = 'expected the name of a target or several, such as ("cpu",)'
    if not isinstance(targets, Iterable):
        raise UnsupportedError(f"{place}: targets is {reprlib.repr(targets)}; {expected}")
    found = [targets] if isinstance(targets, str) else list(targets)
    if not found:
        raise UnsupportedError(f"{place}: targets is empty; {expected}")
    for target in found:
        find_target(target)
    return list(dict.fromkeys(found))


def _jobs(jobs: object) -> int | None:
    if jobs is None or (isinstance(jobs, int) and jobs >= 1):
        return jobs
    raise UnsupportedError(f"build: jobs is {reprlib.repr(jobs)}; expected a number from 1 up")


# The work


def _warn_of_length(modules: Iterable[Generated]) -> None:
    """Warn of modules that have more than LONG_MODULE_LINES."""
    for module in modules:
        lines = module.text.count("\n")
        if lines > LONG_MODULE_LINES:
            seconds = round(lines * COMPILE_SECONDS_PER_LINE, -1)
            warnings.warn(
                f"{module.name}: the module has {lines:,} lines, and its kernels may take "
                f"{seconds:.0f} s to compile; leave out what nobody calls with kinds=, declare "
                "symbolic sizes instead of numbers, or few large inputs instead of many small ones",
                LongModuleWarning,
                stacklevel=3,
            )


class _Steps:
    """The long parts of a build, with progress: so many `stages` for each piece of `work`."""

    def __init__(
        self, work: Work, stages: int, workers: Workers, progress: Progress | None
    ) -> None:
        self.work = work
        self.workers = workers
        self.progress = progress
        self.total = len(work) * stages
        self.done = 0

    def generate(self) -> list[Generated]:
        """Return the modules: from the cache, from other processes, or derived in this one."""
        modules = [
            derivation_cache.cached_module(function, target) for function, target in self.work
        ]
        missing = [i for i, module in enumerate(modules) if module is None]
        self.done += len(modules) - len(missing)
        for i, module in zip(missing, self._generate_elsewhere(missing), strict=True):
            modules[i] = module
        for i in missing:
            function, target = self.work[i]
            generated = modules[i]
            if generated is None:
                self._announce(f"{function.name}: deriving for {target}", 0)
                generated = modules[i] = generate(function, target)
            derivation_cache.keep_module(generated)
            self.done += 1
        return [module for module in modules if module is not None]

    def _generate_elsewhere(self, places: Sequence[int]) -> list[Generated | None]:
        """Have other processes generate the modules at `places` of the work, where that is worth
        their start; None for each module that they did not."""
        jobs = min(self.workers.jobs, len(places) // FUNCTIONS_PER_PROCESS)
        work = [self.work[i] for i in places]
        if jobs < 2:
            return [None] * len(work)

        def changed(at_work: list[int], done: int) -> None:
            names = [work[i][0].name for i in at_work]
            self._announce(listing(names, "deriving"), done)

        return generate_elsewhere(work, self.workers, changed)

    def verify(
        self, staging: Path, directory: Path, package: Package, standing: Mapping[str, Report]
    ) -> tuple[Report, ...]:
        """The reports, kept as a certificate too: `standing` ones, and those of the modules that
        have none, which are to go from `staging` to `directory`. Raises VerificationError with
        every failure."""
        files = [staging / f"{module.name}.py" for module in package.current]
        new = [path for path in files if path.stem not in standing]
        fresh = [module.name not in standing for module in package.modules]
        for function, _ in itertools.compress(self.work, fresh):
            require_agreement(function)
        self.total += len(files) - len(self.work)
        self.done = len(self.work) + len(files) - len(new)
        found = verify_files(new, self.workers, self._announce, home=directory)
        self.done += len(new)
        by_name = {**standing, **{report.function: report for report in found}}
        reports = tuple(by_name[path.stem] for path in files)
        _require_passed(reports)
        write_certificate(staging, reports)
        return reports

    def warm(self, directory: Path, modules: Sequence[Generated]) -> None:
        """Compile all kernels of the modules, for processes to come."""
        files = [directory / f"{module.name}.py" for module in modules]
        warm_files(files, self.workers, self._announce)

    def _announce(self, text: str, done: int) -> None:
        if self.progress is not None:
            self.progress(text, self.done + done, self.total)


def _require_passed(reports: Iterable[Report]) -> None:
    failures = []
    for report in reports:
        try:
            report.raise_for_failure()
        except VerificationError as error:
            failures.append(str(error))
    if failures:
        raise VerificationError("\n".join([*failures, "Nothing was written."]))


# What is in the directory already


def _foreign(directory: Path, texts: Iterable[str]) -> list[str]:
    """The files that are in the way of those to be written, and that derivatrix did not write."""
    names = [name for name in (*texts, *CERTIFICATE) if os.path.lexists(directory / name)]
    own = own_files(directory, names)
    return [name for name in names if name not in own]


def _refuse(directory: Path, texts: Iterable[str]) -> None:
    """Raise BuildError where a file is in the way."""
    foreign = ", ".join(_foreign(directory, texts))
    if foreign:
        raise BuildError(
            f"{directory}: derivatrix did not write {foreign} and will not overwrite it; move it "
            "away or choose another directory. Nothing was written."
        )


def _unchanged_reports(directory: Path, texts: Mapping[str, str]) -> dict[str, Report]:
    """The reports of the modules that are in the directory already, letter for letter as their
    support is, and that its certificate says have passed. Files of the support that are missing are
    those of new modules, or none has been verified without them."""
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


def _leftovers(directory: Path, texts: Iterable[str]) -> list[str]:
    """The files of an earlier build that no function belongs to any more."""
    modules = [f"{name}.py" for name in published(directory)]
    beside = [name for module in modules for name in (f"_formulas/{module}", f"{module}i")]
    beside = [name for name in beside if (directory / name).exists()]
    old = [*modules, *beside, *support_files(directory)]
    own = own_files(directory, old)
    return [name for name in old if name in own and name not in set(texts)]


def _strangers(directory: Path, texts: Container[str]) -> list[str]:
    """The files in the folders of the support and the formulas that belong to no module. What
    Python and Numba keep beside them is theirs."""
    paths = [path for folder in (FOLDER, FORMULAS) for path in (directory / folder).rglob("*")]
    names = [
        path.relative_to(directory).as_posix()
        for path in sorted(paths)
        if not path.is_dir() and path.parent.name != "__pycache__"
    ]
    return [name for name in names if name not in texts]


def _state(path: Path, contents: bytes) -> str:
    """How a file differs from what it should hold: "missing", "stale", or "" if it does not."""
    if not path.is_file():
        return "missing"
    try:
        return "" if path.read_bytes() == contents else "stale"
    except OSError as error:
        raise BuildError(f"{path}: cannot be read: {error.strerror}") from error


def _install(
    directory: Path,
    place: Path,
    package: Package,
    reports: tuple[Report, ...],
    standing: Container[str],
) -> BuildResult | None:
    """Put the staged files in place, those that differ; None where another build has changed the
    modules to be kept meanwhile. While several files change, and after a build that ended
    meanwhile, no module of the package can be imported. All that takes space is made before the
    first of them changes: a disk that is full leaves the package as it was."""
    fresh = [*package.texts]
    names = [module.name for module in package.modules]
    directory.mkdir(parents=True, exist_ok=True)
    with locked(directory):
        _refuse(directory, fresh)  # again: verification took its time
        if kept_modules(directory, names, package.own) != package.kept:
            return None
        removed = _leftovers(directory, fresh)
        if reports:
            fresh += CERTIFICATE
        else:
            removed += [name for name in CERTIFICATE if (directory / name).exists()]
        written = [name for name in fresh if _state(directory / name, (place / name).read_bytes())]
        moved = [name for name in written if name != SUPPORT]
        code = _compiled_in(place)
        for name in (*moved, *code, SUPPORT):
            (directory / name).parent.mkdir(parents=True, exist_ok=True)
        if SUPPORT in written or len({*written, *removed} - {*CERTIFICATE}) > 1:
            mark = _unfinished(directory, place, package.texts)
            os.replace(mark, directory / SUPPORT)
            moved.append(SUPPORT)  # which ends it
        for name in removed:  # before the rest: their names may differ in case only
            (directory / name).unlink()
        for name in moved:
            os.replace(place / name, directory / name)
            _forget_code(directory / name)
        for name in code:
            with suppress(OSError):  # a kernel without it is compiled at its first call
                os.replace(place / name, directory / name)
    names += [module.name for module in package.kept]
    verified = tuple(report.function for report in reports if report.function not in standing)
    outdated = tuple(module.name for module in package.kept if not is_current(module))
    return BuildResult(
        directory, tuple(names), tuple(written), tuple(removed), reports, verified, outdated
    )


def _compiled_in(place: Path) -> list[str]:
    """The files with what Numba compiled for devices, and where the user has no folder for it, the
    index of a function's code after that."""
    found = [path for path in sorted(place.rglob("*.nb[ci]")) if HOME not in path.name]
    return [os.fspath(path.relative_to(place)) for path in found]


def _forget_code(path: Path) -> None:
    """Remove Python's bytecode of a file and Numba's code. Python knows that bytecode is of another
    source by its second and size, which may be those of a file that was written just before."""
    for kind in ("pyc", "nbi", "nbc"):
        for old in (path.parent / "__pycache__").glob(f"{path.stem}.*.{kind}"):
            old.unlink(missing_ok=True)


def _unfinished(directory: Path, place: Path, texts: Mapping[str, str]) -> Path:
    """A file in the place of the support's own, with the list of its files as they were and are to
    be: with it no module of the package can be imported."""
    new = [name for name in texts if name.startswith(f"{FOLDER}/") and name != SUPPORT]
    listed = {name.removeprefix(f"{FOLDER}/") for name in (*support_files(directory), *new)}
    mark = place / "unfinished.py"
    mark.write_text(unfinished_text(listed), encoding="utf-8", newline="\n")
    return mark
