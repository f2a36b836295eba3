"""The namespace of a generated module, its second file, `_formulas/MODULE.py` beside it, and what
the compiler and generated modules agree on."""

# mypy: allow-untyped-defs

import sys
from importlib import import_module
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType

BATCH_AXES = "*batch"
"""All batch axes in the shape of an argument or a result; kernels have one axis for them."""
FACTS = (
    *("INPUTS", "OUTPUT", "WRT", "REQUIREMENTS", "FUNCTIONS", "OPERATOR", "TARGET"),
    *("DECLARATION", "DIGEST", "FORMULAS"),
)
"""Public constants of every module."""
KINDS = ("value", "vjp", "jvp", "jacobian")
SCALAR_KINDS = ("gradient", "value_and_gradient", "hessian", "hvp")
"""Derivatives that scalar functions have besides `KINDS`."""
MAX_SERIAL_BLAS_ENTRIES = 16384
"""Matrices with at most this many entries in total are multiplied by one BLAS thread."""
MAX_SERIAL_STEP_ENTRIES = 65536
"""In a loop over time, BLAS has one thread for steps whose matrices have at most this many entries
in total: threads would wait for each other at each of their products."""
MIN_OPS_PER_THREAD = 500_000
"""Fewest numbers read, written or computed for which a further thread pays."""
MAX_WRITING_THREADS = 4
"""More threads do not write to memory faster."""
LEADING_RATIO = 0.99999
"""Entries of a vector at least this large, relative to its largest, count as largest, too."""


class _Importable(ModuleType):
    """A module that is pickled by name; `copy` returns the module itself."""

    def __reduce__(self):
        return import_module, (self.__name__,)


class Module:
    """A generated module.

    has_operators: whether functions return operators, too.

    owner: the declared function's name, for messages; names: the module's globals; file: its second
    file, and data: the names there, where `_NAME` is the module's NAME; public: the globals that
    `__all__` lists."""

    has_operators = False

    def __init__(self, owner, names):
        self.owner, self.names, self.data = owner, names, {}
        path = Path(names["__file__"])
        self.file = path.parent / "_formulas" / path.name
        self.public = [*FACTS]
        module = sys.modules.get(names["__name__"])
        if type(module) is ModuleType:
            module.__class__ = _Importable
        names["__all__"] = self.public
        names["__dir__"] = lambda: sorted(self.public)
        names["__getattr__"] = self.absent

    def functions(self):
        """Run the second file of the module, from which it gets constants in capitals and what is
        public; return the public functions."""
        package = f"{self.names['__package__']}._formulas"
        # functions that Numba caches as the module's have its origin
        origin = self.names["__file__"] if self.names.get("__spec__") else None
        spec = ModuleSpec(f"{package}.{self.file.stem}", None, origin=origin)
        self.data = {"__name__": self.names["__name__"], "__package__": package, "__spec__": spec}
        self.data |= {f"_{name}": value for name, value in self.names.items() if name[:2] != "__"}
        # programs do not import `_formulas`: its files are parts of the modules
        exec(compile(self.file.read_bytes(), self.file, "exec"), self.data)
        public = self.data["_public"]
        self.names.update((name, value) for name, value in self.data.items() if name.isupper())
        self.names.update(public)
        self.public += public
        return [value for name, value in public.items() if name in self.data]

    def built_with(self, digest):
        """Raise ImportError for the second file of another build."""
        if digest != self.names["DIGEST"]:
            raise ImportError(
                f"{self.names['__name__']} was built with other data than those in {self.file}; "
                "build the package again with `derivatrix build`"
            )

    def absent(self, name):
        """Raise AttributeError with advice: how to add a kind that the module was built without, or
        which kinds replace `gradient` and others that only scalar functions have."""
        functions = self.names["FUNCTIONS"]
        is_scalar = self.names["OUTPUT"].get("shape") == ()
        operator = "hessian_operator" if is_scalar else "jacobian_operator"
        operators = (operator,) if self.has_operators else ()
        if name in (*KINDS, *(SCALAR_KINDS if is_scalar else ()), *operators):
            raise AttributeError(
                f"{self.owner}: this module was built without {name}; add it to kinds= and build "
                "it again"
            )
        if name.startswith("_"):  # tools look for such names
            raise AttributeError(f"module {self.names['__name__']!r} has no attribute {name!r}")
        advice = "a function that returns an array, or several, has jacobian and vjp; "
        raise AttributeError(
            f"{self.owner}: there is no {name}; {advice if name in SCALAR_KINDS else ''}"
            f"this module has {', '.join(functions)}"
        )
