"""The time of a module's gradient or VJP against NumPy's and JAX's, over sizes."""

from __future__ import annotations

import importlib
import importlib.util
import math
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from types import CodeType, ModuleType
from typing import Any

import numpy as np

from derivatrix.compiler.driver.build import compile as compile_module
from derivatrix.compiler.frontends.function import Function
from derivatrix.runtime.interface import Arrays, ModuleInterface, Point
from derivatrix.runtime.sampling import draws, meets

SIZES = (2, 4, 8, 16, 32, 64, 128, 256, 512)
LONGEST = 0.3
"""Seconds of a call after which no larger sizes are tried."""
SPENT = 0.1
"""Seconds for which a call is repeated."""
MOST = 4_000_000
"""The most entries of an input or of the value."""

Call = Callable[[], Any]
Maker = Callable[[Point], Call]


@dataclass
class Curve:
    """The seconds of a call by the size n; a note says why there are no more of them."""

    name: str
    title: str
    times: dict[int, float] = field(default_factory=dict)
    note: str = ""


def measured(function: Function) -> Iterator[str | list[Curve]]:
    """What is measured, and each time the curves so far."""
    yield "Compiling the kernels"
    module = compile_module(function)
    interface = ModuleInterface(module)
    kind = "gradient" if "gradient" in interface.kinds else "vjp"
    curves = [Curve("ours", "derivatrix"), Curve("numpy", "NumPy")]
    makers: list[Maker] = [_ours(interface, kind), _numpy(module, kind)]
    if importlib.util.find_spec("jax") is not None:
        curves.append(Curve("jax", "JAX"))
        makers.append(_jax(interface, module.DECLARATION))
    for size in SIZES if interface.size_names else (1,):
        point = _point(interface, size)
        if point is None:
            continue
        for curve, make in zip(curves, makers, strict=True):
            if curve.note:
                continue
            yield f"{curve.title} at n = {size}"
            try:
                curve.times[size] = _seconds(make(point))
            except UNKNOWN as error:
                curve.note = f"{curve.title} cannot: {type(error).__name__}"
                continue
            if curve.times[size] > LONGEST:
                curve.note = "too slow for larger ones"
            yield curves


UNKNOWN = (ArithmeticError, AttributeError, NotImplementedError, TypeError, ValueError)
"""What another program raises where it lacks a function or its derivative."""


def _point(interface: ModuleInterface, size: int) -> Point | None:
    """A point with all sizes alike; none where there is none, or its arrays are too large."""
    sizes = dict.fromkeys(interface.size_names, size)
    if not meets(sizes, interface.requirements):
        return None
    shapes = [entry.full(sizes) for entry in interface.inputs] + [
        interface.shape("value", "", sizes)
    ]
    if min(min(shape, default=1) for shape in shapes) < 1 or max(map(math.prod, shapes)) > MOST:
        return None
    return next(draws(interface, sizes, np.random.default_rng(0)))


def _ours(interface: ModuleInterface, kind: str) -> Maker:
    def make(point: Point) -> Call:
        arguments = [*point.values.values(), *interface.extras(kind, point).values()]
        function = getattr(interface.module, kind)
        return lambda: function(*arguments)

    return make


def _numpy(module: ModuleType, kind: str) -> Maker:
    """The closed form as NumPy's text, which the compiler has written."""
    import scipy

    styles = module.FORMULAS[kind].values()
    codes = [_code(own["numpy"]) for own in styles]

    def make(point: Point) -> Call:
        scope = {
            "np": np,
            "scipy": scipy,
            **_numbers(point.values),
            "cotangent": point.cotangent[()],
        }
        return lambda: [eval(code, scope) for code in codes]

    return make


def _jax(interface: ModuleInterface, declaration: str) -> Maker:
    """What JAX makes of the declaration's text, compiled, in float64."""
    jax = importlib.import_module("jax")
    importlib.import_module("jax.scipy.linalg")
    jax.config.update("jax_enable_x64", True)
    code = _code(declaration)
    names = [entry.name for entry in interface.wrt]

    def value(chosen: Arrays, values: Mapping[str, Any]) -> Any:
        scope = {"np": jax.numpy, "scipy": jax.scipy, **values, **chosen}
        return jax.numpy.asarray(eval(code, scope))

    def pulled(values: Arrays, cotangent: Any) -> Any:
        chosen = {name: values[name] for name in names}
        return jax.vjp(lambda own: value(own, values), chosen)[1](cotangent)[0]

    compiled = jax.jit(pulled)

    def make(point: Point) -> Call:
        values = {name: jax.numpy.asarray(array) for name, array in point.values.items()}
        scalar = not interface.output
        cotangent = jax.numpy.asarray(np.ones(()) if scalar else point.cotangent)
        return lambda: jax.block_until_ready(compiled(values, cotangent))

    return make


def _numbers(values: Mapping[str, np.ndarray]) -> dict[str, Any]:
    return {name: array[()] for name, array in values.items()}


def _code(text: str) -> CodeType:
    return compile(f"(\n{text}\n)", "<formula>", "eval")


def _seconds(call: Call) -> float:
    """The time of the quickest of some calls, after one that compiles."""
    with np.errstate(all="ignore"):
        call()
        best, begin = math.inf, time.perf_counter()
        while time.perf_counter() - begin < SPENT:
            start = time.perf_counter()
            call()
            best = min(best, time.perf_counter() - start)
    return best
