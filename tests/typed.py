"""A generated package and programs that use it, for type checkers: right ones and a wrong one."""

from collections.abc import Iterable
from pathlib import Path

import derivatrix as dx
from derivatrix.compiler.frontends.function_file import load_functions
from tests.pages import blocks

RIGHT = """
import numpy as np
import numpy.typing as npt

import derivatrix as dx
import generated
from generated import index, model, number, scaled, scaled_cuda

Array = npt.NDArray[np.float64]


def energy(A: Array, b: Array) -> float:
    return scaled.value(A, b, 2.0)


def gradient(A: Array, b: Array) -> scaled.Gradient:
    return scaled.gradient(A, b, s=2)


A, b, X = np.eye(3), np.ones(3), np.ones((5, 3))
g = scaled.vjp(A, b, 1, 1.0)
arrays: tuple[Array, Array] = (g.A, g.b)
number_s: float = g.s
h = scaled.hessian(A, [1.0, 2, 3], s=2.0)
block: Array = h.A.b
corner: float = h.s.s
single: npt.NDArray[np.float32] = model.vjp(
    X.astype(np.float32), A.astype(np.float32), X.astype(np.float32)
).W
out = np.empty((5, 3))
same: Array = model.value(X, A, out=out)
integers: Array = model.value([[1, 2, 3]], np.ones((2, 3), int))
one_sample: Array = model.value([1, 2, 3], A)
several_axes: Array = model.value([[[1, 2, 3]], [[4, 5, 6]]], A)
given = scaled.gradient(A, b, 1.0, out=(np.empty((3, 3)), np.empty(3), np.empty(())))
rank_0: Array = given.s
value, (by_A, by_b, by_s) = scaled.value_and_gradient(A, b, 1.0)
total: float = value + by_s + by_A.sum()
H = scaled.hessian_operator(A, b, 1.0)
product: Array = H.A.b @ b
shape: tuple[int, int] = H.A.b.T.shape
latex: str = scaled.FORMULAS["vjp"]["A"]["latex"] + scaled.DIGEST + scaled.INPUTS[0]["name"]
slope: float = number.gradient(1.0)
scaled.value_kernel(A, b, 1.0, np.empty(()))
per_sample: Array = generated.model.jacobian(X, A).x
signature: str = scaled_cuda.KERNELS["kernel"][1]
on_device = scaled_cuda.hessian(A, b, 1.0, out=None).A.b
counted: Array = index.gradient([1.0], [2.0]).index

n, m = dx.dims("n m")
k = dx.dims("k")
Y = dx.matrix("Y", n + 1, 2 * m)
U, S, Vh = dx.svd(Y)
Q, R = dx.qr(Y)
function = dx.function("f", [Y, "v"], dx.trace(Y.T @ Y) * 2 + np.sin(dx.vector("v", k)).sum())
text: str = function.formula("vjp", wrt="Y", style="latex") + str(dx.derive(function))
step: str = function.steps("Y")[0].reason
report: dx.Report = dx.verify(dx.compile(function))
passed: bool = report.passed
"""

WRONG = """
import numpy as np
import numpy.typing as npt

import derivatrix as dx
import generated
from generated import model, number, scaled
from generated import nothing  # wrong

A, b = np.eye(3), np.ones(3)
scaled.value("A", b, 1.0)  # wrong
scaled.value(A, b)  # wrong
scaled.value(1.0, b, 1.0)  # wrong
scaled.value(A, b, A * 1j)  # wrong
scaled.value([[1j]], b, 1.0)  # wrong
scaled.value([1.0], b, 1.0)  # wrong
scaled.value(A, B=b, s=1.0)  # wrong
scaled.value(A, b, 1.0, np.empty(()))  # wrong
scaled.vjp(A, b, 1.0)  # wrong
scaled.vjp(A, b, 1.0, 1.0).C  # wrong
scaled.hessian(A, b, 1.0).b.X  # wrong
scaled.gradient(A, b, 1.0, out=A)  # wrong
scaled.hessian_operator(A, b, 1.0).A.A.matvecs(b)  # wrong
scaled.nothing  # wrong
scaled.DIGEST + 1  # wrong
generated.nothing  # wrong
model.gradient(A, A)  # wrong
model.value([["1"]], A)  # wrong
model.value(1.0, A)  # wrong
number.value([1.0])  # wrong
text: str = scaled.value(A, b, 1.0)  # wrong
counts: npt.NDArray[np.int64] = scaled.gradient(A, b, 1.0).A  # wrong
small: npt.NDArray[np.float32] = scaled.gradient(A, b, 1.0).A  # wrong
X = dx.matrix("X", 2, 2)
X.nothing  # wrong
dx.nothing(X)  # wrong
dx.dims(3)  # wrong
dx.matrix("X", 2)  # wrong
dx.function("f", [X], X @ X).formula()  # wrong
dx.verify(dx.compile(dx.function("f", [X], X @ X))).pased  # wrong
"""


def functions() -> list[dx.Function]:
    """Some of all kinds: several inputs, of rank 0 too, samples, a number of a number, and one
    with a name of tuples' own."""
    n, k = dx.dims("n k")
    A, W = dx.matrix("A", n, n, "spd"), dx.matrix("W", k, n)
    b, x, s = dx.vector("b", n), dx.vector("x", n), dx.scalar("s")
    index, other = dx.vector("index", n), dx.vector("other", n)
    return [
        dx.function("scaled", [A, b, s], s * b @ dx.inv(A) @ b),
        dx.function("model", [x, W], dx.softmax(W @ x), batch=[x]),
        dx.function("number", [s], s * dx.exp(s)),
        dx.function("index", [index, other], index @ other),
    ]


def write(folder: Path) -> dict[str, Path]:
    """The package, not verified, and the programs by their names: the blocks of the page
    docs/how-to/types.md are `functions`, which the package has too, and `page`."""
    declared, used = blocks("types")
    names = "import derivatrix as dx\n" + "".join(f"dx.{name}\n" for name in dir(dx))
    texts = {"right": RIGHT, "wrong": WRONG, "names": names, "functions": declared, "page": used}
    paths = {name: folder / f"{name}.py" for name in texts}
    for name, text in texts.items():
        paths[name].write_text(text.lstrip(), "utf-8")
    every = [*functions(), *load_functions(str(paths["functions"]))]
    dx.build(every, folder / "generated", targets=("cpu", "cuda"), verify=False)
    return paths


def planted(path: Path) -> set[int]:
    """The lines of a program that are marked as wrong."""
    lines: Iterable[str] = path.read_text("utf-8").splitlines()
    return {number for number, line in enumerate(lines, 1) if line.endswith("# wrong")}
