"""How threads share the work of kernels: by rows of results, by samples, or by sums over samples.

Each way has a condition under which one thread does all the work, and else calls a kernel for parts
of it (see `parallel_for`). Costs are texts in terms of sizes.
"""

# mypy: allow-untyped-defs

from dataclasses import dataclass, field

from ..common.limits import MIN_OPS_PER_THREAD
from ..common.signature import _Signature, indented, renamed, tuple_text
from ..internals.functions import compiled, ready
from ..internals.memory import give_back, shaped, work_arrays
from .parallel_for import ParallelKernel
from .parts import _by_rows, _by_samples, _by_sums, _in_columns, add_onto

IN_CACHE = 120_000
"""So many numbers in memory at once stay in the cache."""
OPERATIONS = 40
"""Where each is used in so many operations, it is no gain that they do."""
SIDE_BY_SIDE = 344
"""How many samples are computed at a time, side by side, where they are no work for threads."""
SHARING_NAMES = {
    "_add_onto": add_onto,
    "_give_back": give_back,
    "_shaped": shaped,
    "_work_arrays": work_arrays,
}
"""What the texts of shared functions refer to, besides names that kernels keep for them."""


@dataclass
class Planned:
    """What a public function does with a kernel whose work threads may share. few: the condition
    under which there is little to do; call: lines for all arguments; before: what is tried first
    where there is little: true if the kernel is to be called; scope: the names in these."""

    few: str
    call: list
    before: str = ""
    scope: dict = field(default_factory=dict)


def inlined(function):
    """Whether Numba compiles a function with what calls it. It cannot where there are more than 30
    arguments: CPython passes those as one tuple."""
    return "always" if function.__code__.co_argcount <= 30 else "never"


def choice(condition, one, other):
    """Lines for where a condition holds, and for where it does not."""
    return [f"if {condition}:", *indented(one), "else:", *indented(other)]


class _Sharing:
    """How threads share the work of a kernel."""

    def conditions(self, signature):
        """Texts of the sizes for which one thread does all the work, or the kernel itself."""
        return []

    def whole(self, module, name, signature, body, options):
        """The kernel by the name, which does all of the work, made of a body."""
        return compiled(is_called_from_python=True, **options)(body)


class by_rows(_Sharing):
    """A share of the rows of the results by each of a few threads.

    cost: about how many operations a second thread takes over. share: the kernel that does a share,
    with the arrays of `work` and `integers` ("t0[n, n]"), which one phase makes for others, the
    number of the phase, if there are several, that of the share, and how many there are, besides;
    None where it is the kernel's own body, which takes the last two."""

    def __init__(self, cost, share=None, phases=1, work="", integers=""):
        self.cost, self.share, self.phases = cost, share, phases
        self.work, self.integers = _shapes(work), _shapes(integers)

    def conditions(self, signature):
        return [f"{self.cost} < {MIN_OPS_PER_THREAD}"]

    def whole(self, module, name, signature, body, options):
        if self.share is not None:
            return super().whole(module, name, signature, body, options)
        body.__name__ = f"{name}_share"
        share = compiled(is_called_from_python=True, **options)(body)
        given = ", ".join(signature.arrays)
        text = f"def {name}({given}):\n    _share({given}, 0, 1)\n"
        made = module.compiled(text, {"_share": share}, is_called_from_python=True)
        made.share = share
        return made

    def planned(self, module, kernel, parts, alone):
        cost, signature = parts.in_locals(self.cost), parts.signature
        (few,) = map(parts.in_locals, self.conditions(signature))
        kinds = [*signature.kinds(), *_kinds("real", self.work), *_kinds("int32", self.integers)]
        codes = "w" * len(kinds) + ("hpn" if self.phases > 1 else "pn")
        kinds += ["intp"] * (len(codes) - len(kinds))
        share = kernel.share if self.share is None else self.share
        shared = module.share(kernel, lambda: ParallelKernel(share, kinds, codes, self.phases))
        given = f"{cost}, {self._work(parts)}, {parts.kernel_arguments}"
        call = choice(few, alone, [f"_in_parts({given})"])
        return Planned(few, call, "", {"_in_parts": _by_rows(kernel, shared), "_int32": "int32"})

    def _work(self, parts):
        """The text of a function that makes the work arrays for a number of shares."""
        names = {"parts": "_parts"}
        arrays = [(shape, "_dtype") for shape in self.work.values()]
        arrays += [(shape, "_int32") for shape in self.integers.values()]
        texts = [
            f"_empty({parts.in_locals(renamed(tuple_text(shape), names))}, {kind})"
            for shape, kind in arrays
        ]
        return f"lambda _parts: {tuple_text(texts)}"


class by_samples(_Sharing):
    """A part of the samples by each thread.

    cost: about how many operations they take; cut: the inputs that are cut along their first
    axis, as all results are; short: whether it pays to compute so many at a time that they stay in
    the cache; columns: how samples are done that are better last in memory."""

    def __init__(self, cost, cut, short=False, columns=None):
        self.cost, self.cut, self.short, self.columns = cost, cut.split(), short, columns

    def conditions(self, signature):
        few = f"{self.cost} < {MIN_OPS_PER_THREAD}"
        if self.columns is None:
            return [few]
        samples, found = signature.inputs[self.cut[0]][0], self.columns
        most = f"min({found.each}*({samples}), {found.most})"
        return [few, f"({samples} < {found.least} or {found.entries} > {most})"]

    def planned(self, module, kernel, parts, alone):
        cost, passed = parts.in_locals(self.cost), parts.kernel_arguments
        few, *unsuited = map(parts.in_locals, self.conditions(parts.signature))
        flags = [name in self.cut for name in parts.signature.inputs]
        shared = self._shared(module, kernel, parts)
        scope = {"_in_parts": _by_samples(kernel, shared, flags, self.short)}
        call = choice(few, alone, [f"_in_parts({cost}, {passed})"])
        if self.columns is None:
            return Planned(few, call, "", scope)
        columns = self.columns.kernel
        entries = parts.in_locals(self.columns.entries)
        in_columns = _in_columns(kernel, self._shared(module, columns, parts, "S"))
        scope |= {"_in_columns": in_columns, **self._in_blocks(module, kernel, parts.signature)}
        last = choice(
            few,
            [f"_thread_pool.run(_by_one_thread, {passed})"],
            [f"_in_columns({entries}, {cost}, {passed})"],
        )
        call = choice(unsuited[0], call, last)
        return Planned(few, call, f"{unsuited[0]} or _by_one_thread_ready({passed})", scope)

    def _in_blocks(self, module, kernel, signature):
        """The function by which one thread has SIDE_BY_SIDE samples computed at a time."""
        cut = [*self.cut, *signature.outputs]
        blocks = [f"{name}[_start:_stop]" if name in cut else name for name in signature.arrays]
        lines = [
            f"for _start in range(0, {cut[0]}.shape[0], {SIDE_BY_SIDE}):",
            f"    _stop = min(_start + {SIDE_BY_SIDE}, {cut[0]}.shape[0])",
            f"    _kernel({', '.join(blocks)})",
        ]
        return _by_one_thread(module, kernel, signature, lines, self.columns.kernel)

    def _shared(self, module, kernel, parts, cut="s"):
        signature = parts.signature
        codes = "".join(cut if name in self.cut else "w" for name in signature.inputs)
        codes += cut * len(signature.outputs)
        return module.share(kernel, lambda: ParallelKernel(kernel, signature.kinds(), codes))


@dataclass
class columns:
    """The kernel that has the samples last in memory, for at least so many of them; entries: how
    many numbers each takes in memory, which is `each` for each of them and `most` at the most."""

    kernel: object
    entries: str
    least: int
    each: int
    most: int


class by_sums(_Sharing):
    """A part of the samples by each thread; what the parts make of results is added up.

    cut: the inputs that are cut along their first axis, and the results that come sample by sample;
    all others are sums, but for those in `alone`, which the first part makes. entries, work, fixed:
    about how many numbers a sample takes in memory, how many operations, and how many each part
    takes besides. least: the number of samples for which a part is worth calling; 1 where it takes
    several threads for that. products: whether BLAS does most of it, so that parts gain only where
    the arrays of all samples do not stay in the cache. part: the kernel of a part, which takes the
    number of all samples, and whether it is the first part, besides; None where that is the body of
    the kernel."""

    def __init__(self, cut, entries, work, fixed, least=1, products=False, alone="", part=None):
        self.cut, self.alone, self.costs = cut.split(), alone.split(), (entries, work, fixed)
        self.least, self.products, self.part, self.is_whole = least, products, part, False

    def conditions(self, signature):
        samples = signature.inputs[self.cut[0]][0]
        entries, work, _ = self.costs
        little = f"({work})*({samples}) < {MIN_OPS_PER_THREAD}"
        if self.products:
            held = f"({entries})*({samples}) < {IN_CACHE}"
            little = f"({held} or {work} > {OPERATIONS}*({entries}))"
        if self.least == 1 or self.is_whole:
            return [little]
        return [f"{samples} < {self.least}", little]

    def whole(self, module, name, signature, body, options):
        if self.part is not None:
            return super().whole(module, name, signature, body, options)
        body.__name__ = f"{name}_part"
        self.part, self.is_whole = compiled(**options)(body), True
        given = ", ".join(signature.arrays)
        lines = [f"check_{name}({given})", f"_part({given}, {self._length}, True)"]
        text = "\n".join([f"def {name}({given}):", *indented(lines)])
        scope = {f"check_{name}": module.names[f"check_{name}"], "_part": self.part}
        return module.compiled(text, scope, is_called_from_python=True, **options)

    def planned(self, module, kernel, parts, alone):
        signature, passed = parts.signature, parts.kernel_arguments
        costs = ", ".join(map(parts.in_locals, self.costs))
        *few, little = map(parts.in_locals, self.conditions(signature))
        sums = [name not in (*self.cut, *self.alone) for name in signature.outputs]
        flags = [name in self.cut for name in signature.inputs]
        shared = module.share(kernel, lambda: self._shared(module, kernel, signature))
        in_parts = _by_sums(kernel, shared, flags, sums, self.least, self.products)
        call = [f"_in_parts({costs}, {passed})"]
        if not few:
            return Planned(little, choice(little, alone, call), "", {"_in_parts": in_parts})
        lines = [f"_kernel({', '.join(signature.arrays)}, {self._length}, True)"]
        scope = _by_one_thread(module, kernel, signature, lines, self.part)
        call = choice(little, [f"_thread_pool.run(_by_one_thread, {passed})"], call)
        before = f"{few[0]} or _by_one_thread_ready({passed})"
        call = choice(few[0], alone, call)
        return Planned(little, call, before, {"_in_parts": in_parts, **scope})

    @property
    def _length(self):
        """The number of all samples."""
        return f"{self.cut[0]}.shape[0]"

    def _shared(self, module, kernel, signature):
        sums = [name for name in signature.outputs if name not in (*self.cut, *self.alone)]
        others = [name for name in signature.arrays if name not in sums]
        return ParallelKernel(
            self._blocks(module, kernel, signature, sums),
            [*signature.kinds(others), *signature.kinds(sums), "intp", "intp", "intp"],
            "w" * len(others) + "o" * len(sums) + "flw",
        )

    def _blocks(self, module, kernel, signature, sums):
        """A function that has samples computed so many at a time, and adds up what they make."""
        others = [name for name in signature.arrays if name not in sums]
        blocks = {name: f"_block_{name}" for name in sums}
        given = [
            blocks.get(name, f"{name}[_start:_stop]" if name in self.cut else name)
            for name in signature.arrays
        ]

        def flat(name):
            return f"_shaped({name}, ({name}.size,))"

        lines = [
            *(f"{name}[...] = 0" for name in sums),
            f"{', '.join([*blocks.values(), 'memory'])} = _work_arrays({sums[0]}, "
            f"{tuple_text(f'{name}.shape' for name in sums)}, ())",
            "for _start in range(_first, _last, step):",
            "    _stop = min(_start + step, _last)",
            f"    _part({', '.join(given)}, {self._length}, _start == 0)",
            *(f"    _add_onto({flat(name)}, {flat(block)})" for name, block in blocks.items()),
            "_give_back(memory)",
        ]
        name = f"{kernel.__name__}_blocks"
        text = f"def {name}({', '.join([*others, *sums, '_first', '_last', 'step'])}):"
        text, scope = "\n".join([text, *indented(lines)]), SHARING_NAMES | {"_part": self.part}
        return module.compiled(text, scope, counted=self.part.counted)


def _by_one_thread(module, kernel, signature, lines, called):
    """The names in a public function of a function that checks arguments as the kernel does, and
    calls another one, `_kernel` in these lines, for all the work."""
    given, check = ", ".join(signature.arrays), f"check_{kernel.__name__}"
    name = f"{kernel.__name__}_by_one_thread"
    text = "\n".join([f"def {name}({given}):", *indented([f"{check}({given})", *lines])])
    scope = {check: module.names[check], "_kernel": called}
    function = module.compiled(text, scope, is_called_from_python=True, counted=called.counted)
    module.by_one_thread[kernel.__name__] = function
    return {"_by_one_thread": function, "_by_one_thread_ready": ready(function)}


def _shapes(text):
    """Name -> shape, from a text such as "t0[n, n], t1[n]"."""
    return _Signature(f"-> {text}").outputs if text else {}


def _kinds(entry, shapes):
    """The types of arrays with these entries, as `ParallelKernel` has them."""
    return [f"{entry}:{len(shape)}" for shape in shapes.values()]
