"""Loops over time, for `scan` and the text notation: their steps, called once with symbols."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from itertools import count
from typing import Any

import numpy as np

from derivatrix.compiler.differentiate.recurrence import distinct, last_state, run_loop
from derivatrix.compiler.differentiate.segments import run_segments
from derivatrix.compiler.differentiate.singular_lengths import singular_lengths
from derivatrix.compiler.ir.arrays import Array, asarray
from derivatrix.compiler.ir.dimensions import Dimension, dimension, shape_text
from derivatrix.compiler.ir.identifiers import require_variable
from derivatrix.compiler.ir.nodes import Leaf, leaves
from derivatrix.compiler.ir.resize import rename
from derivatrix.compiler.ir.shown import shown
from derivatrix.compiler.simplify import simplify
from derivatrix.runtime.errors import (
    DeclarationError,
    DerivatrixError,
    NotationError,
    ShapeError,
)

MAX_SEGMENT_STEPS = 2**31 - 1

_scan_numbers = count()
"""Numbers of scans: the placeholders of each are its own."""
_open_scans: list[str] = []
"""The beginnings of the names of placeholders of the scans whose step is being called."""


def run_scan(
    step: Callable[[Any, Any], tuple[Any, Any]],
    init: Any,
    xs: Any,
    length: Any,
    reverse: bool,
    checkpoint: Any = None,
) -> tuple[Any, list[Array], Any]:
    """Loop as `scan` does. Return the carry after the last step; the states (T + 1, ...) of its
    arrays, which begin with the first carry, or end if reversed, none with a checkpoint; and the
    stacked outputs."""
    title = getattr(step, "__name__", "step")
    if not isinstance(reverse, bool | np.bool_):
        raise DeclarationError(f"scan: reverse of {title} is True or False, not {shown(reverse)}")
    reverse = bool(reverse)
    segment_steps = None if checkpoint is None else _segment_steps(title, checkpoint)
    carry_name, x_name = _parameter_names(step)
    starts = Arrays(f"scan: init of {title}", carry_name, init)
    sources = Arrays(f"scan: xs of {title}", x_name, xs)
    steps = _step_count(title, sources, length)
    names = distinct(starts.names + sources.names)
    prefix = f"_scan{next(_scan_numbers)}_"
    shapes = [array.node.shape for array in starts.arrays]
    shapes += [array.node.shape[1:] for array in sources.arrays]
    symbols = [
        Leaf(prefix + name, shape, role="placeholder")
        for name, shape in zip(names, shapes, strict=True)
    ]
    carries, slices = symbols[: len(starts.arrays)], symbols[len(starts.arrays) :]
    carry, x = starts.like(map(Array, carries)), sources.like(map(Array, slices))
    next_carry, y = _call_step(title, prefix, step, carry, x)
    next_carry = _in_order(next_carry, starts.structure)
    following = Arrays(f"scan: the carry that {title} returns", carry_name, next_carry)
    outputs = Arrays(f"scan: the output of {title}", "y", y)
    _refuse_changed_carry(starts, following)
    nodes = [array.node for array in (*following.arrays, *outputs.arrays)]
    free = [leaf for leaf in leaves(nodes) if leaf not in symbols]
    _refuse_closed_scans(title, free)
    # names that the next run of the program has, too; operations of the step may hold them
    final = {
        leaf.name: f"_{name}_{len(_open_scans)}" for leaf, name in zip(symbols, names, strict=True)
    }
    nodes = simplify([rename(node, final) for node in nodes])
    carries, slices = (
        [Leaf(final[leaf.name], leaf.shape, role="placeholder") for leaf in group]
        for group in (carries, slices)
    )
    carry_nodes, output_nodes = nodes[: len(carries)], nodes[len(carries) :]
    loop = {
        "carries": dict(zip(carries, starts.arrays, strict=True)),
        "slices": dict(zip(slices, sources.arrays, strict=True)),
        "parameters": {leaf: Array(leaf) for leaf in free},
        "following": carry_nodes,
        "outputs": output_nodes,
        "length": steps,
        "is_reversed": reverse,
        "singular": singular_lengths(carry_nodes),
        "names": {leaf: symbol_name(leaf) for leaf in free}
        | dict(zip((*carries, *slices), names, strict=True)),
    }
    states: list[Array] = []
    if segment_steps is None or not carries:
        states, stacked = run_loop(**loop)
        last = [last_state(array, reverse) for array in states]
    else:
        last, stacked = run_segments(**loop, steps=segment_steps)
    return starts.like(last), states, outputs.like(stacked)


def _call_step(
    title: str, prefix: str, step: Callable[[Any, Any], Any], carry: Any, x: Any
) -> tuple[Any, Any]:
    """Return the next carry and the output of a step. Errors name the step, without the prefix of
    the placeholders."""
    _open_scans.append(prefix)
    try:
        result = step(carry, x)
    except NotationError:
        raise
    except DerivatrixError as error:
        message = str(error).replace(prefix, "").removeprefix("scan: ")
        raise type(error)(f"scan: {title}: {message}") from error
    finally:
        _open_scans.pop()
    if not isinstance(result, tuple) or len(result) != 2:
        text = shown(result).replace(prefix, "")
        raise DeclarationError(f"scan: {title} returns {text}, no pair (carry, y); y may be None")
    return result


class Arrays:
    """The arrays of a carry, an x or a y: one, or several in tuples and mappings, or none.

    place: for messages. names: of the arrays, in formulas and messages. structure: the value with
    "array" in the place of each array.
    """

    def __init__(self, place: str, name: str, value: Any) -> None:
        self.place = place
        self.arrays: list[Array] = []
        self.names: list[str] = []
        self.structure = self._collect(name, value)

    def _collect(self, name: str, value: Any) -> Any:
        """Append the arrays of a value and their names to the lists; return its structure."""
        if value is None:
            return None
        if isinstance(value, Mapping):
            return {key: self._collect(str(key), part) for key, part in value.items()}
        if isinstance(value, tuple):
            fields = getattr(value, "_fields", None)
            names = fields or [_name_of(part, f"{name}{n}") for n, part in enumerate(value, 1)]
            parts = [self._collect(*pair) for pair in zip(names, value, strict=True)]
            return type(value)(*parts) if fields else tuple(parts)
        if isinstance(value, list) and any(isinstance(part, Array) for part in value):
            raise DeclarationError(f"{self.place}: {name} is a list; write a tuple of arrays")
        try:
            self.arrays.append(asarray(value))
        except DerivatrixError as error:
            raise type(error)(f"{self.place}: {name}: {error}") from error
        self.names.append(name)
        return "array"

    def like(self, arrays: Iterable[Array]) -> Any:
        """Put other arrays into the same structure."""
        remaining = iter(arrays)

        def fill(structure: Any) -> Any:
            match structure:
                case None:
                    return None
                case dict():
                    return {key: fill(part) for key, part in structure.items()}
                case tuple():
                    parts = tuple(map(fill, structure))
                    return type(structure)(*parts) if hasattr(structure, "_fields") else parts
            return next(remaining)

        return fill(self.structure)


def _in_order(value: Any, structure: Any) -> Any:
    """Put the keys of mappings in a value into the order that they have in a structure."""
    if isinstance(structure, dict) and isinstance(value, Mapping):
        if value.keys() == structure.keys():
            return {key: _in_order(value[key], part) for key, part in structure.items()}
    elif isinstance(structure, tuple) and isinstance(value, tuple):
        parts = [_in_order(*pair) for pair in zip(value, structure, strict=False)]
        parts += value[len(parts) :]
        return type(value)(*parts) if hasattr(value, "_fields") else tuple(parts)
    return value


def _parameter_names(step: Callable[..., Any]) -> tuple[str, str]:
    """Return the names of the carry and of x: those of the parameters of `step`."""
    try:
        signature = inspect.signature(step)
    except (TypeError, ValueError) as error:
        raise DeclarationError(f"scan: step is a function, not {shown(step)}") from error
    try:
        names = [*signature.bind(None, None).arguments]
    except TypeError as error:
        raise DeclarationError(
            f"scan: step is a function of two arguments, the carry and x; it has {signature}"
        ) from error
    carry, x = (name.strip("_") or letter for name, letter in zip((*names, ""), "hx", strict=False))
    return carry, x


def _name_of(value: Any, default: str) -> str:
    """Return the name of a carry that starts as `value`: "P" for the input P0."""
    leaf = getattr(value, "node", None)
    return (leaf.name.rstrip("0123456789_") or default) if isinstance(leaf, Leaf) else default


def _step_count(title: str, sources: Arrays, length: Any) -> Dimension:
    """Return the number of steps. Raises DeclarationError if it is missing or negative, ShapeError
    if lengths differ."""
    lengths: dict[str, Dimension] = {}
    if length is not None:
        lengths["length"] = dimension(length, f"scan: length of {title}")
    for name, array in zip(sources.names, sources.arrays, strict=True):
        if not array.ndim:
            raise ShapeError(f"{sources.place}: {name} is a scalar; it has no axis to loop over")
        lengths[name] = array.node.shape[0]
    if not lengths:
        raise DeclarationError(
            f"scan: {title} has neither xs nor a length; give one, as in scan(step, init, length=T)"
        )
    if len(set(lengths.values())) > 1:
        text = ", ".join(f"{name} has {size}" for name, size in lengths.items())
        raise ShapeError(f"{sources.place}: the lengths differ: {text}")
    return next(iter(lengths.values()))


def _segment_steps(title: str, checkpoint: Any) -> int:
    """Return the number of steps of a segment. Raises DeclarationError unless it is positive and
    fits the integers of kernels."""
    is_integer = isinstance(checkpoint, int | np.integer) and not isinstance(checkpoint, bool)
    if not is_integer or not 1 <= checkpoint <= MAX_SEGMENT_STEPS:
        raise DeclarationError(
            f"scan: checkpoint of {title} is {shown(checkpoint)}; it is an integer from 1 to "
            f"{MAX_SEGMENT_STEPS}, the number of steps of a segment"
        )
    return int(checkpoint)


def _refuse_changed_carry(starts: Arrays, following: Arrays) -> None:
    """Raise DeclarationError if a step changes the structure of the carry, ShapeError if it changes
    a shape."""
    if starts.structure != following.structure:
        raise DeclarationError(
            f"{following.place}: it has another structure than init: {following.structure}, "
            f"expected {starts.structure}"
        )
    for name, start, array in zip(starts.names, starts.arrays, following.arrays, strict=True):
        if start.node.shape != array.node.shape:
            raise ShapeError(
                f"{following.place}: {name} has shape {shape_text(array.node.shape)}; init has "
                f"{shape_text(start.node.shape)}"
            )


def symbol_name(leaf: Leaf) -> str:
    """Return the name of a symbol, without the beginning that those of open scans have."""
    return leaf.name.split("_", 2)[-1] if leaf.role == "placeholder" else leaf.name


def require_symbol(leaf: Leaf, role: str) -> None:
    """Raise DeclarationError unless a symbol may be an input or an unknown, by its name and as no
    symbol of a scan's step."""
    if leaf.role == "placeholder":
        raise DeclarationError(
            f"{symbol_name(leaf)} is a symbol of the step of a scan, and cannot be {role}; "
            f"declare {role} with another name"
        )
    require_variable(leaf.name, role)


def _refuse_closed_scans(title: str, parameters: Iterable[Leaf]) -> None:
    """Raise DeclarationError for a symbol of the step of another scan, which is over."""
    for leaf in parameters:
        if leaf.role == "placeholder" and not any(
            leaf.name.startswith(prefix) for prefix in _open_scans
        ):
            raise DeclarationError(
                f"scan: {title} uses {symbol_name(leaf)}, a symbol that exists only "
                "within the step of another scan; return it from that step as an output"
            )
