"""Kernels and public functions of a generated module, made from its declarations of them."""

# mypy: allow-untyped-defs

from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.linalg import LinAlgError

from ..common.arguments import (
    _CONVERSION_ERRORS,
    _coerce,
    _cotangents,
    _deliver,
    _destinations,
    _empty,
    _ndarray,
    _raise_shape_error,
    _real,
)
from ..common.function_parts import _Parts, define_function
from ..common.module import _Module
from ..common.signature import _Signature, indented, tuple_text
from ..internals.functions import compiled, ready, remember
from ..internals.memory import require_arrays, require_shapes
from .parallel import PARTITIONS, _Partition, if_else, inline_option
from .thread_pool import _THREAD_POOL

_FUNCTION_NAMES = {
    "_LinAlgError": LinAlgError,
    "_CONVERSION_ERRORS": _CONVERSION_ERRORS,
    "_coerce": _coerce,
    "_cotangents": _cotangents,
    "_thread_pool": _THREAD_POOL,
    "_deliver": _deliver,
    "_destinations": _destinations,
    "_empty": _empty,
    "_len": len,
    "_named": tuple.__new__,
    "_ndarray": _ndarray,
    "_real": _real,
    "_raise_shape_error": _raise_shape_error,
    "_remember": remember,
}
"""Names that the texts of public functions refer to. All begin with an underscore, unlike those of
a declaration."""


class _Kernel(NamedTuple):
    """The declaration of a kernel.

    partition: of the work among threads (see `parallel`). entries: how many those of results and
    work arrays are, for verification. can_fail: whether the kernel can raise LinAlgError.

    Conditions on sizes: small_results: several results have few entries together. small_matrices:
    BLAS needs one thread for all matrices; "" for a kernel that does not call it. small_steps: BLAS
    needs one thread for the matrices of a step of a loop over time; "" without such loops."""

    signature: _Signature
    partition: _Partition
    small_results: str = ""
    small_matrices: str = ""
    small_steps: str = ""
    entries: str = ""
    can_fail: bool = False

    @property
    def conditions(self):
        """The conditions that select the call of the kernel; small sizes meet all."""
        texts = self.small_results, self.small_matrices, self.small_steps
        return [*self.partition.conditions, *filter(None, texts)]


class Module(_Module):
    """A generated module. The texts that kernels and functions are made of come from the compiler
    alone."""

    has_operators = True

    def __init__(self, owner, names):
        super().__init__(owner, names)
        self.kernels: dict = {}
        self.parallel_kernels: dict = {}
        self.by_one_thread: dict = {}
        self.conditions: dict = {}
        self.entries: dict = {}

    def kernel_names(self, functions):
        return [f"{name}_kernel" for name in functions]

    def kernel(self, **options):
        """Decorate the body of a kernel; define `check_` + its name, which the body calls first.
        options: see `compiled`."""

        def decorate(body):
            name = body.__name__
            properties = dict(self.data["kernels"][name])
            signature = _Signature(**properties.pop("signature"))
            kind, options_of_partition = properties.pop("partition", ("", {}))
            partition = PARTITIONS[kind](self.names, **options_of_partition)
            scope = {"_len": len, "_require_arrays": require_arrays}
            scope |= {"_require_shapes": require_shapes}
            check = self._defined(self._checking(f"check_{name}", signature), scope)
            self.names[f"check_{name}"] = njit(inline=inline_option(check))(check)
            kernel = partition.full_kernel(self, name, signature, body, options)
            self.kernels[kernel] = _Kernel(signature, partition, **properties)
            return kernel

        return decorate

    def _checking(self, name, signature):
        """Print the function that checks the arguments of a kernel."""
        shapes = {array: s for array, s in signature.inputs.items() if s} | signature.outputs
        variables = tuple_text(map(signature.variable, shapes))
        arrays = f"{self.owner!r}, {' '.join(shapes)!r}, {variables}"
        lengths = tuple_text(map(tuple_text, shapes.values()))
        count = sum(map(bool, signature.inputs.values()))
        lines = [
            f"_require_arrays({arrays})",
            *signature.size_lines(),
            f"_require_shapes({arrays}, {lengths}, {count})",
        ]
        for requirement in self.requirements:
            problem = f"{self.owner}: an argument of a kernel is too small; it needs {requirement}"
            lines += [f"if not ({requirement}):", f"    raise ValueError({problem!r})"]
        return "\n".join([f"def {name}({', '.join(signature.variables)}):", *indented(lines)])

    def _defined(self, text, scope):
        """Define the function of a text, as if it were in the file of the module."""
        scope = {**{name: self.names.get(name) for name in ("__name__", "__spec__")}, **scope}
        exec(compile(text, self.names["__file__"], "exec"), scope)
        return list(scope.values())[-1]

    def compiled(self, text, scope, **options):
        """Compile the function of a text; Numba caches it as one of the file of the module."""
        return compiled(**options)(self._defined(text, scope))

    def parallel_kernel(self, kernel, make_parallel_kernel):
        """Return the ParallelKernel by which threads share a kernel's work; make it once."""
        if kernel.__name__ not in self.parallel_kernels:
            self.parallel_kernels[kernel.__name__] = make_parallel_kernel()
        return self.parallel_kernels[kernel.__name__]

    def functions(self):
        """Make all public functions, the one that returns operators last."""
        calls = self.data["calls"].items()
        functions = [self._function(name, *call) for name, call in calls]
        if self.data["operators"]:
            functions.append(self._operators(functions, **self.data["operators"]))
        return functions

    def _function(self, name, kernel_name, returns):
        """Make a public function that allocates and fills the results of a kernel. returns: see
        `returned`."""
        kernel = self.names[f"{name}_kernel"] = self.names[kernel_name]
        declaration = self.kernels[kernel]
        signature, can_fail = declaration.signature, declaration.can_fail
        returned = self.returned(returns, signature.outputs)
        parts = _Parts(signature, returned, self.has_batch, self.cotangents(name))
        call_plan = self._call_plan(kernel, parts)
        limits = declaration.small_results, call_plan.serial_condition
        conditions = [*_are_plain_arrays(parts.array_inputs), *filter(None, limits)]
        self._describe(name, declaration)
        scope = call_plan.scope | {"_kernel_ready": ready(call_plan.scope["_kernel"])}
        passed = _passed_arguments(kernel, parts)
        run = [f"_kernel_ready({passed})"]
        if declaration.small_matrices:
            in_pool = [self._run_in_pool(kernel, "_kernel_ready", parts)]
            run = if_else(declaration.small_matrices, run, in_pool)
        run = [f"if {call_plan.needs_kernel}:", *indented(run)] if call_plan.needs_kernel else run
        lines = self._function_lines(parts, conditions, run, call_plan.call, scope)
        lines = [*parts.heading(name), *indented(lines)]
        return define_function(self, name, lines, parts, _FUNCTION_NAMES | scope, can_fail)

    def _describe(self, name, declaration):
        """Store the texts by which verification chooses sizes."""
        self.conditions[name], self.entries[name] = declaration.conditions, declaration.entries

    def _call_plan(self, kernel, parts):
        """Plan the call of a kernel in a public function."""
        declaration = self.kernels[kernel]
        run = f"_kernel({_passed_arguments(kernel, parts)})"
        if declaration.small_matrices:
            run = self._run_in_pool(kernel, "_kernel", parts)
        call_plan = declaration.partition.call_plan(self, kernel, parts, [run])
        return replace(
            call_plan, scope=call_plan.scope | {"_kernel": getattr(kernel, "share", kernel)}
        )

    def _run_in_pool(self, kernel, name, parts):
        """Print the call of a kernel that calls BLAS."""
        run, small_steps = "_thread_pool.run", self.kernels[kernel].small_steps
        if small_steps:
            run = f"({run}_by_one_thread if {small_steps} else {run})"
        return f"{run}({name}, {_passed_arguments(kernel, parts)})"

    def _function_lines(self, parts, conditions, run, call, scope):
        """Print the body of a public function. run: lines that call a kernel that is compiled for
        the arguments; call: lines that call it with any arguments."""
        out, returned = parts.out, parts.returned
        inputs, filled = tuple_text(parts.variables), tuple_text(parts.outputs)
        empty, shapes = parts.allocation_lines(), tuple_text(parts.result_shapes)
        remembered = [name for name in scope if f"{name}_ready" in scope]
        return [
            "try:  # arrays as the kernel takes them",
            *indented(parts.signature.size_lines(parts.signature.reads)),
            f"    if {' and '.join(conditions) or 'True'}:",
            f"        if {out} is None:",
            *indented(indented(indented([*empty, *run, f"return {returned.new}"]))),
            f"        {returned.pattern} = {out}",
            f"        if not {''.join(_are_plain_arrays(parts.outputs))}:",
            "            raise TypeError",
            *indented(indented([*run, f"return {returned.delivered}"])),
            "except _LinAlgError:",
            "    raise",
            "except _CONVERSION_ERRORS:  # arguments of other types, or errors to be said in full",
            "    pass",
            *parts.coercion_lines(self.requirements),
            f"_results = _destinations(_owner, _expected, {out}, {shapes}, _dtype, {inputs})",
            f"{filled} = {parts.kernel_results}",
            *call,
            *(f"_remember({name}_ready, {name})" for name in remembered),
            f"{filled} = _deliver({out}, _results)",
            f"return {returned.delivered}",
        ]

    def _operators(
        self, functions, name, signature, returns, parts=(), kernel=None, sizes=(), has_loops=False
    ):
        """Make a public function that returns Jacobians or Hessians as operators.

        functions: the other public functions, which multiply by operators that run loops.
        signature: the inputs of the function, and the outputs of `kernel`, if there is one, see
        `_Signature`. parts, sizes: names of the inputs and outputs, and of the sizes, that
        `make_operators` of the data file makes the operators of. returns: of the operators, in
        order, see `returned`. has_loops: whether operators run loops."""
        build, kernel = self.data["make_operators"], self.names.get(kernel)
        kernel_signature = _Signature(**signature)
        texts = _Parts(kernel_signature, self.returned(returns, {}), self.has_batch)
        structures = {entry["name"]: entry["structure"] for entry in self.names["INPUTS"]}
        inputs = kernel_signature.inputs
        array_texts = {name: f"_nearest({structures[name]!r}, {name})" for name in inputs}
        array_texts |= {name: f"_array_{name}" for name in kernel_signature.outputs}
        passed = [tuple_text(array_texts[name] for name in parts), "_dtype"]
        scope = _FUNCTION_NAMES | {"_made": build, "_nearest": _nearest}
        if has_loops:
            scope["_at"] = self._derivatives(functions)
            passed.append(f"_at(*(_array.copy() for _array in {tuple_text(inputs)}))")
        passed += sizes
        call: list = []
        can_fail = kernel is not None and self.kernels[kernel].can_fail
        if kernel is not None:
            call_plan = self._call_plan(kernel, texts)
            self._describe(name, self.kernels[kernel])
            call, scope = call_plan.call, scope | call_plan.scope
        operators = tuple_text(texts.returned.variables)
        split = [f"    for _operator in {operators}:", "        _operator.split_batch(_axes)"]
        lines = [
            f"def {name}({', '.join(inputs)}):",
            *indented(texts.coercion_lines(self.requirements)),
            *indented([*texts.allocation_lines(), *call]),
            f"    {operators} = _made({', '.join(passed)})",
            *(split if self.has_batch else []),
            f"    return {texts.returned.delivered}",
        ]
        return define_function(self, name, lines, texts, scope, can_fail)

    def _derivatives(self, functions):
        """Return a function from a point to the fields of `_LoopDerivatives` there."""
        by_name = {function.__name__: function for function in functions}
        positions = {entry["name"]: place for place, entry in enumerate(self.names["INPUTS"])}
        places = {name: positions[name] for name in self.names["WRT"]}
        is_scalar = "hvp" in by_name
        forward, backward = ("hvp", "") if is_scalar else ("jvp", "vjp")
        outputs = tuple(self.outputs)
        multiply = by_name[forward], by_name.get(backward)
        return lambda *arguments: (*multiply, arguments, places, outputs)


def _nearest(structure, array):
    """Copy an array as the nearest one of a structure, as kernels read it."""
    if structure in ("symmetric", "spd"):
        return array / 2 + array.mT / 2  # the sum of large entries could overflow
    lower = np.tril(array) if structure in ("lower", "diagonal") else array.copy()
    return np.triu(lower) if structure in ("upper", "diagonal") else lower


def _passed_arguments(kernel, parts):
    """Print the arguments of a kernel; a kernel that is its own share gets share 0 of 1."""
    return f"{parts.kernel_arguments}, 0, 1" if hasattr(kernel, "share") else parts.kernel_arguments


def _are_plain_arrays(names):
    """Yield the condition that the arrays have no subclass: Numba ignores the mask of one."""
    if names:
        yield f"{' is '.join(f'type({name})' for name in names)} is _ndarray"
