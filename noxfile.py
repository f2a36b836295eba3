"""`nox -s versions`: modules built and run with every version of Python that there is here, the
lowest versions of what derivatrix needs, and the newest; `nox -s versions -- --functions FILE` does
so with the functions of another file, `--adapters` also through JAX, PyTorch, PyTensor and dask.
`nox -s docs`: the site, in site/."""

import shutil
import subprocess

import nox

PYTHONS = ("3.11", "3.12", "3.13", "3.14")


@nox.session
def versions(session: nox.Session) -> None:
    found = [
        path for version in PYTHONS if (path := shutil.which(f"python{version}")) and runs(path)
    ]
    session.install("-e", ".[test]")
    session.run("python", "-m", "tests.versions", *session.posargs, *found)


def runs(python: str) -> bool:
    """Whether it is an interpreter; pyenv has commands for versions that are not chosen, too."""
    return not subprocess.run([python, "--version"], capture_output=True, check=False).returncode


@nox.session
def docs(session: nox.Session) -> None:
    session.install("-e", ".[docs]")
    session.run("sphinx-build", "-W", "--keep-going", "-b", "html", "docs", "site")
