"""What kernels for CUDA devices are compiled to, and what they need of a device.

That takes the toolkit (the extra `cuda`), but no device: Numba compiles a kernel to PTX, the code
of all devices, and nvJitLink assembles it for one architecture.
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
    """What a kernel needs: 32-bit registers of a thread, bytes of a block's shared memory, bytes
    of a thread's own memory (`stack`), and bytes stored to it and loaded from it because there are
    too few registers."""

    registers: int
    shared: int
    stack: int
    spill_stores: int
    spill_loads: int


@dataclass(frozen=True)
class Kernel:
    """A kernel of a generated module. signature: Numba's, where `real` is the precision."""

    name: str
    summary: str
    signature: str
    function: Any

    def ptx(self, architecture: str = ARCHITECTURE, real: str = "float64") -> str:
        """Its PTX for devices of a compute capability, such as "9.0"."""
        typed = self.signature.replace("real", real)
        capability = _capability(architecture)
        with _toolkit(architecture):
            cuda = importlib.import_module("numba.cuda")
            text, _ = cuda.compile_ptx(self.function, typed, cc=capability)
        return str(text)

    def resources(self, architecture: str = ARCHITECTURE, real: str = "float64") -> Resources:
        """What it needs of devices of a compute capability."""
        return assembled(self.ptx(architecture, real), architecture)


def kernels(module: ModuleType) -> list[Kernel]:
    """The kernels of a generated module for CUDA devices. Raises UnsupportedError for others, and
    where Numba simulates devices, since it compiles nothing then."""
    if getattr(module, "TARGET", "cpu") != "cuda":
        raise UnsupportedError(f"{module.__name__}: its kernels are not for CUDA devices")
    if simulating():
        raise UnsupportedError("Numba simulates devices here (NUMBA_ENABLE_CUDASIM) and compiles")
    return table(module)


def table(module: ModuleType) -> list[Kernel]:
    """The kernels of a module that has the tables of generated ones."""
    return [
        Kernel(
            name,
            " ".join((getdoc(made.py_func) or "").split()),
            module.SIGNATURES[name],
            made.py_func,
        )
        for name, (made, _) in module.KERNELS.items()
    ]


def assembled(ptx: str, architecture: str = ARCHITECTURE) -> Resources:
    """What a kernel needs, from its assembly for devices of a compute capability."""
    shared = sum(map(int, _SHARED.findall(ptx)))
    log = _assembly_log(ptx, architecture)
    stack, registers = _STACK.search(log), _REGISTERS.search(log)
    if stack is None or registers is None:
        raise UnsupportedError(f"nvJitLink says nothing of a kernel's resources: {log!r}")
    return Resources(int(registers[1]), shared, *map(int, stack.groups()))


def _assembly_log(ptx: str, architecture: str) -> str:
    """What the assembler tells."""
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
    """The two numbers of a compute capability."""
    found = re.fullmatch(r"(\d+)\.(\d)", architecture, re.ASCII)
    if found is None:
        raise UnsupportedError(
            f"{architecture!r} is no compute capability; expected two numbers, such as "
            f"{ARCHITECTURE}"
        )
    return int(found[1]), int(found[2])


@contextmanager
def _toolkit(architecture: str) -> Iterator[None]:
    """Raise UnsupportedError where the compilers are not installed, or do not know the devices."""
    try:
        yield
    except (ImportError, RuntimeError) as error:
        raise UnsupportedError(
            f"kernels cannot be compiled here for devices of compute capability {architecture} "
            f"({error}); that takes no device, but the extra `cuda`: pip install 'derivatrix[cuda]'"
        ) from error
