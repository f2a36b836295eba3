"""The package as it is installed: what it lists, what it imports, what it leaves alone."""

import os
import re
import runpy
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from markdown_it import MarkdownIt

import derivatrix as dx
from tests import ROOT

SETTINGS = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
FOLDERS = ("compiler", "runtime", "templates")

WITHOUT = """
import sys

class Without:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {absent!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Without())
"""


def python(code: str, absent: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
    """Run code in a new interpreter that cannot import the packages named."""
    return subprocess.run(
        [sys.executable, "-c", WITHOUT.format(absent=absent) + code],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )


def addresses(markdown):
    """The targets of the links and pictures of a page, rendered."""
    return re.findall(r'(?:href|src)="([^"]*)"', MarkdownIt().enable("table").render(markdown))


def test_no_relative_link_is_in_the_description_for_an_index():
    """With an address of the files, all links lead there; without one, there are none."""
    description = runpy.run_path(str(ROOT / "setup.py"))["description"]
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    targets = addresses(readme)
    assert {"docs/static/front.svg", "docs/install.md"} <= {*targets}
    for target in targets:
        assert (ROOT / target.partition("#")[0]).exists(), target
    expected = [f"https://host/v1/{target}" for target in targets]
    assert addresses(description(readme, "https://host/v1/")) == expected
    assert addresses(description(readme, "")) == []


def test_every_package_on_disk_is_listed():
    result = {"derivatrix", "derivatrix.plugins"}
    for folder in FOLDERS:
        for file in (ROOT / folder).rglob("*.py"):
            result.add(".".join(("derivatrix", *file.parent.relative_to(ROOT).parts)))
            assert (file.parent / "__init__.py").is_file(), f"{file.parent} has no __init__.py"
    assert sorted(SETTINGS["tool"]["setuptools"]["packages"]) == sorted(result)


def test_every_template_is_package_data():
    files = [path for path in (ROOT / "templates").iterdir() if path.is_file()]
    templates = [path for path in files if path.suffix == ".jinja"]
    assert templates
    assert [path.name for path in files if path not in templates] == ["__init__.py"]
    assert SETTINGS["tool"]["setuptools"]["package-data"]["derivatrix.templates"] == ["*.jinja"]


def test_the_support_of_generated_packages_is_installed():
    """`build` copies it from there: all of it are Python files of packages that are listed."""
    files = (ROOT / "templates" / "support").rglob("*")
    files = [path for path in files if path.is_file() and "__pycache__" not in path.parts]
    assert {path.suffix for path in files} == {".py"}
    result = {".".join(("derivatrix", *path.parent.relative_to(ROOT).parts)) for path in files}
    inner = {
        f"derivatrix.templates.support.{name}" for name in ("common", "cpu", "cuda", "internals")
    }
    assert result == {"derivatrix.templates.support", *inner}
    assert result <= {*SETTINGS["tool"]["setuptools"]["packages"]}


def test_the_checkout_and_the_installed_package_agree():
    mapping = SETTINGS["tool"]["setuptools"]["package-dir"]
    for folder in FOLDERS:
        assert mapping[f"derivatrix.{folder}"] == folder
        link = ROOT / "derivatrix" / folder
        written = link.readlink() if link.is_symlink() else Path(link.read_text())
        assert written == Path("..", folder)  # a file that says so where git makes no links


def test_the_runtime_works_without_the_compiler():
    process = python(
        "import derivatrix.runtime\n"
        "from derivatrix import LoadError, load, load_package, runtime, verify\n"
        "assert verify is derivatrix.runtime.verify\n"
        "assert not any(name.startswith('derivatrix.compiler') for name in sys.modules)\n",
        absent=("sympy", "jinja2", "click", "rich"),
    )
    assert process.returncode == 0, process.stderr


def test_importing_derivatrix_alone_imports_nothing_else():
    process = python("import derivatrix", absent=("numpy", "numba", "scipy", "sympy", "jinja2"))
    assert process.returncode == 0, process.stderr


def test_every_public_name_is_there():
    names = dir(dx)
    assert {"matrix", "trace", "function", "build", "compile", "verify", "ShapeError"} <= {*names}
    for name in names:
        getattr(dx, name)


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="has no attribute 'matrx'"):
        _ = dx.matrx


def test_version_is_the_one_declared():
    attribute = SETTINGS["tool"]["setuptools"]["dynamic"]["version"]["attr"]
    assert attribute == "derivatrix.version.VERSION"
    assert f"## {dx.__version__}" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


def test_ci_is_executable():
    assert os.access(ROOT / ".ci" / "run", os.X_OK)
