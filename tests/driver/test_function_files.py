"""Function files: what they may hold and import, and whose modules a package has."""

import json
import shutil
import sys
import threading

import pytest
from setuptools import Distribution

import derivatrix as dx
from derivatrix.compiler.driver import package
from derivatrix.compiler.driver.project import find_project
from derivatrix.plugins.setuptools import BuildDerivatrix
from derivatrix.runtime import parallel

START = "import derivatrix as dx\na = dx.vector('a', dx.dims('n'))\n"


def declare(path, **functions):
    """A file of functions, each a number of times its input; its path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = [f"{name} = dx.function('{name}', [a], {k} * a)\n" for name, k in functions.items()]
    path.write_text(START + "".join(lines))
    return path


def build(*files, out, **options):
    options = {"verify": False, **options}
    return dx.build([f for file in files for f in dx.load_functions(file)], out, **options)


def check(file, out):
    return {(part.file, part.state) for part in dx.check(dx.load_functions(file), out)}


# What a package has of several files


def test_a_file_leaves_the_modules_of_others(tmp_path):
    first_file = declare(tmp_path / "one.py", double=2, triple=3)
    second_file = declare(tmp_path / "other.py", half=0.5)
    out = tmp_path / "out"
    build(first_file, out=out)
    result = build(second_file, out=out)
    assert result.removed == () and result.modules == ("half", "double", "triple")
    assert check(first_file, out) == check(second_file, out) == set()
    assert [*dx.load_package(out)] == ["double", "half", "triple"]

    declare(first_file, double=4)
    assert check(second_file, out) == set()
    stale = {("double.py", "stale"), ("_formulas/double.py", "stale"), ("__init__.py", "stale")}
    extra = {"triple.py", "triple.pyi", "_formulas/triple.py"}
    assert check(first_file, out) == stale | {(name, "extra") for name in extra}
    assert {*build(first_file, out=out).removed} == extra
    assert check(first_file, out) == check(second_file, out) == set()
    assert dx.load(out / "half.py").value([2.0]).tolist() == [1.0]


def test_support_that_only_a_kept_module_needs_is_kept(tmp_path):
    first_file = declare(tmp_path / "one.py", double=2)
    (tmp_path / "other.py").write_text(
        "import derivatrix as dx\nX = dx.matrix('X', 2, 2)\nf = dx.function('f', [X], dx.expm(X))\n"
    )
    build(tmp_path / "other.py", out=tmp_path / "out")
    build(first_file, out=tmp_path / "out")
    assert check(tmp_path / "other.py", tmp_path / "out") == set()


def test_functions_of_no_file_and_those_of_files_keep_each_other(tmp_path):
    a = dx.vector("a", dx.dims("n"))
    file, out = declare(tmp_path / "one.py", double=2), tmp_path / "out"
    dx.build(dx.function("f", [a], 5 * a), out, verify=False)
    build(file, out=out)
    assert dx.build(dx.function("g", [a], 5 * a), out, verify=False).modules == ("g", "double")


def test_files_of_one_name_are_two(tmp_path):
    first_file = declare(tmp_path / "a" / "functions.py", double=2)
    second_file = declare(tmp_path / "b" / "functions.py", half=0.5)
    build(first_file, out=tmp_path / "out")
    assert build(second_file, out=tmp_path / "out").removed == ()
    new_place = tmp_path / "moved"
    for name in ("a", "b", "out"):
        shutil.copytree(tmp_path / name, new_place / name)
    assert check(new_place / "b" / "functions.py", new_place / "out") == set()


def test_a_module_of_another_file_is_not_replaced(tmp_path):
    first_file, second_file = (
        declare(tmp_path / "one.py", double=2),
        declare(tmp_path / "two.py", double=3),
    )
    out = tmp_path / "out"
    build(first_file, out=out)
    with pytest.raises(dx.BuildError, match=r"double\.py comes from .*one\.py"):
        build(second_file, out=out)
    with pytest.raises(dx.BuildError, match=r"double\.py comes from"):
        check(second_file, out)
    with pytest.raises(dx.DeclarationError, match="two functions are called 'double'"):
        build(first_file, second_file, out=out)
    assert check(first_file, out) == set()
    first_file.rename(tmp_path / "renamed.py")
    build(tmp_path / "renamed.py", out=out)
    assert check(tmp_path / "renamed.py", out) == set()


def test_a_function_that_two_files_import_is_one(tmp_path):
    declare(tmp_path / "shared.py", double=2)
    first_file, second_file = tmp_path / "one.py", tmp_path / "two.py"
    for path in (first_file, second_file):
        path.write_text("from shared import double\n")
    assert build(first_file, second_file, out=tmp_path / "out").modules == ("double",)
    declare(second_file, double=2)  # declared once more, and the same
    assert build(first_file, second_file, out=tmp_path / "out").written == ()


def test_modules_of_another_version_are_told(tmp_path, monkeypatch):
    first_file, second_file = (
        declare(tmp_path / "one.py", double=2),
        declare(tmp_path / "two.py", half=0.5),
    )
    out = tmp_path / "out"
    build(first_file, out=out)
    path = out / "double.py"
    path.write_text(path.read_text().replace("SUPPORT = '", "SUPPORT = '0"))
    result = build(second_file, out=out)
    assert result.outdated == ("double",) and result.modules == ("half", "double")
    with pytest.raises(dx.LoadError, match="other support files"):
        dx.load(path)
    assert build(first_file, out=out).outdated == () and dx.load(path)


def test_the_certificate_vouches_for_the_modules_of_all_files(tmp_path, monkeypatch):
    def passed(module, **_):
        name = module.__name__.rpartition(".")[2].partition("_")[0]
        verified.append(name)
        rows = (dx.runtime.Row("value", "value", "", "", 0.0, 1.0, True),)
        return dx.Report(name, module.DIGEST, rows)

    verified = []
    monkeypatch.setattr(parallel, "verify", passed)
    first_file, second_file = (
        declare(tmp_path / "one.py", double=2),
        declare(tmp_path / "two.py", half=0.5),
    )
    out = tmp_path / "out"
    build(first_file, out=out, verify=True)
    result = build(second_file, out=out, verify=True)
    assert verified == ["double", "half"] and result.verified == ("half",)
    record = json.loads((out / "certificate.json").read_text())
    assert [entry["function"] for entry in record["modules"]] == ["double", "half"]
    (out / "certificate.json").unlink()
    assert {*build(second_file, out=out, verify=True).verified} == {"double", "half"}


def test_builds_of_two_files_at_the_same_time(tmp_path):
    """As with `make -j`, the package has the modules of both files."""
    files = [declare(tmp_path / f"{name}.py", **{name: 2}) for name in ("one", "two")]
    loaded = [dx.load_functions(file) for file in files]
    out, errors = tmp_path / "out", []

    def work(functions):
        try:
            for _ in range(3):
                dx.build(functions, out, verify=False)
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=[functions]) for functions in loaded]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert check(files[0], out) == check(files[1], out) == set()


def test_sources_are_recorded_without_what_is_around_them(tmp_path):
    file = declare(tmp_path / "far" / "away" / "functions.py", double=2)
    (function,) = dx.load_functions(file)
    place = tmp_path / "other" / "out"
    assert package._source_name(function, place) == "functions.py"
    (tmp_path / "pyproject.toml").touch()
    assert package._source_name(function, place) == "../../far/away/functions.py"


# What a file may hold


def test_functions_in_lists(tmp_path):
    path = declare(tmp_path / "many.py", double=2)
    path.write_text(
        path.read_text()
        + "several = [double, *(dx.function(f'times_{k}', [a], k * a) for k in (3, 4))]\n"
        + "named = {'half': dx.function('half', [a], a / 2), 'size': 3}\n"
    )
    names = ["double", "times_3", "times_4", "half"]
    assert [function.name for function in dx.load_functions(path)] == names
    assert [function.name for function in dx.load_functions(f"{path}:half")] == ["half"]


def test_relative_imports_run_no_package(tmp_path):
    """The package's own `__init__.py` may import what is to be generated."""
    inner = tmp_path / "outer" / "inner"
    inner.mkdir(parents=True)
    for folder in (inner, inner.parent):
        (folder / "__init__.py").write_text("from outer.generated import square\n")
    (inner.parent / "sizes.py").write_text("import derivatrix as dx\nn = dx.dims('n')\n")
    (inner / "arrays.py").write_text(
        "import derivatrix as dx\nfrom ..sizes import n\nX = dx.matrix('X', n, n)\n"
    )
    path = inner / "functions.py"
    path.write_text(
        "import derivatrix as dx\nfrom . import arrays\nfrom .arrays import X\n"
        "assert arrays.X is X\nsquare = dx.function('square', [X], X @ X)\n"
    )
    before = [*sys.path]
    assert [function.name for function in dx.load_functions(path)] == ["square"]
    assert sys.path == before and "derivatrix_functions" not in sys.modules
    (tmp_path / "beyond.py").write_text("from ..sizes import n\n")
    with pytest.raises(dx.DeclarationError, match=r"beyond\.py:1: ImportError: .*beyond top-level"):
        dx.load_functions(tmp_path / "beyond.py")


def test_what_lies_beside_one_file_is_not_taken_for_what_lies_beside_another(tmp_path):
    for number in (2, 3):
        folder = tmp_path / f"folder{number}"
        declare(folder / "factors.py", **{f"times_{number}": number})
        (folder / "plain.py").write_text(f"from factors import times_{number}\n")
        (folder / "relative.py").write_text(f"from .factors import times_{number}\n")
    for name in ("plain", "relative", "plain"):
        for number in (2, 3):
            (function,) = dx.load_functions(tmp_path / f"folder{number}" / f"{name}.py")
            assert function.name == f"times_{number}"


# The table in pyproject.toml


def test_a_project_is_read(tmp_path):
    assert find_project(tmp_path) is None
    file = tmp_path / "pyproject.toml"
    file.write_text("[project]\nname = 'mine'\n")
    assert find_project(tmp_path) is None
    file.write_text("[tool.derivatrix]\nfunctions = ['a.py:f', 'b.py']\noutput = 'out'\n")
    project = find_project(tmp_path)
    assert project.files == ["a.py", "b.py"] and project.targets == ("cpu",)
    assert project.directory == tmp_path / "out" and not project.second
    file.write_text(f"{file.read_text()}second = true\n")
    assert find_project(tmp_path).second


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[tool.derivatrix", "pyproject.toml: cannot be read: "),
        ("[tool]\nderivatrix = 3", "tool.derivatrix is no table"),
        ("[tool.derivatrix]\nfunctions = ['a.py']", "needs output.*it has none"),
        ("[tool.derivatrix]\nfunctions = ['a.py']\noutput = 3", "needs output.*found 3"),
        ("[tool.derivatrix]\noutput = 'o'", "needs functions as a list of texts; it has none"),
        ("[tool.derivatrix]\noutput = 'o'\nfunctions = 'a.py'", "found 'a.py'"),
        ("[tool.derivatrix]\noutput = 'o'\nfunctions = []", r"found \[\]"),
        ("[tool.derivatrix]\noutput = 'o'\nfiles = ['a.py']", "has no setting 'files'"),
        ("[tool.derivatrix]\noutput='o'\nfunctions=['a.py']\ntargets=[1]", "needs targets as a"),
        ("[tool.derivatrix]\noutput='o'\nfunctions=['a']\nsecond=1", "second = 1; expected true"),
    ],
)
def test_a_project_that_is_wrong(tmp_path, text, said):
    (tmp_path / "pyproject.toml").write_text(text)
    with pytest.raises(dx.DeclarationError, match=said):
        find_project(tmp_path)


@pytest.mark.parametrize("output", ["/generated", "../generated", "src/..", "."])
def test_setuptools_installs_no_folder_outside_of_the_project(tmp_path, output):
    """It removes the folder that it installs first."""
    table = f"[tool.derivatrix]\nfunctions = ['a.py']\noutput = '{output}'\n"
    (tmp_path / "pyproject.toml").write_text(table)
    distribution = Distribution()
    distribution.src_root = str(tmp_path)
    command = BuildDerivatrix(distribution)
    command.build_lib = str(tmp_path / "build")
    with pytest.raises(dx.DeclarationError, match="expected a folder inside of the project"):
        command.get_output_mapping()
