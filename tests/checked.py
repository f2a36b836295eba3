"""The kernels of a function with all their arrays guarded, for `tests.bounds`; in a process of its
own, which may end in the midst of it."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import sympy

from derivatrix.compiler.driver.ownership import SUPPORT
from derivatrix.compiler.driver.pipeline import _operator, interface, kernel_plan, operator_plan
from derivatrix.compiler.emit.cpu.module import emit
from derivatrix.compiler.emit.description import FunctionDescription, ModuleDescription
from derivatrix.compiler.emit.imports import _contents, _parsed
from derivatrix.compiler.frontends.function import Function
from derivatrix.compiler.ir.dimensions import evaluate
from derivatrix.compiler.plan.steps import Partition, Plan
from derivatrix.compiler.structured import structured
from derivatrix.runtime.load import REQUIRED, load
from derivatrix.runtime.support import FOLDER, file_digest
from derivatrix.templates import support
from tests.bounds import BATCHES, IDENTITY, LARGEST, OPERATOR, SKEWED, Found, Task, function_of
from tests.differentiate.test_identities import Setting
from tests.guarded import SIDES, guard, guarded
from tests.identities import Identity
from tests.packages import sharing, support_file, texts_of, write_files

MODULE = "checked.py"
TOLERANCES = {"float64": 1e-6, "float32": 1e-2}
ADDING = ("add_onto", "give_back", "shaped", "work_arrays")
"""The functions that add up the sums of blocks of samples call."""
MOST_FAILURES = 3
"""A kernel with so many is not called again."""


def run(request: Mapping[str, Any]) -> dict[str, Any]:
    """Check a task in this process."""
    task = task_of(request)
    function = function_of(task)
    plans = [*plans_of(function, task.kinds)]
    module = guarded(load(written(task, *module_texts(function, plans))))
    every = [called for plan in plans for called in calls(module, plan)]
    kernels = {(getattr(module, kernel.plan.name), kernel.cut): kernel for kernel in every}
    check = Check(module, task)
    identity = IDENTITY.get(task.name, Identity("", "", "", ""))
    for sizes in sizes_of(function, task):
        with np.errstate(all="ignore"):
            values = Setting(identity, function, sizes).values
            for kernel, real in itertools.product(kernels.values(), task.types):
                check(kernel, values, sizes, real)
    return vars(check.found)


def written(task: Task, text: str, data: str) -> Path:
    """The file of a task's module, of these texts; its support, compiled once, is that of all tasks
    of the process in which nothing is planted."""
    texts = texts_of("checked", text, data)
    folder = Path(task.place).parent
    if task.planted:
        for old, new in task.planted:
            plant(texts, old, new)
        return write_files(folder, texts) / MODULE
    own = {name: texts[name] for name in texts if not name.startswith(FOLDER)}
    shared = Path(os.environ["NUMBA_CACHE_DIR"]) / "checked"
    if not shared.exists():
        write_files(shared, texts)
    return write_files(shared / file_digest((text + data).encode()), own) / MODULE


def task_of(request: Mapping[str, Any]) -> Task:
    """A task, from what JSON made of it."""
    return Task(**{k: tuple(v) if isinstance(v, list) else v for k, v in request.items()})


def plant(texts: dict[str, str], old: str, new: str) -> None:
    """Put something in place of other text in the module, or in its support where only that has
    it; its list of files has the digests of what is there then."""
    holders = [name for name in texts if old in texts[name]]
    assert holders, old
    for name in [MODULE] if MODULE in holders else holders:
        before = file_digest(texts[name].encode())
        texts[name] = texts[name].replace(old, new)
        after = file_digest(texts[name].encode())
        texts[SUPPORT] = texts[SUPPORT].replace(before, after)


def reached(request: Mapping[str, Any]) -> list[str]:
    """The functions that the kernels of a task call, at any remove."""
    task = task_of(request)
    function = function_of(task)
    plans = [*plans_of(function, task.kinds)]
    text, data = module_texts(function, plans)
    own = text.replace("from ._support", f"from {support.__name__}")
    imports = _parsed(data.replace("from .._support", f"from {support.__name__}"), "").imports
    kernels = [called_plan.name for plan in plans for called_plan in (plan, *plan.inner)]
    waiting = [("", name) for name in kernels]
    waiting += [(imports[name][0], name) for name in ADDING if name in imports]
    result: set[tuple[str, str]] = set()
    while waiting:
        file, name = waiting.pop()
        contents = _contents(file) if file else _parsed(own, "")
        if name in contents.imports:
            file, name = contents.imports[name]
            if file.startswith(support.__name__):
                waiting.append((file, name))
        elif name in contents.definitions and (file, name) not in result:
            text, used = contents.definitions[name]
            if not text.startswith("class "):  # no kernel calls methods
                result.add((file, name))
                waiting += [(file, other) for other in used]
    return sorted(name for _, name in result)


def plans_of(function: Function, kinds: Sequence[str]) -> Iterator[Plan]:
    """The plans of these kinds of kernels, or of all."""
    derivatives = function.derivatives
    for kind in derivatives.kinds:
        if not kinds or kind in kinds:
            yield kernel_plan(derivatives, kind)
    if not kinds or OPERATOR in kinds:
        plan = operator_plan(derivatives, structured(derivatives, function.kinds))
        if plan.outputs:
            yield plan


def module_texts(function: Function, plans: Sequence[Plan]) -> tuple[str, str]:
    """A module of these kernels, and its data. Formulas, which it has none of, would take most of
    the time."""
    kinds = {f"{kind}_kernel": kind for kind in function.kinds}
    functions = [
        FunctionDescription(kinds[plan.name], (), plan, tuple((n, n) for n, _ in plan.outputs))
        for plan in plans
        if plan.name in kinds
    ]
    operator = _operator(function.derivatives) if len(functions) < len(plans) else None
    facts = {**dict.fromkeys(REQUIRED, ()), **interface(function), "TARGET": "cpu"}
    description = ModuleDescription(function.name, "", facts, functions, operator)
    return emit(description)[:2]


def sizes_of(function: Function, task: Task) -> Iterator[dict[str, int]]:
    """The sizes: for each number all that number, and about that number; with each batch. Those for
    which the result would have an axis of a negative length are left out."""
    shapes = [function.batched(leaf).shape for leaf in function.inputs]
    symbols = {s.name for shape in shapes for size in shape for s in size.free_symbols} - {"batch"}
    batches = BATCHES if function.batch else (1,)
    skews = [{}, SKEWED] if len(symbols) > 1 else [{}]
    for number, skew, batch in itertools.product(task.sizes if symbols else (1,), skews, batches):
        sizes = {name: max(0, number + skew.get(name, 0)) for name in sorted(symbols)}
        sizes["batch"] = batch
        if all(evaluate(size, sizes) >= 0 for size in function.expression.shape):
            yield sizes


@dataclass(frozen=True)
class Called:
    """A kernel in a module; partition: how several threads do it in parts, None for one thread."""

    plan: Plan
    partition: Partition | None = None

    @property
    def cut(self) -> str:
        """The word by which the second file names the cut; "" for a call by one thread."""
        if self.partition is None:
            return ""
        return "batch_last" if self.partition.is_batch_last else "parts"

    @property
    def name(self) -> str:
        return f"{self.plan.name}{f' in {self.cut}' if self.cut else ''}"

    def __call__(
        self, module: ModuleType, arguments: Sequence[Any], sizes: Mapping[str, int]
    ) -> None:
        if not self.cut:
            getattr(module, self.plan.name)(*arguments)
        elif self.parts(module, arguments):
            getattr(module, self.plan.name)(*arguments)
            raise AssertionError("a part failed")

    def parts(self, module: Any, arguments: Sequence[Any]) -> bool:
        """Let threads do it, as `SharedKernel` does; whether a part failed."""
        shared, real = sharing(module, self.plan.name, self.cut), arguments[-1].dtype
        length = 0 if shared.by_rows else len(arguments[shared.sliced])
        count = 3 if shared.by_rows else max(1, min(3, length))
        given = [
            np.empty((count, *array.shape), real) if code == "o" else array
            for array, code in zip(arguments, shared.codes, strict=False)
        ]
        pool = support_file(module, "cpu.thread_pool")._THREAD_POOL
        failed = pool.submit(shared.compute, 2, (length, count, 2), real, given)
        for array, addends, code in zip(arguments, given, shared.codes, strict=False):
            if code == "o":
                np.add.reduce(addends, axis=0, out=array)
        return bool(failed)


def calls(module: Any, plan: Plan) -> Iterator[Called]:
    """All kernels of a plan that can be called, but where they are another one's, too."""
    if getattr(module, plan.name).__name__ != plan.name:
        return
    for each in (plan, *plan.inner):
        if not each.part_parameters:
            yield Called(each)
    for partition in plan.partitions:
        yield Called(plan, partition)


class Check:
    """Calls kernels, each time with the ends of all arrays watched, then with their beginnings."""

    def __init__(self, module: ModuleType, task: Task) -> None:
        self.module, self.found, self.without = module, Found(), set(task.without)
        self.place = os.open(task.place, os.O_WRONLY | os.O_CREAT)
        self.failures: dict[str, int] = {}

    def __call__(
        self, kernel: Called, values: Mapping[str, np.ndarray], sizes: Mapping[str, int], real: str
    ) -> None:
        place = f"{kernel.name} of {real}"
        if place in self.without or self.failures.get(place, 0) >= MOST_FAILURES:
            return
        if any(length < 0 for shape in every_shape(kernel.plan, sizes) for length in shape):
            return  # there are no such arrays
        if not hasattr(self.module, f"check_{kernel.plan.name}") and not all(
            eval(requirement, {}, dict(sizes)) for requirement in self.module.REQUIREMENTS
        ):
            return  # public functions refuse these before they call it
        inputs, shapes = arrays(kernel.plan, values, sizes)
        count = sum(input.size for input in inputs) + sum(int(np.prod(shape)) for shape in shapes)
        if count > LARGEST:
            self.found.large += 1
            return
        os.pwrite(self.place, f"{place} for {sizes}".ljust(400).encode(), 0)
        problems, results = [], []
        for side in SIDES:
            problem, result = self.attempt(kernel, sizes, inputs, shapes, np.dtype(real), side)
            problems += problem
            results.append(result)
        self.found.calls += 1
        one, other = results
        if not problems and (one is None) != (other is None):
            problems.append("raises or not, by what nobody has written")
        if one is None:
            self.found.refused += 1
        elif other is not None and not all(map(same, one, other)):
            problems.append("reads what nobody has written")
        if problems:
            self.failures[place] = self.failures.get(place, 0) + 1
            self.found.failures += [
                f"{place} for {sizes}: {problem}" for problem in dict.fromkeys(problems)
            ]

    def attempt(
        self,
        kernel: Called,
        sizes: Mapping[str, int],
        inputs: Sequence[np.ndarray],
        shapes: Sequence[tuple[int, ...]],
        real: np.dtype,
        side: int,
    ) -> tuple[list[str], list[np.ndarray] | None]:
        """Problems, and the results; None where the kernel raises for what it is given."""
        guard.clear(side)
        arguments, copies = [], []
        for value in inputs:
            copies.append(value.astype(real))
            arguments.append(real.type(value))
            if value.ndim:
                arguments[-1] = guard.array(value.shape, real)
                arguments[-1][...] = copies[-1]
        outputs = [guard.array(shape, real) for shape in shapes]
        problems, results = [], None
        try:
            kernel(self.module, [*arguments, *outputs], sizes)
            results = [output.copy() for output in outputs]
        except (ValueError, np.linalg.LinAlgError):
            pass
        except Exception as error:
            problems.append(f"{type(error).__name__}: {error}")
        pairs = zip(arguments, copies, strict=True)
        if not all(np.array_equal(one, other, equal_nan=True) for one, other in pairs):
            problems.append("writes to an argument")
        return problems, results


def same(one: np.ndarray, other: np.ndarray) -> bool:
    """Return whether two runs agree; BLAS sums in another order if arrays have another
    alignment."""
    tolerance = TOLERANCES[one.dtype.name]
    scale = float(np.abs(one[np.isfinite(one)]).max(initial=0.0))
    return np.allclose(one, other, rtol=tolerance, atol=tolerance * scale, equal_nan=True)


def arrays(
    plan: Plan, values: Mapping[str, np.ndarray], sizes: Mapping[str, int]
) -> tuple[list[np.ndarray], list[tuple[int, ...]]]:
    """The arguments of a plan's kernel, and the shapes of its results."""
    generator = np.random.default_rng(0)
    inputs = []
    for argument in plan.arguments:
        shape = lengths(argument.shape, sizes)
        value = np.asarray(values[argument.name]) if argument.name in values else None
        if value is None or value.shape != shape:  # it is one of sums over samples
            value = np.asarray(generator.normal(size=shape))
        inputs.append(value)
    return inputs, [lengths(buffer.shape, sizes) for _, buffer in plan.outputs]


def every_shape(plan: Plan, sizes: Mapping[str, int]) -> list[tuple[int, ...]]:
    """The shapes of a kernel's arguments and results."""
    buffers = [buffer for _, buffer in plan.outputs]
    return [lengths(parameter.shape, sizes) for parameter in (*plan.arguments, *buffers)]


def lengths(shape: Sequence[sympy.Expr], sizes: Mapping[str, int]) -> tuple[int, ...]:
    """A shape as numbers. A size that is not named is that of a part of the samples: all."""
    names = {symbol.name for size in shape for symbol in size.free_symbols}
    known = {name: sizes.get(name, sizes["batch"]) for name in names}
    return tuple(int(evaluate(size, known)) for size in shape)
