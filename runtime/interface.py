"""The interface of a generated module: its inputs, its functions, their arguments and results."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from derivatrix.runtime import code
from derivatrix.runtime.errors import LoadError, UnsupportedError
from derivatrix.runtime.load import require_generated
from derivatrix.runtime.reference import Text
from derivatrix.runtime.syntax import parse_python

Sizes = Mapping[str, int]
Arrays = dict[str, np.ndarray]

BATCH = "batch"
"""The name of the size of the batch axis."""

KINDS = ("value", "vjp", "jvp", "jacobian")
SCALAR_KINDS = (*KINDS, "gradient", "value_and_gradient", "hessian", "hvp")


class CallError(Exception):
    """A function of a generated module raises, or breaks a rule of its interface."""


@dataclass(frozen=True)
class Input:
    """An entry of INPUTS. `shape` holds arithmetic texts of size names, without the batch axis."""

    name: str
    shape: tuple[str, ...]
    structure: str
    batched: bool
    wrt: bool
    domain: str

    @property
    def rank(self) -> int:
        """The number of axes, the batch axis included."""
        return len(self.shape) + self.batched

    def core(self, sizes: Sizes) -> tuple[int, ...]:
        """The shape of one sample."""
        return shape_at(self.shape, sizes)

    def full(self, sizes: Sizes) -> tuple[int, ...]:
        """The shape with the batch axis."""
        return ((sizes[BATCH],) if self.batched else ()) + self.core(sizes)


@dataclass(frozen=True)
class Point:
    """Arguments of a module's functions: `values` of its inputs, a tangent for each `wrt` input,
    and a cotangent of the output."""

    sizes: Sizes
    label: str
    values: Arrays
    tangents: Arrays
    cotangent: np.ndarray

    def mapped(self, change: Callable[[np.ndarray], np.ndarray]) -> Point:
        """Change all arrays of the point."""
        return replace(
            self,
            values={name: change(array) for name, array in self.values.items()},
            tangents={name: change(array) for name, array in self.tangents.items()},
            cotangent=change(self.cotangent),
        )


class ModuleInterface:
    """The public functions of a generated module, called by kind ("value", "vjp", ...).

    The arrays of a result have the keys of FORMULAS: "" for the value and the tangent of the
    output, an input's name for a derivative by that input, "A, b" for a block of a Hessian.

    output_name: the output that this interface is of, in a module with several outputs. It passes
    no cotangents of the other outputs, and returns the results of this one alone. Raises
    UnsupportedError if the name is missing for such a module.
    """

    def __init__(self, module: ModuleType, output_name: str = "") -> None:
        require_generated(module)
        self.module = module
        self.output_name = output_name
        self.output_names = output_names(module)
        self.name = Path(getattr(module, "__file__", None) or module.__name__).stem
        if self.output_names and not output_name:
            raise UnsupportedError(
                f"{self.name}: it has the outputs {', '.join(self.output_names)}, and one array is "
                "expected; declare a function for one of them"
            )
        try:
            self.inputs = tuple(
                Input(**{part.name: entry[part.name] for part in fields(Input)})
                for entry in module.INPUTS
            )
            entry = module.OUTPUT[output_name] if self.output_names else module.OUTPUT
            self.output: tuple[str, ...] = entry["shape"]
            self.batched: bool = entry["batched"]
            _ = self.size_names
        except (KeyError, SyntaxError, TypeError) as error:
            raise LoadError(f"{self.name}: INPUTS or OUTPUT cannot be read: {error}") from error
        declaration = dict if output_name else str
        for name, kind in (("FUNCTIONS", tuple), ("FORMULAS", dict), ("DECLARATION", declaration)):
            if not isinstance(getattr(module, name), kind):
                actual = type(getattr(module, name)).__name__
                raise LoadError(f"{self.name}: {name} is a {actual}, expected a {kind.__name__}")
        order = {name: position for position, name in enumerate(getattr(module, "WRT", ()))}
        self.wrt = tuple(
            sorted(
                (entry for entry in self.inputs if entry.wrt),
                key=lambda entry: order.get(entry.name, 0),
            )
        )
        self.possible_kinds = SCALAR_KINDS if self.has_gradient else KINDS
        self.kinds = tuple(kind for kind in self.possible_kinds if kind in module.FUNCTIONS)
        self.operator: str = getattr(module, "OPERATOR", "")
        self.requirements: tuple[str, ...] = getattr(module, "REQUIREMENTS", ())
        self.parts: tuple[int, ...] = getattr(module, "PARTS", ())
        self.target: str = getattr(module, "TARGET", "cpu")
        self.primal: str = getattr(module, "PRIMAL", "")
        # the value of a module with second derivatives is a JVP: its last inputs are tangents
        self.directions = self.inputs[-len(self.wrt) :] if self.primal else ()

    def require(self, *kinds: str) -> None:
        """Raise UnsupportedError if the module was built without one of the kinds."""
        for kind in kinds:
            if kind in self.possible_kinds and kind not in self.kinds:
                raise UnsupportedError(
                    f"{self.name}: this module was built without {kind}; add it to kinds= and "
                    "build it again"
                )

    @property
    def size_names(self) -> tuple[str, ...]:
        """The names of sizes in the shapes, in order of appearance, the batch last."""
        shapes = [entry.shape for entry in self.inputs] + [self.output]
        names = dict.fromkeys(name for shape in shapes for text in shape for name in names_in(text))
        batched = self.batched or any(entry.batched for entry in self.inputs)
        return (*(name for name in names if name != BATCH), *([BATCH] * batched))

    @property
    def has_gradient(self) -> bool:
        """True if the value is one number, or one for each sample."""
        return not self.output and not self.output_name

    @property
    def is_scalar(self) -> bool:
        """True if the value is one number."""
        return self.has_gradient and not self.batched

    def lead(self, sizes: Sizes) -> tuple[int, ...]:
        """The batch axis of the output: one size or none."""
        return (sizes[BATCH],) if self.batched else ()

    def keys(self, kind: str) -> tuple[str, ...]:
        """List the keys of the arrays that a function returns."""
        names = tuple(entry.name for entry in self.wrt)
        if kind in ("value", "jvp"):
            return ("",)
        if kind == "value_and_gradient":
            return ("", *names)
        if kind == "hessian":
            return tuple(f"{row}, {column}" for row in names for column in names)
        return names

    def shape(self, kind: str, key: str, sizes: Sizes) -> tuple[int, ...]:
        """Compute the shape of one of the arrays that a function returns."""
        lead, output = self.lead(sizes), shape_at(self.output, sizes)
        if key == "":
            return lead + output
        entries = [self.input(name) for name in key.split(", ")]
        if kind == "vjp":
            return entries[0].full(sizes)
        axes = tuple(size for entry in entries for size in entry.core(sizes))
        return lead + (output if kind == "jacobian" else ()) + axes

    def all_results(self, kind: str) -> list[tuple[ModuleInterface, str]]:
        """List the arrays that a function returns for all outputs, in the order of the kernel: the
        interface of an output, and a key."""
        interfaces = self._interfaces(kind)
        return [(interface, key) for interface in interfaces for key in interface.keys(kind)]

    def by_output(self, kind: str, result: Any) -> list[dict[str, Any]]:
        """Flatten the result of a function to a dict for each output, of a VJP to a single dict."""
        return [interface.by_key(kind, result) for interface in self._interfaces(kind)]

    def _interfaces(self, kind: str) -> list[ModuleInterface]:
        """The interfaces of a function's parts: one for each output, or one for all of them."""
        return [self] if kind == "vjp" else self.outputs

    def has_batch(self, kind: str, key: str) -> bool:
        """Return whether one of the arrays that a function returns has batch axes. The cotangent of
        an input without them is a sum over the samples, and has none."""
        return self.batched and (kind != "vjp" or self.input(key).batched)

    def input(self, name: str) -> Input:
        return next(entry for entry in self.inputs if entry.name == name)

    @cached_property
    def float32_kinds(self) -> tuple[str, ...]:
        """The kinds to test in float32, too."""
        functions = {kind: getattr(self.module, kind, None) for kind in self.kinds}
        return code.kinds_to_test_in_float32(functions)

    @property
    def declaration(self) -> str:
        """The NumPy text of the value."""
        texts = self.module.DECLARATION
        return str(texts[self.output_name] if self.output_name else texts)

    @cached_property
    def _declaration(self) -> Text:
        return Text(self.declaration)

    def formula(self, kind: str, key: str) -> str:
        """Return the NumPy text in FORMULAS for one of the arrays of a result; "" if absent."""
        if self.output_name and kind != "vjp":
            key = ", ".join(filter(None, (self.output_name, key)))
        return str(self.module.FORMULAS.get(kind, {}).get(key, {}).get("numpy", ""))

    @cached_property
    def outputs(self) -> list[ModuleInterface]:
        """The interfaces of all outputs, in order."""
        return [
            self if name == self.output_name else ModuleInterface(self.module, name)
            for name in self.output_names or ("",)
        ]

    def declared_value(self, point: Point) -> np.ndarray:
        """Evaluate the declaration's NumPy text at a point. Raises OutOfDomain where it has no
        value, BrokenText where it cannot be evaluated."""
        shape = self.shape("value", "", point.sizes)
        return self._declaration({**point.sizes, **point.values}, shape)

    def overflows(self, point: Point) -> bool:
        """Return whether the declaration's NumPy text overflows on the way to its value."""
        return self._declaration.overflows({**point.sizes, **point.values})

    def arguments(self, kind: str) -> dict[str, Input]:
        """List the arguments of a function, by name: the inputs, then the cotangent of the output,
        or a tangent of each `wrt` input, described like that input."""
        arguments = {entry.name: entry for entry in self.inputs}
        if kind == "vjp":
            for interface in self.outputs:
                name = interface.cotangent_name
                shape, batched = interface.output, interface.batched
                arguments[name] = Input(name, shape, "general", batched, False, "general")
        if kind in ("jvp", "hvp"):
            arguments |= {self.tangent_name(entry): entry for entry in self.wrt}
        return arguments

    def grouped(self, kind: str, arguments: Sequence[Any]) -> list[Any]:
        """Group arguments as the public function takes them: the cotangents of several outputs are
        one tuple."""
        if kind != "vjp" or not self.output_names:
            return [*arguments]
        count = len(self.inputs)
        return [*arguments[:count], tuple(arguments[count:])]

    def packed_value(self, arrays: Sequence[Any]) -> Any:
        """Nest the arrays of all outputs as `value` returns them."""
        return self.module.Value(*arrays) if self.output_names else arrays[0]

    def tangent_name(self, entry: Input) -> str:
        """Return the name of the argument that is the tangent of an input."""
        return "tangent" if len(self.wrt) == 1 else f"tangent_{entry.name}"

    @property
    def cotangent_name(self) -> str:
        """The name of the kernel's argument that is the cotangent of the output."""
        return f"cotangent_{self.output_name}" if self.output_name else "cotangent"

    def extras(self, kind: str, point: Point) -> Arrays:
        """Return the arguments of a kernel after the inputs, by name."""
        if kind == "vjp":
            return {
                interface.cotangent_name: point.cotangent
                if interface is self
                else np.zeros(interface.shape("value", "", point.sizes))
                for interface in self.outputs
            }
        if kind not in ("jvp", "hvp"):
            return {}
        return {self.tangent_name(entry): point.tangents[entry.name] for entry in self.wrt}

    def results(
        self,
        kind: str,
        point: Point,
        out: object = None,
        dtypes: tuple[type[np.floating], ...] = (np.float64,),
    ) -> Arrays:
        """Call the module's function at a point, and return its arrays by key.

        Raises CallError if it raises or changes an argument, or if its result has wrong shapes,
        dtypes or nesting, or shares memory with an argument."""
        arguments = {**point.values, **self.extras(kind, point)}
        passed = {name: _copy_if_writeable(array) for name, array in arguments.items()}
        options = {} if out is None else {"out": out}
        values = self._positional(kind, passed)
        result = attempt(lambda: getattr(self.module, kind)(*values, **options))
        arrays = self.by_key(kind, result)
        for key, array in arrays.items():
            _check_array(array, self.shape(kind, key, point.sizes), dtypes)
        for name, array in passed.items():
            if not np.array_equal(array, arguments[name]):
                raise CallError(f"changes its argument {name}")
            if any(np.may_share_memory(array, part) for part in arrays.values()):
                raise CallError(f"returns the memory of its argument {name}")
        return {key: np.asarray(array) for key, array in arrays.items()}

    def call(self, kind: str, arguments: Arrays) -> Arrays:
        """Call the module's function, and return its arrays by key. Raises CallError if it raises
        or its result has wrong nesting."""
        values = self._positional(kind, arguments)
        result = attempt(lambda: getattr(self.module, kind)(*values))
        return {key: np.asarray(array) for key, array in self.by_key(kind, result).items()}

    def _positional(self, kind: str, arguments: Arrays) -> list[Any]:
        """List the arguments of a public function: None for the cotangents of other outputs."""
        values: list[Any] = [*arguments.values()]
        if kind != "vjp" or not self.output_name:
            return values
        cotangent = arguments[self.cotangent_name]
        cotangents = tuple(cotangent if part is self else None for part in self.outputs)
        return [*values[: len(self.inputs)], cotangents]

    def filled(self, kind: str, point: Point) -> Arrays:
        """Call the module's kernel at a point with float64 arrays to fill, and return these by key.

        Raises CallError if there is no kernel or it raises."""
        interfaces = self._interfaces(kind)
        arrays = [interface.unfilled(kind, point.sizes) for interface in interfaces]
        arguments = {**point.values, **self.extras(kind, point)}
        passed = [np.ascontiguousarray(a) if a.ndim else float(a) for a in arguments.values()]
        passed += [array for part in arrays for array in part.values()]
        attempt(lambda: getattr(self.module, f"{kind}_kernel")(*passed))
        return arrays[interfaces.index(self)]

    def unfilled(self, kind: str, sizes: Sizes) -> Arrays:
        """Make arrays of nan for the results of a function, by key."""
        return {key: np.full(self.shape(kind, key, sizes), np.nan) for key in self.keys(kind)}

    def operators(self, point: Point) -> dict[str, Any]:
        """Call the module's function named OPERATOR at a point, and return its operators by key.

        Raises CallError if it raises or its result has wrong nesting."""
        values = [_copy_if_writeable(array) for array in point.values.values()]
        result = attempt(lambda: getattr(self.module, self.operator)(*values))
        return self.by_key(self.operator.removesuffix("_operator"), result)

    def by_key(self, kind: str, result: Any) -> dict[str, Any]:
        """Flatten the result of a function to a dict; raises CallError for a wrong nesting."""
        if self.output_name and kind != "vjp":
            _require_fields(result, self.output_names)
            result = getattr(result, self.output_name)
        if kind == "value_and_gradient":
            _require(isinstance(result, tuple) and len(result) == 2, "a tuple (value, gradient)")
            return {"": result[0], **self._named(result[1])}
        if kind in ("value", "jvp"):
            return {"": result}
        if kind != "hessian":
            return self._named(result)
        rows = {row: self._named(part) for row, part in self._named(result).items()}
        return {f"{row}, {column}": part[column] for row, part in rows.items() for column in part}

    def packed(self, kind: str, arrays: Mapping[str, Any], sizes: Sizes) -> Any:
        """Nest arrays by key as `out=` takes them, as results are nested, with new arrays for other
        outputs."""
        if not self.output_name or kind == "vjp":
            return self._packed(kind, arrays)
        others = {part: part.unfilled(kind, sizes) for part in self.outputs if part is not self}
        return tuple(part._packed(kind, others.get(part, arrays)) for part in self.outputs)

    def _packed(self, kind: str, arrays: Mapping[str, Any]) -> Any:
        names = [entry.name for entry in self.wrt]
        if kind in ("value", "jvp"):
            return arrays[""]
        if kind == "hessian":
            rows = [_unwrap([arrays[f"{row}, {column}"] for column in names]) for row in names]
            return _unwrap(rows)
        parts = _unwrap([arrays[name] for name in names])
        return (arrays[""], parts) if kind == "value_and_gradient" else parts

    def _named(self, result: Any) -> dict[str, Any]:
        names = tuple(entry.name for entry in self.wrt)
        if len(names) == 1:
            _require(not isinstance(result, tuple), "an array")
            return {names[0]: result}
        _require_fields(result, names)
        return dict(zip(names, result, strict=True))


def output_names(module: ModuleType) -> tuple[str, ...]:
    """Return the names of a module's outputs; () where it returns an array."""
    entries = module.OUTPUT if isinstance(module.OUTPUT, Mapping) else {}
    return tuple(name for name, entry in entries.items() if isinstance(entry, Mapping))


def interface_of(module: ModuleType) -> ModuleInterface:
    """Return the interface of a module; of several outputs that of the first, whose `outputs` has
    all of them."""
    require_generated(module)
    return ModuleInterface(module, next(iter(output_names(module)), ""))


def interfaces(module: ModuleType) -> list[ModuleInterface]:
    """Return the interface of each output of a module."""
    return interface_of(module).outputs


def attempt(function: Callable[[], Any]) -> Any:
    """Call a function of a generated module; raises CallError for any error."""
    try:
        return function()
    except Exception as error:  # a wrong module may raise anything, and so may Numba
        raise CallError(f"raises {type(error).__name__}: {error}") from error


def shape_at(shape: Sequence[str], sizes: Sizes) -> tuple[int, ...]:
    """Evaluate a shape of arithmetic texts. Sizes that are symbols of a tracer give symbols."""
    scope: dict[str, Any] = {"__builtins__": {}, "min": min, **sizes}
    lengths = [eval(text, scope) for text in shape]
    return tuple(length if hasattr(length, "__index__") else int(length) for length in lengths)


def names_in(text: str) -> list[str]:
    """List the names of sizes in an arithmetic text."""
    names = [node.id for node in ast.walk(parse_python(text)) if isinstance(node, ast.Name)]
    return [name for name in names if name != "min"]


def _unwrap(parts: list[Any]) -> Any:
    return parts[0] if len(parts) == 1 else tuple(parts)


def _require(condition: bool, expected: str) -> None:
    if not condition:
        raise CallError(f"does not return {expected}")


def _require_fields(result: Any, names: tuple[str, ...]) -> None:
    fields = getattr(result, "_fields", None)
    _require(fields == names, f"a named tuple with the fields {', '.join(names)}")


def _copy_if_writeable(array: np.ndarray) -> np.ndarray:
    return array.copy() if array.flags.writeable else array


def _check_array(array: Any, shape: tuple[int, ...], dtypes: tuple[type[np.floating], ...]) -> None:
    """Raise CallError unless an array, or a number for rank 0, has the shape and one dtype."""
    if not isinstance(array, np.ndarray) and (shape or not isinstance(array, (float, np.generic))):
        raise CallError(f"returns {type(array).__name__} where an array is expected")
    array = np.asarray(array)
    if array.shape != shape:
        raise CallError(f"returns an array of shape {array.shape}, expected {shape}")
    if array.dtype not in dtypes:
        expected = " or ".join(dtype.__name__ for dtype in dtypes)
        raise CallError(f"returns an array of {array.dtype}, expected {expected}")
