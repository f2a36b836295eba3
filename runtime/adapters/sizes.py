"""Sizes of a function from the shapes of its arguments, and the type of its results."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import zip_longest
from math import prod
from typing import Any

from derivatrix.runtime.errors import ShapeError
from derivatrix.runtime.interface import BATCH, Input, ModuleInterface, names_in, shape_at
from derivatrix.templates.support.common.module import BATCH_AXES

Shapes = Mapping[str, Sequence[int]]


def sizes_of(interface: ModuleInterface, shapes: Shapes) -> dict[str, int]:
    """Map size names to numbers, given the shape of each input, with its batch axes if it has any;
    `BATCH` is the number of all samples.

    Raises ShapeError, which names the function, the input, and the actual and expected shape."""
    sizes = known_sizes(interface, shapes)
    for requirement in interface.requirements:
        if not eval(requirement, {}, sizes):
            raise ShapeError(f"{interface.name}: with {sizes}, it needs {requirement}")
    return sizes


def float_type(arrays: Iterable[Any]) -> str:
    """Return the type of results as modules choose it: "float32" if all arrays have it, or without
    arrays all numbers, else "float64"."""
    kinds = {(array.ndim > 0, str(array.dtype).removeprefix("torch.")) for array in arrays}
    names = {name for has_axes, name in kinds if has_axes} or {name for _, name in kinds}
    return "float32" if names == {"float32"} else "float64"


def known_sizes(interface: ModuleInterface, shapes: Shapes) -> dict[str, int]:
    """Return the sizes that follow from the shapes of some inputs. Raises ShapeError if these
    disagree."""
    sizes: dict[str, int] = {}
    axes: list[tuple[Input, str, int]] = []
    entries = {entry.name: entry for entry in interface.inputs if entry.name in shapes}
    for name, entry in entries.items():
        count = len(shapes[name]) - len(entry.shape)
        if count < 0 or (count > 0 and not entry.batched):
            raise _shape_error(interface, entry, shapes[name], sizes)
        core = zip(entry.shape, shapes[name][count:], strict=True)
        axes += [(entry, text, length) for text, length in core]
    for _, text, length in axes:
        if text.isidentifier():
            sizes.setdefault(text, length)
    size_count = -1
    while size_count < len(sizes):  # a new size may leave a single unknown one in an earlier text
        size_count = len(sizes)
        for _, text, length in axes:
            unknown = [name for name in names_in(text) if name not in sizes]
            if len(unknown) == 1:
                sizes |= _solved_size(text, unknown[0], length, sizes)
    for entry, text, length in axes:
        is_known = all(name in sizes for name in names_in(text))
        if is_known and shape_at((text,), sizes) != (length,):
            raise _shape_error(interface, entry, shapes[entry.name], sizes)
    if any(entry.batched for entry in entries.values()):
        sizes[BATCH] = prod(batch_axes(interface, entries, shapes))
    return sizes


def batch_axes(
    interface: ModuleInterface, entries: Mapping[str, Input], shapes: Shapes
) -> tuple[int, ...]:
    """Broadcast the batch axes of arguments of a function, as NumPy does. Raises ShapeError if they
    do not broadcast, or for an argument with fewer axes than a sample."""
    axes: tuple[int, ...] = ()
    for name, entry in entries.items():
        if len(shapes[name]) < len(entry.shape):
            raise _shape_error(interface, entry, shapes[name], {})
        lengths = argument_axes(entry, shapes[name])
        pairs = list(zip_longest(reversed(axes), reversed(lengths), fillvalue=1))
        if any(first != second and 1 not in (first, second) for first, second in pairs):
            raise ShapeError(
                f"{interface.name}: argument {name} has the batch axes {lengths}; expected axes "
                f"that broadcast with {axes}, those of the arguments before it"
            )
        axes = tuple(first if second == 1 else second for first, second in reversed(pairs))
    return axes


def argument_axes(entry: Input, shape: Sequence[int]) -> tuple[int, ...]:
    """Return the batch axes of an argument."""
    return tuple(shape[: len(shape) - len(entry.shape)]) if entry.batched else ()


def _solved_size(text: str, name: str, length: int, sizes: Mapping[str, int]) -> dict[str, int]:
    """Solve text = length for the size `name`; empty where the text is not affine in it: then the
    compiler has required another axis that gives the size."""
    start, middle, end = (shape_at((text,), {**sizes, name: size})[0] for size in (0, 1, 2))
    slope = middle - start
    if end - middle != slope:
        return {}
    return {name: (length - start) // slope if slope else 0}


def _shape_error(
    interface: ModuleInterface, entry: Input, shape: Sequence[int], sizes: Mapping[str, int]
) -> ShapeError:
    names = dict.fromkeys(name for text in entry.shape for name in names_in(text))
    known = ", ".join(f"{name} = {sizes[name]}" for name in names if name in sizes)
    texts = (*[BATCH_AXES] * entry.batched, *entry.shape)
    expected = ", ".join(texts) + "," * (len(texts) == 1)
    return ShapeError(
        f"{interface.name}: argument {entry.name} has shape {tuple(shape)}; "
        f"expected ({expected})" + (f" with {known}" if known else "")
    )
