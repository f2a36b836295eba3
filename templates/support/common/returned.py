"""Return values of public functions, as in Vjp(A="out_A", b="out_b")."""

# mypy: allow-untyped-defs


class _Returned:
    """The return value of a function: nested named tuples of the names of arrays, or one name, by
    default that of the first array.

    arrays: name -> shape; the array NAME is in the local variable `_array_NAME`. names: the arrays
    that are returned. types: the named tuples; the type NAME is in scope as `_type_NAME`."""

    def __init__(self, tree, arrays):
        self._tree = tree or next(iter(arrays))
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


def _type_names(node):
    """Yield the names of the types of nested named tuples."""
    if not isinstance(node, str):
        yield type(node).__name__
        for part in node:
            yield from _type_names(part)
