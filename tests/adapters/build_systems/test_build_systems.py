"""The packages of examples/packages, built as their users do, installed and used."""

import os
import re
import shutil
import tarfile
import zipfile

import pytest
import yaml

import derivatrix as dx
from tests import ROOT
from tests.adapters.build_systems.conftest import printed

PORTFOLIO = """
import numpy as np, sys
from portfolio import step
from portfolio.generated import cost, risk
S = np.array([[2.0, 0.5], [0.5, 1.0]])
w, before = np.array([0.5, 0.5]), np.array([0.4, 0.5])
np.testing.assert_allclose(step(w, before, S, 0.1), w - 0.2 * (S @ w + w - before))
assert not any(name.partition(".")[0] == "derivatrix" for name in sys.modules)
print(risk.__file__)
"""
KRIGING = """
import numpy as np
from kriging import correlate
from kriging.generated import correlation
d = np.array([0.5, 2.0])
np.testing.assert_allclose(correlate(d, 2.0), np.exp(-d**2 / 4))
np.testing.assert_allclose(correlation.jacobian(d, 2.0), np.exp(-d**2 / 4) * d**2 / 4)
print(correlation.__file__)
"""
PROJECTS = {
    "setuptools_project": ("portfolio", ["functions/costs.py", "functions/risk.py"], PORTFOLIO),
    "hatch_project": ("kriging", ["functions.py"], KRIGING),
}


@pytest.mark.parametrize("project", PROJECTS)
def test_a_project_is_built_and_installed(environment, wheels, tmp_path, project):
    name, functions, use = PROJECTS[project]
    place = tmp_path / project
    shutil.copytree(ROOT / "examples" / "packages" / project, place)
    package = place / "src" / name

    # the wheel is made of the source archive; one project's in environments of their own, which
    # take a minute to install
    isolated = [] if project == "hatch_project" else ["--no-isolation"]
    environment.run("-m", "build", *isolated, cwd=place, PIP_FIND_LINKS=wheels)
    (archive,), (wheel,) = (place / "dist").glob("*.tar.gz"), (place / "dist").glob("*.whl")
    with tarfile.open(archive) as file:
        names = file.getnames()
    assert {f"{name}-1.0/src/{name}/{path}" for path in functions} <= {*names}
    files = zipfile.ZipFile(wheel).namelist()
    for part in ("__init__.py", "_support/cpu/kernels.py", "certificate.json", "py.typed"):
        assert f"{name}/generated/{part}" in files
    assert not any("__pycache__" in path for path in files)
    assert not (package / "generated").exists()
    environment.install(wheel)
    assert str(tmp_path) not in environment.run("-c", use, cwd=tmp_path)

    with zipfile.ZipFile(wheel) as file:  # as certified: it is not verified once more
        inside = [path for path in files if path.startswith(f"{name}/generated/")]
        file.extractall(place / "src", inside)
    environment.install("-e", place)
    assert str(package) in environment.run("-c", use, cwd=tmp_path)
    assert "up to date" in environment.run("-m", "derivatrix", "check", cwd=place)

    changed = package / functions[0]
    changed.write_text(changed.read_text().replace("** 2", "** 3"))
    assert "is stale" in environment.run("-m", "derivatrix", "check", cwd=place, status=1)
    if project == "setuptools_project":  # whose directory build/ has the old modules
        environment.install(place)
        assert "AssertionError" in environment.run("-c", use, cwd=tmp_path, status=1)
        assert "up to date" in environment.run("-m", "derivatrix", "check", cwd=place)


@pytest.fixture(scope="module")
def generated(tmp_path_factory):
    """A package of which one module has a Jacobian that is wrong by 1e-4."""
    a = dx.vector("a", 2)
    folder = tmp_path_factory.mktemp("tested") / "generated"
    dx.build([dx.function(name, [a], 2 * a) for name in ("right", "wrong")], folder, verify=False)
    with (folder / "wrong.py").open("a") as file:
        file.write("\n_right = jacobian\n\n\ndef jacobian(a, out=None):\n")
        file.write("    return _right(a, out=out) * (1 + 1e-4)\n")
    return folder


def test_pytest_runs_each_check_of_each_module(environment, generated):
    run = ("-m", "pytest", "-q", "-rA", "--derivatrix", "generated", "-p", "no:cacheprovider")
    printed = environment.run(*run, cwd=generated.parent, status=1)
    assert "PASSED generated/right.py::differences" in printed
    assert "FAILED generated/wrong.py::differences" in printed
    assert "differences of jacobian by a at point 1" in printed
    assert "PASSED generated/wrong.py::value" in printed
    assert "FAILED generated/right.py" not in printed and "Traceback" not in printed
    printed = environment.run(*run, "-k", "right and value", cwd=generated.parent)
    assert "1 passed" in printed
    printed = environment.run(*run[:-3], "nowhere", cwd=generated.parent, status=4)
    assert "--derivatrix: " in printed and "not a directory" in printed


def test_pre_commit_refuses_what_is_stale(environment, checkout, tmp_path):
    """The hook of a repository with this one's files, where git commits."""
    committing = ("-c", "user.name=a", "-c", "user.email=a@b", "commit", "-q", "-m", "change")
    home = {"PRE_COMMIT_HOME": str(tmp_path / "home"), "GIT_CONFIG_GLOBAL": os.devnull}

    def git(place, *arguments, **options):
        return printed(["git", *arguments], place, **options, **home)

    source, project = tmp_path / "source", tmp_path / "project"
    shutil.copytree(checkout, source, symlinks=True)
    for place in (source, project):
        git(tmp_path, "init", "-q", str(place))
    git(source, "add", ".")
    git(source, *committing)

    functions = project / "functions.py"
    functions.write_text(
        "import derivatrix as dx\na = dx.vector('a', 2)\nf = dx.function('f', [a], 2 * a)\n"
    )
    (project / "pyproject.toml").write_text(
        "[tool.derivatrix]\nfunctions = ['functions.py']\noutput = 'generated'\n"
    )
    hook = {"repo": str(source), "rev": git(source, "rev-parse", "HEAD").strip()}
    configuration = {"repos": [{**hook, "hooks": [{"id": "derivatrix-check"}]}]}
    (project / ".pre-commit-config.yaml").write_text(yaml.safe_dump(configuration))
    environment.run("-m", "derivatrix", "build", "--no-verify", cwd=project)
    environment.run("-m", "pre_commit", "install", cwd=project, **home)
    git(project, "add", ".")
    assert "derivatrix check" in git(project, *committing)

    functions.write_text(functions.read_text().replace("2 * a", "3 * a"))
    refused = git(project, *committing, "-a", status=1)
    assert "Failed" in refused and "f.py is stale" in refused
    environment.run("-m", "derivatrix", "build", "--no-verify", cwd=project)
    assert "Passed" in git(project, *committing, "-a")
    functions.with_name("notes.md").write_text("no functions\n")
    git(project, "add", ".")
    assert "Skipped" in git(project, *committing)


def test_the_page_shows_what_the_examples_have():
    page = (ROOT / "docs/how-to/build-systems.md").read_text(encoding="utf-8")
    blocks = re.findall("```toml\n(.*?)```", page, re.DOTALL)
    projects = [ROOT / "examples/packages" / name / "pyproject.toml" for name in PROJECTS]
    texts = [path.read_text(encoding="utf-8") for path in projects]
    assert len(blocks) == 2
    for block, text in zip(blocks, texts, strict=True):
        assert all(part.strip() in text for part in block.split("\n\n"))
