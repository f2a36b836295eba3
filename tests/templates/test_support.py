"""The package `_support` of a generated package: what modules need, no more, and as it was written;
whoever finds it otherwise is told so."""

import importlib
import itertools
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import derivatrix as dx
from derivatrix import runtime
from derivatrix.compiler.driver.pipeline import generate
from derivatrix.compiler.emit.imports import support_text
from derivatrix.runtime.support import assigned, file_digest
from tests.driver.test_build import snapshot
from tests.packages import package_of, support_file, support_of

n = dx.dims("n")
X, a = dx.matrix("X", n, n), dx.vector("a", n)
square = dx.function("square", [X], X @ X)
solved = dx.function("solved", [X, a], dx.solve(X, a))
BOTH = ("cpu", "cuda")
INIT = "_support/__init__.py"
BLAS = "_support/cpu/blas.py"


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A package with `square` for both targets, not to be changed."""
    directory = tmp_path_factory.mktemp("built") / "generated"
    return dx.build(square, directory, BOTH, verify=False).directory


_numbers = itertools.count()


@pytest.fixture
def package(built: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of it that can be imported, by a name of its own."""
    monkeypatch.syspath_prepend(tmp_path)
    ignored = shutil.ignore_patterns("__pycache__")
    return shutil.copytree(built, tmp_path / f"package_{next(_numbers)}", ignore=ignored)


def build(package: Path) -> dx.BuildResult:
    return dx.build(square, package, BOTH, verify=False)


def check(package: Path) -> set[tuple[str, str]]:
    return {(found.file, found.state) for found in dx.check(square, package, BOTH)}


def change(path: Path, edit: Callable[[str], str]) -> None:
    path.write_text(edit(path.read_text(encoding="utf-8")), encoding="utf-8", newline="\n")


# What is in it


def test_files_are_copied_as_they_are(built: Path) -> None:
    """And listed with their digests, beside the one of all, which each module has."""
    facts = assigned((built / INIT).read_bytes())
    files = {f"_support/{name}" for name in facts["FILES"]} | {INIT}
    assert files == support_of(square) | support_of(square, target="cuda")
    assert {*snapshot(built)} == package_of(square, targets=BOTH) >= files
    for name, digest in facts["FILES"].items():
        contents = (built / "_support" / name).read_bytes()
        assert contents == support_text(name).encode() and file_digest(contents) == digest
    for name in ("square.py", "square_cuda.py"):
        assert assigned((built / name).read_bytes())["SUPPORT"] == facts["DIGEST"]


def test_only_what_is_needed_is_there() -> None:
    files = support_of(square)
    assert {BLAS, "_support/cpu/__init__.py", "_support/common/arguments.py"} < files
    assert not {"_support/cpu/lu.py", "_support/cuda/base.py"} & files
    assert "_support/cpu/lu.py" in support_of(solved)
    assert not any(name.startswith("_support/cpu/") for name in support_of(square, target="cuda"))


def test_modules_define_no_helpers() -> None:
    for target in BOTH:
        text = generate(solved, target).text
        assert f"from ._support.{target}.lu import" in text
        assert "def lu_factor" not in text


@pytest.mark.parametrize("target", BOTH)
def test_a_package_is_loaded_under_any_name(package: Path, target: str) -> None:
    name = {"cpu": "square", "cuda": "square_cuda"}[target]
    imported = importlib.import_module(f"{package.name}.{name}")
    (package.parent / "outer").mkdir()
    moved = shutil.copytree(package, package.parent / "outer" / "inner")
    modules = [
        imported,
        dx.load(package / f"{name}.py"),
        dx.load_package(moved)[name],
        importlib.import_module(f"outer.inner.{name}"),
    ]
    assert dx.load(f"{package.name}.{name}") is imported
    files = [support_file(module, "common.module") for module in modules]
    assert len({*map(id, modules)}) == len({*map(id, files)}) == len(modules)
    assert {module.DIGEST for module in modules} == {imported.DIGEST}


def test_compiled_functions_share_one(cache_directory: str) -> None:
    one, two = map(dx.compile, (square, solved))
    assert support_file(one, "cpu.blas") is support_file(two, "cpu.blas")
    folder = Path(one.__file__).parents[1]
    assert folder == Path(two.__file__).parents[1]
    assert folder == Path(cache_directory).resolve() / one.SUPPORT
    assert (folder / BLAS).read_text(encoding="utf-8") == support_text("cpu/blas.py")


def test_a_damaged_one_in_the_cache_is_mended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DERIVATRIX_CACHE", str(tmp_path))
    module = dx.compile(square)
    files = Path(module.__file__).parents[1]
    before = snapshot(tmp_path)
    for name in (INIT, BLAS):
        change(files / name, lambda text: text[:200])
    assert dx.compile(square) is module
    assert snapshot(tmp_path) == before


OLD = '''"""Generated by derivatrix 0.0.1 from the declaration of `double`. Do not edit."""

import numpy as np

INPUTS = (
    {"name": "a", "shape": ("n",), "structure": "general", "batched": False, "wrt": True,
     "domain": ""},
)
OUTPUT = {"shape": ("n",), "batched": False}
WRT = ("a",)
FUNCTIONS = ("value", "vjp", "jvp", "jacobian")
DECLARATION = "2 * a"
FORMULAS = {}
DIGEST = "abc"


def _out(result, out):
    if out is None:
        return result
    out[...] = result
    return out


def value(a, *, out=None):
    return _out(2 * np.asarray(a), out)


def vjp(a, cotangent, *, out=None):
    return _out(2 * np.asarray(cotangent), out)


def jvp(a, tangent, *, out=None):
    return _out(2 * np.asarray(tangent), out)


def jacobian(a, *, out=None):
    return _out(2 * np.eye(len(a), dtype=np.asarray(a).dtype), out)
'''


def test_modules_of_earlier_versions_need_none(tmp_path: Path) -> None:
    path = tmp_path / "double.py"
    path.write_text(OLD)
    module = dx.load(path)
    assert "." not in module.__name__ and module.value(np.ones(2)).tolist() == [2, 2]
    assert dx.load(path) is module and dx.load_package(tmp_path) == {"double": module}
    assert runtime.verify(module).function == "double"


# What is wrong with it


def without(name: str) -> Callable[[Path], None]:
    def remove(package: Path) -> None:
        path = package / name
        shutil.rmtree(path) if path.is_dir() else path.unlink()

    return remove


def of_another_version(package: Path) -> None:
    digest = assigned((package / INIT).read_bytes())["DIGEST"]
    change(package / INIT, lambda text: text.replace(digest, "0" * 32))
    change(package / INIT, lambda text: text.replace(dx.__version__, "0.0.9"))


OTHER = r"built with other support files than those {}, which are of derivatrix 0\.0\.9; "
AGAIN = "build the package again with `derivatrix build`"
BROKEN = {
    "no folder": (
        without("_support"),
        r"No module named '{name}\._support'",
        "square.py: the folder _support, which belongs beside it, is missing; ",
    ),
    "no list": (
        without(INIT),
        r"cannot import name 'built_with' from '{name}\._support'",
        "square.py: the folder _support, which belongs beside it, is missing; ",
    ),
    "a file is missing": (
        without(BLAS),
        r"No module named '{name}\._support\.cpu\.blas'",
        r"blas\.py: cannot be read: No such file or directory; ",
    ),
    "another version": (
        of_another_version,
        rf"{{name}}\.square was {OTHER.format('of {name}._support')}{AGAIN}",
        rf"square\.py: was {OTHER.format('in .*_support')}",
    ),
}


@pytest.mark.parametrize("case", BROKEN)
def test_a_module_without_its_support_is_not_imported(package: Path, case: str) -> None:
    """Neither by a program nor by `load`, which say what is wrong and what to do; the next build
    mends it."""
    damage, imported, loaded = BROKEN[case]
    files = snapshot(package)
    damage(package)
    name = f"{package.name}.square"
    with pytest.raises(ImportError, match=imported.format(name=package.name)):
        importlib.import_module(name)
    for call in (lambda: dx.load(package / "square.py"), lambda: dx.load_package(package)):
        with pytest.raises(dx.LoadError, match=loaded + AGAIN):
            call()
    with pytest.raises(dx.LoadError, match=f"^{name}: cannot be imported: "):
        dx.load(name)
    build(package)
    assert snapshot(package) == files
    for part in [part for part in sys.modules if part.startswith(package.name)]:
        del sys.modules[part]  # as in another process
    assert importlib.import_module(name) is dx.load(name)


def test_a_module_without_its_formulas_is_not_loaded(package: Path) -> None:
    (package / "_formulas" / "square.py").unlink()
    with pytest.raises(dx.LoadError, match=r"_formulas.square\.py'; .*build it again with"):
        dx.load(package / "square.py")
    with pytest.raises(FileNotFoundError, match=r"_formulas.square\.py"):
        importlib.import_module(f"{package.name}.square")
    assert check(package) == {("_formulas/square.py", "missing")}
    assert build(package).written == ("_formulas/square.py",)
    assert dx.load(package / "square.py").FORMULAS["value"][""]["unicode"] == "X²"


def test_a_module_with_the_data_of_another_build_is_not_loaded(package: Path) -> None:
    digest = dx.load(package / "square.py").DIGEST
    change(package / "_formulas" / "square.py", lambda text: text.replace(digest, "0" * 32))
    change(package / "square.py", lambda text: f"{text}\n")  # not the module that is loaded already
    with pytest.raises(dx.LoadError, match=r"was built with other data than those in .*square\.py"):
        dx.load(package / "square.py")


def test_a_file_that_was_edited_is_not_loaded(package: Path) -> None:
    """Numba's cache does not know that callers of what is in there have to be compiled again."""
    change(package / BLAS, lambda text: text + "\n")
    with pytest.raises(dx.LoadError, match=rf"blas\.py: is not as derivatrix wrote it; {AGAIN}"):
        dx.load(package / "square.py")


def test_versions_never_mix(package: Path) -> None:
    """A support that is another now is loaded anew, and what was loaded before stays."""
    before = dx.load(package / "square.py")
    assert dx.load(package / "square.py") is before
    make_older(package)
    after = dx.load(package / "square.py")
    assert support_file(after, "cpu.blas").OLDER
    assert not hasattr(support_file(before, "cpu.blas"), "OLDER")
    build(package)
    assert dx.load(package / "square.py") is before


def make_older(package: Path) -> None:
    """Make the package one of another version: a file of its support is another."""
    facts = assigned((package / INIT).read_bytes())
    change(package / BLAS, lambda text: f"{text}OLDER = True\n")
    new = {
        facts["DIGEST"]: "0" * 32,
        facts["FILES"]["cpu/blas.py"]: file_digest((package / BLAS).read_bytes()),
    }
    for name, (old, digest) in itertools.product(
        (INIT, "square.py", "square_cuda.py"), new.items()
    ):
        change(package / name, lambda text, old=old, digest=digest: text.replace(old, digest))


# Builds


def zeros(text: str) -> str:
    return "\0" * len(text)


@pytest.mark.parametrize("damage", [lambda text: text[:200], zeros, lambda text: "", str.swapcase])
def test_damaged_files_are_written_again(package: Path, damage: Callable[[str], str]) -> None:
    files = snapshot(package)
    change(package / BLAS, damage)
    assert check(package) == {(BLAS, "stale")}
    assert {*build(package).written} == {BLAS}
    assert snapshot(package) == files and check(package) == set()
    change(package / INIT, damage)
    if damage is str.swapcase:
        before = snapshot(package)
        with pytest.raises(dx.BuildError, match=f"did not write {INIT}"):
            build(package)
        assert snapshot(package) == before
    else:
        assert build(package).written == (INIT,)
        assert snapshot(package) == files


def test_an_edited_file_is_no_reason_to_trust_the_certificate(tmp_path: Path) -> None:
    """A module is verified again where its support was another."""
    double = dx.function("double", [a], 2 * a)
    directory = tmp_path / "generated"
    assert dx.build(double, directory).verified == ("double",)
    assert dx.build(double, directory).verified == ()
    change(directory / "_support/internals/functions.py", lambda text: text + "\n")
    assert dx.build(double, directory).verified == ("double",)
    with pytest.raises(dx.BuildError, match="did not write"):
        change(directory / INIT, lambda text: "mine = 1\n")
        dx.build(double, directory)


def test_what_no_module_needs_any_more_is_removed(package: Path) -> None:
    """But nothing that derivatrix did not write."""
    files = snapshot(package)
    (package / "_support" / "notes.txt").write_text("mine")
    dx.build([square, solved], package, BOTH, verify=False)
    more = support_of(solved) | support_of(solved, target="cuda")
    more -= support_of(square) | support_of(square, target="cuda")
    assert more and all((package / name).is_file() for name in more)
    more |= {"solved.py", "solved_cuda.py", "_formulas/solved.py", "_formulas/solved_cuda.py"}
    more |= {"solved.pyi", "solved_cuda.pyi"}
    expected = {(name, "extra") for name in more}
    expected |= {(INIT, "stale"), ("__init__.py", "stale"), ("_support/notes.txt", "foreign")}
    assert check(package) == expected
    assert {*build(package).removed} == more
    assert snapshot(package) == files | {"_support/notes.txt": b"mine"}
    removed = {*dx.build(square, package, verify=False).removed}
    assert "square_cuda.py" in removed
    assert not [name for name in snapshot(package) if name.startswith("_support/cuda/")]


def test_missing_files_are_found(package: Path) -> None:
    (package / BLAS).unlink()
    (package / INIT).unlink()
    assert check(package) == {(BLAS, "missing"), (INIT, "missing")}


@pytest.mark.parametrize("name", [INIT, BLAS])
def test_files_of_others_are_not_overwritten(tmp_path: Path, name: str) -> None:
    (tmp_path / name).parent.mkdir(parents=True)
    (tmp_path / name).write_text("# mine\n")
    with pytest.raises(dx.BuildError, match=f"did not write {name}.*Nothing was written"):
        build(tmp_path)
    assert snapshot(tmp_path) == {name: b"# mine\n"}


def test_a_file_in_the_place_of_the_folder(tmp_path: Path) -> None:
    (tmp_path / "_support").write_text("mine")
    with pytest.raises(dx.BuildError):
        build(tmp_path)
    assert snapshot(tmp_path) == {"_support": b"mine"}


def test_a_damaged_list_does_not_lead_out_of_the_folder(package: Path) -> None:
    mine = package / "mine.py"
    mine.write_text("mine = 1\n")
    change(package / INIT, lambda text: text.replace("'cpu/blas.py'", "'../mine.py'"))
    assert build(package).removed == ()
    assert mine.is_file()


class Killed(BaseException):
    """The end of a build."""


def test_a_build_that_is_killed_is_noticed(
    built: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between any two files that it puts in place: the package is as it was, or it says that it is
    none, or it is the new one. The next build mends it."""
    monkeypatch.syspath_prepend(tmp_path)
    ignored = shutil.ignore_patterns("__pycache__")
    files, replace, states = snapshot(built), os.replace, []
    for last in itertools.count():
        package = shutil.copytree(built, tmp_path / f"package_{next(_numbers)}", ignore=ignored)
        make_older(package)
        left = itertools.count(last, -1)

        def limited(source: str, target: str, left: itertools.count = left) -> None:
            if not next(left):
                raise Killed
            replace(source, target)

        with monkeypatch.context() as patch:
            patch.setattr(os, "replace", limited)
            try:
                build(package)
                finished = True
            except Killed:
                finished = False
        try:
            module = importlib.import_module(f"{package.name}.square")
            states.append(hasattr(support_file(module, "cpu.blas"), "OLDER"))
        except ImportError as error:
            assert "square was built with other support files than" in str(error)
            assert AGAIN in str(error)
            states.append(None)
        build(package)
        assert snapshot(package) == files
        if finished:
            break
    assert states[0] is True and states[-1] is False
    assert len(states) > 4 and {*states[1:-2]} == {None}
