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
from derivatrix.runtime import cache

n = dx.dims("n")
a = dx.vector("a", n)
double = dx.function("cached_double", [a], 2 * a)

posix = pytest.mark.skipif(sys.platform == "win32", reason="Windows has no modes and owners")

# Who can write


@pytest.fixture
def own(tmp_path, monkeypatch):
    """A cache directory that `derivatrix.compile` has used."""
    tmp_path.chmod(0o755)
    monkeypatch.setenv("DERIVATRIX_CACHE", str(tmp_path / "cache"))
    assert place().is_relative_to(tmp_path)
    return tmp_path / "cache"


def place() -> Path:
    """Where a module is compiled."""
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
def test_a_cache_that_others_can_write_to_is_not_used(own, mode, part):
    module = place().parent
    (module / "__pycache__").mkdir(exist_ok=True)
    (module / "__pycache__" / "planted.nbi").touch()
    parts = {
        "": own,
        "module": module,
        "__pycache__": module / "__pycache__",
        "file": module / "__pycache__" / "planted.nbi",
    }
    parts[part].chmod(mode)
    with pytest.warns(RuntimeWarning, match="other users can write to .*temporary directory"):
        used = Path(dx.compile(double).__file__)
    assert not used.is_relative_to(own)
    assert used.parent.stat().st_mode & 0o777 == 0o700
    parts[part].chmod(0o700)
    assert place().is_relative_to(own)


@posix
@pytest.mark.parametrize("part", ["", "module", "__pycache__", "file"])
def test_a_cache_that_belongs_to_another_user_is_not_used(own, monkeypatch, part):
    module = place().parent
    (module / "__pycache__").mkdir(exist_ok=True)
    (module / "__pycache__" / "planted.nbi").touch()
    names = {"": own, "module": module, "__pycache__": module / "__pycache__"}
    strange(names.get(part, module / "__pycache__" / "planted.nbi"), monkeypatch)
    with pytest.warns(RuntimeWarning, match="belongs to another user"):
        used = Path(dx.compile(double).__file__)
    assert not used.is_relative_to(own)


@posix
@pytest.mark.parametrize(("mode", "refused"), [(0o777, True), (0o1777, False), (0o755, False)])
def test_directories_above_the_cache(tmp_path, monkeypatch, mode, refused):
    """In one that all may write to, as /tmp, nobody may rename what is another's."""
    (tmp_path / "above").mkdir()
    (tmp_path / "above").chmod(mode)
    monkeypatch.setenv("DERIVATRIX_CACHE", str(tmp_path / "above" / "cache"))
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        used = Path(dx.compile(double).__file__)
    assert used.is_relative_to(tmp_path) != refused
    assert [str(each.message) for each in told if "above" in str(each.message)] == (
        [str(each.message) for each in told] if refused else []
    )


@posix
def test_a_group_of_one_s_own_may_write(own, monkeypatch):
    """Where each user has a group, files are made for it to write to, too."""
    own.chmod(0o770)
    monkeypatch.setattr(cache, "_is_own_group", lambda group: True)
    assert place().is_relative_to(own)
    monkeypatch.setattr(cache, "_is_own_group", lambda group: False)
    with pytest.warns(RuntimeWarning, match="other users can write to"):
        assert not Path(dx.compile(double).__file__).is_relative_to(own)


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
    """As a disk may lose it: other bits, here and there."""
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
def kept(tmp_path_factory):
    """A folder with a file of two functions, and Numba's cache of them."""
    folder = tmp_path_factory.mktemp("kept")
    (folder / "kept.py").write_text(TEXT.format(number=1))
    assert called(folder) == 7
    assert len(files(folder, "nbi")) == 2 and len(files(folder, "nbc")) == 2
    return folder


def called(folder: Path, file: str = "kept.py", argument: float = 3) -> float:
    """What the outer function makes of 3, in a module of its own."""
    spec = importlib.util.spec_from_file_location("kept", folder / file)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.outer(argument)


def files(folder: Path, ending: str) -> list[Path]:
    return sorted((folder / "__pycache__").glob(f"*.{ending}"))


def copied(kept: Path, folder: Path) -> Path:
    """A copy whose file is as old, and its name in Numba's index the same."""
    shutil.copytree(kept, folder, dirs_exist_ok=True)
    return folder


@pytest.mark.parametrize("ending", ["nbi", "nbc"])
@pytest.mark.parametrize("damage", DAMAGES)
def test_damaged_files_are_written_again(kept, tmp_path, damage, ending):
    folder = copied(kept, tmp_path)
    for path in files(folder, ending):
        path.write_bytes(DAMAGES[damage](path.read_bytes()))
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        assert called(folder) == 7
    texts = [str(each.message) for each in told]
    assert all("the function is compiled anew" in text for text in texts)
    assert texts or ending == "nbi"  # which may be taken for that of another version
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert called(folder) == 7


def test_code_of_another_function_is_not_run(kept, tmp_path):
    folder = copied(kept, tmp_path)
    inner, outer = files(folder, "nbc")
    assert called(folder) == 7
    shutil.copy(inner, outer)
    with pytest.warns(UserWarning, match="outer.* is damaged"):
        assert called(folder) == 7


def test_code_for_arguments_of_other_types_is_not_run(kept, tmp_path):
    folder = copied(kept, tmp_path)
    assert called(folder, argument=3.5) == 8
    first, second = (path for path in files(folder, "nbc") if "outer" in path.name)
    shutil.copy(first, second)
    with pytest.warns(UserWarning, match="outer.* is damaged .*arguments of other types"):
        assert called(folder, argument=3.5) == 8


def test_llvms_code_is_kept_where_callers_have_a_copy_of_it(tmp_path):
    text = TEXT.format(number=1).replace("@compiled()", "@compiled(linked=True)", 1)
    (tmp_path / "kept.py").write_text(text)
    assert called(tmp_path) == called(tmp_path) == 7
    found = {}
    for path in files(tmp_path, "nbc"):
        _, code = pickle.loads(path.read_bytes())
        _, ((_, _, (_, kept)), *_) = pickle.loads(code)
        lines = str(binding.parse_bitcode(kept)).splitlines()
        name = next(each for each in ("inner", "outer") if each in path.name)
        found[name] = {line.strip() for line in lines if line.startswith("  ")}
    assert found["outer"] == {"ret void"} < found["inner"] | {"ret void"}


@pytest.mark.parametrize("ending", ["nbi", "nbc"])
def test_a_directory_in_the_place_of_a_file(kept, tmp_path, ending):
    folder = copied(kept, tmp_path)
    for path in files(folder, ending):
        path.unlink()
        (path / "within").mkdir(parents=True)
    with pytest.warns(UserWarning, match="cannot be written"):
        assert called(folder) == 7


def test_a_generated_module_does_so_by_itself(tmp_path):
    dx.build([double], tmp_path / "generated", verify=False)
    code = (
        "import sys, numpy as np\nfrom generated import cached_double\n"
        "assert not any(name.startswith('derivatrix') for name in sys.modules)\n"
        "print(cached_double.value(np.ones(2)).sum())"
    )
    for ending in ("", "nbi", "nbc"):
        for path in files(tmp_path / "generated", ending):
            path.write_bytes(path.read_bytes()[:50])
        done = subprocess.run(
            [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True
        )
        assert (done.returncode, done.stdout) == (0, "4.0\n"), done.stderr
        assert ("is damaged" in done.stderr) == bool(ending)


COMPILED = (
    "import derivatrix as dx; x = dx.vector('x', 3); dx.compile(dx.function('f', [x], x * x))"
)


@pytest.mark.parametrize("what", [COMPILED, "from generated import f"])
def test_without_compiling_there_are_no_kernels(tmp_path, what):
    dx.build([dx.function("f", [a], np.tanh(a))], tmp_path / "generated", verify=False)
    done = subprocess.run(
        [sys.executable, "-c", what],
        cwd=tmp_path,
        env={**os.environ, "NUMBA_DISABLE_JIT": "1"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1
    last = done.stderr.splitlines()[-1]
    assert "Error: " in last and "NUMBA_DISABLE_JIT is set" in last and "unset it" in last
