"""Kernels as plain Python, without Numba."""

from __future__ import annotations

import importlib
import itertools
import math
import operator
from collections.abc import Callable, Mapping, Sequence
from functools import partial

import numpy as np
import scipy.special

from derivatrix.compiler.driver.pipeline import kernel_plan
from derivatrix.compiler.emit.cpu.array_calls import FUNCTIONS
from derivatrix.compiler.emit.cpu.kernel import kernel_text
from derivatrix.compiler.emit.structured_arguments import NEAREST
from derivatrix.compiler.frontends.function import Function
from derivatrix.compiler.ir.interpret import evaluate_all
from derivatrix.compiler.ir.operation import Kernel, kernel_name
from derivatrix.compiler.plan.steps import Partition, Plan, Step
from derivatrix.compiler.targets import cpu
from derivatrix.templates.support import cpu as support
from derivatrix.templates.support.cpu.kernels import border
from tests.full_matrices import nearest
from tests.points import draw_all


def gemm(alpha, a, transpose_a, b, transpose_b, beta, c):
    """Multiply as the helper kernel does, by NumPy."""
    product = alpha * (a.T if transpose_a else a) @ (b.T if transpose_b else b)
    c[...] = product + (beta * c if beta else 0)


def structured_gemm(alpha, a, transpose_a, b, transpose_b, beta, c, left, right, part):
    """Multiply with known zeros, and with entries that need not be computed set to nan: a wrong
    claim, or a read of such an entry, shows in results."""
    known = {"LOWER": np.tril, "UPPER": np.triu, "WHOLE": np.asarray}
    product = known[left](a.T if transpose_a else a) @ known[right](b.T if transpose_b else b)
    c[...] = alpha * product + (beta * c if beta else 0)
    if part == "LOWER":
        c[np.triu_indices(len(c), 1)] = np.nan


def symmetric_gemm(alpha, a, transpose_a, b, transpose_b, beta, c, left, right):
    """Compute the lower triangle of a symmetric product, and mirror it."""
    structured_gemm(alpha, a, transpose_a, b, transpose_b, beta, c, left, right, "WHOLE")
    c[...] = np.tril(c) + np.tril(c, -1).T


def gram(alpha, a, transpose_a, beta, c):
    """Multiply a matrix and its transpose."""
    symmetric_gemm(alpha, a, transpose_a, a, not transpose_a, beta, c, "WHOLE", "WHOLE")


def inner_product(left, right):
    """Return the inner product of two arrays of one shape."""
    assert left.shape == right.shape
    return np.vdot(left, right)


def work_arrays(like, shapes, integers):
    """Make separate work arrays, whose entries show in results if they are read first."""
    arrays = [np.full(shape, np.nan) for shape in shapes]
    return (*arrays, *(np.full(shape, 1 << 30, np.int32) for shape in integers), 0)


def range_factor(square):
    """The factor of entries of double precision whose squares add up to this."""
    return 2.0**600 if square < 2.0**-960 else 2.0**-600 if square > 2.0**1000 else 1.0


def scaled_normcdf(x):
    """Φ(x) exp(min(x, 0)² / 2)."""
    lower = scipy.special.erfcx(-np.minimum(x, 0) / np.sqrt(2)) / 2
    return np.where(np.asarray(x) < 0, lower, scipy.special.ndtr(x))


def function(operator: str) -> Callable[..., float]:
    """A function of numbers as NumPy or SciPy has it."""
    if operator == "scaled_normcdf":
        return scaled_normcdf
    name = operator.removeprefix("bessel").replace("digamma", "psi")
    return getattr(np, name, None) or getattr(scipy.special, name)


def helper(kernel: Kernel) -> Callable[..., bool | None]:
    """The function that a plan's helper kernel is."""
    if not isinstance(kernel, str):
        return kernel
    file, name = kernel.split(".")
    return getattr(importlib.import_module(f"{support.__name__}.{file}"), name)


def plain_kernel(plan: Plan, calls: list[str]) -> Callable[..., None]:
    """A kernel's text as a function, which notes its name in `called`."""
    text = kernel_text(plan, "f", "")
    lines = ["note()", *text.head, *(line for step in text.steps for line in step.lines), "return"]
    body = "\n".join(f"    {line}" for line in lines)
    scope: dict = {"np": np, "math": math, "gemm": gemm, "symmetric_gemm": symmetric_gemm}
    scope.update(gram=gram, structured_gemm=structured_gemm, work_arrays=work_arrays)
    scope["give_back"] = lambda *memory: None
    for structure, name in NEAREST.items():
        scope[name] = lambda array, structure=structure: (nearest(structure, array), 0)
    scope.update((name, name) for name in ("LOWER", "UPPER", "WHOLE"))
    scope["note"] = lambda: calls.append(plan.name)
    scope.update(shaped=np.reshape, sum_entries=np.sum, inner_product=inner_product)
    scope.update((name, helper(f"sums.{name}")) for name in ("add_multiple", *FUNCTIONS.values()))
    scope["copy_entries"] = lambda source, target: np.copyto(target, source)
    scope["copy_permuted"] = lambda source, out, *axes: np.copyto(out, source.transpose(axes))
    scope["border"] = border.py_func
    scope["times"] = operator.mul
    scope["scaled"] = lambda x, square: x * range_factor(square)
    scope["unscaled"] = lambda root, square: root / range_factor(square)
    scope["float"] = np.float64  # which Numba divides by as NumPy does
    scope.update(plan.constants)
    scope.update((kernel_name(kernel), helper(kernel)) for kernel in plan.kernels)
    scope.update((kernel_name(path), function(name)) for name, path in cpu.SCALARS.items())
    called = (*plan.variants, *(loop.step for loop in plan.recurrences))
    scope.update((callee.name, plain_kernel(callee, calls)) for callee in called)
    heading = text.heading[[line.startswith("def ") for line in text.heading].index(True) :]
    exec("\n".join([*heading, body]), scope)
    return partial(scope[text.name])


def steps_of(function: Function, kind: str) -> list[Step]:
    """The steps of a kernel."""
    kernel = kernel_plan(function.derivatives, kind)
    return [*kernel.whole.every_step]


def check_plain(
    function: Function, kind: str, sizes: Mapping[str, int], tolerance: float = 1e-12
) -> None:
    """The kernel of one kind at drawn inputs, as plain Python, against NumPy's evaluation."""
    plan, values = kernel_plan(function.derivatives, kind), draw_all(function, sizes=sizes)
    nodes = list(function.derivatives.kernel(kind)[1].values())
    expected = evaluate_all(nodes, values, sizes)
    outputs = [np.full(array.shape, np.nan) for array in expected]
    run_plain(plan, values, outputs)
    for output, array in zip(outputs, expected, strict=True):
        np.testing.assert_allclose(output, array, rtol=tolerance, atol=1e-12)


def run_plain(
    plan: Plan, values: Mapping[str, np.ndarray], outputs: Sequence[np.ndarray]
) -> list[str]:
    """Fill the outputs, as parts by samples, shares of the rows and sums over parts of the samples
    have to, the last one first; the names of the kernels called on the way."""
    calls: list[str] = []
    arrays = [np.array(values[argument.name], float, order="C") for argument in plan.arguments]
    inputs = [array if array.ndim else array[()] for array in arrays]
    with np.errstate(all="ignore"):
        kernel = None
        if plan.whole is plan:
            kernel = plain_kernel(plan, calls)
            kernel(*inputs, *outputs)
        else:
            assert plan.partition is not None
            length = len(inputs[plan.partition.sliced.index(True)])
            _run_samples(plan.partition, None, [*inputs, *outputs], calls, [(0, length)])
        for partition in plan.partitions:
            again = [np.full_like(array, np.nan) for array in outputs]
            together, tolerance = [*inputs, *again], 1e-12
            if partition.axis == "rows":
                _run_rows(partition, inputs, again, calls)
            else:
                length = len(together[partition.sliced.index(True)])
                if not length and partition.has_sums:
                    continue
                if partition.is_batch_last and not partition.has_sums:
                    tolerance = 1e-9  # systems are solved another way
                _run_samples(partition, kernel, together, calls, _parts(length))
            for one, other in zip(outputs, again, strict=True):
                np.testing.assert_allclose(one, other, rtol=tolerance, atol=tolerance / 100)
    return calls


def _run_rows(
    partition: Partition, inputs: Sequence, outputs: Sequence[np.ndarray], calls: list[str]
) -> None:
    """Fill the outputs share by share in any order: what a share reads of another one's before it
    is there, or no more, shows."""
    assert partition.kernel is not None
    share = plain_kernel(partition.kernel, calls)
    for order in (2, 1, 0), (0, 1, 2), (1, 2, 0):
        again = [np.full_like(array, np.nan) for array in outputs]
        for part in order:
            share(*inputs, *again, part, 3)
        for one, other in zip(outputs, again, strict=True):
            if order[0] != 2:
                np.testing.assert_allclose(one, other, rtol=1e-12, atol=1e-14)
            one[...] = other


def _run_samples(
    partition: Partition,
    kernel: Callable | None,
    arrays: Sequence,
    calls: list[str],
    parts: Sequence[tuple[int, int]],
) -> None:
    """Fill the outputs, the last arrays, part by part; kernel: that of all samples."""
    if partition.kernel is not None:
        kernel = plain_kernel(partition.kernel, calls)
    assert kernel is not None
    length = len(arrays[partition.sliced.index(True)])
    for array, is_sum in zip(arrays, partition.summed, strict=True):
        if is_sum:
            array[...] = 0
    for begin, end in parts:
        sums = [np.full_like(array, np.nan) for array in arrays]
        flags = zip(arrays, sums, partition.sliced, partition.summed, strict=True)
        given = [
            own if is_sum else array[begin:end] if is_sliced else array
            for array, own, is_sliced, is_sum in flags
        ]
        kernel(*given, *((length, begin == 0) if partition.has_sums else ()))
        for array, own, is_sum in zip(arrays, sums, partition.summed, strict=True):
            if is_sum:
                array += own


def _parts(length: int) -> list[tuple[int, int]]:
    """Split a length into nonempty parts of different lengths, the last one first."""
    cuts = sorted({0, length // 3, length})
    return list(itertools.pairwise(cuts))[::-1]
