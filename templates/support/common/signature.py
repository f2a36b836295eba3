"""Parameters of kernels, and return values of public functions."""

# mypy: allow-untyped-defs

from dataclasses import dataclass, field

BATCH_AXES = "*batch"
"""All batch axes in the shape of an argument or a result; kernels have one axis for them."""


@dataclass
class _Signature:
    """The parameters of a kernel: `inputs` and `outputs` map a name to the texts of its lengths, ()
    for a number; `sizes` maps a size to the expression that reads it from the inputs, in an order
    in which each refers to earlier sizes only. reads: the sizes that a public function needs for
    arguments that are as the kernel takes them."""

    inputs: dict = field(default_factory=dict)
    outputs: dict = field(default_factory=dict)
    sizes: dict = field(default_factory=dict)
    reads: tuple = ()

    def variable(self, name):
        """Return the local variable of a parameter; a size of its name has that name."""
        return f"_given_{name}" if name in self.sizes else name

    @property
    def variables(self):
        """The local variables of all parameters."""
        return [self.variable(name) for name in (*self.inputs, *self.outputs)]

    @property
    def kinds(self):
        """The types of all parameters, by name: "real:2" for an array of two axes, "real" for a
        number."""
        types = {
            name: f"real:{len(shape)}" if shape else "real" for name, shape in self.inputs.items()
        }
        return types | {name: f"real:{len(shape)}" for name, shape in self.outputs.items()}

    def size_lines(self, names=None):
        """Write the assignments of sizes, of all by default."""
        read = self.sizes if names is None else names
        return [f"{size} = {self.sizes[size]}" for size in read]


class _Returned:
    """The return value of a function: nested named tuples of the names of arrays, or one name.

    arrays: name -> shape; the array NAME is in the local variable `_array_NAME`. names: the arrays
    that are returned. types: the named tuples; the type NAME is in scope as `_type_NAME`."""

    def __init__(self, tree, arrays):
        self._tree = tree
        self._scalars = {name for name, shape in arrays.items() if shape == ()}
        self._arrays = list(arrays)
        self.types = list(_type_names(self._tree))
        self.names = [name for name, _ in self._places(self._tree, "")]

    @property
    def variables(self):
        """The local variables of the arrays, in order."""
        return [f"_array_{name}" for name in self.names]

    @property
    def pattern(self):
        """The assignment target that unpacks `out` into the local variables."""
        return self._pattern(self._tree)

    @property
    def new(self):
        """The return value where the results are new arrays: numbers for arrays of rank 0."""
        return self._value(self._tree, self._scalars)

    @property
    def delivered(self):
        """The return value where the results are the caller's arrays."""
        return self._value(self._tree, ())

    @property
    def places(self):
        """The path of each array in the return value, as in "out.gradient.A"."""
        places = dict(self._places(self._tree, "out"))
        return tuple(places.get(name, name) for name in self._arrays)

    def _pattern(self, node):
        if isinstance(node, str):
            return f"_array_{node}"
        return f"({''.join(f'{self._pattern(part)}, ' for part in node)})"

    def _value(self, node, scalars):
        if isinstance(node, str):
            return f"_array_{node}{'[()]' if node in scalars else ''}"
        parts = "".join(f"{self._value(part, scalars)}, " for part in node)
        return f"_named(_type_{type(node).__name__}, ({parts}))"

    def _places(self, node, path):
        if isinstance(node, str):
            yield node, path
        else:
            for field, part in zip(node._fields, node, strict=True):
                yield from self._places(part, f"{path}.{field}")


def tuple_text(texts):
    """Write the text of a tuple of expressions."""
    texts = list(texts)
    return f"({', '.join(texts)}{',' if len(texts) == 1 else ''})"


def indented(lines):
    """Indent lines by one level."""
    return [f"    {line}" for line in lines]


def _type_names(node):
    """Yield the names of the types of nested named tuples."""
    if not isinstance(node, str):
        yield type(node).__name__
        for part in node:
            yield from _type_names(part)
