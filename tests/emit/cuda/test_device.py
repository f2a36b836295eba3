"""Modules for CUDA devices on a device; these tests are left out where there is none."""

from __future__ import annotations

import importlib
import importlib.util
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import derivatrix as dx
from derivatrix.compiler.frontends.function import Function
from derivatrix.compiler.frontends.notation.declaration import text_function
from derivatrix.runtime.simulated import has_device
from tests.differentiate.test_identities import SIZES, Setting
from tests.driver.test_examples import FUNCTIONS
from tests.emit.cuda.test_simulated import LARGER, norms, problems, rows, small_launches
from tests.identities import IDENTITIES, Identity
from tests.points import draw_all, leaves

pytestmark = pytest.mark.device

every = pytest.mark.parametrize(
    "identity", IDENTITIES, ids=[f"{row.text} by {row.wrt}" for row in IDENTITIES]
)


def compiled(function: Function) -> ModuleType:
    assert has_device()
    return dx.compile(function, target="cuda")


@pytest.mark.parametrize("name", FUNCTIONS)
def test_example(name: str) -> None:
    report = dx.verify(compiled(FUNCTIONS[name]))
    assert report.passed, str(report)
    assert not report.place


@every
def test_identity(identity: Identity) -> None:
    """Against the interpreter in both precisions, as launched and in small launches."""
    function = text_function(identity.text, identity.dims, identity.wrt.split())
    module = compiled(function)
    for sizes in SIZES:
        setting = Setting(identity, function, sizes)
        result = list(problems(function, module, setting))
        with small_launches(module):
            result += problems(function, module, setting)
        assert not result, "\n".join(result)


@every
def test_verification(identity: Identity) -> None:
    function = text_function(identity.text, identity.dims, identity.wrt.split())
    report = dx.verify(compiled(function))
    assert report.passed, str(report)
    assert not report.place


@pytest.mark.parametrize("row", ["softmax(x)", "tr(X^4)", "x'*B*x", "normF(A*X-X*A)^2"])
def test_sizes_that_are_not_multiples_of_anything(row: str) -> None:
    identity = next(identity for identity in IDENTITIES if identity.text == row)
    function = text_function(identity.text, identity.dims, identity.wrt.split())
    for sizes in (LARGER, {name: 3 * size + 2 for name, size in LARGER.items()}):
        result = list(problems(function, compiled(function), Setting(identity, function, sizes)))
        assert not result, "\n".join(result)


@pytest.mark.parametrize("batch", [0, 1, 1_000_003])
@pytest.mark.parametrize("real", [np.float64, np.float32])
def test_batches(batch: int, real: type) -> None:
    """Empty and large ones, against the module for the CPU."""
    for function in (rows, norms, FUNCTIONS["classifier"]):
        module, other = compiled(function), dx.compile(function)
        sizes = {"n": 5, "c": 3, "d": 4, "batch": max(batch, 1)}
        values = draw_all(function, seed=7, sizes=sizes)
        for kind in function.kinds:
            arguments = []
            for leaf in function.derivatives.arguments(kind):
                array = np.asarray(values[leaf.name], real)
                stack = [str(size) for size in leaf.shape][:1] == ["batch"]
                arguments.append(array[:batch] if stack else array)
            results = [leaves(getattr(tested, kind)(*arguments)) for tested in (module, other)]
            for one, two in zip(*results, strict=True):
                assert one.dtype == two.dtype and one.shape == two.shape
                size = np.abs(two).max(initial=1e-3)
                allowed = {np.float64: 1e-9, np.float32: 1e-3}[real]  # type: ignore[index]
                np.testing.assert_allclose(one, two, rtol=0, atol=allowed * size)


@pytest.mark.parametrize("package", ["cupy", "torch"])
def test_arrays_of_packages(package: str) -> None:
    """Arrays are used and returned without copies through the host, on the caller's stream."""
    if importlib.util.find_spec(package) is None:
        pytest.skip(f"needs {package}")
    library: Any = importlib.import_module(package)
    module = compiled(rows)
    values = draw_all(rows, seed=9, sizes={"n": 5, "batch": 1001})
    arguments = [values[leaf.name] for leaf in rows.derivatives.arguments("vjp")]
    if package == "torch":
        theirs = [library.asarray(array, device="cuda") for array in arguments]
        stream: Any = library.cuda.stream(library.cuda.Stream())
        library.cuda.synchronize()
    else:
        theirs = [library.asarray(array) for array in arguments]
        stream = library.cuda.Stream(non_blocking=True)
        library.cuda.Device().synchronize()
    with stream:
        actual = module.vjp(*theirs)
        out = module.vjp(*theirs, out=tuple(library.empty_like(array) for array in actual))
        doubled = [2 * array for array in actual]
    library.cuda.synchronize() if package == "torch" else stream.synchronize()
    expected = dx.compile(rows).vjp(*arguments)
    for one, again, twice, wanted in zip(actual, out, doubled, expected, strict=True):
        assert type(one) is type(theirs[0])
        for array in (one, again, twice / 2):
            host = array.cpu().numpy() if package == "torch" else array.get()
            np.testing.assert_allclose(host, wanted, rtol=1e-9, atol=1e-12)
