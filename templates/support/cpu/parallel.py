"""How threads share the work of kernels: by rows of results, by samples, or by sums over samples.

Each way has a condition under which one thread does all the work, and a compiled function that has
all threads that are free do parts of it (see `shared_work`). Costs are texts in terms of sizes.
"""

# mypy: allow-untyped-defs

from dataclasses import dataclass, field
from typing import Any

from ..common.limits import MIN_OPS_PER_THREAD
from ..common.signature import _Signature, indented, tuple_text
from ..internals.functions import compiled, ready
from ..internals.memory import give_back, part_of, work_arrays
from .parts import _by_rows, _by_sums, _in_columns, _in_parts, add_onto
from .shared_work import _Shared, submit

IN_CACHE = 120_000
"""So many numbers in memory at once stay in the cache."""
OPERATIONS = 40
"""Where each is used in so many operations, it is no gain that they do."""
SIDE_BY_SIDE = 344
"""How many samples are computed at a time, side by side, where they are no work for threads."""
SHARING_NAMES = {
    "_add_onto": add_onto,
    "_give_back": give_back,
    "_part_of": part_of,
    "_submit": submit,
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


def _shapes(text):
    """Name -> shape, from a text such as "t0[n, n], t1[n]"."""
    return _Signature(f"-> {text}").outputs if text else {}


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
        return compiled(**options)(body)


class by_rows(_Sharing):
    """A share of the rows of the results by each of a few threads.

    cost: about how many operations a second thread takes over. share: the kernel that does a share,
    with the arrays of `work` and `integers` ("t0[n, n]"), which one phase makes for others, the
    number of the phase, if there are several, that of the share, and how many there are, besides;
    None where it is the kernel's own body, which takes the last two."""

    def __init__(self, cost, share=None, phases=1, work="", integers=""):
        self.cost, self.share, self.phases = cost, share, phases
        self.work, self.integers = work, integers

    def conditions(self, signature):
        return [f"{self.cost} < {MIN_OPS_PER_THREAD}"]

    def whole(self, module, name, signature, body, options):
        if self.share is not None:
            return compiled(**options)(body)
        body.__name__ = f"{name}_share"
        share = compiled(**options)(body)
        given = ", ".join(signature.arrays)
        text = f"def {name}({given}):\n    _share({given}, 0, 1)\n"
        made = module.compiled(text, {"_share": share})
        made.share = share
        return made

    def planned(self, module, kernel, parts, alone):
        cost, signature = parts.in_locals(self.cost), parts.signature
        (few,) = map(parts.in_locals, self.conditions(signature))
        work = _Work(signature, _shapes(self.work), _shapes(self.integers))
        phase = ["phase"] if self.phases > 1 else []
        given = [*signature.arrays, *work.names, *phase]
        shared = module.share(
            Shared(
                kernel,
                signature,
                kernel.share if self.share is None else self.share,
                kinds=[*signature.kinds(), *work.kinds(), *["intp"] * (len(phase) + 2)],
                codes="w" * len(given) + "pn",
                given=given,
                phases=self.phases,
                work=work,
            )
        )
        call = choice(few, alone, [f"_in_parts({cost}, {parts.kernel_arguments})"])
        return Planned(few, call, "", {"_in_parts": _by_rows(kernel, shared)})


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
        scope = {
            "_in_parts": _in_parts(kernel, self._shared(module, kernel, parts), flags, self.short)
        }
        call = choice(few, alone, [f"_in_parts({cost}, {passed})"])
        if self.columns is None:
            return Planned(few, call, "", scope)
        samples = parts.in_locals(parts.signature.inputs[self.cut[0]][0])
        entries = parts.in_locals(self.columns.entries)
        shared = self._shared(module, self.columns.kernel, parts, "S")
        scope |= {"_in_columns": _in_columns(self.columns.kernel, shared), **_tried(shared)}
        call = choice(unsuited[0], call, [f"_in_columns({entries}, {cost}, {passed})"])
        given = f"1 + {samples} // {SIDE_BY_SIDE}, {samples}, {passed}"
        return Planned(few, call, f"{unsuited[0]} or {_TRY}, {given})", scope)

    def _shared(self, module, kernel, parts, cut="s"):
        signature = parts.signature
        codes = "".join(cut if name in self.cut else "w" for name in signature.inputs)
        codes += cut * len(signature.outputs)
        given = signature.arrays
        sharing = Shared(kernel, signature, kernel, signature.kinds(), codes, given)
        return module.share(sharing)


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
        self.least, self.products, self.part = least, products, part

    def conditions(self, signature):
        samples = signature.inputs[self.cut[0]][0]
        entries, work, _ = self.costs
        few = little = f"({work})*({samples}) < {MIN_OPS_PER_THREAD}"
        if self.products:
            held = f"({entries})*({samples}) < {IN_CACHE}"
            few = little = f"({held} or {work} > {OPERATIONS}*({entries}))"
        return [few if self.least == 1 else f"{samples} < {self.least}", little]

    def whole(self, module, name, signature, body, options):
        if self.part is not None:
            return compiled(**options)(body)
        body.__name__ = f"{name}_part"
        self.part = compiled(**options)(body)
        given = ", ".join(signature.arrays)
        lines = [f"check_{name}({given})", f"_part({given}, {self._length}, True)"]
        text = "\n".join([f"def {name}({given}):", *indented(lines)])
        scope = {f"check_{name}": module.names[f"check_{name}"], "_part": self.part}
        return module.compiled(text, scope, **options)

    def planned(self, module, kernel, parts, alone):
        signature = parts.signature
        samples = parts.in_locals(signature.inputs[self.cut[0]][0])
        entries, work, fixed = map(parts.in_locals, self.costs)
        few, little = map(parts.in_locals, self.conditions(signature))
        flags = [name in self.cut for name in signature.inputs]
        shared = self._shared(module, kernel, signature)
        scope = {"_in_parts": _by_sums(kernel, shared, flags, self.least, self.products)}
        call = choice(
            few, alone, [f"_in_parts({entries}, {work}, {fixed}, {parts.kernel_arguments})"]
        )
        if self.least == 1:
            return Planned(few, call, "", scope)
        before = f"{few} or {_TRY}, 1, {samples}, {parts.kernel_arguments}, {samples})"
        return Planned(little, call, before, scope | _tried(shared))

    @property
    def _length(self):
        """The number of all samples."""
        return f"{self.cut[0]}.shape[0]"

    def _shared(self, module, kernel, signature):
        kept = {*self.cut, *self.alone}
        sums = {name: shape for name, shape in signature.outputs.items() if name not in kept}
        others = [name for name in signature.arrays if name not in sums]
        work = _Work(signature, sums, of_parts=True)
        tail = []
        for name in sums:
            tail += [f"{name}[...] = 0", "for part in range(parts):"]
            tail += [f"    _add_onto({name}, _{name}[part:part + 1])"]
        return module.share(
            Shared(
                kernel,
                signature,
                self._blocks(module, kernel, signature, work, others),
                kinds=[*signature.kinds(others), *work.kinds(1), "intp", "intp", "intp"],
                codes="w" * len(others) + "o" * len(work.names) + "flw",
                given=[*others, *work.names, "step"],
                work=work,
                tail=tail,
                more=("step",),
            )
        )

    def _blocks(self, module, kernel, signature, work, others):
        """A function that has samples computed so many at a time, and adds up what they make."""
        blocks = [f"_block{name}" for name in work.names]
        given = [f"{name}[_start:_stop]" if name in self.cut else name for name in signature.inputs]
        for name in signature.outputs:
            cut = "[_start:_stop]" if name in self.cut else ""
            given.append(f"{name}{cut}" if name in others else f"_block_{name}")
        lines = [
            f"{', '.join([*blocks, 'memory'])} = _work_arrays({work.names[0]}, "
            f"{tuple_text(f'{name}.shape' for name in work.names)}, ())",
            "for _start in range(_first, _last, step):",
            "    _stop = min(_start + step, _last)",
            f"    _part({', '.join(given)}, {self._length}, _start == 0)",
            *map("    _add_onto({}, {})".format, work.names, blocks),
            "_give_back(memory)",
        ]
        name = f"{kernel.__name__}_blocks"
        text = f"def {name}({', '.join([*others, *work.names, '_first', '_last', 'step'])}):"
        text, scope = "\n".join([text, *indented(lines)]), SHARING_NAMES | {"_part": self.part}
        return module.compiled(text, scope, counted=self.part.counted)


class _Work:
    """Arrays that a function makes, name -> shape: reals, and integers; of_parts: one for each
    part, under the name with an underscore before it, zero to begin with."""

    def __init__(self, signature, reals, integers=None, of_parts=False):
        self.reals, self.integers, self.zero = reals, integers or {}, of_parts
        if of_parts:
            self.reals = {f"_{name}": ("parts", *shape) for name, shape in reals.items()}
        self.names = [*self.reals, *self.integers]
        shapes = [tuple_text(each) for each in (*self.reals.values(), *self.integers.values())]
        self.reading = signature.size_lines(shapes)

    def kinds(self, less=0):
        """Their types, as `shared_work._Shared` has them, with so many axes less."""
        reals = [f"real:{len(shape) - less}" for shape in self.reals.values()]
        return [*reals, *(f"int32:{len(shape)}" for shape in self.integers.values())]

    def lines(self, like):
        """Lines that make them, of the type of another array."""
        shapes = [
            tuple_text(map(tuple_text, each.values())) for each in (self.reals, self.integers)
        ]
        made = f"{', '.join([*self.names, 'memory'])} = _work_arrays({like}, {', '.join(shapes)})"
        zeros = [f"{name}[...] = 0" for name in self.names] if self.zero else []
        return [*self.reading, made, *zeros] if self.names else []


@dataclass
class Shared:
    """What a shared function does: `part` does a part, in so many phases, one after the other.
    kinds: the types of its arguments, codes: where these come from of `given` (see `part_of`).
    work: arrays that it makes; tail: lines for what is left to do; more: parameters besides the
    kernel's own."""

    kernel: Any
    signature: Any
    part: Any
    kinds: list
    codes: str
    given: list
    phases: int = 1
    work: Any = None
    tail: list = field(default_factory=list)
    more: tuple = ()

    @property
    def name(self):
        return f"{self.kernel.__name__}_shared"

    def made(self, module):
        """The function with what does its parts; it returns whether a part failed."""
        out = next(iter(self.signature.outputs))
        made = self.work.lines(out) if self.work else []
        given = f"{self.codes!r}, {tuple_text(self.given)}"
        lines = [
            *made,
            "failed = False",
            f"address = addresses[{out}.itemsize // 8]",
            f"for phase in range({self.phases}):",
            f"    work = _part_of(address, {given}, length, parts)",
            "    failed |= _submit(words, work, parts)",
        ]
        if self.tail:
            lines += ["if not failed:", *indented(self.tail)]
        lines += ["_give_back(memory)"] if made else []
        arrays = [*self.signature.arrays, *self.more]
        heading = (
            f"def {self.name}({', '.join(['words', 'addresses', 'parts', 'length', *arrays])}):"
        )
        text = "\n".join([heading, *indented([*lines, "return failed"])])
        function = module.compiled(text, SHARING_NAMES)
        return _Shared(function, self.part, self.kinds)


_TRY = "_shared_ready(_thread_pool.alone, _addresses"


def _tried(shared):
    """The names in `_TRY`, and the function to which arguments are remembered."""
    return {
        "_addresses": shared.addresses,
        "_shared": shared.function,
        "_shared_ready": ready(shared.function),
    }
