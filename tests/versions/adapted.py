"""Functions of a generated package through JAX, PyTorch, PyTensor and dask: `adapted.py PACKAGE`
compares values and VJPs at one point each with those of the modules. The script stands alone, as
environments with a user's packages, and without tests, run it."""

import sys
from types import ModuleType
from typing import Any

import dask.array
import jax
import numpy as np
import pytensor
import torch

import derivatrix.dask
import derivatrix.jax
import derivatrix.pytensor
import derivatrix.torch
from derivatrix.runtime import load_package, measure, sampling
from derivatrix.runtime.interface import ModuleInterface, Point

TOLERANCE = 1e-8


def by_jax(interface: ModuleInterface, point: Point) -> Any:
    function = jax.jit(derivatrix.jax.function(interface.module))
    wrt = [entry.name for entry in interface.wrt]

    def of_wrt(*arrays: Any) -> Any:
        return function(**{**point.values, **dict(zip(wrt, arrays, strict=True))})

    value, pullback = jax.vjp(of_wrt, *(point.values[name] for name in wrt))
    return value, *pullback(jax.numpy.asarray(point.cotangent))


def by_torch(interface: ModuleInterface, point: Point) -> Any:
    tensors = {name: torch.tensor(array) for name, array in point.values.items()}
    wrt = [tensors[entry.name].requires_grad_() for entry in interface.wrt]
    value = derivatrix.torch.operator(interface.module)(**tensors)
    cotangents = torch.autograd.grad(value, wrt, torch.tensor(point.cotangent))
    return value.detach(), *cotangents


def by_pytensor(interface: ModuleInterface, point: Point, mode: str) -> Any:
    arrays = point.values
    variables = {
        name: pytensor.tensor.tensor(shape=(None,) * array.ndim, dtype="float64")
        for name, array in arrays.items()
    }
    value = derivatrix.pytensor.operator(interface.module)(**variables)
    wrt = [variables[entry.name] for entry in interface.wrt]
    cotangents = pytensor.gradient.grad((value * point.cotangent).sum(), wrt)
    function = pytensor.function([*variables.values()], [value, *cotangents], mode=mode)
    return function(*arrays.values())


def by_dask(interface: ModuleInterface, point: Point) -> Any:
    chunked = [
        dask.array.from_array(point.values[entry.name], (1, *entry.core(point.sizes)))
        if entry.batched
        else point.values[entry.name]
        for entry in interface.inputs
    ]
    module = interface.module
    value = derivatrix.dask.map_samples(module.value, *chunked)
    cotangents = derivatrix.dask.map_samples(module.vjp, *chunked, point.cotangent)
    return dask.compute(value, *(cotangents if isinstance(cotangents, tuple) else [cotangents]))


def differing(module: ModuleType) -> list[str]:
    """List the packages whose results differ from the module's."""
    interface = ModuleInterface(module)
    sizes = sampling.assignments(interface, {})[0]
    point, _ = next(measure.defined(interface, sizes, np.random.default_rng(0)))
    kinds = ("value", "vjp")
    expected = [a for kind in kinds for a in interface.results(kind, point).values()]
    results = {
        "jax": by_jax(interface, point),
        "torch": by_torch(interface, point),
        "pytensor": by_pytensor(interface, point, "NUMBA"),
        "pytensor by jax": by_pytensor(interface, point, "JAX"),
    }
    if interface.batched:
        results["dask"] = by_dask(interface, point)
    return [
        package
        for package, arrays in results.items()
        if not all(
            np.abs(np.asarray(array) - wanted).max(initial=0)
            <= TOLERANCE * np.abs(wanted).max(initial=1e-300)
            for array, wanted in zip(arrays, expected, strict=True)
        )
    ]


def main(folder: str) -> int:
    """1 if results differ."""
    jax.config.update("jax_enable_x64", True)
    wrong = {name: differing(module) for name, module in load_package(folder).items()}
    print(*(f"{name}: {packages}" for name, packages in wrong.items() if packages), sep="\n")
    return int(any(wrong.values()))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
