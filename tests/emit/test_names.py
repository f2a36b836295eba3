"""The names that generated functions have for themselves, as those of inputs, sizes and functions:
the module is the same function as with other names."""

import ast
import importlib.util
import itertools
from collections.abc import Callable, Sequence
from functools import cache
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import derivatrix as dx
from derivatrix.compiler.driver.pipeline import generate
from derivatrix.compiler.emit.cuda.kernel import RESERVED as DEVICE
from derivatrix.compiler.frontends.function import Function
from derivatrix.compiler.plan.local_names import INDICES, RESERVED
from derivatrix.compiler.targets.names import helper_names
from tests.dryrun import dry
from tests.emit.test_modules import check_plans, flat

RENAMED = ("first", "part", "parts", "phase", "row", "other", "real", "memory")
"""Names that kernels need, so that they call an input or size of this name something else."""
NUMBERED = tuple(
    f"{stem}{n}" for stem in ("t", "a", "b", "c", "s", "row", "part_", "i") for n in "01"
)
OTHERS = (
    *("X_dot", "x_bar", "N", "E", "S", "pi", "self", "cls", "dtype", "operators", "weights", "wrt"),
    *("f", "value", "jacobian", "vjp_kernel", "generated", "kernel", "check", "values", "name"),
    *("real_", "row_", "size_n", "array_out", "index", "bar", "dot", "result", "sizes", "shape"),
)
NAMES = sorted({*RESERVED - helper_names(), *DEVICE, *INDICES, *NUMBERED, *OTHERS} - {*RENAMED})
CHUNKS = [
    pytest.param(RENAMED, id="renamed"),
    *(
        pytest.param(tuple(NAMES[at : at + 8]), id=NAMES[at], marks=pytest.mark.thorough)
        for at in range(0, len(NAMES), 8)
    ),
]
"""Some names at a time; most are compiled in thorough tests only."""
KINDS = [
    pytest.param(("vjp", "hessian"), id="two kinds"),
    pytest.param(None, id="all kinds", marks=pytest.mark.thorough),
]
"""The kinds whose functions are compiled; the kernels of all run as Python in the usual tests."""

Declare = Callable[[Sequence[str]], list[Function]]


def of_inputs(names: Sequence[str]) -> list[Function]:
    """An array function and a scalar one with these inputs, the last of them a matrix."""
    n = dx.dims("n_")
    vectors, matrix = [dx.vector(name, n) for name in names[:-1]], dx.matrix(names[-1], n, n)
    terms = [left * dx.sin(right) for left, right in itertools.pairwise(vectors)]
    value = sum(terms, matrix @ vectors[0])
    total = dx.sum(value * dx.exp(vectors[0]))
    return [
        dx.function("f_", [*vectors, matrix], value),
        dx.function("g_", [*vectors, matrix], total, wrt=[vectors[0], matrix]),
    ]


def of_sizes(names: Sequence[str]) -> list[Function]:
    """An array function and a scalar one of vectors of these sizes."""
    vectors = [dx.vector(f"q{place}", name) for place, name in enumerate(names)]
    total = sum((dx.sum(dx.sin(vector)) for vector in vectors[1:]), dx.sum(vectors[0] ** 2))
    return [
        dx.function("f_", vectors, total * vectors[0], wrt=vectors[:2]),
        dx.function("g_", vectors, total**2, wrt=vectors[:2]),
    ]


def is_accepted(name: str) -> bool:
    """Return whether an input may have the name: no keyword, builtin or reserved name."""
    try:
        x = dx.vector(name, "n_")
        return bool(dx.function("f_", [x], 2 * x))
    except dx.DeclarationError:
        return False


@cache
def expected(declare: Declare, count: int, kinds: tuple[str, ...] | None) -> list[list[np.ndarray]]:
    """The results of the functions with names that nothing else has."""
    functions = declare([f"x{place}_" for place in range(count)])
    return [results(dx.compile(function, kinds=kinds)) for function in functions]


def results(module: ModuleType) -> list[np.ndarray]:
    """Return the results of all functions of a module, operators as arrays."""
    arrays = arguments(module)
    wrt = [array for array, entry in zip(arrays, module.INPUTS, strict=True) if entry["wrt"]]
    result: list[np.ndarray] = []
    for kind in [*module.FUNCTIONS, *filter(None, [getattr(module, "OPERATOR", "")])]:
        more = {"jvp": wrt, "hvp": wrt}.get(kind, [])
        if kind == "vjp":
            more = [np.ones([3] * len(module.OUTPUT["shape"]))]
        result += flat(dense(getattr(module, kind)(*arrays, *more)))
    return result


def arguments(module: ModuleType) -> list[np.ndarray]:
    random = np.random.default_rng(0)
    return [random.normal(size=(3,) * len(entry["shape"])) for entry in module.INPUTS]


def dense(result: Any) -> Any:
    if isinstance(result, tuple):
        return tuple(map(dense, result))
    return result.todense() if hasattr(result, "todense") else result


@pytest.mark.parametrize("kinds", KINDS)
@pytest.mark.parametrize("declare", [of_inputs, of_sizes])
@pytest.mark.parametrize("names", CHUNKS)
def test_names_of_inputs_and_sizes(
    names: Sequence[str], declare: Declare, kinds: tuple[str, ...] | None
) -> None:
    accepted = [*filter(is_accepted, names)]
    if len(accepted) > 1:
        neutral = expected(declare, len(accepted), kinds)
        for function, wanted in zip(declare(accepted), neutral, strict=True):
            actual = results(dx.compile(function, kinds=kinds))
            for one, other in zip(actual, wanted, strict=True):
                np.testing.assert_allclose(one, other, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("declare", [of_inputs, of_sizes])
@pytest.mark.parametrize("names", CHUNKS)
def test_names_in_kernels(names: Sequence[str], declare: Declare) -> None:
    accepted = [*filter(is_accepted, names)]
    for function in declare(accepted) if len(accepted) > 1 else []:
        check_plans(function, dict.fromkeys(["n_", *accepted], 3))


@pytest.mark.skipif(
    importlib.util.find_spec("numba_cuda") is None, reason="needs numba-cuda (the extra `cuda`)"
)
@pytest.mark.parametrize("declare", [of_inputs, of_sizes])
@pytest.mark.parametrize("names", CHUNKS)
def test_names_on_devices(names: Sequence[str], declare: Declare) -> None:
    """Kernels' texts refer to nothing else, and those that start them run."""
    accepted = [*filter(is_accepted, names)]
    for function in declare(accepted) if len(accepted) > 1 else []:
        module = dx.compile(function, target="cuda")
        with dry(module) as launches:
            assert all(
                array.shape in ((), *[(3,) * n for n in (1, 2, 3, 4)]) for array in results(module)
            )
        assert launches


@pytest.mark.parametrize(
    "name", [*RENAMED, "value", "numpy", "numba", "generated", "i", "out", "n_"]
)
def test_names_of_functions(name: str) -> None:
    x = dx.vector("x", "n_")
    text = generate(dx.function(name, [x], x * dx.sin(x))).text
    plain = generate(dx.function("f_", [x], x * dx.sin(x))).text
    assert bodies(text) == bodies(plain)


def bodies(text: str) -> list[str]:
    """The functions of a module, without the decorators, which have its name in texts."""
    functions = [node for node in ast.parse(text).body if isinstance(node, ast.FunctionDef)]
    return [ast.dump(ast.Module(node.body, [])) for node in functions if node.name[0] != "_"]


def test_names_of_scalars_between_kernels() -> None:
    """The arrays that hold a sum for other kernels of a device, `_kept_a0`, are no inputs."""
    n = dx.dims("n")
    a, b = dx.vector("kept_a0", n), dx.vector("b", n)
    function = dx.function("f", [a, b], dx.exp(a @ a) * (b @ b), wrt=[b])
    text = generate(function, "cuda").text
    assert "_kept_a0" in text
    compile(text, "module", "exec")
