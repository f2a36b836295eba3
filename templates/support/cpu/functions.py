"""The kernels and public functions of a generated module, made of what the module says of them."""

# mypy: allow-untyped-defs

from collections import Counter
from dataclasses import replace

import numpy as np
from numba import njit
from numpy.linalg import LinAlgError

from ..common.arguments import (
    _CONVERSION_ERRORS,
    _coerce,
    _deliver,
    _destinations,
    _empty,
    _ndarray,
    _raise_shape_error,
    _real,
)
from ..common.function_parts import _Parts, define_function
from ..common.limits import MAX_HEAP_ENTRIES, MAX_SERIAL_BLAS_ENTRIES
from ..common.module import _Module
from ..common.returned import _Returned
from ..common.signature import _Signature, identifiers, indented, renamed, tuple_text
from ..internals.functions import compiled, ready, remember
from ..internals.memory import require_arrays, require_shapes
from .parallel import Planned, _Sharing, choice, inlined
from .thread_pool import _THREAD_POOL

_FUNCTION_NAMES = {
    "_LinAlgError": LinAlgError,
    "_CONVERSION_ERRORS": _CONVERSION_ERRORS,
    "_coerce": _coerce,
    "_thread_pool": _THREAD_POOL,
    "_deliver": _deliver,
    "_destinations": _destinations,
    "_empty": _empty,
    "_named": tuple.__new__,
    "_ndarray": _ndarray,
    "_real": _real,
    "_raise_shape_error": _raise_shape_error,
    "_remember": remember,
}
"""What the texts of public functions refer to. Only names that begin with an underscore, as none of
a declaration does."""


class Module(_Module):
    """A generated module. The texts that kernels and functions are made of come from the compiler
    alone."""

    def __init__(self, owner, names):
        super().__init__(owner, names)
        self.kernels: dict = {}
        self.shared: dict = {}
        self.by_one_thread: dict = {}
        self.conditions: dict = {}

    def kernel(self, signature, parallel=None, blas=False, sizes=(), names=None, **options):
        """A kernel, and the function `check_` + its name, which it calls first.

        parallel: how threads share its work (see `parallel`), whose number of a share the body then
        takes, too; blas: whether it calls BLAS. For `signature`, `sizes` and `names` see
        `_Signature`, for `options` see `compiled`."""
        found = _Signature(signature, sizes, names)

        def decorate(body):
            name = body.__name__
            scope = {"_require_arrays": require_arrays, "_require_shapes": require_shapes}
            check = self._defined(self._checking(f"check_{name}", found), scope)
            self.names[f"check_{name}"] = njit(inline=inlined(check))(check)
            made = (parallel or _Sharing()).whole(self, name, found, body, options)
            self.kernels[made] = found, parallel, blas
            return made

        return decorate

    def _checking(self, name, signature):
        """The text of a function that checks what a kernel is given."""
        shapes = {each: s for each, s in signature.inputs.items() if s} | signature.outputs
        labels = [signature.names.get(each, each) for each in shapes]
        arrays = f"{self.owner!r}, {' '.join(labels)!r}, {tuple_text(shapes)}"
        lengths = tuple_text(map(tuple_text, shapes.values()))
        count = sum(map(bool, signature.inputs.values()))
        conditions = [renamed(each, signature.kernel_names) for each in self.requirements]
        lines = [
            f"_require_arrays({arrays})",
            *signature.size_lines([lengths, *conditions]),
            f"_require_shapes({arrays}, {lengths}, {count})",
        ]
        for condition, required in zip(conditions, self.requirements, strict=True):
            problem = f"{self.owner}: an argument of a kernel is too small; it needs {required}"
            lines += [f"if not ({condition}):", f"    raise ValueError({problem!r})"]
        return "\n".join([f"def {name}({', '.join(signature.arrays)}):", *indented(lines)])

    def _defined(self, text, scope):
        """The function of a text, as if the module's own file had it."""
        scope = {**{name: self.names.get(name) for name in ("__name__", "__spec__")}, **scope}
        exec(compile(text, self.names["__file__"], "exec"), scope)
        return list(scope.values())[-1]

    def compiled(self, text, scope, **options):
        """The function of a text, compiled; to Numba's cache it is one of the module's file."""
        return compiled(**options)(self._defined(text, scope))

    def share(self, kernel, parallel_kernel):
        """The ParallelKernel by which threads share a kernel's work, made once for each kernel."""
        if kernel.__name__ not in self.shared:
            self.shared[kernel.__name__] = parallel_kernel()
        return self.shared[kernel.__name__]

    def function(self, name, kernel, returns=""):
        """A public function that has arrays for the results of a kernel filled; returns: see
        `_Returned`."""
        signature, _, blas = self.kernels[kernel]
        parts = _Parts(signature, _Returned(returns, signature.outputs))
        planned = self._planned(kernel, parts)
        conditions = [*_plain(parts.array_inputs), *map(parts.in_locals, _few_results(signature))]
        conditions += [planned.few] if planned.few else []
        self.conditions[name] = self._conditions(kernel)
        scope = planned.scope | {"_kernel_ready": ready(planned.scope["_kernel"])}
        given = _passed(kernel, parts)
        run = [f"_kernel_ready({given})"]
        if blas:
            few = parts.in_locals(_few_in_matrices(signature))
            run = choice(few, run, [f"_thread_pool.run(_kernel_ready, {given})"])
        run = [f"if {planned.before}:", *indented(run)] if planned.before else run
        lines = self._function_lines(parts, conditions, run, planned.call, scope)
        out = parts.out_parameter
        heading = f"def {name}({', '.join([*parts.parameters, '*', f'{out}=None'])}):"
        return define_function(
            self, name, [heading, *indented(lines)], parts, _FUNCTION_NAMES | scope
        )

    def _conditions(self, kernel):
        """Texts of sizes that decide in which way a kernel is called. At small sizes all hold."""
        signature, parallel, blas = self.kernels[kernel]
        texts = [*(parallel or _Sharing()).conditions(signature), *_few_results(signature)]
        texts += [_few_in_matrices(signature)] if blas else []
        return [renamed(text, signature.names) for text in dict.fromkeys(texts)]

    def _planned(self, kernel, parts):
        """How a kernel is called."""
        _, parallel, blas = self.kernels[kernel]
        given = _passed(kernel, parts)
        alone = f"_thread_pool.run(_kernel, {given})" if blas else f"_kernel({given})"
        scope = {"_kernel": getattr(kernel, "share", kernel)}
        if parallel is None:
            return Planned("", [alone], "", scope)
        planned = parallel.planned(self, kernel, parts, [alone])
        return replace(planned, scope=planned.scope | scope)

    def _function_lines(self, parts, conditions, run, call, scope):
        """The body of a public function; `run`: the call of a kernel that is compiled for the
        arguments, `call`: that of any."""
        out, returned = parts.out_parameter, parts.returned
        inputs, filled = tuple_text(parts.parameters), tuple_text(parts.outputs)
        empty, shapes = parts.allocation_lines(), tuple_text(parts.output_shapes)
        remembered = [each for each in scope if f"{each}_ready" in scope]
        return [
            "try:  # arrays as the kernel takes them",
            *indented(parts.size_lines([*conditions, *empty, *run])),
            f"    if {' and '.join(conditions) or 'True'}:",
            f"        if {out} is None:",
            *indented(indented(indented([*empty, *run, f"return {returned.new}"]))),
            f"        {returned.pattern} = {out}",
            f"        if not {''.join(_plain(parts.outputs))}:",
            "            raise TypeError",
            *indented(indented([*run, f"return {returned.delivered}"])),
            "except _LinAlgError:",
            "    raise",
            "except _CONVERSION_ERRORS:  # arguments of other types, or errors to be said in full",
            "    pass",
            *parts.coercion_lines(self.requirements),
            f"{filled} = _destinations(_owner, _expected, {out}, {shapes}, _dtype, {inputs})",
            *call,
            *(f"_remember({each}_ready, {each})" for each in remembered),
            f"if {out} is None:",
            f"    return {returned.new}",
            f"{filled} = _deliver({out}, {filled})",
            f"return {returned.delivered}",
        ]

    def operators(
        self,
        name,
        signature,
        parts,
        made,
        returns,
        kernel=None,
        **named,
    ):
        """A public function that returns Jacobians or Hessians as operators.

        signature: what the function takes, and the arrays that `kernel` fills, if there are any;
        parts: the arrays that the operators are made of, of both; made: these, their dtype, and
        sizes -> the operators, in the order in which `returns` (see `_Returned`) has them; named:
        see `_Signature`."""
        found = _Signature(signature, **named)
        texts = _Parts(found, _Returned(returns, {}))
        structures = {each["name"]: each["structure"] for each in self.names["INPUTS"]}
        copies = {
            local: f"_nearest({structures[name]!r}, {name})"
            for local, name in zip(found.inputs, texts.parameters, strict=True)
        }
        arrays = [f"_array_{e}" if e in found.outputs else copies[e] for e in parts.split()]
        wanted = made.__code__.co_varnames[2 : made.__code__.co_argcount]
        given = [tuple_text(arrays), "_dtype", *map(texts.in_locals, wanted)]
        scope = _FUNCTION_NAMES | {"_made": made, "_nearest": _nearest}
        call: list = []
        if kernel is not None:
            planned = self._planned(kernel, texts)
            self.conditions[name] = self._conditions(kernel)
            call, scope = planned.call, scope | planned.scope
        lines = [
            f"def {name}({', '.join(texts.parameters)}):",
            *indented(texts.coercion_lines(self.requirements)),
            *indented([*texts.allocation_lines(), *call]),
            f"    {tuple_text(texts.returned.variables)} = _made({', '.join(given)})",
            f"    return {texts.returned.delivered}",
        ]
        return define_function(self, name, lines, texts, scope)


def _nearest(structure, array):
    """A new array: the nearest one of a structure, as kernels read it."""
    if structure in ("symmetric", "spd"):
        return array / 2 + array.mT / 2  # the sum of large entries could overflow
    lower = np.tril(array) if structure in ("lower", "diagonal") else array.copy()
    return np.triu(lower) if structure in ("upper", "diagonal") else lower


def _passed(kernel, parts):
    """What a kernel is given; one whose body does a share of the rows, all of them."""
    return f"{parts.kernel_arguments}, 0, 1" if hasattr(kernel, "share") else parts.kernel_arguments


def _few_results(signature):
    """That all results together have few entries, where there are several of symbolic sizes."""
    text = _entries(signature.outputs.values())
    if len(signature.outputs) > 1 and identifiers(text):
        yield f"{text} <= {MAX_HEAP_ENTRIES}"


def _few_in_matrices(signature):
    """That BLAS leaves its threads alone: the matrices among arguments and results together have
    few entries. An array of more axes is a stack of matrices, each of which it gets by itself."""
    shapes = [*signature.outputs.values(), *signature.inputs.values()]
    return f"{_entries(shape[-2:] for shape in shapes)} <= {MAX_SERIAL_BLAS_ENTRIES}"


def _entries(shapes):
    """How many entries arrays of these shapes have together."""
    counts = Counter("*".join(f"({each})" for each in shape) or "1" for shape in shapes)
    return " + ".join(f"{number}*{text}" for text, number in counts.items())


def _plain(names):
    """That arrays are of no class of their own: Numba takes a masked array for its numbers."""
    if names:
        yield f"{' is '.join(f'type({name})' for name in names)} is _ndarray"
