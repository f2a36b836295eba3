"""Return values of public functions, as in "ValueAndGradient(value=out_value, gradient=out_X)"."""

# mypy: allow-untyped-defs

import ast


class _Returned:
    """The return value of a function: nested named tuples of arrays, or one array (text "").

    arrays: name -> shape; the array NAME is in the local variable `_array_NAME`. names: the arrays
    in the text. types: the named tuples; the type NAME is in scope as `_type_NAME`."""

    def __init__(self, text, arrays):
        self._tree = ast.parse(text or next(iter(arrays)), mode="eval").body
        self._scalars = {name for name, shape in arrays.items() if shape == ()}
        self._arrays = list(arrays)
        calls = [node for node in ast.walk(self._tree) if isinstance(node, ast.Call)]
        self.types = [node.func.id for node in calls]  # type: ignore[attr-defined]
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
        if isinstance(node, ast.Name):
            return f"_array_{node.id}"
        return f"({''.join(f'{self._pattern(field.value)}, ' for field in node.keywords)})"

    def _value(self, node, scalars):
        if isinstance(node, ast.Name):
            return f"_array_{node.id}{'[()]' if node.id in scalars else ''}"
        parts = "".join(f"{self._value(field.value, scalars)}, " for field in node.keywords)
        return f"_named(_type_{node.func.id}, ({parts}))"

    def _places(self, node, path):
        if isinstance(node, ast.Name):
            yield node.id, path
        else:
            for field in node.keywords:
                yield from self._places(field.value, f"{path}.{field.arg}")
