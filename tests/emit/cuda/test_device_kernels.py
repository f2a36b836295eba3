"""Kernels for CUDA devices, compiled and assembled for several of them; and what modules launch,
looked at without launching it. No device is needed."""

from __future__ import annotations

import ast
import inspect
import itertools
import re
from collections.abc import Container, Iterator
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

import derivatrix as dx
from derivatrix.compiler.driver.pipeline import generate
from derivatrix.compiler.emit.cuda import resources
from derivatrix.compiler.emit.cuda.resources import Kernel, Resources
from derivatrix.compiler.frontends.function import Function
from derivatrix.compiler.frontends.notation.declaration import text_function
from derivatrix.templates.support.cuda.base import all_kernels
from tests.devices.helpers import modules
from tests.differentiate.test_identities import SIZES
from tests.driver.test_examples import FUNCTIONS
from tests.dryrun import REALS, dry
from tests.emit.cuda.test_simulated import SAMPLE
from tests.identities import IDENTITIES, Identity
from tests.loops import garch
from tests.points import draw_all, leaves, numbers

pytestmark = pytest.mark.toolkit
ARCHITECTURES = ("8.0", "9.0", "10.0")
VARIANTS = [(architecture, real) for architecture in ARCHITECTURES for real in REALS]
QUICK = [("8.0", "float32"), ("9.0", "float64")]


# The helper kernels, which every module has that needs them

HELPERS: dict[str, Kernel] = {}
for file in modules():
    names = dict(zip(("KERNELS", "SIGNATURES"), all_kernels(vars(file)), strict=True))
    HELPERS |= {kernel.name: kernel for kernel in resources.table(SimpleNamespace(**names))}
EVERYDAY = ("clear_entries", "gemm_entries", "lu_matrices", "cholesky_matrices", "softmax_parts")
SPECIAL = re.compile("bessel|zeta|gamma|inverse_erf")
"""Functions that are computed in double precision also in single precision."""
FACTORS = 8
"""So many operations in double precision may be for factors made of sizes, as 1/n."""


def compilations() -> Iterator[Any]:
    """Each helper for each architecture in each precision, most of them in thorough tests only."""
    for name, variant in itertools.product(HELPERS, VARIANTS):
        late = [] if name in EVERYDAY and variant in QUICK else [pytest.mark.thorough]
        yield pytest.param(name, *variant, marks=late)


@pytest.mark.parametrize(("name", "architecture", "real"), list(compilations()))
def test_helper(name: str, architecture: str, real: str) -> None:
    check(HELPERS[name], architecture, real)


def check(kernel: Kernel, architecture: str, real: str) -> Resources:
    """A kernel has to be compiled without calls, to code that does not spill registers, and that
    computes in the precision of the run."""
    ptx = kernel.ptx(architecture, real)
    result = resources.assembled(ptx, architecture)
    assert result.registers > 0
    assert result.spill_stores == result.spill_loads == 0, result
    text = inspect.getsource(kernel.function)
    in_double = re.search("float64|complex128", kernel.signature) or SPECIAL.search(text)
    if real == "float32" and not in_double:
        operations = r"^\s*(?:add|sub|mul|fma|div|rcp|sqrt)\S*\.f64"
        assert len(re.findall(operations, ptx, re.MULTILINE)) <= FACTORS, kernel
    return result


# Those of functions


FEW = ("[A, x; y', s]", "softmax(Q*K'/sqrt(d))*V", "kron(A,X)", "X.^2.5", "prod(x)")
"""Identities whose kernels are compiled in tests that are not thorough."""


def chosen(early: Container[tuple[str, str]] | None = None) -> Iterator[Any]:
    for identity in IDENTITIES:
        late = (identity.text, identity.wrt) not in early if early else identity.text not in FEW
        marks = [pytest.mark.thorough] if late else []
        yield pytest.param(identity, id=f"{identity.text} by {identity.wrt}", marks=marks)


def turns(request: pytest.FixtureRequest, number: int) -> list[tuple[str, str]]:
    """All architectures and precisions, or, in the default suite, one by turns."""
    every = request.config.getoption("--rest")
    return VARIANTS if every else [VARIANTS[number % len(VARIANTS)]]


@pytest.mark.parametrize("identity", list(chosen()))
def test_identity(request: pytest.FixtureRequest, identity: Identity) -> None:
    check_kernels(request, made(identity)[1])


LONG = ("energy", "loss", "probabilities")
"""Examples with many kernels."""


@pytest.mark.parametrize(
    "name",
    [pytest.param(n, marks=[pytest.mark.thorough] if n in LONG else []) for n in FUNCTIONS],
)
def test_example(request: pytest.FixtureRequest, name: str) -> None:
    module = dx.compile(FUNCTIONS[name], target="cuda")
    check_kernels(request, module)
    check_launches(FUNCTIONS[name], module)


@pytest.mark.parametrize("identity", list(chosen(SAMPLE)))
def test_launches(identity: Identity) -> None:
    check_launches(*made(identity))


def made(identity: Identity) -> tuple[Function, ModuleType]:
    function = text_function(identity.text, identity.dims, identity.wrt.split())
    return function, dx.compile(function, target="cuda")


def test_loop_over_time(request: pytest.FixtureRequest) -> None:
    module = dx.compile(garch().function.with_kinds(["vjp"]), target="cuda")
    check_kernels(request, module)
    check_launches(garch().function.with_kinds(["vjp"]), module)


LITERAL = (
    ("inv(X)", "X: 2 2"),
    pytest.param("x'*inv(S)*x", "x: 4, S: 4 4 spd", marks=pytest.mark.thorough),
    ("logdet(S)", "S: 3 3 spd"),
    pytest.param("inv(X)", "X: 3 3", marks=pytest.mark.thorough),
    pytest.param("det(X)", "X: 4 4", marks=pytest.mark.thorough),
)


@pytest.mark.parametrize(("text", "dims"), LITERAL)
def test_small_matrices(request: pytest.FixtureRequest, text: str, dims: str) -> None:
    """Written out entry by entry, they are in registers: no kernel has memory of its own."""
    check_kernels(request, dx.compile(text_function(text, dims, []), target="cuda"), 0)


def own_kernels(module: ModuleType) -> list[Kernel]:
    """Return the kernels that no other module has."""
    return [kernel for kernel in resources.kernels(module) if kernel.name not in HELPERS]


def check_kernels(
    request: pytest.FixtureRequest, module: ModuleType, stack: float = np.inf
) -> None:
    """The kernels that are the module's own; no two of them are the same."""
    own = own_kernels(module)
    for number, kernel in enumerate(own):
        for variant in turns(request, number):
            assert check(kernel, *variant).stack <= stack, kernel
    texts = [inspect.getsource(kernel.function).partition("(")[2] for kernel in own]
    assert len(texts) == len({*texts})


def check_launches(function: Function, module: ModuleType) -> None:
    """Every kernel is launched with arrays and numbers of the types that it is compiled for."""
    values = draw_all(function, seed=0, sizes={**SIZES[0], "batch": 5, "T": 4})
    for real in REALS:
        for kind in function.kinds:
            arguments, results = function.derivatives.kernel(kind)
            given = [np.asarray(values[leaf.name], real) for leaf in arguments]
            with dry(module) as launches:
                result = leaves(getattr(module, kind)(*given))
            assert launches, kind
            assert len(result) == len(results)
            assert all(array.dtype == real for array in result)


def test_what_is_the_same_for_all_points_is_computed_once() -> None:
    function = text_function("prod(x)^(1/n)/mean(x)", "x: n positive", ["x"])
    tree = ast.parse(generate(function, "cuda").text)
    loops = [node for node in ast.walk(tree) if isinstance(node, ast.For | ast.While)]
    assert "**real(" in ast.unparse(tree).replace(" ", "")
    assert not any("**real(" in ast.unparse(loop).replace(" ", "") for loop in loops)
    centred = text_function("(X - ones*colmean(X))'*(X - ones*colmean(X))/m", "X: m n", ["X"])
    fractions = [line for line in generate(centred, "cuda").text.splitlines() if "/float(" in line]
    assert any(line.startswith("    c0 = real(") for line in fractions)
    assert not any(line.startswith("        ") for line in fractions)


def test_kernels_work_at_their_tiles() -> None:
    """Each tile is made, copied, and read or written in between."""
    function = text_function("axial(A*B)", "A: 3 n, B: n 3", ["A", "B"])
    lines = generate(function, "cuda").text.splitlines()
    tiles = [line.split()[0] for line in lines if "_tile = cuda.shared.array" in line]
    assert tiles
    for name in tiles:
        assert any(f"{name}[0, thread]" in line for line in lines)


n, m, k = dx.dims("n m k")
A, B, y = dx.matrix("A", n, m), dx.matrix("B", m, k), dx.vector("y", n)
M = dx.matrix("M", n, n)
T, U = dx.tensor("T", 2, k, m, n), dx.tensor("U", 2, k, n, m)
STACKS = (
    dx.function("product", [A, B], A @ B, batch=[A]),
    dx.function("crossed", [T, U], dx.einsum("abij,abjk->baik", T, U)),
    dx.function("exponential", [M, y], dx.expm(M) @ y, batch=[M]),
    dx.function("logarithm", [M, y], dx.logm(M) @ y, batch=[M, y]),
    dx.function("likelihood", [M, y], dx.logabsdet(M) + y @ dx.solve(M, y), batch=[y]),
)


@pytest.mark.parametrize("function", STACKS, ids=lambda function: function.name)
@pytest.mark.parametrize("empty", ["n", "m", "k", "batch"])
def test_arrays_without_entries(function: Function, empty: str) -> None:
    """Numba cuts them into parts of wrong shapes, or refuses to. Kernels are given right ones."""
    sizes = {"n": 2, "m": 3, "k": 4, "batch": 5, empty: 0}
    module = dx.compile(function, target="cuda")
    values = draw_all(function, seed=0, sizes=sizes)
    for kind in function.kinds:
        arguments, results = function.derivatives.kernel(kind)
        with dry(module) as launches:
            result = leaves(getattr(module, kind)(*(values[leaf.name] for leaf in arguments)))
        shapes = [numbers(node.shape, sizes) for node in results.values()]
        assert [array.shape for array in result] == shapes
        for name, _, given in launches:
            if name == "gemm_entries":
                check_product(given)


def check_product(given: tuple[Any, ...]) -> None:
    *operands, target = (array.shape[-2:] for array in given[:3])
    left, right = (
        shape[::-1] if turned else shape for shape, turned in zip(operands, given[3:5], strict=True)
    )
    assert (left[1], target) == (right[0], (left[0], right[1]))


def test_what_is_spilt_is_noticed() -> None:
    """A kernel with more numbers at hand than there are registers."""
    from numba import cuda

    terms = range(160)
    loads = "".join(f"    x{i} = a[{i} * n]\n" for i in terms)
    stores = "".join(f"    a[{i}] = x{i} * x{(7 * i + 3) % 160} + n\n" for i in terms)
    scope: dict[str, Any] = {}
    exec(f"def crowded(a, n):\n{loads}{stores}", scope)
    made = cuda.jit(scope["crowded"])
    result = Kernel("crowded", "", "void(real[::1], int64)", made.py_func).resources()
    assert result.spill_stores > 0 and result.spill_loads > 0 and result.registers == 255
