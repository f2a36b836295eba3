"""Caches on disk: `derivatrix.compile`'s, which is the user's own, and Numba's, which may be
damaged."""

import importlib.util
import os
import pickle
import shutil
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest
from llvmlite import binding

import derivatrix as dx
from derivatrix.compiler.driver import build, derivation_cache
from derivatrix.runtime import cache
from derivatrix.templates.support.internals import user_cache

n = dx.dims("n")
a = dx.vector("a", n)
double = dx.function("cached_double", [a], 2 * a)

posix = pytest.mark.skipif(sys.platform == "win32", reason="Windows has no modes and owners")

# Who can write


@pytest.fixture
def used_cache(tmp_path, monkeypatch):
    """A cache directory that `derivatrix.compile` has used."""
    tmp_path.chmod(0o755)
    monkeypatch.setenv("DERIVATRIX_CACHE", str(tmp_path / "cache"))
    assert place().is_relative_to(tmp_path)
    return tmp_path / "cache"


def place() -> Path:
    """Compile `double`, and return the path of its module."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return Path(dx.compile(double).__file__)


def strange(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a file belong to somebody else."""
    real = os.lstat(path)
    if os.geteuid() == 0:
        os.chown(path, 12345, -1)
        return
    monkeypatch.setattr(cache.os, "geteuid", lambda: real.st_uid + 1)


@posix
@pytest.mark.parametrize("variable", ["DERIVATRIX_CACHE", "XDG_CACHE_HOME"])
def test_directories_made_are_for_their_owner_alone(tmp_path, monkeypatch, variable):
    if sys.platform == "darwin" and variable == "XDG_CACHE_HOME":
        return
    tmp_path.chmod(0o755)
    monkeypatch.delenv("DERIVATRIX_CACHE", raising=False)
    monkeypatch.setenv(variable, str(tmp_path / "far" / "away"))
    directory = place().parent
    while directory != tmp_path:
        assert directory.stat().st_mode & 0o777 == 0o700
        directory = directory.parent


@posix
@pytest.mark.parametrize("mode", [0o777, 0o757, 0o722, 0o1777])
@pytest.mark.parametrize("part", ["", "module", "__pycache__", "file"])
def test_a_cache_that_others_can_write_to_is_not_used(used_cache, mode, part):
    module = place().parent
    (module / "__pycache__").mkdir(exist_ok=True)
    (module / "__pycache__" / "planted.nbi").touch()
    parts = {
        "": used_cache,
        "module": module,
        "__pycache__": module / "__pycache__",
        "file": module / "__pycache__" / "planted.nbi",
    }
    parts[part].chmod(mode)
    with pytest.warns(RuntimeWarning, match="other users can write to .*temporary directory"):
        place_used = Path(dx.compile(double).__file__)
    assert not place_used.is_relative_to(used_cache)
    assert place_used.parent.stat().st_mode & 0o777 == 0o700
    parts[part].chmod(0o700)
    assert place().is_relative_to(used_cache)


@posix
@pytest.mark.parametrize("part", ["", "module", "__pycache__", "file"])
def test_a_cache_that_belongs_to_another_user_is_not_used(used_cache, monkeypatch, part):
    module = place().parent
    (module / "__pycache__").mkdir(exist_ok=True)
    (module / "__pycache__" / "planted.nbi").touch()
    names = {"": used_cache, "module": module, "__pycache__": module / "__pycache__"}
    strange(names.get(part, module / "__pycache__" / "planted.nbi"), monkeypatch)
    with pytest.warns(RuntimeWarning, match="belongs to another user"):
        place_used = Path(dx.compile(double).__file__)
    assert not place_used.is_relative_to(used_cache)


@posix
@pytest.mark.parametrize(("mode", "refused"), [(0o777, True), (0o1777, False), (0o755, False)])
def test_directories_above_the_cache(tmp_path, monkeypatch, mode, refused):
    """In a sticky directory, such as /tmp, no user can rename the files of another one."""
    (tmp_path / "above").mkdir()
    (tmp_path / "above").chmod(mode)
    monkeypatch.setenv("DERIVATRIX_CACHE", str(tmp_path / "above" / "cache"))
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        place_used = Path(dx.compile(double).__file__)
    assert place_used.is_relative_to(tmp_path) != refused
    assert [str(warning.message) for warning in told if "above" in str(warning.message)] == (
        [str(warning.message) for warning in told] if refused else []
    )


@posix
def test_a_group_of_one_s_own_may_write(used_cache, monkeypatch):
    """On systems with a group for each user, files are writable for this group."""
    used_cache.chmod(0o770)
    monkeypatch.setattr(user_cache, "_is_own_group", lambda group: True)
    assert place().is_relative_to(used_cache)
    monkeypatch.setattr(user_cache, "_is_own_group", lambda group: False)
    with pytest.warns(RuntimeWarning, match="other users can write to"):
        assert not Path(dx.compile(double).__file__).is_relative_to(used_cache)


# Damage

TEXT = """
import numpy as np
from derivatrix.templates.support.internals.functions import compiled


@compiled()
def inner(x):
    return 2 * x


@compiled()
def outer(x):
    return inner(x) + {number}
"""


def flipped(contents: bytes) -> bytes:
    """Flip bits here and there, as a disk may."""
    changed = bytearray(contents)
    for position in range(len(changed) // 4, len(changed), 97):
        changed[position] ^= 0x55
    return bytes(changed)


DAMAGES = {
    "empty": lambda contents: b"",
    "cut": lambda contents: contents[: len(contents) // 2],
    "short": lambda contents: contents[:-1],
    "noise": lambda contents: bytes(range(7, 255)) * 20,
    "zeros": lambda contents: bytes(len(contents)),
    "text": lambda contents: b"<<<<<<< ours\n",
    "number": lambda contents: pickle.dumps(3),
    "tuple": lambda contents: pickle.dumps((1, 2, 3)),
    "pair": lambda contents: pickle.dumps((b"digest", b"code")),
    "flipped": flipped,
}


@pytest.fixture(scope="module")
def numba_cache(tmp_path_factory):
    """A folder with a file of two functions, and Numba's cache of them."""
    folder = tmp_path_factory.mktemp("kept")
    (folder / "kept.py").write_text(TEXT.format(number=1))
    assert outer_value(folder) == 7
    assert len(files(folder)) == 2
    return folder


def outer_value(folder: Path, file: str = "kept.py", argument: float = 3) -> float:
    """Call the outer function with 3, in a new module."""
    spec = importlib.util.spec_from_file_location("kept", folder / file)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.outer(argument)


def files(folder: Path, place: str = "__pycache__") -> list[Path]:
    return sorted((folder / place).glob("*.nbc"))


def copied(numba_cache: Path, folder: Path) -> Path:
    shutil.copytree(numba_cache, folder, dirs_exist_ok=True)
    return folder


@pytest.mark.parametrize("damage", DAMAGES)
def test_damaged_files_are_written_again(numba_cache, tmp_path, damage):
    folder = copied(numba_cache, tmp_path)
    for path in files(folder):
        path.write_bytes(DAMAGES[damage](path.read_bytes()))
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        assert outer_value(folder) == 7
    texts = [str(warning.message) for warning in told]
    assert texts and all("the function is compiled anew" in text for text in texts)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert outer_value(folder) == 7


def test_code_of_another_function_is_not_run(numba_cache, tmp_path):
    folder = copied(numba_cache, tmp_path)
    inner, outer = files(folder)
    assert outer_value(folder) == 7
    shutil.copy(inner, outer)
    with pytest.warns(UserWarning, match="outer.* is damaged"):
        assert outer_value(folder) == 7


def test_code_for_arguments_of_other_types_is_not_run(numba_cache, tmp_path):
    folder = copied(numba_cache, tmp_path)
    assert outer_value(folder, argument=3.5) == 8
    first, second = (path for path in files(folder) if "outer" in path.name)
    of_first = first.read_bytes()
    shutil.copy(second, first)
    second.write_bytes(of_first)
    with pytest.warns(UserWarning, match="outer.* is damaged"):
        assert outer_value(folder, argument=3.5) == 8


def test_llvms_code_is_kept_where_callers_have_a_copy_of_it(tmp_path):
    text = TEXT.format(number=1).replace("@compiled()", "@compiled(linked=True)", 1)
    (tmp_path / "kept.py").write_text(text)
    assert outer_value(tmp_path) == outer_value(tmp_path) == 7
    lines_of = {}
    for path in files(tmp_path):
        _, (_, _, (_, bitcode)), *_ = pickle.loads(path.read_bytes()[64:])
        lines = str(binding.parse_bitcode(bitcode)).splitlines()
        name = next(function for function in ("inner", "outer") if function in path.name)
        lines_of[name] = {line.strip() for line in lines if line.startswith("  ")}
    assert lines_of["outer"] == {"ret void"} < lines_of["inner"] | {"ret void"}


def test_a_directory_in_the_place_of_a_file(numba_cache, tmp_path):
    folder = copied(numba_cache, tmp_path)
    for path in files(folder):
        path.unlink()
        (path / "within").mkdir(parents=True)
    with pytest.warns(UserWarning, match="cannot be written"):
        assert outer_value(folder) == 7


# Machine code of all packages

CALLED = """
import sys
import numpy as np
{imports}
for module in ({names},):
    kernel = module.value_kernel
    print(module.value(np.array([0.0, 1.0])).round(3), sum(kernel.stats.cache_hits.values()),
        sum(rows(module).logsumexp.for_kernels().stats.cache_hits.values()))
"""
ROWS = """
def rows(module):
    assert not any(name.startswith("derivatrix") for name in sys.modules)
    return sys.modules[module.__package__ + "._support.cpu.rows"]
"""
COMPILED_NOW, FROM_DISK = ["1.313", "0", "0"], ["1.313", "1", "1"]


@pytest.fixture
def packages(tmp_path):
    """A folder with two packages that are the same, but for their names."""
    tmp_path.chmod(0o755)
    dx.build([dx.function("large", [a], dx.logsumexp(a))], tmp_path / "one", verify=False)
    shutil.copytree(tmp_path / "one", tmp_path / "two")
    return tmp_path


def start(folder: Path, *names: str, place: str = "cache") -> subprocess.Popen:
    """A process that calls `large` of the packages."""
    imports = "\n".join(f"from {name} import large as {name}" for name in names)
    code = CALLED.format(imports=imports + ROWS, names=", ".join(names))
    return subprocess.Popen(
        [sys.executable, "-c", code],
        cwd=folder,
        env={**os.environ, "DERIVATRIX_CACHE": str(folder / place)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def outcome(process: subprocess.Popen) -> tuple[list[str], str]:
    """Return the results that the process printed, with the numbers of cache hits of the kernel and
    its helper, and its warnings."""
    told, problems = process.communicate()
    assert process.returncode == 0, problems
    return told.split(), problems


def test_a_changed_helper_is_compiled_anew_with_its_callers(packages):
    """The module imports it by way of cpu/rows.py and cpu/elementary.py."""
    assert outcome(start(packages, "one")) == (COMPILED_NOW, "")
    with (packages / "two" / "_support" / "internals" / "arithmetic.py").open("a") as file:
        file.write("\n# another text\n")
    assert outcome(start(packages, "two", "one")) == (COMPILED_NOW + FROM_DISK, "")


def test_a_module_that_is_built_again_is_compiled_anew(tmp_path):
    """Both modules are loaded in one process."""
    kernels = []
    for factor in (2, 3):
        changed = dx.function("changed", [a], factor * dx.logsumexp(a))
        dx.build([changed], tmp_path / "again", verify=False)
        module = dx.load(tmp_path / "again" / "changed.py")
        assert module.value(np.zeros(1)) == 0
        np.testing.assert_allclose(module.vjp(np.zeros(1), 1.0), [factor])
        kernels.append(module.vjp_kernel)
    assert kernels[0].py_func.__qualname__ != kernels[1].py_func.__qualname__


def test_processes_that_compile_at_once(packages):
    told = [outcome(process) for process in [start(packages, name) for name in ("one", "two")]]
    assert [problems for _, problems in told] == ["", ""]
    assert [values[0] for values, _ in told] == ["1.313", "1.313"]
    assert outcome(start(packages, "two", "one")) == (FROM_DISK * 2, "")
    assert not [*packages.glob("*/**/*.nbi"), *packages.glob("one/**/*.nbc")]
    assert all(path.suffix == ".nbc" for path in (packages / "cache" / "machine_code").iterdir())


def test_damaged_machine_code_is_compiled_anew_with_a_warning(packages):
    outcome(start(packages, "one"))
    for path in files(packages / "cache", "machine_code"):
        path.write_bytes(path.read_bytes()[:50])
    values, problems = outcome(start(packages, "two"))
    assert values == COMPILED_NOW and "is damaged" in problems
    assert outcome(start(packages, "two")) == (FROM_DISK, "")


@posix
def test_machine_code_that_others_can_write_is_not_run(packages):
    outcome(start(packages, "one"))
    for path in files(packages / "cache", "machine_code"):
        path.chmod(0o666)
    values, problems = outcome(start(packages, "one"))
    assert values == COMPILED_NOW and "other users can write to" in problems
    assert outcome(start(packages, "one")) == (FROM_DISK, "")
    (packages / "cache" / "machine_code").chmod(0o777)
    assert outcome(start(packages, "two")) == (COMPILED_NOW, "")
    assert [*packages.glob("two/__pycache__/*.nbc")]  # Numba's usual place


def test_without_a_folder_of_the_user_it_is_where_numba_keeps_it(packages):
    place = "one/large.py/cache"  # no directory can be there
    for expected in (COMPILED_NOW, FROM_DISK):
        assert outcome(start(packages, "one", place=place)) == (expected, "")
    assert [*packages.glob("one/__pycache__/*.nbc")]


def test_a_package_raises_errors_of_its_own(tmp_path):
    """Whichever package's code it runs, and whichever was imported first."""
    x = dx.vector("x", n)
    nowhere = dx.function("nowhere", [a], dx.root(x**2 + a**2 + 1, x, a))
    dx.build([nowhere], tmp_path / "one", verify=False)
    shutil.copytree(tmp_path / "one", tmp_path / "two")
    code = """
import sys
import numpy as np
from {0} import nowhere as first
from {1} import nowhere as second
for module in (second, first):
    try:
        module.value(np.ones(2))
    except np.linalg.LinAlgError as error:
        print(type(error).__module__, "residual" in str(error))
"""
    for names in (("one", "two"), ("two", "one")):
        process = subprocess.run(
            [sys.executable, "-c", code.format(*names)],
            cwd=tmp_path,
            env={**os.environ, "DERIVATRIX_CACHE": str(tmp_path / "cache")},
            capture_output=True,
            text=True,
        )
        expected = "".join(f"{name}._support.cpu.newton True\n" for name in names[::-1])
        assert (process.stdout, process.stderr) == (expected, "")


@pytest.mark.parametrize(
    ("line", "known"),
    [("import math", True), ("from numpy import pi", True), ("import llvmlitest", False)],
)
def test_texts_of_other_packages_are_not_known(tmp_path, line, known):
    (tmp_path / "needing.py").write_text(f"{line}\n\n\ndef function():\n    pass\n")
    spec = importlib.util.spec_from_file_location("needing", tmp_path / "needing.py")
    module = importlib.util.module_from_spec(spec)
    (tmp_path / "llvmlitest.py").touch()
    sys.path.insert(0, str(tmp_path))
    try:
        spec.loader.exec_module(module)
    finally:
        sys.path.remove(str(tmp_path))
    assert bool(user_cache.text_digest(module.function)) == known


COMPILED = (
    "import derivatrix as dx; x = dx.vector('x', 3); dx.compile(dx.function('f', [x], x * x))"
)


@pytest.mark.parametrize("code", [COMPILED, "from generated import f"])
def test_without_compiling_there_are_no_kernels(tmp_path, code):
    dx.build([dx.function("f", [a], np.tanh(a))], tmp_path / "generated", verify=False)
    process = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env={**os.environ, "NUMBA_DISABLE_JIT": "1"},
        capture_output=True,
        text=True,
    )
    assert process.returncode == 1
    message = process.stderr.splitlines()[-1]
    assert "Error: " in message and "NUMBA_DISABLE_JIT is set" in message and "unset it" in message


# Texts of modules


@pytest.fixture
def derivations(used_cache, monkeypatch):
    """The names of the functions that are derived from now on; `double` is in the cache."""
    names = []
    derive = derivation_cache.generate

    def generate(function, target="cpu"):
        names.append(function.name)
        return derive(function, target)

    monkeypatch.setattr(derivation_cache, "generate", generate)
    monkeypatch.setattr(build, "generate", generate)
    return names


def test_an_unchanged_function_is_not_derived_again(derivations, tmp_path):
    place()
    dx.build([double], tmp_path / "built", verify=False)
    assert dx.build([double], tmp_path / "built", verify=False).written == ()
    assert build.check([double], tmp_path / "built") == []
    assert derivations == []


def test_another_function_of_that_name_is_derived(derivations):
    triple = dx.function("cached_double", [a], 3 * a)
    for function, factor in ((triple, 3), (double, 2), (triple, 3)):
        assert dx.compile(function).value(np.ones(2)).tolist() == [factor] * 2
    assert dx.compile(double, kinds=["value"]).FUNCTIONS == ("value",)
    assert derivations == ["cached_double", "cached_double"]


@pytest.mark.parametrize("damage", ["empty", "cut", "changed", "no text", "a folder"])
def test_a_damaged_text_is_derived_again(derivations, used_cache, damage):
    (file,) = (used_cache / "generated").iterdir()
    text = file.read_bytes()
    file.unlink()
    if damage == "a folder":
        file.mkdir()
    else:
        damaged = {
            "empty": b"",
            "cut": text[:-9],
            "changed": text.replace(b"2", b"3"),
            "no text": b"\xff",
        }
        file.write_bytes(damaged[damage])
    place()
    assert derivations == ["cached_double"]
    if damage != "a folder":
        assert file.read_bytes() == text


@posix
def test_a_text_that_others_can_write_is_not_run(derivations, used_cache):
    (file,) = (used_cache / "generated").iterdir()
    file.chmod(0o666)
    place()
    assert derivations == ["cached_double"]


IN_ANOTHER_PROCESS = """
import derivatrix as dx
from derivatrix.compiler.driver import derivation_cache

derive = derivation_cache.generate
derivation_cache.generate = lambda *given: print("derived") or derive(*given)
x, s = dx.vector("x", dx.dims("n")), dx.scalar("s")
module = dx.compile(dx.function("decay", [x, s], {}, kinds=["value"]))
print(*module.value([1.0], 0.0), sum(module.value_kernel.stats.cache_misses.values()))
"""


def test_other_processes_derive_and_compile_only_what_changed(tmp_path):
    """Whatever seed Python's hashes have, and whatever files are permitted by default."""

    def printed(expression, seed, umask):
        done = subprocess.run(
            [sys.executable, "-W", "error", "-c", IN_ANOTHER_PROCESS.format(expression)],
            env={**os.environ, "DERIVATRIX_CACHE": str(tmp_path), "PYTHONHASHSEED": seed},
            umask=umask,
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.split()

    assert printed("dx.exp(-s * x) * x", "1", 0) == ["derived", "1.0", "1"]
    assert printed("dx.exp(-s * x) * x", "2", 0) == ["1.0", "0"]
    assert printed("dx.exp(-s * x) + x", "2", 0o022) == ["derived", "2.0", "1"]
    assert printed("dx.exp(-s * x) * x", "3", 0o022) == ["1.0", "0"]
