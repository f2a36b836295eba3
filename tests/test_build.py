"""Packages of generated modules: written whole or not at all, the same everywhere, kept fresh."""

import dataclasses
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import derivatrix as dx
from derivatrix.compiler import build as building
from tests.test_packaging import ROOT, WITHOUT

pytestmark = pytest.mark.xdist_group("build")

n = dx.dims("n")
a = dx.vector("a", n)
double = dx.function("double", [a], 2 * a)
triple = dx.function("triple", [a], 3 * a)

FILES = {"double.py", "__init__.py", "certificate.json", "certificate.md"}


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """A package with `double`, not to be changed."""
    directory = tmp_path_factory.mktemp("built") / "generated"
    return dx.build([double], directory)


def snapshot(directory: Path) -> dict[str, bytes]:
    """Every file below a directory, but those of Python's and Numba's caches."""
    files = (path for path in directory.rglob("*") if path.is_file())
    return {
        str(path.relative_to(directory)): path.read_bytes()
        for path in files
        if "__pycache__" not in path.parts
    }


def spoil(monkeypatch):
    """Let the compiler write modules whose value is wrong by a part in 10000."""
    generate = building.generate

    def wrong(function, target="cpu"):
        generated = generate(function, target)
        text = "\n_right = value\n\n\ndef value(*a, out=None):\n    return _right(*a) * 1.0001\n"
        return dataclasses.replace(generated, text=generated.text + text)

    monkeypatch.setattr(building, "generate", wrong)


# Writing


def test_the_package_is_written_with_a_certificate(built):
    assert built.modules == ("double",)
    assert {*built.written} == FILES == {*snapshot(built.directory)}
    assert built.removed == ()
    assert [report.passed for report in built.reports] == [True]
    certificate = json.loads((built.directory / "certificate.json").read_text(encoding="utf-8"))
    assert certificate["passed"] is True
    assert certificate["modules"][0]["digest"] == dx.load(built.directory / "double.py").DIGEST


def test_the_package_works_without_the_compiler(built):
    code = (
        "import numpy as np, generated\n"
        "from generated import double\n"
        "assert generated.__all__ == ['double'] and 'double' in dir(generated)\n"
        "assert generated.double is double\n"
        "assert double.vjp(np.ones(2), np.ones(2)).tolist() == [2, 2]\n"
        "assert not hasattr(generated, 'triple')\n"
    )
    absent = ("derivatrix", "sympy", "jinja2")
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT.format(absent=absent) + code],
        cwd=built.directory.parent,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr


def test_verifying_a_package_leaves_it_importable_under_its_own_name(built):
    """Numba's caches know modules by name, so each name needs caches of its own."""
    use = "from generated import double; double.value([1.0]); double.jvp([1.0], [1.0])"
    check = "from derivatrix.runtime import load_package, verify\n"
    check += "assert verify(load_package('generated')['double']).passed"
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    for code in (check, use, check, use):
        done = subprocess.run(
            [sys.executable, "-c", code],
            cwd=built.directory.parent,
            env=environment,
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr


def test_the_text_holds_no_path_and_is_the_same_everywhere(built, tmp_path):
    file = tmp_path / "functions.py"
    file.write_text(
        "import derivatrix as dx\n"
        "a = dx.vector('a', dx.dims('n'))\n"
        "double = dx.function('double', [a], 2 * a)\n"
    )
    expected = snapshot(built.directory)
    for seed in ("0", "1"):
        place = tmp_path / f"seed{seed}"
        place.mkdir()
        command = ["-m", "derivatrix.compiler.cli", "build", str(file), "-o", "out", "--no-verify"]
        environment = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": str(ROOT)}
        subprocess.run([sys.executable, *command], cwd=place, env=environment, check=True)
        assert snapshot(place / "out") == {
            name: text for name, text in expected.items() if name.endswith(".py")
        }
    for text in expected.values():
        assert str(built.directory.parent).encode() not in text
        assert str(ROOT).encode() not in text


def test_a_second_build_changes_nothing(built):
    before = {path: path.stat().st_mtime_ns for path in built.directory.glob("*.*")}
    assert dx.build([double], built.directory).written == ()
    assert before == {path: path.stat().st_mtime_ns for path in before}


def test_progress_counts_every_step(tmp_path):
    seen = []
    dx.build([double], tmp_path / "out", progress=lambda *step: seen.append(step))
    assert list(dict.fromkeys((done, total) for _, done, total in seen)) == [(0, 2), (1, 2)]
    assert all("double" in text for text, _, _ in seen)


def test_without_verification_there_is_no_certificate(tmp_path):
    directory = tmp_path / "out"
    dx.build([double], directory)
    result = dx.build([double, triple], directory, verify=False)
    assert result.reports == ()
    assert {*result.removed} == {"certificate.json", "certificate.md"}
    assert {*snapshot(directory)} == {"double.py", "triple.py", "__init__.py"}


def test_modules_that_no_function_belongs_to_any_more_are_removed(tmp_path):
    dx.build([double, triple], tmp_path, verify=False)
    (tmp_path / "notes.txt").write_text("mine")
    (tmp_path / "by_hand.py").write_text("mine = 1")
    result = dx.build([triple], tmp_path, verify=False)
    assert result.removed == ("double.py",)
    assert {*snapshot(tmp_path)} == {"triple.py", "__init__.py", "notes.txt", "by_hand.py"}


def test_a_module_edited_by_hand_beyond_recognition_is_not_removed(tmp_path):
    dx.build([double, triple], tmp_path, verify=False)
    (tmp_path / "double.py").write_text("mine = 1")
    assert dx.build([triple], tmp_path, verify=False).removed == ()
    assert (tmp_path / "double.py").read_text() == "mine = 1"


# Refusing


@pytest.mark.parametrize("name", ["double.py", "__init__.py", "certificate.md", "certificate.json"])
def test_hand_written_files_are_not_overwritten(tmp_path, name):
    (tmp_path / name).write_text("# mine\n")
    with pytest.raises(dx.BuildError, match=rf"did not write {name}.*Nothing was written"):
        dx.build([triple, double], tmp_path)
    assert snapshot(tmp_path) == {name: b"# mine\n"}


def test_a_failed_verification_leaves_everything_as_it_was(tmp_path, monkeypatch):
    directory = tmp_path / "out"
    dx.build([triple], directory)
    before = snapshot(tmp_path)
    spoil(monkeypatch)
    with pytest.raises(dx.VerificationError, match="double: verification failed"):
        dx.build([double, triple], directory)
    assert snapshot(tmp_path) == before
    with pytest.raises(dx.VerificationError, match="Nothing was written"):
        dx.build([double], tmp_path / "new")
    assert sorted(os.listdir(tmp_path)) == ["out"]
    assert sorted(os.listdir(directory)) == [
        "__init__.py",
        "certificate.json",
        "certificate.md",
        "triple.py",
    ]


def test_a_file_in_the_place_of_the_directory(tmp_path):
    (tmp_path / "file").write_text("mine")
    for place in (tmp_path / "file", tmp_path / "file" / "out"):
        with pytest.raises(dx.BuildError, match="is no directory"):
            dx.build([double], place)


def test_a_directory_that_cannot_be_written(tmp_path, monkeypatch):
    def refuse(*_, **__):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(building.tempfile, "mkdtemp", refuse)
    with pytest.raises(dx.BuildError, match="cannot be written: Permission denied"):
        dx.build([double], tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_names_that_collide(tmp_path):
    again = dx.function("double", [a], a + a)
    with pytest.raises(dx.DeclarationError, match="two functions are called 'double'"):
        dx.build([double, again], tmp_path)
    upper = dx.function("Double", [a], a + a)
    with pytest.raises(dx.DeclarationError, match="double and Double would be one file"):
        dx.build([double, upper], tmp_path)
    with pytest.raises(dx.DeclarationError, match="__init__"):
        dx.build([dx.function("__init__", [a], a + a)], tmp_path)
    assert snapshot(tmp_path) == {}


def test_one_function_alone_or_given_twice_is_one(tmp_path):
    assert dx.build(double, tmp_path / "alone", verify=False).modules == ("double",)
    assert dx.build([double, double], tmp_path, ("cpu", "cpu"), verify=False).modules == ("double",)


@pytest.mark.parametrize("functions", [[], [a], [2 * a], ["double"]])
def test_what_is_no_function(tmp_path, functions):
    with pytest.raises(dx.DeclarationError, match="function"):
        dx.build(functions, tmp_path)


def test_an_unknown_target(tmp_path):
    with pytest.raises(dx.UnsupportedError, match="abacus"):
        dx.build([double], tmp_path / "out", targets=("abacus",))
    assert not (tmp_path / "out").exists()


# Checking


def test_a_fresh_package_is_fresh(built):
    assert dx.check([double], built.directory) == []


def test_stale_missing_and_extra_files_are_found(tmp_path):
    dx.build([double, triple], tmp_path, verify=False)
    (tmp_path / "double.py").write_bytes((tmp_path / "double.py").read_bytes() + b"\n")
    before = snapshot(tmp_path)
    found = {(part.file, part.state) for part in dx.check([double], tmp_path)}
    assert found == {("double.py", "stale"), ("__init__.py", "stale"), ("triple.py", "extra")}
    assert snapshot(tmp_path) == before
    states = {part.state for part in dx.check([double], tmp_path / "nowhere")}
    assert states == {"missing"}


# In a session


def test_compile_gives_the_same_module_again(cache_directory):
    module = dx.compile(double)
    assert dx.compile(double) is module
    assert dx.compile(dx.function("double", [a], 2 * a)) is module
    assert module.vjp(np.ones(2), np.ones(2)).tolist() == [2, 2]
    file = Path(module.__file__)
    assert file.parent == Path(cache_directory).resolve()
    assert file.stem.startswith("double_") and module.DIGEST.startswith(file.stem[7:])


def test_functions_of_one_name_are_told_apart():
    other = dx.function("double", [a], a * a)
    assert dx.compile(other) is not dx.compile(double)
    assert dx.compile(other).value(np.array([3.0])).tolist() == [9]


def test_a_spoilt_cache_file_is_written_again(monkeypatch, tmp_path):
    monkeypatch.setenv("DERIVATRIX_CACHE", str(tmp_path / "cache"))
    file = Path(dx.compile(triple).__file__)
    text = file.read_bytes()
    file.write_text("raise SystemExit")
    dx.compile(triple)
    assert file.read_bytes() == text


def test_without_a_writable_cache_a_temporary_one_is_used(monkeypatch, tmp_path):
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("DERIVATRIX_CACHE", str(tmp_path / "file" / "cache"))
    module = dx.compile(triple)
    assert module.value(np.ones(1)).tolist() == [3]
    assert dx.compile(triple) is module


@pytest.mark.parametrize("damage", ["remove", "truncate"])
def test_a_package_with_a_damaged_module_does_not_verify(built, tmp_path, damage):
    copy = tmp_path / "copy"
    shutil.copytree(built.directory, copy)
    module = min(path for path in copy.glob("*.py") if path.name != "__init__.py")
    if damage == "remove":
        module.unlink()
    else:
        module.write_text(module.read_text(encoding="utf-8")[:2000], encoding="utf-8")
    with pytest.raises(dx.LoadError, match=module.stem):
        dx.load_package(copy)
