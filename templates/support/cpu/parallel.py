"""Partitions of kernels among threads: by rows of results, by samples, by sums over samples.

Each way has a condition on sizes under which one thread does all the work; else threads call a
kernel for parts of it (see `shared_work`). Costs are texts in terms of sizes.
"""

# mypy: allow-untyped-defs

from dataclasses import dataclass, field
from functools import partial

from ..common.signature import indented, tuple_text
from ..internals.functions import compiled, ready
from ..internals.memory import give_back, shaped, work_arrays
from .parts import _by_rows, _by_samples, _by_sums, _in_batch_last, _in_parts, add_onto
from .shared_work import ParallelKernel
from .thread_pool import _THREAD_POOL

BATCH_LAST_BLOCK_SAMPLES = 344
"""Samples that one thread computes at a time in the batch-last layout."""
SHARING_NAMES = {
    "_add_onto": add_onto,
    "_give_back": give_back,
    "_shaped": shaped,
    "_work_arrays": work_arrays,
}
"""Names that the texts of functions made by `_BySums` refer to."""


@dataclass
class CallPlan:
    """The call of a kernel in a public function.

    serial_condition: condition on sizes under which threads do not pay; "" if they never share.
    call: lines for arguments of any size. scope: the names in all these texts.
    needs_kernel: expression for the serial case; "" if the kernel always does the work, else the
    expression calls another function and is true only if the kernel must be called instead.
    """

    serial_condition: str
    call: list
    needs_kernel: str = ""
    scope: dict = field(default_factory=dict)


def inline_option(function):
    """Choose Numba's option `inline` for a function: "always" up to 30 arguments; CPython passes
    more as one tuple, which Numba cannot inline."""
    return "always" if function.__code__.co_argcount <= 30 else "never"


def if_else(condition, body, alternative):
    """Print an if statement with an else branch."""
    return [f"if {condition}:", *indented(body), "else:", *indented(alternative)]


class _Partition:
    """A partition of a kernel's work among threads; this base class has a single part.

    names: the globals of the module, which have the kernels that other options name. conditions: on
    sizes, under which one thread does all the work, or does it in another way."""

    def __init__(self, names, conditions=()):
        self.conditions = conditions

    def full_kernel(self, module, name, signature, body, options):
        """Make the kernel `name` that does all the work, from the body in the generated module."""
        return compiled(is_called_from_python=True, **options)(body)

    def call_plan(self, module, kernel, parts, serial_call):
        """Plan the call of a kernel. serial_call: lines by which one thread calls it."""
        return CallPlan("", serial_call)


class _ByRows(_Partition):
    """A partition by rows of the results, among a few threads.

    cost: estimated operations that a second thread takes over. share: the kernel of a share, with
    further parameters: the arrays `work` and `integers`, such as {"t0": ("n", "n")}, which one
    phase fills for others; the number of the phase, if there are several; the number of the share;
    the number of shares. Without a share, the body of the kernel takes the last two itself."""

    def __init__(self, names, conditions, cost, share="", phases=1, work=(), integers=()):
        super().__init__(names, conditions)
        self.cost, self.share, self.phases = cost, names.get(share), phases
        self.work, self.integers = dict(work), dict(integers)

    def full_kernel(self, module, name, signature, body, options):
        if self.share is not None:
            return super().full_kernel(module, name, signature, body, options)
        body.__name__ = f"{name}_share"
        share = compiled(is_called_from_python=True, **options)(body)
        arrays = ", ".join(_parameters(body, signature).values())
        text = f"def {name}({arrays}):\n    _share({arrays}, 0, 1)\n"
        kernel = module.compiled(text, {"_share": share}, is_called_from_python=True)
        kernel.share = share
        return kernel

    def call_plan(self, module, kernel, parts, serial_call):
        (is_small,) = self.conditions
        kinds = [*parts.signature.kinds.values(), *_kinds("real", self.work)]
        kinds += _kinds("int32", self.integers)
        codes = "w" * len(kinds) + ("hpn" if self.phases > 1 else "pn")
        kinds += ["intp"] * (len(codes) - len(kinds))
        share = kernel.share if self.share is None else self.share
        parallel = module.parallel_kernel(
            kernel, lambda: ParallelKernel(share, kinds, codes, self.phases)
        )
        arguments = f"({self.cost}, {self._work_arrays()}), {parts.kernel_arguments}"
        call = if_else(is_small, serial_call, [f"_in_parts({arguments})"])
        scope = {"_in_parts": _in_parts(kernel, parallel, _by_rows), "_int32": "int32"}
        return CallPlan(is_small, call, "", scope)

    def _work_arrays(self):
        """Print a function that allocates the work arrays for `_parts` shares."""
        arrays = [(shape, "_dtype") for shape in self.work.values()]
        arrays += [(shape, "_int32") for shape in self.integers.values()]
        texts = [f"_empty({tuple_text(shape)}, {kind})" for shape, kind in arrays]
        return f"lambda _parts: {tuple_text(texts)}"


class _BySamples(_Partition):
    """A partition by samples.

    cost: estimated operations for all samples. sliced: the inputs that are sliced along their first
    axis, as all results are. cache_blocks: whether threads compute blocks of samples that fit in
    the cache. batch_last: the kernel for that layout, if there is one; entries: memory of a sample
    there, in numbers. Its second condition is that the layout does not suit the samples."""

    def __init__(
        self, names, conditions, cost, sliced, cache_blocks=False, batch_last="", entries=""
    ):
        super().__init__(names, conditions)
        self.cost, self.sliced, self.cache_blocks = cost, sliced, cache_blocks
        self.batch_last, self.entries = names.get(batch_last), entries

    def call_plan(self, module, kernel, parts, serial_call):
        cost, passed = self.cost, parts.kernel_arguments
        is_small, *is_unsuited = self.conditions
        flags = [name in self.sliced for name in parts.signature.inputs]
        parallel = self._parallel_kernel(module, kernel, parts)
        divide = partial(_by_samples, flags, self.cache_blocks)
        scope = {"_in_parts": _in_parts(kernel, parallel, divide)}
        call = if_else(is_small, serial_call, [f"_in_parts(({cost},), {passed})"])
        if not is_unsuited:
            return CallPlan(is_small, call, "", scope)
        parallel = self._parallel_kernel(module, self.batch_last, parts, "S")
        scope |= {
            "_in_batch_last": _in_parts(kernel, parallel, _in_batch_last),
            **self._serial_blocks(module, kernel, parts.signature),
        }
        batch_last_call = if_else(
            is_small,
            [f"_thread_pool.run(_by_one_thread, {passed})"],
            [f"_in_batch_last(({self.entries}, {cost}), {passed})"],
        )
        call = if_else(is_unsuited[0], call, batch_last_call)
        needs_kernel = f"{is_unsuited[0]} or _by_one_thread_ready({passed})"
        return CallPlan(is_small, call, needs_kernel, scope)

    def _serial_blocks(self, module, kernel, signature):
        """Make the function by which one thread computes samples in the batch-last layout, block
        by block."""
        sliced = {*map(signature.variable, (*self.sliced, *signature.outputs))}
        blocks = [f"{v}[_start:_stop]" if v in sliced else v for v in signature.variables]
        length = f"{signature.variable(self.sliced[0])}.shape[0]"
        lines = [
            f"for _start in range(0, {length}, {BATCH_LAST_BLOCK_SAMPLES}):",
            f"    _stop = min(_start + {BATCH_LAST_BLOCK_SAMPLES}, {length})",
            f"    _kernel({', '.join(blocks)})",
        ]
        return _serial_scope(module, kernel, signature, lines, self.batch_last)

    def _parallel_kernel(self, module, kernel, parts, slice_code="s"):
        signature = parts.signature
        codes = "".join(slice_code if name in self.sliced else "w" for name in signature.inputs)
        codes += slice_code * len(signature.outputs)
        return module.parallel_kernel(
            kernel, lambda: ParallelKernel(kernel, signature.kinds.values(), codes)
        )


class _BySums(_Partition):
    """A partition by samples of which threads add up partial sums.

    sliced: the inputs that are sliced along their first axis, and the results that have an entry
    for each sample; all other results are sums, except those in `first_part`, which the first part
    computes. entries: memory of a sample, in numbers; work: operations for a sample; fixed:
    operations that each part adds. min_samples: fewest samples of a block. is_blas_bound: whether
    BLAS does most of the work. is_gram_bound: whether BLAS computes Gram matrices, which threads of
    ours share better. part: the kernel of a part, whose further parameters are the number of all
    samples and whether this is the first part; without it, the body of the kernel takes these
    itself. The first of two conditions is that there are too few samples for one thread to call the
    kernel of a part."""

    def __init__(
        self,
        names,
        conditions,
        sliced,
        entries,
        work,
        fixed,
        min_samples=1,
        is_blas_bound=False,
        is_gram_bound=False,
        first_part=(),
        part="",
    ):
        super().__init__(names, conditions)
        self.sliced, self.first_part = sliced, first_part
        self.costs = entries, work, fixed
        self.min_samples = min_samples
        self.is_blas_bound, self.is_gram_bound = is_blas_bound, is_gram_bound
        self.part = names.get(part)

    def full_kernel(self, module, name, signature, body, options):
        if self.part is not None:
            return super().full_kernel(module, name, signature, body, options)
        body.__name__ = f"{name}_part"
        self.part = compiled(**options)(body)
        parameters = _parameters(body, signature)
        arrays = ", ".join(parameters.values())
        length = f"{parameters[self.sliced[0]]}.shape[0]"
        lines = [f"check_{name}({arrays})", f"_part({arrays}, {length}, True)"]
        text = "\n".join([f"def {name}({arrays}):", *indented(lines)])
        scope = {f"check_{name}": module.names[f"check_{name}"], "_part": self.part}
        return module.compiled(text, scope, is_called_from_python=True, **options)

    def call_plan(self, module, kernel, parts, serial_call):
        signature, passed = parts.signature, parts.kernel_arguments
        costs = ", ".join(self.costs)
        *has_few_samples, is_small = self.conditions
        sums = self._sums(signature)
        parallel = module.parallel_kernel(
            kernel, lambda: self._parallel_kernel(module, kernel, signature)
        )
        sliced = [name in self.sliced for name in signature.inputs]
        bounds = self.min_samples, self.is_blas_bound, self.is_gram_bound
        divide = partial(_by_sums, sliced, *bounds)
        flags = [name in sums for name in signature.kinds]
        run = _THREAD_POOL.run_by_one_thread if self.is_gram_bound else _THREAD_POOL.run
        scope = {"_in_parts": _in_parts(kernel, parallel, divide, flags, run)}
        call = [f"_in_parts(({costs}), {passed})"]
        if not has_few_samples:
            return CallPlan(is_small, if_else(is_small, serial_call, call), "", scope)
        lines = [f"_kernel({', '.join(signature.variables)}, {self._length(signature)}, True)"]
        scope |= _serial_scope(module, kernel, signature, lines, self.part)
        call = if_else(is_small, [f"_thread_pool.run(_by_one_thread, {passed})"], call)
        call = if_else(has_few_samples[0], serial_call, call)
        needs_kernel = f"{has_few_samples[0]} or _by_one_thread_ready({passed})"
        return CallPlan(is_small, call, needs_kernel, scope)

    def _length(self, signature):
        """Print the number of all samples."""
        return f"{signature.variable(self.sliced[0])}.shape[0]"

    def _sums(self, signature):
        """Name the results that are sums over samples."""
        return [n for n in signature.outputs if n not in (*self.sliced, *self.first_part)]

    def _parallel_kernel(self, module, kernel, signature):
        """Make the kernel that computes blocks of a part of the samples and adds up their sums."""
        sums, kinds = self._sums(signature), signature.kinds
        totals = {signature.variable(name): f"_block_{name}" for name in sums}
        names = [*(name for name in kinds if name not in sums), *sums]
        sliced = {*map(signature.variable, self.sliced)}
        blocks = {v: f"{v}[_start:_stop]" for v in sliced} | totals
        arguments = [blocks.get(v, v) for v in signature.variables]

        def flat(name):
            return f"_shaped({name}, ({name}.size,))"

        lines = [
            *(f"{total}[...] = 0" for total in totals),
            f"{', '.join([*totals.values(), '_memory'])} = _work_arrays({next(iter(totals))}, "
            f"{tuple_text(f'{total}.shape' for total in totals)}, ())",
            "for _start in range(_first, _last, _step):",
            "    _stop = min(_start + _step, _last)",
            f"    _part({', '.join(arguments)}, {self._length(signature)}, _start == 0)",
            *(f"    _add_onto({flat(total)}, {flat(block)})" for total, block in totals.items()),
            "_give_back(_memory)",
        ]
        parameters = ", ".join([*map(signature.variable, names), "_first", "_last", "_step"])
        text = "\n".join([f"def {kernel.__name__}_blocks({parameters}):", *indented(lines)])
        scope = SHARING_NAMES | {"_part": self.part}
        return ParallelKernel(
            module.compiled(text, scope, counted=self.part.counted),
            [*(kinds[name] for name in names), "intp", "intp", "intp"],
            "w" * (len(names) - len(sums)) + "o" * len(sums) + "flw",
        )


PARTITIONS = {"": _Partition, "rows": _ByRows, "samples": _BySamples, "sums": _BySums}


def _serial_scope(module, kernel, signature, lines, inner_kernel):
    """Make a function that checks arguments as `kernel` does and runs `lines`, which call
    `inner_kernel` by the name `_kernel`; return the names by which public functions call it."""
    arrays, check = ", ".join(signature.variables), f"check_{kernel.__name__}"
    name = f"{kernel.__name__}_by_one_thread"
    text = "\n".join([f"def {name}({arrays}):", *indented([f"{check}({arrays})", *lines])])
    scope = {check: module.names[check], "_kernel": inner_kernel}
    function = module.compiled(
        text, scope, is_called_from_python=True, counted=inner_kernel.counted
    )
    module.by_one_thread[kernel.__name__] = function
    return {"_by_one_thread": function, "_by_one_thread_ready": ready(function)}


def _parameters(body, signature):
    """Map the arrays of a signature to the first parameters of a kernel's body."""
    names = (*signature.inputs, *signature.outputs)
    return dict(zip(names, body.__code__.co_varnames, strict=False))


def _kinds(entry, shapes):
    """Print the types of arrays with these entries, for `ParallelKernel`."""
    return [f"{entry}:{len(shape)}" for shape in shapes.values()]
