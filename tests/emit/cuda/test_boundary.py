"""Public functions of modules for CUDA devices, around their kernels: in the simulator, or, where
this knows too little, without computing anything (`dryrun`)."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, ClassVar

import numpy as np
import pytest

import derivatrix as dx
from tests.dryrun import Stream, device_array, dry
from tests.packages import set_everywhere, support_file
from tests.simulation import simulated

m, n, k = dx.dims("m n k")
A, B = dx.matrix("A", m, k), dx.matrix("B", k, n)
s = dx.scalar("s")
X = dx.matrix("X", n, n)
v = dx.vector("v", n)
FUNCTIONS = {
    "product": dx.function("product", [A, B], A @ B),
    "scaled": dx.function("scaled", [A, s], s * dx.trace(A.T @ A)),
    "inverse": dx.function("inverse", [X], dx.inv(X)),
    "stacked": dx.function(
        "stacked", [S := dx.matrix("A", n, n), v, s], s * (S @ v), batch=[S, v, s]
    ),
    "energy": dx.function("energy", [v, s], s * (v @ v), batch=[v]),
}
LEFT = np.arange(6.0).reshape(2, 3)
RIGHT = np.arange(12.0).reshape(3, 4) - 5


def module(name: str = "product") -> ModuleType:
    return dx.compile(FUNCTIONS[name], target="cuda")


def same(actual: Any, expected: Any, real: type = np.float64) -> None:
    actual = actual.copy_to_host() if hasattr(actual, "copy_to_host") else actual
    assert actual.shape == np.shape(expected) and actual.dtype == real
    np.testing.assert_allclose(actual, expected, rtol=1e-6)


# In the simulator


@simulated
def test_arrays_of_numpy() -> None:
    same(module().value(LEFT, RIGHT), LEFT @ RIGHT)
    same(module().value(LEFT.tolist(), RIGHT.astype(int)), LEFT @ RIGHT)
    same(module().value(np.asfortranarray(LEFT), RIGHT[:, ::-1]), LEFT @ RIGHT[:, ::-1])
    same(module("scaled").value(LEFT, 2), 2 * (LEFT**2).sum())


@simulated
def test_float32_where_all_arrays_are() -> None:
    left, right = LEFT.astype(np.float32), RIGHT.astype(np.float32)
    same(module().value(left, right), LEFT @ RIGHT, np.float32)
    same(module().value(left, RIGHT), LEFT @ RIGHT)
    same(module("scaled").value(left, 2.0), 2 * (LEFT**2).sum(), np.float32)


@simulated
def test_arrays_on_the_device_stay_there() -> None:
    from numba import cuda

    left, right = cuda.to_device(LEFT), cuda.to_device(RIGHT)
    result = module().value(left, right)
    assert hasattr(result, "copy_to_host")
    same(result, LEFT @ RIGHT)
    mixed = module().value(LEFT, right)
    assert hasattr(mixed, "copy_to_host")
    same(mixed, LEFT @ RIGHT)
    single = cuda.to_device(LEFT.astype(np.float32)), cuda.to_device(RIGHT.astype(np.float32))
    same(module().value(*single), LEFT @ RIGHT, np.float32)
    number = module("scaled").value(left, cuda.to_device(np.array(2.0)))
    same(number, 2 * (LEFT**2).sum())


@simulated
def test_out() -> None:
    from numba import cuda

    host_out, device_out = np.full((2, 4), np.nan), cuda.to_device(np.full((2, 4), np.nan))
    for arguments in ((LEFT, RIGHT), (cuda.to_device(LEFT), RIGHT)):
        for out in (host_out, device_out):
            assert module().value(*arguments, out=out) is out
            same(out, LEFT @ RIGHT)
    wide = np.zeros((2, 8))
    assert module().value(LEFT, RIGHT, out=wide[:, ::2]).base is wide
    np.testing.assert_array_equal(wide[:, ::2], LEFT @ RIGHT)
    left, right = np.empty_like(LEFT), cuda.to_device(RIGHT)
    results = module().vjp(LEFT, RIGHT, np.ones((2, 4)), out=(left, right))
    assert results.A is left and results.B is right
    same(left, np.ones((2, 4)) @ RIGHT.T)
    same(right, LEFT.T @ np.ones((2, 4)))
    for number in (np.empty(()), cuda.to_device(np.empty(()))):
        assert module("scaled").value(LEFT, 3.0, out=number) is number
        same(number, 3 * (LEFT**2).sum())


@simulated
def test_batch_axes() -> None:
    from numba import cuda

    call = module("stacked").value
    vectors, matrices = np.arange(24.0).reshape(2, 4, 3), np.arange(72.0).reshape(2, 4, 3, 3)
    expected = np.einsum("...ij,...j->...i", matrices, vectors)
    for convert in (np.asarray, cuda.to_device):
        same(call(convert(matrices), convert(vectors), 2), 2 * expected)
        same(call(convert(matrices[0, 0]), convert(vectors[0, 0]), 2.0), 2 * expected[0, 0])
        out = convert(np.full((2, 4, 3), np.nan))
        assert call(convert(matrices), convert(vectors), 1.0, out=out) is out
        same(out, expected)
    stretched = matrices[:, :1], vectors[0], np.arange(2.0)[:, None]
    same(
        call(*stretched),
        np.arange(2.0)[:, None, None] * (matrices[:, :1] @ vectors[0][..., None])[..., 0],
    )
    results = module("stacked").vjp(matrices[0, 0], vectors, 1.0, np.ones(3))
    same(results.A, np.broadcast_to(vectors[:, :, None], (2, 4, 3, 3)))
    assert results.s.shape == (2, 4)
    for wrong, text in (
        ((matrices, vectors[:, :3], 1.0), r"argument v has the batch axes \(2, 3\); expected axes"),
        (
            (matrices, vectors[..., :2], 1.0),
            r"argument v has shape \(2, 4, 2\); expected \(\*batch",
        ),
    ):
        with pytest.raises(ValueError, match=f"stacked: {text}"):
            call(*wrong)
    norm = module("energy").value(vectors, 1.0)
    same(norm, (vectors**2).sum(-1))
    assert type(module("energy").value(vectors[0, 0], 1.0)) is np.float64
    with pytest.raises(TypeError, match=r"argument v is .*; install CuPy to have it converted"):
        call(cuda.to_device(matrices), cuda.to_device(vectors[0]), 1.0)


@simulated
def test_out_that_will_not_do() -> None:
    from numba import cuda

    call = module().value
    with pytest.raises(ValueError, match=r"product: out has shape \(2, 3\); expected \(2, 4\)"):
        call(LEFT, RIGHT, out=np.empty((2, 3)))
    with pytest.raises(ValueError, match=r"product: out has shape \(4, 2\); expected \(2, 4\)"):
        call(LEFT, RIGHT, out=cuda.to_device(np.empty((4, 2))))
    with pytest.raises(TypeError, match=r"expected a C-contiguous array of float64"):
        call(LEFT, RIGHT, out=cuda.to_device(np.empty((2, 4), np.float32)))
    with pytest.raises(TypeError, match=r"product: out has dtype int64; expected float64"):
        call(LEFT, RIGHT, out=np.empty((2, 4), int))
    with pytest.raises(TypeError, match=r"product: out is 'here'; expected an array"):
        call(LEFT, RIGHT, out="here")
    with pytest.raises(ValueError, match=r"product: out has 2 arrays; expected 1"):
        call(LEFT, RIGHT, out=(np.empty((2, 4)), np.empty((2, 4))))
    shared = np.empty((3, 4))
    with pytest.raises(ValueError, match=r"product: out.A and out.B share memory"):
        module().vjp(shared, shared.T.copy(), np.empty((3, 3)), out=(shared, shared.reshape(4, 3)))


@simulated
@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        (
            ([[1.0, 2.0]], [[1.0]]),
            "ValueError",
            r"argument B has shape \(1, 1\); expected \(k, n\)",
        ),
        (([1.0, 2.0], [[1.0]]), "ValueError", r"argument A has shape \(2,\); expected \(m, k\)"),
        (("text", [[1.0]]), "TypeError", "argument A is 'text'; expected real numbers"),
        ((None, [[1.0]]), "TypeError", "argument A is None; expected real numbers"),
        (([[1.0]], [[1.0], [1.0, 2.0]]), "ValueError", "argument B is no array"),
    ],
)
def test_arguments_that_will_not_do(arguments: Any, error: str, text: str) -> None:
    with pytest.raises(
        {"TypeError": TypeError, "ValueError": ValueError}[error], match=f"product: {text}"
    ):
        module().value(*arguments)


@simulated
def test_arguments_on_the_device_that_will_not_do() -> None:
    from numba import cuda

    with pytest.raises(TypeError, match=r"argument A is an array of complex128 on a device"):
        module().value(cuda.to_device(LEFT + 1j), RIGHT)
    with pytest.raises(ValueError, match=r"argument B has shape \(2, 3\); expected \(k, n\) with"):
        module().value(cuda.to_device(LEFT), cuda.to_device(LEFT))
    with pytest.raises(TypeError, match=r"argument A .* install CuPy to have it converted"):
        module().value(cuda.to_device(np.asfortranarray(LEFT)), RIGHT)
    with pytest.raises(TypeError, match=r"argument A .* install CuPy to have it converted"):
        module().value(cuda.to_device(LEFT.astype(np.int32)), RIGHT)


@simulated
def test_what_fails_on_the_device() -> None:
    with pytest.raises(np.linalg.LinAlgError, match=r"inverse: .*singular"):
        module("inverse").value(np.ones((3, 3)))
    same(module("inverse").value(2 * np.eye(3)), np.eye(3) / 2)


# Without a device


def test_no_device_is_told_plainly(monkeypatch: pytest.MonkeyPatch) -> None:
    from numba import cuda

    monkeypatch.setattr(cuda, "is_available", lambda: False)
    product = module()
    set_everywhere(monkeypatch, product, "cuda.arguments._ready", [])  # of tests before this one
    with pytest.raises(RuntimeError, match=r"product: no CUDA device .* target cpu computes the"):
        product.value(LEFT, RIGHT)


DEVICE = SimpleNamespace(index=0, id=0)
"""The device, as PyTorch and CuPy name it."""


class Theirs:
    """An array on a device, of another package than Numba."""

    def __init__(self, like: Any, device: Any = DEVICE) -> None:
        stream = None if type(self).__module__ == "torch" else 77
        self.__cuda_array_interface__ = {**like.__cuda_array_interface__, "stream": stream}
        self.shape, self.dtype, self.device = like.shape, like.dtype, device
        self.size, self.ndim = like.size, like.ndim
        self.is_cuda, self.flags = True, {"C_CONTIGUOUS": True}

    def detach(self) -> Theirs:
        return self

    def block_until_ready(self) -> None:
        Stream.waits.append(-1)

    def reshape(self, *shape: Any) -> Theirs:
        return type(self)(device_array(np.empty(self.shape).reshape(*shape).shape, self.dtype))

    def get(self) -> np.ndarray:
        return np.zeros(self.shape, self.dtype)


def of(package: str) -> type[Theirs]:
    """The arrays of a package."""
    return type("Tensor", (Theirs,), {"__module__": package})


@pytest.fixture
def torch(monkeypatch: pytest.MonkeyPatch) -> type[Theirs]:
    kind = of("torch")

    def empty(shape: tuple[int, ...], dtype: type, device: Any) -> Theirs:
        return kind(device_array(shape, dtype), device)

    stream = Stream(4096)
    stream.cuda_stream = stream.address  # type: ignore[attr-defined]
    fake = SimpleNamespace(
        float32=np.float32,
        float64=np.float64,
        empty=empty,
        cuda=SimpleNamespace(current_stream=lambda device: stream),
    )
    monkeypatch.setitem(sys.modules, "torch", fake)
    return kind


@pytest.fixture
def cupy() -> Iterator[SimpleNamespace]:
    kind = of("cupy")

    class Entered:
        """A stream of CuPy."""

        entered: ClassVar[list[int]] = []

        def __init__(self, address: int) -> None:
            self.address = address

        @classmethod
        def from_external(cls, stream: Any) -> Any:
            return cls(int(stream))

        def __enter__(self) -> None:
            self.entered.append(self.address)

        def __exit__(self, *raised: object) -> None:
            self.entered.pop()

    def asarray(value: Any, dtype: Any = None) -> Any:
        return kind(device_array(value.shape, dtype or value.dtype))

    current = Stream(8192)
    yield SimpleNamespace(
        ndarray=kind,
        empty=lambda shape, dtype: kind(device_array(shape, dtype)),
        from_dlpack=asarray,
        asarray=asarray,
        ascontiguousarray=asarray,
        cuda=SimpleNamespace(
            get_current_stream=lambda: current,
            Stream=Entered,
            runtime=SimpleNamespace(getDevice=lambda: 0, setDevice=int),
        ),
    )


@pytest.fixture
def dry_module() -> Iterator[ModuleType]:
    Stream.waits.clear()
    loaded = module()
    with dry(loaded):
        yield loaded


def stream_of(dry_module: ModuleType, *arguments: Any) -> int:
    """The stream of a call."""
    run = support_file(dry_module, "cuda.arguments")._Call
    with run(dry_module.value.__globals__["_value_expected"], arguments, ()) as call:
        return int(call.stream)


def test_tensors_of_pytorch(dry_module: ModuleType, torch: type[Theirs]) -> None:
    left, right = torch(device_array(LEFT.shape)), torch(device_array(RIGHT.shape))
    assert stream_of(dry_module, left, right) == 4096
    result = dry_module.value(left, right)
    assert type(result) is torch and result.shape == (2, 4) and result.dtype == np.float64
    assert result.device is DEVICE
    assert not Stream.waits  # all of it is on the caller's stream
    single = [torch(device_array(a.shape, np.float32)) for a in (LEFT, RIGHT)]
    assert dry_module.value(*single).dtype == np.float32
    assert type(dry_module.vjp(left, RIGHT, np.ones((2, 4))).B) is torch


def test_tensors_of_pytorch_that_are_not_on_a_device(
    dry_module: ModuleType, torch: type[Theirs]
) -> None:
    members = {"__module__": "torch", "is_cuda": False, "__array__": lambda *_, **options: LEFT}
    result = dry_module.value(type("Tensor", (), members)(), RIGHT)
    assert type(result) is np.ndarray


def test_arrays_of_cupy(
    dry_module: ModuleType, cupy: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_everywhere(monkeypatch, dry_module, "cuda.base._cupy", cupy)
    left, right = cupy.ndarray(device_array(LEFT.shape)), cupy.ndarray(device_array(RIGHT.shape))
    assert stream_of(dry_module, left, right) == 8192
    result = dry_module.value(left, right)
    assert type(result) is cupy.ndarray and result.shape == (2, 4)
    assert not Stream.waits
    integers = cupy.ndarray(device_array(LEFT.shape, np.int64))
    assert dry_module.value(integers, right).dtype == np.float64


def test_arrays_of_several_packages(
    dry_module: ModuleType,
    torch: type[Theirs],
    cupy: SimpleNamespace,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The first one decides; the streams of the others are waited for."""
    set_everywhere(monkeypatch, dry_module, "cuda.base._cupy", cupy)
    left, right = torch(device_array(LEFT.shape)), cupy.ndarray(device_array(RIGHT.shape))
    assert type(dry_module.value(left, right)) is torch
    assert Stream.waits == [8192]
    Stream.waits.clear()
    left, right = cupy.ndarray(device_array(LEFT.shape)), torch(device_array(RIGHT.shape))
    assert type(dry_module.value(left, right)) is cupy.ndarray
    assert Stream.waits == [4096]


def test_arrays_through_dlpack(
    dry_module: ModuleType, cupy: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Capsule:
        shape, dtype = LEFT.shape, np.dtype(np.float64)

        def __dlpack_device__(self) -> tuple[int, int]:
            return 2, 0

    with pytest.raises(TypeError, match=r"argument A is Capsule of a device .* install CuPy"):
        dry_module.value(Capsule(), RIGHT)
    set_everywhere(monkeypatch, dry_module, "cuda.base._cupy", cupy)
    assert type(dry_module.value(Capsule(), RIGHT)) is cupy.ndarray


def test_arrays_of_jax(
    dry_module: ModuleType, cupy: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_everywhere(monkeypatch, dry_module, "cuda.base._cupy", cupy)
    exported: list[Any] = []
    fake = SimpleNamespace(
        dlpack=SimpleNamespace(from_dlpack=lambda a: exported.append(a) or "jax")
    )
    monkeypatch.setitem(sys.modules, "jax", fake)
    left = of("jaxlib.xla")(device_array(LEFT.shape))
    assert dry_module.value(left, RIGHT) == "jax"
    assert type(exported[0]) is cupy.ndarray and Stream.waits[0] == -1


def test_memory_that_is_shared_on_the_device(dry_module: ModuleType, torch: type[Theirs]) -> None:
    square = device_array((3, 3))
    with pytest.raises(ValueError, match="out shares memory with an argument"):
        dry_module.value(square, RIGHT[:, :3], out=torch(square))
    with pytest.raises(ValueError, match=r"out.A and out.B share memory"):
        dry_module.vjp(RIGHT[:, :3], RIGHT[:, :3], np.ones((3, 3)), out=(square, torch(square)))


def test_results_elsewhere_than_arguments(dry_module: ModuleType, torch: type[Theirs]) -> None:
    """If another stream than the call's uses `out`, the call ends when the result is there."""
    out = torch(device_array((2, 4)))
    assert dry_module.value(LEFT, RIGHT, out=out) is out
    assert Stream.waits == [4096, 0]


def test_numbers_on_the_device(torch: type[Theirs]) -> None:
    result = module("scaled")
    with dry(result):
        assert type(result.value(device_array((2, 3)), 2.0)) is type(device_array(()))
        assert result.value(device_array((2, 3)), 2.0).shape == ()
        tensor = torch(device_array((2, 3)))
        assert result.value(tensor, 2.0).shape == ()
        assert result.value(tensor, torch(device_array(()))).shape == ()


CUPY = """
def __getattr__(name):
    if name == "cublas":
        return "cuBLAS"
    raise ImportError(f"lib{name}.so is not here")
"""


def test_libraries_through_cupy(tmp_path: Path) -> None:
    """CuPy finds a library when it is asked for the attribute, not when its module is imported;
    where there is none, that is said."""
    (tmp_path / "cupy" / "cuda").mkdir(parents=True)
    (tmp_path / "cupy" / "__init__.py").write_text("")
    (tmp_path / "cupy" / "cuda" / "__init__.py").write_text(CUPY)
    program = (
        "from derivatrix.templates.support.cuda.libraries import _cublas, _cusolver\n"
        "print(_cublas, _cusolver)"
    )
    paths = os.pathsep.join([str(tmp_path), *sys.path])
    process = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONPATH": paths},
        capture_output=True,
        text=True,
        check=True,
    )
    assert process.stdout.split() == ["cuBLAS", "None"]
    assert "RuntimeWarning: cupy.cuda has no cusolver" in process.stderr
    assert "libcusolver.so is not here" in process.stderr
    assert "cublas" not in process.stderr
