"""Launches of kernels: the driver gets the parameters that Numba would pass, and its errors are
reported. No device is needed."""

from __future__ import annotations

import ctypes
import importlib.util
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from derivatrix.templates.support.internals import launches
from tests.dryrun import device_array

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("numba_cuda") is None, reason="needs numba-cuda (the extra `cuda`)"
)


class Driver:
    """A driver that keeps what it is given."""

    def __init__(self, result: int = 0) -> None:
        self.result = result
        self.launches: list[Any] = []

    def cuLaunchKernel(self, handle: int, *numbers: int) -> tuple[int]:
        *shape, memory, stream, none, place = numbers
        assert none == 0
        first, words, second, size, end = (ctypes.c_void_p * 5).from_address(place)
        assert (first, second, end) == (1, 2, None)
        length = ctypes.c_size_t.from_address(size).value
        self.launches.append((handle, shape, memory, stream, ctypes.string_at(words, length)))
        return (self.result,)

    def cuGetErrorName(self, result: int) -> tuple[int, bytes]:
        return 0, b"CUDA_ERROR_OF_THIS_TEST"


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> Driver:
    result = Driver()
    modules = SimpleNamespace(import_module={"cuda.bindings.driver": result}.__getitem__)
    monkeypatch.setattr(launches, "importlib", modules)
    monkeypatch.setattr(launches, "_compiled", {})
    return result


def kernel(monkeypatch: pytest.MonkeyPatch) -> tuple[Any, list[Any]]:
    """A kernel that is compiled to nothing, and for what types it was."""
    from numba import cuda

    cuda_kernel, kinds = cuda.jit(lambda x, y, n, real, flags: None), []

    def compile(signature: tuple[Any, ...]) -> Any:
        kinds.append(signature)
        function = SimpleNamespace(handle=4711)
        return SimpleNamespace(_codelibrary=SimpleNamespace(get_cufunc=lambda: function))

    monkeypatch.setattr(cuda_kernel, "compile", compile)
    return cuda_kernel, kinds


def numbas_parameters(kinds: tuple[Any, ...], arguments: list[Any]) -> list[Any]:
    """Return the numbers that Numba would pass."""
    from numba.cuda.dispatcher import _Kernel

    result: list[Any] = []
    for kind, argument in zip(kinds, arguments, strict=True):
        _Kernel._prepare_args(SimpleNamespace(extensions=[]), kind, argument, 0, [], result)
    return [getattr(value, "value", value) for value in result]


@pytest.mark.parametrize("real", [np.float64, np.float32])
@pytest.mark.parametrize("shape", [(3, 4, 5), (1, 1, 1)])
def test_parameters_are_those_of_numba(
    driver: Driver, monkeypatch: pytest.MonkeyPatch, real: type, shape: tuple[int, ...]
) -> None:
    cuda_kernel, kinds = kernel(monkeypatch)
    flags = device_array((2,), np.int32)
    arguments = [device_array(shape, real), device_array((7,), real), 2**40, real(0.1), flags]
    for _ in range(2):
        launches.launch(cuda_kernel, 0, 6, 128, 99, arguments)
    assert len(kinds) == 1  # compiled once
    assert kinds[0] == tuple(map(cuda_kernel.typeof_pyval, arguments))
    *_, (handle, grid, memory, stream, words) = driver.launches
    assert (handle, grid, memory, stream) == (4711, [6, 1, 1, 128, 1, 1], 0, 99)
    form = launches._compiled[next(iter(launches._compiled))].form
    assert [*form.unpack(words)] == numbas_parameters(kinds[0], arguments)


def test_other_types_and_devices_are_compiled_for_anew(
    driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    cuda_kernel, kinds = kernel(monkeypatch)
    for device, real in ((0, np.float64), (0, np.float32), (1, np.float64), (0, np.float64)):
        arguments = [device_array((2, 2), real), device_array((2,), real)]
        launches.launch(cuda_kernel, device, 1, 1, 0, [*arguments, 1, real(2), arguments[1]])
    assert len(kinds) == 3


def test_what_the_driver_refuses_is_told(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    cuda_kernel, _ = kernel(monkeypatch)
    driver.result = 1
    with pytest.raises(RuntimeError, match="<lambda>: CUDA_ERROR_OF_THIS_TEST at the launch of 6"):
        launches.launch(
            cuda_kernel, 0, 6, 128, 0, [device_array((2,))] * 2 + [1, 2.0, device_array((1,))]
        )
