"""Modules for CUDA devices in Numba's simulator of one, against the interpreter."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import numba
import numpy as np
import pytest

import derivatrix as dx
from derivatrix.compiler.driver.pipeline import generate
from derivatrix.compiler.frontends.function import Function
from derivatrix.compiler.frontends.notation.declaration import text_function
from derivatrix.compiler.ir.interpret import evaluate_all
from derivatrix.runtime.cache import cache_directory
from derivatrix.runtime.simulated import as_on_device, simulating
from tests.differentiate.test_identities import SIZES, Setting
from tests.identities import IDENTITIES, Identity
from tests.packages import loaded, set_everywhere, support_file
from tests.points import draw_all, leaves
from tests.simulation import simulated

REALS = ("float64", "float32")
ALL: tuple[str, ...] = ()
SAMPLE: dict[tuple[str, str], tuple[str, ...]] = {
    ("sum(exp(eigvals(X)))", "X"): ("value", "vjp"),
    ("qrR(X)", "X"): ALL,
    ("expm(skew(w))*v", "w v"): ("value", "vjp"),
    ("rotation(w)*v", "w v"): ("value", "vjp"),
    ("y'*sort(A*x)", "A x"): ALL,
    ("logdet(X)", "X"): ALL,
    ("sqrtm(X)", "X"): ("value", "vjp"),
    ("normnuc(X)", "X"): ("value", "vjp"),
    ("logsumexp(X)", "X"): ALL,
    ("eigvalsh(X)", "X"): ALL,
    ("prod(x)", "x"): ALL,
    ("tr(A*logm(S))", "S"): ("value", "vjp"),
    ("sinm(X)", "X"): ("value", "vjp"),
    ("cosm(X)", "X"): ("value", "vjp"),
    ("tanhm(X)", "X"): ("value", "vjp"),
    ("log(abs(det(X)))", "X"): ("value", "vjp"),
    ("svdvals(X)", "X"): ALL,
    ("luU(X)", "X"): ALL,
    ("chol(X)", "X"): ALL,
    ("care(A,B,Q,R)", "A B Q R"): ("value",),
    ("dare(A,B,Q,R)", "A B Q R"): ("value",),
    ("dlyap(A,Q)", "A Q"): ("value", "vjp"),
    ("pinv(X)*y", "X y"): ("value", "vjp"),
    ("svdV(X).^2", "X"): ALL,
    ("polar(X)", "X"): ("value", "vjp"),
    ("log(besseli(0, s))", "s"): ALL,
    ("softmax(Q*K'/sqrt(d))*V", "Q"): ("value", "vjp"),
    ("tr(inv(X'*C*X)*A)", "X"): ("value", "vjp"),
    ("sum(max(0, 1 - y.*(X*w)).^2)", "w"): ALL,
    ("sum(exp(X[0:2, 1:]))", "X"): ALL,
    ("[A, x; y', s]", "A x y s"): ALL,
    ("kron(A,X)", "X"): ALL,
}
"""Identities that have all operations and all kinds of steps, with what is computed of them, once
and in double precision; ALL: everything in both. The rest takes part in thorough tests."""


def chosen() -> Iterator[Any]:
    """Identities with the kinds of derivatives to compute in part."""
    for identity in IDENTITIES:
        name = f"{identity.text} by {identity.wrt}"
        kinds = SAMPLE.get((identity.text, identity.wrt))
        late = [] if kinds == ALL else [pytest.mark.thorough]
        yield pytest.param([*identity], ALL, id=name, marks=late)
        if kinds:
            yield pytest.param([*identity], kinds, id=f"{name}, in part")


def mistyped(signature: str, real: str, arguments: Sequence[Any]) -> list[str]:
    """The arguments of a kernel that are not of the types that its signature says."""
    expected = eval(signature.replace("real", real), vars(numba.types)).args
    types_given = list(map(described, arguments))
    return [f"{g} for {e}" for g, e in zip(types_given, map(str, expected), strict=True) if g != e]


def described(argument: Any) -> str:
    """The type of an argument, as Numba writes it."""
    if isinstance(argument, int | float | np.generic):
        return {int: "int64", float: "float64"}.get(type(argument), type(argument).__name__)
    layout = "C" if argument.flags["C_CONTIGUOUS"] else "A"
    return f"array({argument.dtype}, {argument.ndim}d, {layout})"


@contextmanager
def small_launches(module: ModuleType, by_rows: bool = True) -> Iterator[list[str]]:
    """A module whose launches have few threads and few blocks, so that every thread has several
    pieces of work and sums are shared by several blocks. The simulator needs less time then.
    by_rows: whether groups of threads work row by row, as they do if rows are many or short.

    Kernels have to be given what their signatures say, as they would be compiled anew otherwise.
    The names of those that are launched are entered in the list."""
    base = support_file(module, "cuda.base")
    originals = {name: getattr(base, name) for name in ("_start", "power_of_two")}
    signatures: dict[Any, list[str]] = {}
    for name, (kernel, _) in module.KERNELS.items():
        signatures.setdefault(kernel, []).append(module.SIGNATURES[name])
    launched: list[str] = []

    def start(kernel: Any, blocks: int, threads: Any, run: Any, arguments: Any) -> None:
        forms = itertools.product(signatures[kernel], REALS)
        wrong = [mistyped(signature, real, arguments) for signature, real in forms]
        assert not all(wrong), f"{kernel.__name__}: {wrong}"
        launched.append(kernel.__name__)
        originals["_start"](kernel, min(blocks, 3), threads, run, arguments)

    def power_of_two(number: int, most: int) -> int:
        return int(originals["power_of_two"](number, min(most, 8)))

    with pytest.MonkeyPatch.context() as patch:
        set_everywhere(patch, module, "cuda.base._start", start)
        set_everywhere(patch, module, "cuda.base.power_of_two", power_of_two)
        if simulating():  # compiled kernels know it as it was
            set_everywhere(patch, module, "cuda.base.THREADS", 8)
        set_everywhere(patch, module, "cuda.shares.BUSY_THREADS", 64)
        if hasattr(module, "row_by_row"):
            rows = "cuda.shares.row_by_row"
            set_everywhere(patch, module, rows, lambda points, terms: by_rows)
        yield launched


@pytest.mark.parametrize(("row", "kinds"), list(chosen()))
@simulated
def test_identity(row: list[Any], kinds: list[str]) -> None:
    identity = Identity(*row)
    function = text_function(identity.text, identity.dims, identity.wrt.split())
    module = dx.compile(function, target="cuda")
    setting = Setting(identity, function, SIZES[0])
    for by_rows in (True, False) if hasattr(module, "row_by_row") else (True,):
        with small_launches(module, by_rows):
            if kinds:
                differences_found = list(partly_wrong(function, module, setting, kinds))
            else:
                differences_found = list(problems(function, module, setting))
        assert not differences_found, "\n".join(differences_found)


def partly_wrong(
    function: Function, module: ModuleType, setting: Setting, kinds: list[str]
) -> Iterator[str]:
    """Compare some kinds in double precision, as `problems` does."""
    with as_on_device(module):
        for kind in kinds:
            arguments, results = function.derivatives.kernel(kind)
            expected = evaluate_all(list(results.values()), setting.values, setting.sizes)
            inputs = [np.asarray(setting.values[leaf.name], np.float64) for leaf in arguments]
            actual = leaves(getattr(module, kind)(*inputs))
            for key, result, exact in zip(results, actual, expected, strict=True):
                size = np.abs(exact).max(initial=1e-3)
                if not (
                    result.shape == exact.shape and np.abs(result - exact).max() <= 1e-9 * size
                ):
                    yield f"{kind} {key}: wrong"


def problems(function: Function, module: ModuleType, setting: Setting) -> Iterator[str]:
    """Compare a module's results with the interpreter's in both precisions; return the
    differences."""
    rounded = {name: np.float64(np.float32(array)) for name, array in setting.values.items()}
    with as_on_device(module):
        for kind in function.kinds:
            arguments, results = function.derivatives.kernel(kind)
            nodes = list(results.values())
            exact = evaluate_all(nodes, setting.values, setting.sizes)
            near = evaluate_all(nodes, rounded, setting.sizes)
            inputs = [np.asarray(setting.values[leaf.name], np.float64) for leaf in arguments]
            wide = leaves(getattr(module, kind)(*inputs))
            narrow = leaves(getattr(module, kind)(*(array.astype(np.float32) for array in inputs)))
            for key, *arrays in zip(results, wide, narrow, exact, near, strict=True):
                for text in differences(*arrays):
                    yield f"{kind} {key}: {text}"
            repeated = leaves(getattr(module, kind)(*inputs))
            if [a.tobytes() for a in repeated] != [a.tobytes() for a in wide]:
                yield f"{kind}: a second run gives other bits"


def differences(
    wide: np.ndarray, narrow: np.ndarray, exact: np.ndarray, near: np.ndarray
) -> Iterator[str]:
    """Compare results in float64 and in float32 with exact ones; near: exact results for arguments
    rounded to float32. If terms of about 1 cancel, 1e-5 of them remains in float32."""
    size = np.abs(exact).max(initial=1e-2)
    condition = np.abs(near - exact).max(initial=0)
    rough = max(1e-4 * size + 200 * condition, 1e-5)
    cases = ((wide, exact, 1e-9 * size), (narrow, near, rough))
    for real, (actual, expected, allowed) in zip((np.float64, np.float32), cases, strict=True):
        if actual.dtype != real or actual.shape != expected.shape:
            yield f"{actual.dtype} {actual.shape}, expected {real.__name__} {expected.shape}"
        elif not np.allclose(actual, expected, rtol=0, atol=allowed, equal_nan=True):
            error = np.abs(actual - expected).max()
            yield f"{real.__name__}: off by {error:.1e}, {allowed:.1e} allowed"


def compiled_for_devices(text: str, dims: str, wrt: str) -> tuple[Function, ModuleType]:
    function = text_function(text, dims, wrt.split())
    return function, dx.compile(function, target="cuda")


LARGER = {"n": 7, "m": 5, "p": 11, "k": 3, "q": 13, "N": 17, "d": 6, "c": 9}


@pytest.mark.parametrize(
    ("text", "dims", "wrt"),
    [
        pytest.param("sum(exp(A*x))", "A: N n, x: n", "x", marks=pytest.mark.thorough),
        pytest.param(*("tanh(X*b + c)", "X: N d, b: d, c: N", "X b"), marks=pytest.mark.thorough),
        ("colsum(X.^2) - y'", "X: N m, y: m", "X"),
        ('einsum("pi,pj,pk->ijk", X, Y, Y)', "X: p k, Y: p m", "X"),
        pytest.param(
            *("logdet(S) + x'*inv(S)*x", "S: n n spd, x: n", "S x"), marks=pytest.mark.thorough
        ),
    ],
)
@simulated
def test_sizes_that_are_not_multiples_of_anything(text: str, dims: str, wrt: str) -> None:
    function, module = compiled_for_devices(text, dims, wrt)
    identity = Identity(text, dims, wrt, "")
    with small_launches(module):
        differences_found = list(problems(function, module, Setting(identity, function, LARGER)))
    assert not differences_found, "\n".join(differences_found)


@pytest.mark.parametrize(
    ("text", "dims", "wrt", "lengths", "finished"),
    [
        ("sum(exp(x)) + max(0, x)'*y", "x: n, y: n", "x y", {"n": 701}, True),
        pytest.param(
            *("A'*exp(x)", "A: n m, x: n", "x", {"n": 301, "m": 3}, False),
            marks=pytest.mark.thorough,
        ),
        ("normF(X*Y)^2", "X: n m, Y: m n", "X", {"n": 5, "m": 9}, False),
    ],
)
@simulated
def test_results_do_not_depend_on_the_size_of_launches(
    text: str, dims: str, wrt: str, lengths: dict[str, int], finished: bool
) -> None:
    function, module = compiled_for_devices(text, dims, wrt)
    values = draw_all(function, seed=3, sizes=lengths)
    kinds = [kind for kind in function.kinds if kind not in ("jacobian", "hessian")]
    with as_on_device(module):
        for kind in kinds:
            inputs = [values[leaf.name] for leaf in function.derivatives.arguments(kind)]
            wide = leaves(getattr(module, kind)(*inputs))
            with small_launches(module) as launched:
                narrow = leaves(getattr(module, kind)(*inputs))
                repeated = leaves(getattr(module, kind)(*inputs))
            for large, small, third in zip(wide, narrow, repeated, strict=True):
                size = np.abs(large).max()
                np.testing.assert_allclose(large, small, rtol=0, atol=1e-13 * max(size, 1))
                assert small.tobytes() == third.tobytes()
            if finished and kind == "value":
                assert any(name.endswith("_finish") for name in launched)


n = dx.dims("n")
x, W, b = dx.vector("x", n), dx.matrix("W", 3, n), dx.vector("b", 3)
rows = dx.function("rows", [x, W, b], dx.tanh(W @ x + b), batch=[x])
norms = dx.function("norms", [x], dx.sum(dx.exp(x)), batch=[x])


@simulated
def test_batches_without_a_sample() -> None:
    module = dx.compile(rows, target="cuda")
    none, weights, shift = np.empty((0, 4)), np.ones((3, 4)), np.ones(3)
    assert module.value(none, weights, shift).shape == (0, 3)
    assert module.jvp(none, weights, shift, none, weights, shift).shape == (0, 3)
    shapes = [array.shape for array in module.jacobian(none, weights, shift)]
    assert shapes == [(0, 3, 4), (0, 3, 3, 4), (0, 3, 3)]
    results = module.vjp(none, weights, shift, np.empty((0, 3)))
    assert results.x.shape == (0, 4)
    np.testing.assert_array_equal(results.W, np.zeros((3, 4)))
    np.testing.assert_array_equal(results.b, np.zeros(3))
    module = dx.compile(norms, target="cuda")
    assert module.value(none).shape == (0,)
    assert module.hessian(none.astype(np.float32)).shape == (0, 4, 4)
    assert module.value(np.empty((2, 0))).tolist() == [0, 0]


@pytest.mark.parametrize(
    ("text", "dims"),
    [
        ('einsum("abij,abjk->baik", X, Y)', "X: a b i j, Y: a b j k"),
        ('einsum("abcij,cbajk->bacik", X, Y)', "X: a b c i j, Y: c b a j k"),
        ('einsum("bqhd,bkhd->bhqk", X, Y)', "X: b q h d, Y: b k h d"),
    ],
)
@simulated
def test_stacks_in_different_orders(text: str, dims: str) -> None:
    """A stack is one product, whatever the order of its axes in each array."""
    function = text_function(text, dims, ["X"])
    module = dx.compile(function, target="cuda")
    shapes = [
        tuple("abcijkqhd".index(name) % 4 + 2 for name in d.split()[1:]) for d in dims.split(",")
    ]
    X, Y = (np.random.default_rng(0).normal(size=shape) for shape in shapes)
    formula = re.findall('"(.*)"', text)[0]
    with small_launches(module) as launched, as_on_device(module):
        actual = module.value(X, Y)
        assert sum(name.startswith("gemm") for name in launched) == 1
        np.testing.assert_allclose(actual, np.einsum(formula, X, Y), rtol=1e-12)
        cotangent = np.cos(actual)
        left_labels, right_labels, result = formula.replace("->", ",").split(",")
        expected = np.einsum(f"{result},{right_labels}->{left_labels}", cotangent, Y)
        np.testing.assert_allclose(module.vjp(X, Y, cotangent), expected, rtol=1e-12)


@simulated
def test_coefficients_of_sizes_that_are_zero() -> None:
    """They are infinite; what BLAS makes of that and nothing to sum is not the same everywhere."""
    module = dx.compile(text_function("X*Y/sqrt(d)", "X: m d, Y: d n", ["X"]), target="cuda")
    with as_on_device(module):
        actual = module.value(np.empty((2, 0)), np.empty((0, 3)))
    assert actual.shape == (2, 3)
    assert np.isnan(actual).all()


@simulated
def test_the_module_for_the_cpu_says_the_same() -> None:
    module, cpu_module = (dx.compile(rows, target=target) for target in ("cuda", "cpu"))
    assert module.FORMULAS == cpu_module.FORMULAS
    values = draw_all(rows, seed=5, sizes={"n": 4, "batch": 5})
    for kind in ("value", "vjp", "jacobian"):  # to compile for the CPU takes its time
        inputs = [values[leaf.name] for leaf in rows.derivatives.arguments(kind)]
        results = [getattr(compiled, kind)(*inputs) for compiled in (module, cpu_module)]
        for on_device, on_cpu in zip(*map(leaves, results), strict=True):
            np.testing.assert_allclose(on_device, on_cpu, rtol=1e-12, atol=1e-13)


@simulated
def test_a_wrong_kernel_is_noticed() -> None:
    """A line is changed that stores a result, any of several."""
    text, dims, wrt = "sum(exp(X*b))", "X: m n, b: n", "X"
    function = text_function(text, dims, wrt.split())
    generated = generate(function, "cuda")
    source = generated.text
    _, _, kernels = source.partition("# Kernels")
    lines = kernels.partition("# What launches them")[0].splitlines()
    stores = [line for line in lines if re.match(r" +out\w*\[.*\] \+?= ", line)]
    assert len(stores) > 3
    setting = Setting(Identity(text, dims, wrt, ""), function, SIZES[0])
    for number, line in enumerate(stores[::3]):
        spoilt = f"{line} * 1.0001"
        text = source.replace(f"{line}\n", f"{spoilt}\n", 1)
        module = loaded(cache_directory() / "spoilt", f"spoilt_{number}", text, generated.data)
        differences_found = []
        for by_rows in (True, False):
            with small_launches(module, by_rows):
                differences_found += problems(function, module, setting)
        assert differences_found, line
