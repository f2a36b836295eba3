"""How a public function puts its results together, from a text such as
"ValueAndGradient(value=out_value, gradient=out_X)"."""

# mypy: allow-untyped-defs

import ast


class _Returned:
    """What a function returns, of values that are each in a local variable `_array_` + its name;
    "" stands for the only one.

    arrays: names -> shapes. names: those that the text has. types: the names of the named tuples,
    in scope as `_type_` + the name."""

    def __init__(self, text, arrays):
        self._tree = ast.parse(text or next(iter(arrays)), mode="eval").body
        self._scalars = {name for name, shape in arrays.items() if shape == ()}
        self._arrays = list(arrays)
        calls = [node for node in ast.walk(self._tree) if isinstance(node, ast.Call)]
        self.types = [node.func.id for node in calls]  # type: ignore[attr-defined]
        self.names = [name for name, _ in self._places(self._tree, "")]

    @property
    def locals(self):
        """The variables, in order."""
        return [f"_array_{name}" for name in self.names]

    @property
    def pattern(self):
        """The variables, to be assigned to, as they are in what is returned."""
        return self._pattern(self._tree)

    @property
    def new(self):
        """What is returned where arrays are new: numbers in place of arrays of rank 0."""
        return self._value(self._tree, self._scalars)

    @property
    def delivered(self):
        """What is returned where the caller gave arrays."""
        return self._value(self._tree, ())

    @property
    def places(self):
        """Where each array is, as in "out.gradient.A"."""
        found = dict(self._places(self._tree, "out"))
        return tuple(found.get(name, name) for name in self._arrays)

    def _pattern(self, node):
        if isinstance(node, ast.Name):
            return f"_array_{node.id}"
        return f"({''.join(f'{self._pattern(each.value)}, ' for each in node.keywords)})"

    def _value(self, node, scalars):
        if isinstance(node, ast.Name):
            return f"_array_{node.id}{'[()]' if node.id in scalars else ''}"
        parts = "".join(f"{self._value(each.value, scalars)}, " for each in node.keywords)
        return f"_named(_type_{node.func.id}, ({parts}))"

    def _places(self, node, path):
        if isinstance(node, ast.Name):
            yield node.id, path
        else:
            for each in node.keywords:
                yield from self._places(each.value, f"{path}.{each.arg}")
