"""A generated module, as what makes its functions knows it."""

# mypy: allow-untyped-defs

import sys
from functools import cached_property
from importlib import import_module
from pathlib import Path
from types import ModuleType


class _Importable(ModuleType):
    """A module that is pickled as its name; a copy is the module itself."""

    def __reduce__(self):
        return import_module, (self.__name__,)


FACTS = (
    *("INPUTS", "OUTPUT", "WRT", "REQUIREMENTS", "FUNCTIONS", "OPERATOR", "TARGET"),
    *("DECLARATION", "DIGEST", "FORMULAS"),
)
"""What is public of every module, beside its functions, their kernels and named tuples."""
OF_ALL = ("value", "vjp", "jvp", "jacobian")
OF_SCALARS = ("gradient", "value_and_gradient", "hessian", "hvp")
"""Functions of modules of scalar functions."""


class _Module:
    """The name of the declared function, for messages, and the module's global names, which
    `public` lists as far as they are users'."""

    def __init__(self, owner, names):
        self.owner, self.names = owner, names
        self.requirements = names["REQUIREMENTS"]
        module = sys.modules.get(names["__name__"])
        if type(module) is ModuleType:
            module.__class__ = _Importable
        kernels = [f"{name}_kernel" for name in names["FUNCTIONS"]]
        self.public = [*FACTS, *(["KERNELS"] if names["TARGET"] == "cuda" else kernels)]
        names["__all__"] = self.public
        names["__dir__"] = lambda: sorted(self.public)
        names["__getattr__"] = self.absent

    def absent(self, name):
        """Raise AttributeError, which says of a kind that was left out how to have it, and for
        `gradient` and the like what there is instead."""
        functions, is_scalar = self.names["FUNCTIONS"], not self.names["OUTPUT"]["shape"]
        operator = "hessian_operator" if is_scalar else "jacobian_operator"
        operators = [] if self.names["TARGET"] == "cuda" else [operator]
        if name in (*OF_ALL, *(OF_SCALARS if is_scalar else ()), *operators):
            raise AttributeError(
                f"{self.owner}: this module was built without {name}; add it to kinds= and build "
                "it again"
            )
        if name not in OF_SCALARS:
            raise AttributeError(f"module {self.names['__name__']!r} has no attribute {name!r}")
        raise AttributeError(
            f"{self.owner}: there is no {name}; an array-valued function has jacobian and vjp; "
            f"this module has {', '.join(functions)}"
        )

    def formulas(self):
        """FORMULAS, from the file of the module's name in the folder `_formulas` beside it."""
        path = Path(self.names["__file__"])
        file = path.parent / "_formulas" / path.name
        found: dict = {}
        exec(compile(file.read_bytes(), file, "exec"), found)
        return found["FORMULAS"]

    @cached_property
    def fails(self):
        """Whether a kernel can raise LinAlgError; asked for when they all are there."""
        bodies = [getattr(each, "py_func", each) for each in self.names.values()]
        codes = [getattr(each, "__code__", None) for each in bodies]
        used = {name for code in codes for name in getattr(code, "co_names", ())}
        return "FAILURES" in self.names or not used.isdisjoint(("LinAlgError", "NotConverged"))
