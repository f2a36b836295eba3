"""The namespace of a generated module, and the data in `_formulas/MODULE.py` beside it."""

# mypy: allow-untyped-defs

import sys
from collections import namedtuple
from importlib import import_module
from pathlib import Path
from types import ModuleType

from .signature import _Returned


class _Importable(ModuleType):
    """A module that is pickled by name; `copy` returns the module itself."""

    def __reduce__(self):
        return import_module, (self.__name__,)


FACTS = (
    *("INPUTS", "OUTPUT", "WRT", "REQUIREMENTS", "FUNCTIONS", "OPERATOR", "TARGET"),
    *("DECLARATION", "DIGEST", "FORMULAS"),
)
"""Public constants of every module."""
KINDS = ("value", "vjp", "jvp", "jacobian")
SCALAR_KINDS = ("gradient", "value_and_gradient", "hessian", "hvp")
"""Derivatives that scalar functions have besides `KINDS`."""


class _Module:
    """A generated module under construction; a subclass for each target.

    has_operators: whether functions return operators, too.

    owner: the declared function's name, for messages; names: the module's globals; data: the names
    in its data file, of which the globals get the constants in capitals; outputs: the names of
    several outputs, () for one array; public: the globals that `__all__` lists."""

    has_operators = False

    def __init__(self, owner, names):
        self.owner, self.names, self.data = owner, names, _read_data(names)
        names.update((name, value) for name, value in self.data.items() if name.isupper())
        entries = names["OUTPUT"]
        self.outputs = tuple(name for name, entry in entries.items() if isinstance(entry, dict))
        self.requirements = names["REQUIREMENTS"]
        self.has_batch = any(entry["batched"] for entry in names["INPUTS"])
        module = sys.modules.get(names["__name__"])
        if type(module) is ModuleType:
            module.__class__ = _Importable
        self.public = [*FACTS, *self.kernel_names(names["FUNCTIONS"])]
        names["__all__"] = self.public
        names["__dir__"] = lambda: sorted(self.public)
        names["__getattr__"] = self.absent

    def kernel_names(self, functions):
        """List the public globals that hold the kernels of the functions."""
        return []

    def cotangents(self, name):
        """Map the parameters of a kernel that its public function takes as one tuple to their names
        in messages."""
        outputs = self.outputs if name == "vjp" else ()
        return {f"cotangent_{output}": f"cotangent.{output}" for output in outputs}

    def absent(self, name):
        """Raise AttributeError with advice: how to add a kind that the module was built without, or
        which kinds replace `gradient` and others that only scalar functions have."""
        functions = self.names["FUNCTIONS"]
        is_scalar = not self.outputs and not self.names["OUTPUT"]["shape"]
        operator = "hessian_operator" if is_scalar else "jacobian_operator"
        operators = (operator,) if self.has_operators else ()
        if name in (*KINDS, *(SCALAR_KINDS if is_scalar else ()), *operators):
            raise AttributeError(
                f"{self.owner}: this module was built without {name}; add it to kinds= and build "
                "it again"
            )
        if name not in SCALAR_KINDS:
            raise AttributeError(f"module {self.names['__name__']!r} has no attribute {name!r}")
        raise AttributeError(
            f"{self.owner}: there is no {name}; a function that returns an array, or several, has "
            "jacobian and vjp; "
            f"this module has {', '.join(functions)}"
        )

    def returned(self, returns, arrays):
        """Make the return value of a function, and the named tuples in it, which become globals.

        returns: the name of an array, or (name of a named tuple, what its fields return); arrays:
        see `_Returned`."""

        def tree(node):
            if isinstance(node, str):
                return node
            title, fields = node
            if title not in self.names:
                self.names[title] = namedtuple(title, fields, module=self.names["__name__"])
            return self.names[title](*map(tree, fields.values()))

        return _Returned(tree(returns), arrays)


def _read_data(names):
    """Read the data file of the module with these globals; raises ImportError for a file of another
    build."""
    path = Path(names["__file__"])
    file = path.parent / "_formulas" / path.name
    # programs do not import `_formulas`: its files are parts of the modules
    data = {"__package__": f"{names['__package__']}._formulas"}
    exec(compile(file.read_bytes(), file, "exec"), data)
    if data["DIGEST"] != names["DIGEST"]:
        raise ImportError(
            f"{names['__name__']} was built with other data than those in {file}; build the "
            "package again with `derivatrix build`"
        )
    return data
