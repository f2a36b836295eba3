"""What arguments tell: the sizes of a function by their shapes, and the type of its results."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from derivatrix.runtime.errors import ShapeError
from derivatrix.runtime.interface import BATCH, Input, ModuleInterface, names_in, shape_at

Shapes = Mapping[str, Sequence[int]]


def sizes_of(interface: ModuleInterface, shapes: Shapes) -> dict[str, int]:
    """Size name -> number, from input name -> shape; shapes of batched inputs have the batch axis.

    Raises ShapeError, which names the function, the input, its shape and what was expected."""
    sizes = known_sizes(interface, shapes)
    for requirement in interface.requirements:
        if not eval(requirement, {}, sizes):
            raise ShapeError(f"{interface.name}: with {sizes}, it needs {requirement}")
    return sizes


def float_type(arrays: Iterable[Any]) -> str:
    """The name of the results' type, as for the functions of modules: "float32" where all arrays
    are of it, or, without arrays, all numbers, else "float64"."""
    kinds = {(array.ndim > 0, str(array.dtype).removeprefix("torch.")) for array in arrays}
    ranked = {name for has_axes, name in kinds if has_axes} or {name for _, name in kinds}
    return "float32" if ranked == {"float32"} else "float64"


def known_sizes(interface: ModuleInterface, shapes: Shapes) -> dict[str, int]:
    """The sizes that the shapes of some inputs tell. Raises ShapeError where these disagree."""
    sizes: dict[str, int] = {}
    given = [entry for entry in interface.inputs if entry.name in shapes]
    for entry in given:
        shape = shapes[entry.name]
        if len(shape) != len(_texts(entry)):
            raise _refusal(interface, entry, shape, sizes)
        for text, length in zip(_texts(entry), shape, strict=True):
            if text.isidentifier():
                sizes.setdefault(text, length)
    for entry in given:
        for text, length in zip(_texts(entry), shapes[entry.name], strict=True):
            unknown = [name for name in names_in(text) if name not in sizes]
            if len(unknown) == 1:
                sizes[unknown[0]] = _solved(text, unknown[0], length, sizes)
    for entry in given:
        for text, length in zip(_texts(entry), shapes[entry.name], strict=True):
            known = all(name in sizes for name in names_in(text))
            if known and shape_at((text,), sizes) != (length,):
                raise _refusal(interface, entry, shapes[entry.name], sizes)
    return sizes


def _texts(entry: Input) -> tuple[str, ...]:
    return ((BATCH,) if entry.batched else ()) + entry.shape


def _solved(text: str, name: str, length: int, sizes: Mapping[str, int]) -> int:
    """The size for which a text, which grows with it, has a value; the next one above if none
    has."""

    def value(size: int) -> int:
        return shape_at((text,), {**sizes, name: size})[0]

    return bisect_left(range(2 * length + 64), length, key=value)


def _refusal(
    interface: ModuleInterface, entry: Input, shape: Sequence[int], sizes: Mapping[str, int]
) -> ShapeError:
    names = dict.fromkeys(name for text in _texts(entry) for name in names_in(text))
    known = ", ".join(f"{name} = {sizes[name]}" for name in names if name in sizes)
    expected = ", ".join(_texts(entry)) + "," * (len(_texts(entry)) == 1)
    return ShapeError(
        f"{interface.name}: argument {entry.name} has shape {tuple(shape)}; "
        f"expected ({expected})" + (f" with {known}" if known else "")
    )
