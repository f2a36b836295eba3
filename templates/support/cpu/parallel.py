"""How threads share the work of kernels: by rows of results, by samples, or by sums over samples.

Each way has a condition under which one thread does all the work, and a compiled function that has
all threads that are free do parts of it (see `shared_work`). Costs are texts in terms of sizes.
"""

# mypy: allow-untyped-defs

from dataclasses import dataclass, field
from typing import Any

from ..common.limits import _SHARED
from ..common.signature import _Signature, indented, tuple_text
from ..internals.functions import ready
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


def _samples(parts, cut):
    """The number of samples, in a public function's own names: the first size of what is cut."""
    return parts.sized(parts.signature.inputs[cut[0]][0])


def _choice(condition, one, other):
    return [f"if {condition}:", *indented(one), "else:", *indented(other)]


class by_rows:
    """A share of the rows of the results by each of a few threads.

    cost: about how many operations a second thread takes over; `least` are worth it. phases:
    kernels that do a share each, one after the other (the kernel's own body if there are none),
    with the arrays of `work` and `integers` ("t0[n, n]"), which one phase makes for others. large:
    a kernel for large results; without phases it is called instead of them."""

    def __init__(self, cost, least, phases=(), work="", integers="", large=None):
        self.cost, self.least, self.phases = cost, least, phases
        self.work, self.integers, self.large = work, integers, large

    def planned(self, module, kernel, parts, alone):
        cost = parts.sized(self.cost)
        few = f"{cost} < {self.least}"
        if self.large is not None and not self.phases:
            (line,) = alone
            call = _choice(few, alone, [line.replace("_kernel", "_large")])
            return Planned(few, call, "", {"_large": self.large})
        signature, phases = parts.signature, self.phases or (kernel.share,)
        work = _Work(signature, self.work, self.integers)
        given = [*signature.arrays, *work.names]
        shared = module.share(
            _Sharing(
                kernel,
                signature,
                phases,
                kinds=[*signature.kinds(), *work.kinds(), "intp", "intp"],
                codes="w" * len(given) + "pn",
                given=given,
                work=work,
            )
        )
        call = _choice(few, alone, [f"_in_parts({cost}, {parts.passed})"])
        return Planned(few, call, "", {"_in_parts": _by_rows(self.large or kernel, shared)})


class by_samples:
    """A part of the samples by each thread.

    cost: about how many operations they take; cut: the inputs that are cut along their first
    axis, as all results are; short: whether it pays to compute so many at a time that they stay in
    the cache; columns: how samples are done that are better last in memory."""

    def __init__(self, cost, cut, short=False, columns=None):
        self.cost, self.cut, self.short, self.columns = cost, cut.split(), short, columns

    def planned(self, module, kernel, parts, alone):
        cost, passed = parts.sized(self.cost), parts.passed
        few = f"{cost} < {_SHARED}"
        flags = [name in self.cut for name in parts.signature.inputs]
        scope = {
            "_in_parts": _in_parts(kernel, self._shared(module, kernel, parts), flags, self.short)
        }
        call = _choice(few, alone, [f"_in_parts({cost}, {passed})"])
        if self.columns is None:
            return Planned(few, call, "", scope)
        found = self.columns
        samples, entries = _samples(parts, self.cut), parts.sized(found.entries)
        most = f"min({found.each}*{samples}, {found.most})"
        unsuited = f"({samples} < {found.least} or {entries} > {most})"
        shared = self._shared(module, found.kernel, parts, "S")
        scope |= {"_in_columns": _in_columns(found.kernel, shared), **_tried(shared)}
        call = _choice(unsuited, call, [f"_in_columns({entries}, {cost}, {passed})"])
        given = f"1 + {samples} // {SIDE_BY_SIDE}, {samples}, {passed}"
        return Planned(few, call, f"{unsuited} or {_TRY}, {given})", scope)

    def _shared(self, module, kernel, parts, cut="s"):
        signature = parts.signature
        codes = "".join(cut if name in self.cut else "w" for name in signature.inputs)
        codes += cut * len(signature.outputs)
        given = signature.arrays
        sharing = _Sharing(kernel, signature, (kernel,), signature.kinds(), codes, given)
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


class _Sums:
    """How results are made of sums over samples.

    part: a kernel that fills, of a part of the samples, the results that come sample by sample
    (`divided`), then the `sums` ("out[n], sum_0[n, n]"); it takes the inputs, those of `cut` cut
    along their first axis, and the whole ones of `whole` besides. A sum by the name of a result is
    what that is, but for what `rest` adds. rest: a kernel that does what is left to do, from the
    inputs, the other sums over all samples, and results; None where that is nothing. options: how
    `part` is compiled (see `compiled`)."""

    def __init__(self, part, cut, sums, whole, divided, options):
        self.part, self.cut, self.text = part, cut.split(), sums
        self.whole, self.divided, self.rest = whole.split(), divided.split(), None
        self.options = options

    def arrays(self, signature, parts=False):
        """The arrays of the sums: all of them for each part, or those that are no results."""
        return _Work(signature, self.text, parts=parts, but=() if parts else signature.outputs)

    def samples(self, start, stop, signature, names):
        """The call of the part for some samples; names: of the sums."""
        cut = f"[{start}:{stop}]" if start else ""
        given = [f"{name}{cut}" if name in self.cut else name for name in signature.inputs]
        given += [*self.whole, *(f"{name}{cut}" for name in self.divided), *names]
        return f"_part({', '.join(given)})"

    def finish(self, totals):
        """What is left to do; totals: name -> that of a sum over all samples."""
        if self.rest is None:
            return []
        code = self.rest.py_func.__code__
        given = code.co_varnames[: code.co_argcount]
        return [f"_rest({', '.join(totals.get(name, name) for name in given)})"]

    def whole_lines(self, signature):
        """Lines that do all of it."""
        made = self.arrays(signature)
        names = {name: name for name in signature.outputs} | made.locals
        sums = [names[name] for name in made.every]
        return [
            *made.lines(next(iter(signature.outputs))),
            self.samples("", "", signature, sums),
            *self.finish(made.locals),
            *(["_give_back(memory)"] if made.names else []),
        ]

    @property
    def scope(self):
        """The names in the lines."""
        return {"_part": self.part, "_rest": self.rest}


class by_sums:
    """A part of the samples by each thread, whose sums are added up.

    entries, work, fixed: about how many numbers a sample takes in memory, how many operations, and
    how many each part takes besides. least: the number of samples for which a
    part is worth calling; 1 where it takes several threads for that. products: whether BLAS does
    most of it, so that parts gain only where the arrays of all samples do not stay in the cache.
    part, rest: the kernels of a kernel that does not call them itself (see `_Sums`)."""

    def __init__(self, entries, work, fixed, least=1, products=False, **kernels):
        self.costs, self.kernels = (entries, work, fixed), kernels
        self.least, self.products = least, products

    def planned(self, module, kernel, parts, alone):
        sums = self.kernels.get("part", kernel).sums
        samples, (entries, work, fixed) = _samples(parts, sums.cut), map(parts.sized, self.costs)
        few = little = f"({work})*({samples}) < {_SHARED}"
        if self.products:
            held = f"({entries})*({samples}) < {IN_CACHE}"
            few = little = f"({held} or {work} > {OPERATIONS}*({entries}))"
        if self.least > 1:
            few = f"{samples} < {self.least}"
        sums.rest = self.kernels.get("rest", sums.rest)
        flags = [name in sums.cut for name in parts.signature.inputs]
        shared = self._shared(module, kernel, parts.signature, sums)
        scope = {"_in_parts": _by_sums(kernel, shared, flags, self.least, self.products)}
        call = _choice(few, alone, [f"_in_parts({entries}, {work}, {fixed}, {parts.passed})"])
        if self.least == 1:
            return Planned(few, call, "", scope)
        before = f"{few} or {_TRY}, 1, {samples}, {parts.passed}, {samples})"
        return Planned(little, call, before, scope | _tried(shared))

    def _shared(self, module, kernel, signature, sums):
        work = sums.arrays(signature, parts=True)
        totals = {name: f"{made}[0]" for name, made in work.locals.items()}
        totals |= {name: name for name in totals if name in signature.outputs}
        by_sample = [*signature.inputs, *sums.divided]
        tail = []
        for name, total in totals.items():
            own = name in signature.outputs
            tail += [f"{total}[...] = 0"] if own else []
            tail += [f"for part in range({0 if own else 1}, parts):"]
            tail += [f"    _add_onto({total}, {work.locals[name]}[part:part + 1])"]
        return module.share(
            _Sharing(
                kernel,
                signature,
                (self._blocks(module, kernel, signature, sums, work),),
                kinds=[*signature.kinds(by_sample), *work.kinds(1), "intp", "intp", "intp"],
                codes="w" * len(by_sample) + "o" * len(work.names) + "flw",
                given=[*by_sample, *work.names, "step"],
                work=work,
                tail=[*tail, *sums.finish(totals)],
                scope=sums.scope,
                more=("step",),
            )
        )

    def _blocks(self, module, kernel, signature, sums, work):
        """A function that has samples computed so many at a time, and adds up what they make."""
        made = [f"_block{name}" for name in work.names]
        shapes = tuple_text(f"{name}.shape" for name in work.names)
        lines = [
            f"{', '.join([*made, 'memory'])} = _work_arrays({work.names[0]}, {shapes}, ())",
            "for _start in range(_first, _last, step):",
            "    _stop = min(_start + step, _last)",
            f"    {sums.samples('_start', '_stop', signature, made)}",
            *map("    _add_onto({}, {})".format, work.names, made),
            "_give_back(memory)",
        ]
        name = f"{kernel.__name__}_blocks"
        parameters = [*signature.inputs, *sums.divided, *work.names, "_first", "_last", "step"]
        text = "\n".join([f"def {name}({', '.join(parameters)}):", *indented(lines)])
        return module.compiled(text, SHARING_NAMES | sums.scope, **sums.options)


class _Work:
    """Arrays that a function makes, from texts such as "t0[n, n], t1[n]": reals, and integers, but
    for some; with `parts` for each part one, zero to begin with. Sums have names that begin with
    an underscore there."""

    def __init__(self, signature, reals, integers="", parts=None, but=()):
        self.reals, self.integers = (
            _Signature(f"-> {text}").outputs if text else {} for text in (reals, integers)
        )
        self.every, self.parts = [*self.reals, *self.integers], parts
        self.reals = {name: shape for name, shape in self.reals.items() if name not in but}
        self.locals = {name: name if parts is None else f"_{name}" for name in self.reals}
        if parts:
            self.reals = {name: ("parts", *shape) for name, shape in self.reals.items()}
        self.names = [*self.locals.values(), *self.integers]
        shapes = [tuple_text(each) for each in (*self.reals.values(), *self.integers.values())]
        self.reading = signature.reading(shapes)

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
        zeros = [f"{name}[...] = 0" for name in self.names] if self.parts else []
        return [*self.reading, made, *zeros] if self.names else []


@dataclass
class _Sharing:
    """What a shared function does: `kernels` do a part each, one after the other. kinds: the types
    of their arguments, codes: where these come from of `given` (see `part_of`). work: arrays that
    it makes; tail: lines for what is left to do; scope: names in these; more: parameters besides
    the kernel's own."""

    kernel: Any
    signature: Any
    kernels: tuple
    kinds: list
    codes: str
    given: list
    work: Any = None
    tail: list = field(default_factory=list)
    scope: dict = field(default_factory=dict)
    more: tuple = ()

    @property
    def name(self):
        return f"{self.kernel.__name__}_shared"

    def made(self, module):
        """The function with its kernels; it returns whether a part failed."""
        out = next(iter(self.signature.outputs))
        made = self.work.lines(out) if self.work else []
        lines = [
            *made,
            f"given = {tuple_text(self.given)}",
            "failed = False",
            f"precision = {out}.itemsize // 8",
        ]
        for number in range(len(self.kernels)):
            address = f"addresses[{number}, precision]"
            lines.append(f"work = _part_of({address}, {self.codes!r}, given, length, parts)")
            lines.append("failed |= _submit(words, work, parts)")
        if self.tail:
            lines += ["if not failed:", *indented(self.tail)]
        lines += ["_give_back(memory)"] if made else []
        arrays = [*self.signature.arrays, *self.more]
        heading = (
            f"def {self.name}({', '.join(['words', 'addresses', 'parts', 'length', *arrays])}):"
        )
        text = "\n".join([heading, *indented([*lines, "return failed"])])
        function = module.compiled(text, SHARING_NAMES | self.scope)
        return _Shared(function, *((each, " ".join(self.kinds)) for each in self.kernels))


_TRY = "_shared_ready(_thread_pool.alone, _addresses"


def _tried(shared):
    """The names in `_TRY`, and the function to which arguments are remembered."""
    return {
        "_addresses": shared.addresses,
        "_shared": shared.function,
        "_shared_ready": ready(shared.function),
    }
