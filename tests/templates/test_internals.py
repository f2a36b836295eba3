"""One test for each use of Numba's internals (docs/developers/numba.md)."""

from __future__ import annotations

import gc
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numba
import numpy as np
import pytest
import scipy.special
from llvmlite import binding, ir
from numba import njit, types
from numba.core import base, caching, callconv, cgutils, codegen, dispatcher
from numba.extending import intrinsic
from numba.np import arrayobj

from derivatrix.templates.support.cpu.kernels import SharedKernel
from derivatrix.templates.support.cpu.thread_pool import WORDS
from derivatrix.templates.support.internals import arithmetic, functions, memory, verification
from tests import ROOT


def add(x, y):  # type: ignore[no-untyped-def]
    return x + y


@njit
def doubled(x, out):  # type: ignore[no-untyped-def]
    out[0] = 2 * x[0]


def compiled(code: Callable[..., Any], deferred: Any = None) -> Any:
    """A function compiled anew, whatever is on disk."""
    function = functions.compiled(deferred=deferred)(code)
    function._cache = caching.NullCache()
    return function


def called(code: Callable[..., Any], *arguments: Any) -> Any:
    """Compile a function and call it."""
    return compiled(code)(*arguments)


def damaged_files_are_told() -> bool:
    text = (
        "import sys, warnings, pathlib\n"
        "from derivatrix.templates.support.internals.functions import compiled\n"
        "sys.path.insert(0, sys.argv[1])\n"
        "with warnings.catch_warnings(record=True) as told:\n"
        "    warnings.simplefilter('always')\n"
        "    import once\n"
        "    assert once.kernel(2.0) == 4.0\n"
        "hits = sum(once.kernel.stats.cache_hits.values())\n"
        "print(any('damaged' in str(each.message) for each in told), hits)\n"
    )
    with tempfile.TemporaryDirectory() as folder:
        code = (
            "from derivatrix.templates.support.internals.functions import compiled\n"
            "@compiled()\ndef kernel(x):\n    return x + x\n"
        )
        Path(folder, "once.py").write_text(code)
        env = {**os.environ, "NUMBA_CACHE_DIR": f"{folder}/cache", "PYTHONPATH": str(ROOT)}

        def run() -> str:
            command = [sys.executable, "-c", text, folder]
            return subprocess.run(command, env=env, capture_output=True, text=True).stdout

        first, kept = run(), run()
        for path in Path(folder, "cache").rglob("*.nbc"):
            path.write_bytes(path.read_bytes()[:-40] + bytes(40))
        return (first.split(), kept.split(), run().split()[:1]) == (
            ["False", "0"],
            ["False", "1"],
            ["True"],
        )


def references_are_not_counted() -> bool:
    function = compiled(doubled.py_func)
    function(np.ones(1), np.ones(1))
    (text,) = function.inspect_llvm().values()
    return "NRT_incref" not in text and "cfunc." not in text


def flags_are_one_type() -> bool:
    inner = compiled(lambda flag: 1.0 if flag else 2.0)
    compiled(lambda: inner(True) + inner(False))()
    return len(inner.for_kernels().signatures) == 1


def functions_are_called_by_name() -> bool:
    """Each by its own, of two that are both called <lambda>."""
    one = compiled(lambda x: x + 1)
    other = compiled(lambda x: x * 2)
    caller = compiled(lambda x: one(x) - other(x))
    result = caller(5.0)
    (text,) = caller.inspect_llvm().values()
    return bool(result == -4 and text.count("declare i32 @derivatrix_") == 2)


def functions_are_compiled_when_they_are_called() -> bool:
    half = compiled(lambda x: x / 2, deferred=types.float64)
    caller = compiled(lambda x: half(x) if x > 1 else x)
    small, before = caller(1.0), len(half.for_kernels().signatures)
    return (small, before, caller(4.0)) == (1.0, 0, 2.0)


def called_code_comes_from_the_cache() -> bool:
    """A process that loads a function compiles neither it nor the functions that it calls by name,
    and imports nothing that only compilation needs."""
    text = (
        "import sys, numpy as np\n"
        "sys.path.insert(0, sys.argv[1])\n"
        "import calling\n"
        "assert calling.kernel(np.full(1, 2.0)) == 5.0\n"
        "for each in (calling.kernel, calling.inner.for_kernels()):\n"
        "    print(sum(each.stats.cache_hits.values()))\n"
        "print('numba.np.arraymath' in sys.modules, 'numpy.ma' in sys.modules)\n"
    )
    code = (
        "import numpy as np\n"
        "from derivatrix.templates.support.internals.functions import compiled\n"
        "@compiled()\ndef inner(x):\n    return x[0] + max(x[0], np.finfo(x.dtype).eps)\n"
        "@compiled()\ndef kernel(x):\n    return inner(x) + 1\n"
    )
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "calling.py").write_text(code)
        env = {**os.environ, "NUMBA_CACHE_DIR": f"{folder}/cache", "PYTHONPATH": str(ROOT)}
        command = [sys.executable, "-c", text, folder]
        runs = [subprocess.run(command, env=env, capture_output=True, text=True) for _ in "ab"]
    result = [run.stdout.split() for run in runs]
    return [counts[:2] for counts in result] == [["0", "0"], ["1", "1"]] and result[1][2:] == [
        "False"
    ] * 2


def unknown_arguments_are_refused_at_once() -> bool:
    kernel = compiled(add)
    ready = functions.ready(kernel)
    try:
        ready(1.0, 2.0)
    except TypeError:
        kernel(1.0, 2.0)
        ready.remember()
        return bool(ready(1.0, 2.0) == 3.0)
    return False


def parts_are_called_by_address() -> bool:
    kernel = SharedKernel(None, compiled(doubled.py_func), ["real:1", "real:1"], "ss")
    out = np.zeros(3)
    words = np.zeros(WORDS, np.int64)
    failed = kernel.compute(words, (3, 3, 1), out.dtype, (np.arange(3.0), out))
    return not failed and bool((out == [0, 2, 4]).all())


def kernels_take_the_buffers_of_others() -> bool:
    array, word_at = types.Array(types.float64, 1, "C"), verification.word_at

    def scaled(number, x, out):  # type: ignore[no-untyped-def]
        if x.size > 2:
            raise ValueError
        for place in range(x.size):
            out[place] = number * x[place]

    address = functions.address_of(compiled(scaled), (types.float64, array, array))
    call = verification.called_with_buffers(address, ((types.float64, array), (array,)), 1, 0)

    def kernel(lists):  # type: ignore[no-untyped-def]
        return call((word_at(lists, 0), word_at(lists, 1)))

    number, x, out = np.full(1, 3.0), np.arange(2.0), np.zeros(2)
    failed = []
    for length in (2, 3):
        sizes = np.full(1, length)
        buffers = [np.array([sizes.ctypes.data, each.ctypes.data]) for each in (number, x, out)]
        given, filled = (
            np.array([each.ctypes.data for each in some]) for some in (buffers[:2], buffers[2:])
        )
        lists = np.array([given.ctypes.data, filled.ctypes.data])
        failed.append(called(kernel, lists.ctypes.data))
    return failed == [False, True] and bool((out == [0, 3]).all())


def wrong_shapes_are_refused() -> bool:
    require = memory._require_shapes

    def kernel(x, out):  # type: ignore[no-untyped-def]
        require("f", "x out", (x, out), ((2,), (2,)), 1)
        return 1

    function = compiled(kernel)
    try:
        function(np.ones(3), np.ones(2))
    except ValueError as error:
        return "another shape" in str(error) and bool(function(np.ones(2), np.ones(2)) == 1)
    return False


def arrays_lie_over_memory() -> bool:
    shaped = memory.shaped

    def kernel(x):  # type: ignore[no-untyped-def]
        matrix = shaped(x, (2, 3))
        matrix[1, 0] = 7.0
        return matrix[1, 1]

    x = np.arange(6.0)
    return called(kernel, x) == 4.0 and bool(x[3] == 7.0)


def offsets_of_work_arrays_are_hidden() -> bool:
    """Sums of sizes would slow down loop strength reduction; constants are not hidden."""
    work_arrays, give_back = memory.work_arrays, memory.give_back

    def of_size(x, size):  # type: ignore[no-untyped-def]
        one, other, memory = work_arrays(x, ((size, size), (size,)), ())
        one[0, 0] = other[0] = x[0]
        x[0] = one[0, 0] + other[0]
        give_back(memory)

    def of_number(x, size):  # type: ignore[no-untyped-def]
        one, other, memory = work_arrays(x, ((3, 3), (3,)), ())
        one[0, 0] = other[0] = x[0]
        x[0] = one[0, 0] + other[0]
        give_back(memory)

    def hidden(code: Callable[..., Any]) -> bool:
        made = compiled(code)
        made(np.ones(1), 3)
        text = next(iter(made.overloads.values())).library.get_llvm_str()
        names = re.findall(r'(%\S+) = (?:tail )?call i64 asm ""', text)
        return any(len(re.findall(rf"{re.escape(name)}(?![\w.])", text)) > 1 for name in names)

    return hidden(of_size) and not hidden(of_number)


def work_arrays_are_one_block() -> bool:
    work_arrays, give_back = memory.work_arrays, memory.give_back

    def kernel(x, size):  # type: ignore[no-untyped-def]
        one, other, number, memory = work_arrays(x, ((size,), (2, size), ()), ())
        one[:] = 1.0
        other[:] = 2.0
        number[()] = 5.0
        total = one.sum() + other.sum() + number[()]
        give_back(memory)
        return total

    function = compiled(kernel)
    return all(function(np.ones(1), size) == 5 * size + 5 for size in (3, 5000))


def words_are_changed_at_once() -> bool:
    more, look = memory.atomic("add"), memory.look

    def kernel(words):  # type: ignore[no-untyped-def]
        return more(words, 1, 3), look(words, 1)

    return bool(called(kernel, np.zeros(2, np.int64)) == (0, 3))


def instructions_are_written() -> bool:
    half = arithmetic.number_function(lambda x: x.absolute() * 0.5 + 1.0)
    return bool(called(lambda x: half(x), -3.0) == 2.5)


def blas_is_called_by_address() -> bool:
    product = arithmetic.matrix_product(False)

    def kernel(a, out):  # type: ignore[no-untyped-def]
        product(1.0, a, True, a, False, 0.0, out)

    a, out = np.arange(1200.0).reshape(40, 30), np.zeros((30, 30))
    called(kernel, a, out)
    return bool(np.allclose(out, a.T @ a))


def python_is_called_with_numbers() -> bool:
    told: list[tuple[float, ...]] = []

    def note(*numbers: float) -> None:
        told.append(numbers)

    call = functions.callback(note, 3)

    @functions.compiled()
    def kernel(out):
        call((2, out[0], True))

    kernel(np.full(1, 0.5, np.float32))
    return told == [(2.0, 0.5, 1.0)]


def special_functions_are_called_by_address() -> bool:
    digamma = functions.scipy_special("psi", 1)
    return bool(np.isclose(called(lambda x: digamma(x), 2.5), scipy.special.psi(2.5)))


def simulated_memory_can_be_set() -> bool:
    text = (
        "from derivatrix.templates.support.internals.verification import memory_as_on_device\n"
        "assert all(hasattr(owner, name) for owner, name, _ in memory_as_on_device())\n"
    )
    env = {**os.environ, "NUMBA_ENABLE_CUDASIM": "1", "PYTHONPATH": str(ROOT)}
    return subprocess.run([sys.executable, "-c", text], env=env, check=False).returncode == 0


def passes_are_left_out() -> bool:
    """Only functions that count references need Numba's passes for these."""
    function = compiled(lambda x: x + 1)
    if function(2.0) != 3.0:
        return False
    (result,) = function.overloads.values()
    passes = {name.split("_", 1)[1] for name in result.metadata["pipeline_times"]["nopython"]}
    return "nopython_rewrites" not in passes and isinstance(result.library, functions._Library)


def arrays_are_allocated() -> bool:
    def allocate(n):  # type: ignore[no-untyped-def]
        integers, numbers = memory.zeros((n, 2), np.int32), memory.empty((n,), np.float32)
        numbers[:] = arithmetic.epsilon(numbers)
        return integers, numbers

    function = functions.compiled(counted=True)(allocate)
    function._cache = caching.NullCache()
    integers, numbers = function(3)
    expected = np.zeros((3, 2), np.int32), np.full(3, np.finfo(np.float32).eps, np.float32)
    pairs = zip((integers, numbers), expected, strict=True)
    return all(a.dtype == b.dtype and np.array_equal(a, b) for a, b in pairs)


def tuples_get_one_type() -> bool:
    def total(*arrays):  # type: ignore[no-untyped-def]
        same, result = memory.of_one_type(arrays), 0.0
        for place in range(len(arrays)):
            result += same[place][0]
        return result

    constant = np.ones(1)
    constant.flags.writeable = False
    return bool(called(total, constant, np.full(1, 2.0)) == 3.0)


@dataclass(frozen=True)
class Use:
    """A use of Numba's internals: its name, its check, and the attribute whose replacement must
    make the check fail."""

    name: str
    holds: Callable[[], bool]
    owner: Any
    attribute: str


USES = [
    Use("options of njit", references_are_not_counted, functions, "njit"),
    Use("templates of calls", flags_are_one_type, dispatcher.Dispatcher, "get_call_template"),
    Use("calls by name", functions_are_called_by_name, base.BaseContext, "insert_user_function"),
    Use(
        "calls of what is compiled later",
        functions_are_compiled_when_they_are_called,
        functions,
        "make_concrete_template",
    ),
    Use(
        "compiling for arguments",
        unknown_arguments_are_refused_at_once,
        dispatcher.Dispatcher,
        "add_overload",
    ),
    Use(
        "addresses of kernels",
        parts_are_called_by_address,
        codegen.JITCodeLibrary,
        "get_pointer_to_function",
    ),
    Use(
        "the convention of calls",
        parts_are_called_by_address,
        callconv.CPUCallConv,
        "call_function",
    ),
    Use(
        "the words of arguments",
        parts_are_called_by_address,
        base.BaseContext,
        "get_arg_packer",
    ),
    Use(
        "functions of LLVM alone",
        parts_are_called_by_address,
        codegen.Codegen,
        "create_library",
    ),
    Use(
        "errors raised by kernels",
        wrong_shapes_are_refused,
        callconv.CPUCallConv,
        "_get_excinfo_argument",
    ),
    Use("buffers of others", kernels_take_the_buffers_of_others, verification, "view"),
    Use("passes over each function", passes_are_left_out, functions.Compiler, "define_pipelines"),
    Use(
        "LLVM's passes",
        passes_are_left_out,
        codegen.CPUCodegen,
        "_module_pass_manager",
    ),
    Use("Numba's arrays", arrays_are_allocated, arrayobj, "_empty_nd_impl"),
    Use("tuples of arrays", tuples_get_one_type, base.BaseContext, "make_tuple"),
    Use("arrays over memory", arrays_lie_over_memory, arrayobj, "populate_array"),
    Use("Numba's memory", work_arrays_are_one_block, memory, "call_named"),
    Use("inline assembly", offsets_of_work_arrays_are_hidden, ir.IRBuilder, "asm"),
    Use("atomic words", words_are_changed_at_once, ir.IRBuilder, "atomic_rmw"),
    Use("LLVM's instructions", instructions_are_written, ir.IRBuilder, "fmul"),
    Use("BLAS by address", blas_is_called_by_address, cgutils, "get_or_insert_function"),
    Use(
        "special functions by address",
        special_functions_are_called_by_address,
        functions,
        "add_symbol",
    ),
    Use("Python called by kernels", python_is_called_with_numbers, functions, "call_named"),
]


@pytest.mark.parametrize("use", USES, ids=lambda use: use.name)
def test_a_use_is_as_it_was(use: Use) -> None:
    assert use.holds(), f"Numba {numba.__version__}: {use.name} (docs/developers/numba.md) changed"


@pytest.mark.parametrize("use", USES, ids=lambda use: use.name)
def test_a_change_is_seen(use: Use, monkeypatch: pytest.MonkeyPatch) -> None:
    def changed(*arguments: Any, **named: Any) -> Any:
        raise NotImplementedError(use.name)

    monkeypatch.setattr(use.owner, use.attribute, changed)
    with pytest.raises(Exception, match=use.name):
        assert use.holds(), use.name


def test_a_damaged_cache_is_told() -> None:
    assert damaged_files_are_told(), f"Numba {numba.__version__}: files of its cache changed"
    assert issubclass(functions._Cache, caching.FunctionCache)


def test_called_code_comes_from_the_cache() -> None:
    assert called_code_comes_from_the_cache(), f"Numba {numba.__version__}: its cache changed"


def test_a_tuple_of_arguments_is_compiled_as_any_tuple() -> None:
    """Numba's type for *arguments has the name of the usual type, by which files are found, but is
    not equal to it."""

    @functions.compiled()
    def first_entries(arrays):  # type: ignore[no-untyped-def]
        return arrays[0][0] + arrays[1][0]

    @functions.compiled()
    def of_a_pair(left, right):  # type: ignore[no-untyped-def]
        return first_entries((left, right))

    @functions.compiled()
    def of_arguments(*arrays):  # type: ignore[no-untyped-def]
        return first_entries(arrays)

    @functions.compiled()
    def twice(left, right):  # type: ignore[no-untyped-def]
        return of_a_pair(left, right) + of_arguments(left, right)

    assert twice(np.ones(2), np.ones(2)) == 4
    assert len(first_entries.callees) == 1


@functions.compiled(deferred=types.boolean)
def is_large(x):  # type: ignore[no-untyped-def]
    return x > 10


@functions.compiled(deferred=types.none)
def negate(x, out):  # type: ignore[no-untyped-def]
    if x > 1000:
        raise ValueError("too large")
    out[0] = -x


@functions.compiled(deferred=types.none)
def not_compilable(out):  # type: ignore[no-untyped-def]
    out[0] = no_such_name  # type: ignore[name-defined]  # noqa: F821


def test_deferred_functions_are_compiled_when_they_are_called(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(functions, "_deferred", [])
    told: list[str] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda what: told.append(str(what.exc_value)))

    @functions.compiled(is_called_from_python=True)
    def kernel(x, out):  # type: ignore[no-untyped-def]
        out[0] = x
        if x > 1 and is_large(x):
            negate(x, out)
        if x < 0:
            not_compilable(out)

    def compiled_signatures() -> list[int]:
        return [len(each.for_kernels().signatures) for each in (is_large, negate)]

    out = np.empty(1)
    kernel(1.0, out)
    assert (out[0], compiled_signatures()) == (1.0, [0, 0])
    kernel(2.0, out)
    assert (out[0], compiled_signatures()) == (2.0, [1, 0])
    kernel(20.0, out)
    assert (out[0], compiled_signatures()) == (-20.0, [1, 1])
    with pytest.raises(ValueError, match="too large"):
        kernel(2000.0, out)
    with pytest.raises(RuntimeError, match="not_compilable could not be compiled"):
        kernel(-1.0, out)
    assert "no_such_name" in "".join(told)


def test_users_code_finds_all_functions_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    """It may hold Python's lock while its threads wait for a function."""
    monkeypatch.setattr(functions, "_deferred", [])

    @functions.compiled(deferred=types.none)
    def double(out):  # type: ignore[no-untyped-def]
        out[0] *= 2

    @functions.compiled(is_called_from_python=True)
    def kernel(out):  # type: ignore[no-untyped-def]
        if out[0] > 1:
            double(out)

    @njit
    def of_a_user(out):  # type: ignore[no-untyped-def]
        kernel(out)

    of_a_user(np.zeros(1))
    assert len(double.for_kernels().signatures) == 1


def test_collector_rests_while_functions_are_compiled() -> None:
    states = []

    @intrinsic
    def noted(context):  # type: ignore[no-untyped-def]
        states.append(gc.isenabled())
        return types.void(), lambda context, *_: context.get_dummy_value()

    def failing():  # type: ignore[no-untyped-def]
        noted()
        return undefined  # type: ignore[name-defined]  # noqa: F821

    called(lambda: noted())
    with pytest.raises(numba.core.errors.TypingError):
        called(failing)
    assert states and not any(states)
    assert gc.isenabled()


def test_the_simulators_memory_can_be_set() -> None:
    assert simulated_memory_can_be_set(), f"Numba {numba.__version__}: its simulator changed"


def test_symbols_are_known() -> None:
    ending = functions.register("blas", "gemm")
    assert binding.address_of_symbol(f"d{ending}"), "SciPy's BLAS is not found by its address"


def test_scipys_package_is_left_to_others() -> None:
    """Whoever imports it later finds it as if its BLAS had not been loaded before."""
    code = (
        "import sys\n"
        "from derivatrix.templates.support.internals.functions import linear_algebra\n"
        "blas = linear_algebra('cython_blas')\n"
        "assert 'scipy.linalg' not in sys.modules\n"
        "import scipy.linalg\n"
        "assert scipy.linalg.cython_blas.__pyx_capi__ is blas.__pyx_capi__\n"
    )
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    subprocess.run([sys.executable, "-c", code], env=env, check=True)
