"""Faults planted in the public functions of generated modules, and how many of them verification
notices: `python -m tests.faults` prints the table, `--every N` of each Nth fault only.

A fault is what is done to the results, and when: always, or only in some calls.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any, NamedTuple
from unittest import mock

import numpy as np

import derivatrix as dx
from derivatrix import runtime
from derivatrix.compiler.frontends.function_file import load_functions
from derivatrix.runtime.interface import ModuleInterface
from tests import ROOT

EXAMPLES = ROOT / "examples"


class Call(NamedTuple):
    """A call of a function: its arguments."""

    arrays: dict[str, np.ndarray]
    out: Any
    number: int


class Fault(NamedTuple):
    """Results are altered in the calls that `when` says."""

    alter: Callable[[np.ndarray], np.ndarray]
    when: Callable[[Call], bool]


def _entry(array: np.ndarray) -> np.ndarray:
    changed = array.copy()
    if changed.size:
        changed.flat[changed.size // 2] += 1e-4 * (np.abs(array).max() or 1)
    return changed


def _shift(array: np.ndarray) -> np.ndarray:
    return array + 1e-3 * (1 + np.abs(array))


def _always(call: Call) -> bool:
    return True


def _float32(call: Call) -> bool:
    return all(array.dtype == np.float32 for array in call.arrays.values() if array.ndim)


def _equal_rows(array: np.ndarray) -> bool:
    return array.ndim > 0 and len(array) > 1 and bool((array == array[:1]).all()) and array.any()


USUAL = {
    "sign": Fault(lambda array: -array, _always),
    "factor 1 + 1e-6": Fault(lambda array: array * (1 + 1e-6), _always),
    "factor 1 - 1e-6": Fault(lambda array: array * (1 - 1e-6), _always),
    "one entry": Fault(_entry, _always),
    "float32 only": Fault(lambda array: array * 1.01, _float32),
    "out= only": Fault(_shift, lambda call: call.out is not None),
    "second call only": Fault(_shift, lambda call: call.number == 1),
}


def _of_input(name: str, test: Callable[[np.ndarray], bool]) -> Fault:
    return Fault(_shift, lambda call: test(call.arrays[name]))


def _of_size(name: str, axis: int, test: Callable[[int], bool]) -> Fault:
    return Fault(_shift, lambda call: test(call.arrays[name].shape[axis]))


def faults(interface: ModuleInterface) -> Iterator[tuple[str, Fault]]:
    """Every fault for a module, with the class it belongs to."""
    yield from USUAL.items()
    for name in interface.size_names:
        axes = [
            (entry.name, axis)
            for entry in interface.inputs
            for axis, text in enumerate(("batch",) * entry.batched + entry.shape)
            if text == name
        ]
        for which, axis in axes[:1]:
            for least in (16, 32, 64):
                yield f"size > {least}", _of_size(which, axis, lambda n, k=least: n > k)
            yield "size 1 only", _of_size(which, axis, lambda n: n == 1)
    for entry in interface.inputs:
        if entry.structure == "general" and not entry.domain:
            yield "all zero", _of_input(entry.name, lambda array: not array.any())
            yield "all ones", _of_input(entry.name, lambda array: bool((array == 1).all()))
            yield "large entry", _of_input(entry.name, lambda array: array.max(initial=0) > 1e3)
            yield (
                "large negative entry",
                _of_input(entry.name, lambda array: array.min(initial=0) < -1e3),
            )
            if entry.shape:
                yield "equal rows", _of_input(entry.name, _equal_rows)


@contextmanager
def planted(module: ModuleType, kind: str, fault: Fault) -> Iterator[None]:
    """The module with a fault in one of its functions."""
    function = getattr(module, kind)
    interface = ModuleInterface(module)
    calls: dict[bytes, int] = {}

    def wrong(*arguments: Any, out: Any = None) -> Any:
        result = function(*arguments, out=out)
        names = interface.arguments(kind)
        arrays = dict(zip(names, map(np.asarray, arguments), strict=False))
        key = b"".join(array.tobytes() for array in map(np.asarray, arguments))
        call = Call(arrays, out, calls.get(key, 0))
        calls[key] = call.number + 1
        return _altered(result, fault.alter) if fault.when(call) else result

    with mock.patch.object(module, kind, wrong):
        yield


def _altered(result: Any, alter: Callable[[np.ndarray], np.ndarray]) -> Any:
    if isinstance(result, tuple):
        parts = [_altered(part, alter) for part in result]
        return type(result)(*parts) if hasattr(result, "_fields") else tuple(parts)
    if isinstance(result, np.ndarray) and result.flags.writeable:
        result[...] = alter(result)
        return result
    return type(result)(alter(np.asarray(result)))


def caught(module: ModuleType, kind: str, fault: Fault) -> bool:
    """Return whether verification notices the fault."""
    with planted(module, kind, fault):
        return not runtime.verify(module).passed


def functions() -> list[dx.Function]:
    """The functions to plant faults in: of the examples; with factorisations; with a batch."""
    result = [
        function
        for name in ("square", "elementwise_product", "classifier", "equation")
        for function in load_functions(EXAMPLES / f"{name}.py")
    ]
    n, m = dx.dims("n m")
    A, S, b = dx.matrix("A", n, n), dx.matrix("S", n, n, "spd"), dx.vector("b", n)
    x, W = dx.vector("x", m), dx.matrix("W", n, m)
    return [
        *result,
        dx.function("nll", [S, A], dx.logdet(S) + dx.trace(dx.inv(S) @ A), wrt=["S"]),
        dx.function("solved", [S, b], dx.solve(S, b)),
        dx.function("layer", [x, W], dx.sum(dx.tanh(W @ x)), batch=["x"]),
    ]


def table(every: int, seed: int = 0) -> dict[str, tuple[int, int]]:
    """Count, for each class of faults, the noticed ones and all that were planted."""
    counts: dict[str, list[int]] = {}
    number = seed
    for function in functions():
        module = dx.compile(function)
        interface = ModuleInterface(module)
        for label, fault in faults(interface):
            for kind in interface.kinds:
                number += 1
                if number % every == 0:
                    count = counts.setdefault(label, [0, 0])
                    noticed = caught(module, kind, fault)
                    count[0] += noticed
                    count[1] += 1
                    if not noticed:
                        print(f"missed: {label} in {function.name}.{kind}", flush=True)
    return {label: (count[0], count[1]) for label, count in counts.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--every", type=int, default=1, help="try each Nth fault only")
    options = parser.parse_args()
    for label, (noticed, tried) in table(options.every).items():
        print(f"{label:24} {noticed} of {tried}")


if __name__ == "__main__":
    main()
