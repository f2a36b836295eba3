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
MAX_CALL_SECONDS = 0.3
"""Time of a call after which no larger sizes are tried."""
REPEAT_SECONDS = 0.1
"""Time for which a call is repeated."""
MAX_ENTRIES = 4_000_000
"""Most entries of an input or of the value."""

Call = Callable[[], Any]
Maker = Callable[[Point], Call]


@dataclass
class Curve:
    """Times of a call, in seconds, by the size n. `note`: the reason for missing sizes."""

    name: str
    title: str
    times: dict[int, float] = field(default_factory=dict)
    note: str = ""


def measurements(function: Function) -> Iterator[str | list[Curve]]:
    """Yield the steps of a measurement, and after each size the curves so far."""
    yield "Compiling the kernels"
    module = compile_module(function)
    interface = ModuleInterface(module)
    kind = "gradient" if "gradient" in interface.kinds else "vjp"
    curves = [Curve("ours", "derivatrix"), Curve("numpy", "NumPy")]
    makers: list[Maker] = [_derivatrix_call(interface, kind), _numpy_call(module, kind)]
    if importlib.util.find_spec("jax") is not None:
        curves.append(Curve("jax", "JAX"))
        makers.append(_jax_call(interface, module.DECLARATION))
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
            except UNSUPPORTED_ERRORS as error:
                curve.note = f"{curve.title} cannot: {type(error).__name__}"
                continue
            if curve.times[size] > MAX_CALL_SECONDS:
                curve.note = "too slow for larger ones"
            yield curves


UNSUPPORTED_ERRORS = (ArithmeticError, AttributeError, NotImplementedError, TypeError, ValueError)
"""Errors of another program that lacks a function or its derivative."""


def _point(interface: ModuleInterface, size: int) -> Point | None:
    """Draw a point with all sizes equal; None if these are not allowed, or arrays too large."""
    sizes = dict.fromkeys(interface.size_names, size)
    if not meets(sizes, interface.requirements):
        return None
    shapes = [entry.full(sizes) for entry in interface.inputs]
    shapes.append(interface.shape("value", "", sizes))
    has_empty_array = min(min(shape, default=1) for shape in shapes) < 1
    if has_empty_array or max(map(math.prod, shapes)) > MAX_ENTRIES:
        return None
    return next(draws(interface, sizes, np.random.default_rng(0)))


def _derivatrix_call(interface: ModuleInterface, kind: str) -> Maker:
    def make(point: Point) -> Call:
        arguments = [*point.values.values(), *interface.extras(kind, point).values()]
        function = getattr(interface.module, kind)
        return lambda: function(*arguments)

    return make


def _numpy_call(module: ModuleType, kind: str) -> Maker:
    """Evaluate the NumPy text of the derivative, which the compiler has written."""
    import scipy

    styles = module.FORMULAS[kind].values()
    codes = [_code(texts["numpy"]) for texts in styles]

    def make(point: Point) -> Call:
        scope = {
            "np": np,
            "scipy": scipy,
            **{name: array[()] for name, array in point.values.items()},
            "cotangent": point.cotangent[()],
        }
        return lambda: [eval(code, scope) for code in codes]

    return make


def _jax_call(interface: ModuleInterface, declaration: str) -> Maker:
    """Differentiate the declaration's text by JAX, compiled, in float64."""
    jax = importlib.import_module("jax")
    importlib.import_module("jax.scipy.linalg")
    jax.config.update("jax_enable_x64", True)
    code = _code(declaration)
    names = [entry.name for entry in interface.wrt]

    def value(wrt_values: Arrays, values: Mapping[str, Any]) -> Any:
        scope = {"np": jax.numpy, "scipy": jax.scipy, **values, **wrt_values}
        return jax.numpy.asarray(eval(code, scope))

    def vjp(values: Arrays, cotangent: Any) -> Any:
        wrt_values = {name: values[name] for name in names}
        pullback = jax.vjp(lambda arguments: value(arguments, values), wrt_values)[1]
        return pullback(cotangent)[0]

    compiled = jax.jit(vjp)

    def make(point: Point) -> Call:
        values = {name: jax.numpy.asarray(array) for name, array in point.values.items()}
        cotangent = jax.numpy.asarray(point.cotangent if interface.output else np.ones(()))
        return lambda: jax.block_until_ready(compiled(values, cotangent))

    return make


def _code(text: str) -> CodeType:
    return compile(f"(\n{text}\n)", "<formula>", "eval")


def _seconds(call: Call) -> float:
    """Return the time of the fastest of several calls, after one that may compile. Other programs
    only make calls slower, so that the fastest is the least disturbed."""
    with np.errstate(all="ignore"):
        call()
        fastest, begin = math.inf, time.perf_counter()
        while time.perf_counter() - begin < REPEAT_SECONDS:
            start = time.perf_counter()
            call()
            fastest = min(fastest, time.perf_counter() - start)
    return fastest
