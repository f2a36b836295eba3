"""Time until kernels run: `python -m tests.benchmarks.cold [--rounds 5]`. Each measurement is a
process, which prints seconds or MiB; the measurements take turns. JAX's jit and PyTensor's Numba
backend, if they are installed, run two of the functions, too."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

from tests.identities import IDENTITIES

FUNCTIONS = """
import derivatrix as dx
n, m, k = dx.dims("n m k")
X, A, S = dx.matrix("X", n, n), dx.matrix("A", n, m), dx.matrix("S", n, n, "spd")
W, Y = dx.matrix("W", m, k), dx.matrix("Y", n, k)
x, z = dx.vector("x", n), dx.vector("z", n)
square = dx.function("square", [X], X @ X)
classifier = dx.function("classifier", [A, W, Y], -dx.sum(Y * dx.log_softmax(A @ W)), wrt=[W])
likelihood = dx.function("likelihood", [S, x], dx.logdet(S) + x @ dx.solve(S, x))
exponential = dx.function("exponential", [X], dx.trace(dx.expm(X)))
power = dx.function("power", [S], dx.sum(dx.sqrtm(S)))
equation = dx.function("equation", [S, x], dx.root(S @ z + z**3 - x, z, x))
"""
"""The declarations: functions of products, entries and systems, of matrices, and an equation."""
FIVE = """
import derivatrix as dx
n, m, k, d = dx.dims("n m k d")
A, B, X = dx.matrix("A", n, m), dx.matrix("B", m, k), dx.matrix("X", n, d)
S = dx.matrix("S", n, n, "spd")
y, w, x, mu = dx.vector("y", n), dx.vector("w", d), dx.vector("x", n), dx.vector("mu", n)
z, weight = dx.vector("z", d), dx.scalar("weight", "positive")
ridge = dx.function("ridge", [X, y, weight], dx.solve(X.T @ X + weight * dx.eye(d), X.T @ y))
tanh_product = dx.function("tanh_product", [A, B], dx.tanh(A @ B))
distance = (x - mu) @ dx.solve(S, x - mu)
likelihood = dx.function("likelihood", [x, mu, S], -0.5 * (dx.logdet(S) + distance))
softmax = dx.function("softmax", [z], dx.softmax(z), batch=[z])
projection = dx.function("projection", [X, w], X @ w / dx.norm(w))
"""
"""Five ordinary functions, as a first package has them."""
CHANGED = FIVE.replace("X @ w / dx.norm(w)", "2 * X @ w / dx.norm(w)")
"""The declarations with one of them changed."""
COMMANDS = {
    "README's first command": (
        45,
        "{python} -m venv {folder}/first && {folder}/first/bin/pip "
        "install '.[examples]' && {folder}/first/bin/derivatrix build examples/square.py -o "
        "{folder}/generated && {folder}/first/bin/python examples/digits.py",
    ),
    "README's test command": (
        360,
        "{python} -m venv {folder}/tests && {folder}/tests/bin/pip "
        "install -e '.[test]' && {folder}/tests/bin/pytest",
    ),
    "all checks, .ci/run": (1200, ".ci/run"),
}
"""Command -> its goal in seconds, and its text."""
ORDINARY = ("square", "classifier", "likelihood")
MATRIX = ("exponential", "power", "equation")
TIMED = """
import time, numpy as np, numba
def timed(call):
    began = time.perf_counter()
    result = call()
    print(time.perf_counter() - began)
    return result
point = dict(X=np.eye(4) / 3, A=np.ones((6, 4)), S=np.eye(4) + 1, W=np.ones((4, 3)),
    Y=np.ones((6, 3)), x=np.ones(4))
def arguments(module):
    return [point[given["name"]] for given in module.INPUTS]
def derivative(module):
    if "gradient" in module.FUNCTIONS:
        return module.gradient(*arguments(module))
    return module.vjp(*arguments(module), module.value(*arguments(module)))
"""
OTHERS = {
    "jax": """
import time, jax, jax.numpy as jnp, numpy as np
jax.config.update("jax_enable_x64", True)
X, A, W, Y = np.eye(4) / 3, np.ones((6, 4)), np.ones((4, 3)), np.ones((6, 3))
began = time.perf_counter()
if NAME == "square":
    call = jax.jit(lambda X, G: jax.vjp(lambda X: X @ X, X)[1](G)[0])
    call(X, X).block_until_ready()
else:
    loss = lambda W: -jnp.sum(Y * jax.nn.log_softmax(A @ W))
    jax.jit(jax.grad(loss))(W).block_until_ready()
print(time.perf_counter() - began)
""",
    "pytensor": """
import time, numpy as np, pytensor, pytensor.tensor as pt
A, Y = np.ones((6, 4)), np.ones((6, 3))
began = time.perf_counter()
X, G = pt.dmatrix("X"), pt.dmatrix("G")
if NAME == "square":
    inputs, result = [X, G], pytensor.gradient.Lop(X @ X, X, G)
    given = [np.eye(4) / 3] * 2
else:
    loss = -pt.sum(Y * pt.special.log_softmax(A @ X, axis=1))
    inputs, result, given = [X], pytensor.grad(loss, X), [np.ones((4, 3))]
pytensor.function(inputs, result, mode="NUMBA")(*given)
print(time.perf_counter() - began)
""",
}
BUILD = """
import os, resource, subprocess, sys, time
began = time.perf_counter()
subprocess.run([sys.executable, "-m", "derivatrix", "build", *OPTIONS], check=True,
    stdout=subprocess.DEVNULL)
print(time.perf_counter() - began)
used = resource.getrusage(resource.RUSAGE_CHILDREN)
print(used.ru_maxrss / 1024)
print(used.ru_utime + used.ru_stime)
"""


@dataclass(frozen=True)
class Measured:
    """values: none if it was not measured; goal: what the figure should be at most, 0 where there
    is none; unit: s, CPU s or MiB."""

    name: str
    goal: float
    values: list[float]
    unit: str = "s"


def printed(code: str, folder: Path, cache: Path, **names: object) -> list[float]:
    """The numbers that Python code prints in a process of its own, with these names."""
    given = "".join(f"{name} = {value!r}\n" for name, value in names.items())
    environment: Mapping[str, str] = {
        **os.environ,
        "NUMBA_CACHE_DIR": str(cache),
        "DERIVATRIX_CACHE": str(cache / "derivatrix"),
        "PYTHONPYCACHEPREFIX": str(folder / "bytecode"),
    }
    environment = {k: v for k, v in environment.items() if k != "PYTHONDONTWRITEBYTECODE"}
    told = subprocess.run(
        [sys.executable, "-c", given + code],
        cwd=folder,
        env=environment,
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    ).stdout
    return [float(line) for line in told.split()]


def calls(folder: Path, rounds: int) -> Iterator[Measured]:
    """A package's import and first calls, from a cache and without one."""
    (folder / "functions.py").write_text(FUNCTIONS, encoding="utf-8")
    printed(BUILD, folder, folder, OPTIONS=["functions.py", "-o", "generated", "--no-verify"])
    first = "from generated import {0}\ntimed(lambda: derivative({0}))"
    kept = folder / "kept"
    for name in (*ORDINARY, *MATRIX):
        printed(TIMED + first.format(name), folder, kept)
    imports = TIMED + "def load():\n    from generated import square\ntimed(load)"
    result = [printed(imports, folder, kept)[0] for _ in range(rounds)]
    yield Measured("import of a package, beside NumPy and Numba", 0.1, result)
    for name in (*ORDINARY, *MATRIX):
        code = TIMED + first.format(name)
        result = [printed(code, folder, kept)[0] for _ in range(rounds)]
        yield Measured(f"first derivative from the cache: {name}", 0.05, result)
    for name in (*ORDINARY, *MATRIX):
        code, goal = TIMED + first.format(name), 1 if name in ORDINARY else 3
        result = []
        for _ in range(rounds):
            with tempfile.TemporaryDirectory() as cache:
                result += printed(code, folder, Path(cache))
        yield Measured(f"first derivative, compiled: {name}", goal, result)
        for other, text in OTHERS.items():
            if name in ORDINARY[:2] and find_spec(other):
                result = [printed(text, folder, kept, NAME=name)[0] for _ in range(rounds)]
                yield Measured(f"the same by {other}", 0, result)


def builds(folder: Path, count: int) -> Iterator[Measured]:
    """A package of so many functions: verified, not verified, built again without a change."""
    lines = ["from derivatrix.compiler.frontends.notation.declaration import text_function"]
    for number in range(count):
        text, dims, wrt, *_ = IDENTITIES[number * len(IDENTITIES) // count]
        name = f"f{number}"
        lines.append(f"{name} = text_function({text!r}, {dims!r}, {wrt.split()!r}, {name!r})")
    (folder / "many.py").write_text("\n".join(lines) + "\n", encoding="utf-8")
    options = ["many.py", "-o", "many"]
    seconds, memory, _ = printed(BUILD, folder, folder, OPTIONS=[*options, "--no-verify"])
    yield Measured(f"{count} functions, not verified", 0, [seconds])
    yield Measured("most memory of one of its processes", 0, [memory], "MiB")
    seconds, memory, _ = printed(BUILD, folder, folder, OPTIONS=options)
    yield Measured(f"{count} functions, verified", 180, [seconds])
    yield Measured("most memory of one of its processes", 0, [memory], "MiB")
    seconds, *_ = printed(BUILD, folder, folder, OPTIONS=options)
    yield Measured("the same again, nothing changed", 0, [seconds])


def five_functions(folder: Path) -> Iterator[Measured]:
    """Verified builds of an ordinary package, in seconds of all processors together."""
    options = ["five.py", "-o", "five"]
    for name, text, goal in (
        ("five functions, verified, nothing cached", FIVE, 25),
        ("the same again, one declaration changed", CHANGED, 6),
    ):
        (folder / "five.py").write_text(text, encoding="utf-8")
        *_, seconds = printed(BUILD, folder, folder / "five_cache", OPTIONS=options)
        yield Measured(name, goal, [seconds], "CPU s")


def commands(folder: Path, is_run: bool) -> Iterator[Measured]:
    """README's commands and all checks, run from the repository's root."""
    for name, (goal, text) in COMMANDS.items():
        seconds = []
        if is_run:
            began = time.perf_counter()
            command = text.format(python=sys.executable, folder=folder)
            subprocess.run(command, shell=True, check=True, stdout=subprocess.DEVNULL)
            seconds = [time.perf_counter() - began]
        yield Measured(name, goal, seconds)


def table(rows: list[Measured]) -> Table:
    result = Table("what", "least", "median", "most", "goal")
    for row in rows:
        cells = ["not measured", "", ""]
        if row.values:
            figures = (min(row.values), statistics.median(row.values), max(row.values))
            cells = [f"{figure:.3g} {row.unit}" for figure in figures]
        result.add_row(row.name, *cells, f"{row.goal:g} {row.unit}" if row.goal else "")
    return result


@click.command(help=__doc__)
@click.option("--rounds", default=5, show_default=True, help="Of each call.")
@click.option("--functions", "count", default=100, show_default=True, help="Of the package built.")
@click.option("--commands", "is_run", is_flag=True, help="Run README's commands and all checks.")
def main(rounds: int, count: int, is_run: bool) -> None:
    with tempfile.TemporaryDirectory(prefix="cold-") as scratch:
        rows = [*calls(Path(scratch), rounds), *five_functions(Path(scratch))]
        if count:
            rows += builds(Path(scratch), count)
        rows += commands(Path(scratch), is_run)
    Console(width=120).print(table(rows))


if __name__ == "__main__":
    main()
