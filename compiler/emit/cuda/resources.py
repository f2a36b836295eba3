"""PTX of kernels for CUDA devices, and the resources of a device that they use.

This needs the toolkit (the extra `cuda`), but no device: Numba compiles a kernel to PTX, the
portable code, and nvJitLink assembles it for one architecture.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from inspect import getdoc
from types import ModuleType
from typing import Any

from derivatrix.runtime.errors import UnsupportedError
from derivatrix.runtime.simulated import simulating

ARCHITECTURE = "9.0"
"""The compute capability of devices that `explain` assumes."""
_STACK = re.compile(
    r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads", re.ASCII
)
_REGISTERS = re.compile(r"Used (\d+) registers", re.ASCII)
_SHARED = re.compile(r"\.shared .*\.b8 \S+\[(\d+)\]", re.ASCII)


@dataclass(frozen=True)
class Resources:
    """The resources that a kernel uses. registers: 32-bit registers of a thread; shared: bytes of
    shared memory of a block; stack: bytes of local memory of a thread; spill_stores, spill_loads:
    bytes stored to it and loaded from it for lack of registers."""

    registers: int
    shared: int
    stack: int
    spill_stores: int
    spill_loads: int


@dataclass(frozen=True)
class Kernel:
    """A kernel of a generated module. signature: Numba's types, where `real` is the precision."""

    name: str
    summary: str
    signature: str
    function: Any

    def ptx(self, architecture: str = ARCHITECTURE, real: str = "float64") -> str:
        """Compile to PTX for devices of a compute capability, such as "9.0"."""
        typed = self.signature.replace("real", real)
        capability = _capability(architecture)
        with _toolkit(architecture):
            cuda = importlib.import_module("numba.cuda")
            text, _ = cuda.compile_ptx(self.function, typed, cc=capability)
        return str(text)

    def resources(self, architecture: str = ARCHITECTURE, real: str = "float64") -> Resources:
        """Count the resources used on devices of a compute capability."""
        return assembled(self.ptx(architecture, real), architecture)


def kernels(module: ModuleType) -> list[Kernel]:
    """List the kernels of a generated module for CUDA devices. Raises UnsupportedError for another
    module, and if Numba simulates devices, as it compiles nothing then."""
    if getattr(module, "TARGET", "cpu") != "cuda":
        raise UnsupportedError(f"{module.__name__}: its kernels are not for CUDA devices")
    if simulating():
        raise UnsupportedError("Numba simulates devices here (NUMBA_ENABLE_CUDASIM) and compiles")
    return table(module)


def table(module: ModuleType) -> list[Kernel]:
    """List the kernels in the tables of a module, KERNELS and SIGNATURES."""
    return [
        Kernel(
            name,
            " ".join((getdoc(kernel.py_func) or "").split()),
            module.SIGNATURES[name],
            kernel.py_func,
        )
        for name, (kernel, _) in module.KERNELS.items()
    ]


def assembled(ptx: str, architecture: str = ARCHITECTURE) -> Resources:
    """Assemble PTX for devices of a compute capability, and count the resources used."""
    shared = sum(map(int, _SHARED.findall(ptx)))
    log = _assembly_log(ptx, architecture)
    stack, registers = _STACK.search(log), _REGISTERS.search(log)
    if stack is None or registers is None:
        raise UnsupportedError(f"nvJitLink says nothing of a kernel's resources: {log!r}")
    return Resources(int(registers[1]), shared, *map(int, stack.groups()))


def _assembly_log(ptx: str, architecture: str) -> str:
    """Assemble PTX; return the log of the assembler."""
    name = "sm_{}{}".format(*_capability(architecture))
    options = [f"-arch={name}", "-verbose", "-Xptxas=-v", "-O3"]
    code = ptx.encode()
    with _toolkit(architecture):
        linker = importlib.import_module("cuda.bindings.nvjitlink")
        try:
            handle = linker.create(len(options), options)
            try:
                linker.add_data(handle, linker.InputType.PTX, code, len(code), "kernel")
                linker.complete(handle)
                log = bytearray(linker.get_info_log_size(handle))
                linker.get_info_log(handle, log)
            finally:
                linker.destroy(handle)
        except linker.nvJitLinkError as error:
            raise RuntimeError(f"nvJitLink refuses {name}: {error}") from error
    return log.decode(errors="replace")


def _capability(architecture: str) -> tuple[int, int]:
    """Parse a compute capability to two numbers."""
    match = re.fullmatch(r"(\d+)\.(\d)", architecture, re.ASCII)
    if match is None:
        raise UnsupportedError(
            f"{architecture!r} is no compute capability; expected two numbers, such as "
            f"{ARCHITECTURE}"
        )
    return int(match[1]), int(match[2])


@contextmanager
def _toolkit(architecture: str) -> Iterator[None]:
    """Raise UnsupportedError if the block fails as the compilers are not installed, or do not know
    devices of this compute capability."""
    try:
        yield
    except (ImportError, RuntimeError) as error:
        raise UnsupportedError(
            f"kernels cannot be compiled here for devices of compute capability {architecture} "
            f"({error}); that takes no device, but the extra `cuda`: pip install 'derivatrix[cuda]'"
        ) from error
