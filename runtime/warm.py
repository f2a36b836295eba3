"""Kernels compiled, and their machine code kept on disk, before anybody calls them.

Some of it is kept for the name under which programs import the module: see
docs/developers/architecture.md.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numba import types

from derivatrix.runtime.errors import BuildError
from derivatrix.runtime.interface import ModuleInterface
from derivatrix.runtime.load import import_name, load_as
from derivatrix.runtime.parallel import Announce, listing
from derivatrix.runtime.simulated import has_device
from derivatrix.runtime.support import FOLDER
from derivatrix.runtime.workers import Crash, Workers


def warm_files(files: Sequence[Path], workers: Workers, announce: Announce) -> None:
    """Compile every kernel of the generated modules in the files, in processes beside this one.

    Raises BuildError where that breaks off."""

    def changed(at_work: list[int], done: int) -> None:
        announce(listing([files[i].stem for i in at_work], "compiling"), done)

    answers = workers.map(f"{__name__}:warm_file", [os.fspath(path) for path in files], changed)
    for path, answer in zip(files, answers, strict=True):
        if isinstance(answer, Crash):
            raise BuildError(f"{path.stem}: compiling its kernels broke off: {answer.reason}")
        if isinstance(answer, Exception):
            raise answer


def warm_file(path: str) -> None:
    """Compile every kernel of a module for float64 and float32, for programs that import it: what a
    worker does. Those for CUDA devices are compiled for the one that is there; without one there is
    nothing to do."""
    name = import_name(Path(path))
    if not name:
        return
    interface = ModuleInterface(load_as(Path(path), name))
    if interface.target == "cuda":
        _warm_for_device(interface.module)
        return
    for real in (types.float64, types.float32):
        for kind in interface.kinds:
            _warm_kernel(interface.module, f"{kind}_kernel", *_types(interface, kind, real))
        if interface.parts:
            kind = interface.operator.removesuffix("_operator")
            given, _ = _types(interface, kind, real)
            filled = [types.Array(real, rank, "C") for rank in interface.parts]
            _warm_kernel(interface.module, f"{kind}_parts_kernel", given, filled)


def _warm_kernel(module: Any, name: str, given: Sequence[Any], filled: Sequence[Any]) -> None:
    """Compile a kernel, those for large results and many samples, and what lets threads share
    their work."""
    real = np.dtype(str(filled[0].dtype))
    arrays, counts = (*given, *filled), (types.int64, types.int64)
    words = addresses = types.Array(types.int64, 1, "C")
    for kernel in (getattr(module, f"{name}{end}", None) for end in ("", "_large", "_columns")):
        if kernel is None:
            continue
        kernel.compile(arrays)
        if hasattr(kernel, "share"):
            kernel.share.compile((*arrays, *counts))
        shared = module.generated.shared.get(kernel.__name__)
        if shared is not None:
            shared.prepare(real)
            first = (words, addresses, *counts, *arrays)
            more = shared.function.py_func.__code__.co_argcount - len(first)
            shared.function.compile((*first, *[types.int64] * more))
            shared_work = sys.modules[f"{module.__package__}.{FOLDER}.cpu.shared_work"]
            shared_work.worker_loop.compile((words,))


def _warm_for_device(module: Any) -> None:
    if not has_device():
        return
    for kernel, signature in module.KERNELS.values():
        for real in ("float64", "float32"):
            kernel.compile(eval(signature.replace("real", real), {}, vars(types)).args)


def _types(interface: ModuleInterface, kind: str, real: Any) -> tuple[list[Any], list[Any]]:
    """Numba's types of a kernel's arguments, and of the arrays that it fills."""
    sizes = dict.fromkeys(interface.size_names, 1)
    given = [entry.full(sizes) for entry in interface.inputs]
    if kind == "vjp":
        given.append(interface.shape("value", "", sizes))
    if kind in ("jvp", "hvp"):
        given += [entry.full(sizes) for entry in interface.wrt]
    filled = [interface.shape(kind, key, sizes) for key in interface.keys(kind)]
    numbers = [types.Array(real, len(shape), "C") if shape else real for shape in given]
    return numbers, [types.Array(real, len(shape), "C") for shape in filled]
