"""Compilation of kernels ahead of their first call, with their machine code kept on disk.

Some machine code is kept under the name by which programs import the module
(docs/developers/architecture.md), so a build loads modules by that name.
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
from derivatrix.runtime.interface import ModuleInterface, interfaces
from derivatrix.runtime.load import import_name, load_as
from derivatrix.runtime.parallel import Announce, listing
from derivatrix.runtime.simulated import has_device
from derivatrix.runtime.support import FOLDER
from derivatrix.runtime.workers import Crash, Workers


def warm_files(files: Sequence[Path], workers: Workers, announce: Announce) -> None:
    """Compile every kernel of the generated modules in the files, in worker processes.

    Raises BuildError if a process crashes."""

    def announce_running(running: list[int], finished: int) -> None:
        announce(listing([files[i].stem for i in running], "compiling"), finished)

    paths = [os.fspath(path) for path in files]
    answers = workers.map(f"{__name__}:warm_file", paths, announce_running)
    for path, answer in zip(files, answers, strict=True):
        if isinstance(answer, Crash):
            raise BuildError(f"{path.stem}: compiling its kernels broke off: {answer.reason}")
        if isinstance(answer, Exception):
            raise answer


def warm_file(path: str) -> None:
    """Compile every kernel of a module for float64 and float32, for programs that import it: the
    task of a worker. Kernels for CUDA devices are compiled if there is a device."""
    name = import_name(Path(path))
    if not name:
        return
    interface, *others = interfaces(load_as(Path(path), name))
    if interface.target == "cuda":
        _warm_for_device(interface.module)
        return
    for real in (types.float64, types.float32):
        for kind in interface.kinds:
            arguments, results = _types(interface, kind, real)
            for other in others if kind != "vjp" else ():
                results += _types(other, kind, real)[1]
            _warm_kernel(interface.module, f"{kind}_kernel", arguments, results)
        if interface.parts:
            kind = interface.operator.removesuffix("_operator")
            arguments, _ = _types(interface, kind, real)
            results = [types.Array(real, rank, "C") for rank in interface.parts]
            _warm_kernel(interface.module, f"{kind}_parts_kernel", arguments, results)


def _warm_kernel(module: Any, name: str, arguments: Sequence[Any], results: Sequence[Any]) -> None:
    """Compile a kernel, and the functions by which threads share its work."""
    kernel, data = getattr(module, name), module.generated.data
    arrays = (*arguments, *results)
    kernel.compile(arrays)
    if share := getattr(module, f"{kernel.__name__}_share", None):
        share.compile((*arrays, types.int64, types.int64))
    for ending in ("parts", "batch_last"):
        if shared := data.get(f"_{kernel.__name__}_in_{ending}"):
            shared.kernel.compile(arrays)
            shared.prepare(np.dtype(str(results[0].dtype)))
            thread_pool = sys.modules[f"{module.__package__}.{FOLDER}.cpu.thread_pool"]
            words = types.Array(types.int64, 1, "C")
            thread_pool.worker_loop.compile((words,))
            thread_pool.submit.compile((words, types.int64, words, types.int64))
    sys.modules[f"{module.__package__}.{FOLDER}.internals.functions"].compile_deferred()


def _warm_for_device(module: Any) -> None:
    if not has_device():
        return
    for kernel, signature in module.KERNELS.values():
        for real in ("float64", "float32"):
            kernel.compile(eval(signature.replace("real", real), {}, vars(types)).args)


def _types(interface: ModuleInterface, kind: str, real: Any) -> tuple[list[Any], list[Any]]:
    """List Numba's types of a kernel's arguments, and of the arrays that it fills."""
    sizes = dict.fromkeys(interface.size_names, 1)
    ranks = [entry.rank for entry in interface.arguments(kind).values()]
    result_ranks = [len(interface.shape(kind, key, sizes)) for key in interface.keys(kind)]
    arguments = [types.Array(real, rank, "C") if rank else real for rank in ranks]
    return arguments, [types.Array(real, rank, "C") for rank in result_ranks]
