"""What every generated module stands on: how functions are compiled, and how Fortran is called."""

# mypy: allow-untyped-defs

import pickle
import warnings
from contextlib import suppress
from hashlib import blake2b

import numpy as np
from numba import config, njit, types
from numba.core import cgutils
from numba.core.caching import CompileResultCacheImpl, FunctionCache
from numba.core.codegen import ll  # type: ignore[attr-defined]
from numba.core.imputils import impl_ret_borrowed
from numba.core.serialize import dumps
from numba.extending import get_cython_function_address, intrinsic
from numba.np import arrayobj

from .. import DIGEST

LLVM = cgutils.ir  # type: ignore[attr-defined]
"""What Numba builds code with, which its types do not show."""
NO = np.uint8(ord("N"))
TRANSPOSED = np.uint8(ord("T"))
LEFT = np.uint8(ord("L"))
RIGHT = np.uint8(ord("R"))
LOWER = np.uint8(ord("L"))
UPPER = np.uint8(ord("U"))
UNIT = np.uint8(ord("U"))
VECTORS = np.uint8(ord("V"))
INFO = 0
"""Where LAPACK writes whether it succeeded: a number of the call's own, that nothing reads."""
WHOLE = np.uint8(ord("W"))


class _Code(CompileResultCacheImpl):
    """How a file of Numba's cache holds compiled code: with a digest of it and of the function it
    is of, since damaged code, or that of another function, would be run."""

    def reduce(self, cres):
        code = dumps(super().reduce(cres))
        return self._digest(code), code

    def rebuild(self, target_context, payload):
        digest, code = payload
        if digest != self._digest(code):
            raise ValueError("its digest is that of other code")
        return super().rebuild(target_context, pickle.loads(code))

    def _digest(self, code):
        return blake2b(code, key=blake2b(self.filename_base.encode()).digest()).digest()


class _Cache(FunctionCache):
    """Numba's cache of a function on disk, without which the function is compiled again: where its
    files are damaged, and are begun anew, or where they cannot be written."""

    _impl_class = _Code

    def load_overload(self, sig, target_context):
        try:
            return super().load_overload(sig, target_context)
        except Exception as error:  # a damaged pickle may raise anything
            self._say(f"is damaged ({type(error).__name__}: {error}) and is written again")
        try:
            self.flush()
        except OSError as error:
            self._unwritable(error)
        return None

    def save_overload(self, sig, data):
        try:
            super().save_overload(sig, data)
        except OSError as error:
            self._unwritable(error)

    def _unwritable(self, error):
        self.disable()
        self._say(f"cannot be written ({error})")

    def _say(self, problem):
        name = f"{self.cache_path}: Numba's cache of {self._impl.filename_base}"
        warnings.warn(f"{name} {problem}; the function is compiled anew", stacklevel=4)


def compiled(counted=False, **options):
    """Numba's njit, with its on-disk cache where there is a place to write one.

    `inline="always"` is for what is called in one place of a kernel: else each function on the way
    there is compiled together with all that it calls. counted: whether references to arrays are
    counted, as Numba has to where it makes some; to count those to its arguments alone takes longer
    than many a kernel. Raises ImportError where Numba is told not to compile.
    """
    if config.DISABLE_JIT:  # type: ignore[attr-defined]
        raise ImportError(
            "NUMBA_DISABLE_JIT is set, and the kernels of derivatrix do not run as plain Python; "
            "unset it"
        )
    options |= {"error_model": "numpy", "nogil": True, "no_cfunc_wrapper": True, "_nrt": counted}

    def decorate(function):
        # Numba's cached code remembers its module's name, and its files' names only this one; code
        # that calls what has changed since is another's
        function.__qualname__ = f"{function.__module__}.{function.__name__}.{DIGEST[:8]}"
        made = njit(**options)(function)
        with suppress(RuntimeError):  # there is no place to write one
            made._cache = _Cache(function)
        called = made.get_call_template
        # else what is called with True and with False would be compiled twice
        made.get_call_template = lambda kinds, named: called(
            tuple(map(types.unliteral, kinds)), named
        )
        return made

    return decorate


@intrinsic
def shaped(context, array, shape):
    """A C-contiguous array as one of another shape. What `reshape` finds out takes longer than many
    a kernel, and longer to compile."""
    kind = types.Array(array.dtype, len(shape), "C", readonly=not array.mutable)

    def generate(context, builder, signature, values):
        given = context.make_array(signature.args[0])(context, builder, values[0])
        axes = cgutils.unpack_tuple(builder, values[1])
        steps = [given.itemsize]
        for length in axes[:0:-1]:
            steps.insert(0, builder.mul(steps[0], length))
        made = context.make_array(kind)(context, builder)
        arrayobj.populate_array(made, given.data, axes, steps, given.itemsize, given.meminfo)
        return impl_ret_borrowed(context, builder, kind, made._getvalue())

    return kind(array, shape), generate


def few_rounds(builder):
    """Nothing, in a loop of few rounds: the compiler makes no vector code of it, which would take
    longer than the rounds, and longer to compile."""
    nothing = LLVM.FunctionType(LLVM.VoidType(), [])
    builder.asm(nothing, "", "", [], side_effect=True)


@intrinsic
def short_loop(context, index):
    """`few_rounds`, in a loop over `index` of a compiled function."""

    def generate(context, builder, signature, values):
        few_rounds(builder)
        return context.get_dummy_value()

    return types.void(index), generate


@intrinsic
def kept_apart(context):
    """Nothing; the function that says it is not compiled again into each of its callers."""

    def generate(context, builder, signature, values):
        builder.function.attributes.add("noinline")
        return context.get_dummy_value()

    return types.void(), generate


@intrinsic(prefer_literal=True)
def require_arrays(context, owner, names, arrays):
    """Raise, while a kernel is compiled, for an argument that it does not take: ValueError for an
    array that is not C-contiguous, TypeError for what is no array of the one float type."""
    reals = {kind.dtype for kind in arrays if isinstance(kind, types.Array)}
    for name, kind in zip(names.literal_value.split(), arrays, strict=True):
        if not isinstance(kind, types.Array) or kind.dtype not in (types.float32, types.float64):
            raise TypeError(
                f"{owner.literal_value}: argument {name} of a kernel is {kind}; "
                "expected an array of float64 or float32"
            )
        if len(reals) > 1:
            raise TypeError(
                f"{owner.literal_value}: the arrays given to a kernel are of different types "
                f"({', '.join(sorted(map(str, reals)))}); expected one type"
            )
        if kind.layout != "C":
            raise ValueError(
                f"{owner.literal_value}: argument {name} of a kernel is {kind}; "
                "expected a C-contiguous array, as np.ascontiguousarray makes it"
            )

    def generate(context, builder, signature, values):
        return context.get_dummy_value()

    return types.void(owner, names, arrays), generate


@intrinsic(prefer_literal=True)
def require_shapes(context, owner, names, arrays, shapes, inputs):
    """Raise ValueError where a kernel is called with an array of another shape than the one in
    `shapes`, or where its results, the arrays from position `inputs` on, share memory with
    others."""
    labels = names.literal_value.split()
    for name, kind, shape in zip(labels, arrays, shapes, strict=True):
        if kind.ndim != len(shape):
            raise ValueError(
                f"{owner.literal_value}: argument {name} of a kernel has {kind.ndim} axes; "
                f"expected {len(shape)}"
            )

    def generate(context, builder, signature, values):
        def refuse_if(wrong, problem):
            with builder.if_then(wrong, likely=False):
                message = f"{owner.literal_value}: argument {problem}"
                context.call_conv.return_user_exc(builder, ValueError, (message,))

        blocks = []
        given, expected = (cgutils.unpack_tuple(builder, value) for value in values[2:4])
        for name, array, shape, kind, lengths in zip(
            labels, given, expected, arrays, shapes, strict=True
        ):
            array = context.make_array(kind)(context, builder, array)
            axes = cgutils.unpack_tuple(builder, array.shape)
            wrong = context.get_constant(types.boolean, False)
            for axis, length, length_kind in zip(
                axes, cgutils.unpack_tuple(builder, shape), lengths, strict=True
            ):
                length = context.cast(builder, length, length_kind, types.intp)
                wrong = builder.or_(wrong, builder.icmp_signed("!=", axis, length))
            refuse_if(wrong, f"{name} of a kernel has another shape than expected")
            start = builder.ptrtoint(array.data, axes[0].type if axes else array.nitems.type)
            size = builder.mul(array.nitems, array.itemsize)
            blocks.append((name, start, builder.add(start, size)))
        for later, (name, start, stop) in enumerate(blocks[inputs.literal_value :]):
            for other, begin, end in blocks[: inputs.literal_value + later]:
                meet = context.get_constant(types.boolean, True)
                # those of no entries, which share nothing, begin where they end
                for low, high in ((start, end), (begin, stop), (start, stop), (begin, end)):
                    meet = builder.and_(meet, builder.icmp_unsigned("<", low, high))
                refuse_if(meet, f"{name} of a kernel shares memory with {other}")
        return context.get_dummy_value()

    return types.void(owner, names, arrays, shapes, inputs), generate


def register(library, name):
    """Let kernels call SciPy's BLAS or LAPACK routine, in single and double precision; how its name
    ends for LLVM, after "s" or "d"."""
    for prefix in "sd":
        address = get_cython_function_address(f"scipy.linalg.cython_{library}", prefix + name)
        ll.add_symbol(f"{prefix}{name}_derivatrix", address)
    return f"{name}_derivatrix"


def routine(library, name):
    """SciPy's BLAS or LAPACK routine, called with one tuple of arguments.

    Numbers go by reference (uint8: a character; other integers: Fortran's; floats: in the
    precision of the arrays), arrays by address, (array, place) by that of an entry.
    """
    ending = register(library, name)

    @intrinsic
    def call(context, arguments):
        def generate(context, builder, signature, values):
            kinds = signature.args[0]
            arrays = [kind.types[0] if isinstance(kind, types.Tuple) else kind for kind in kinds]
            numbers = [kind.dtype for kind in arrays if isinstance(kind, types.Array)]
            real = next(kind for kind in numbers if isinstance(kind, types.Float))
            pointers = []
            for kind, value in zip(kinds, cgutils.unpack_tuple(builder, values[0]), strict=True):
                if isinstance(kind, types.Array):
                    pointers.append(context.make_array(kind)(context, builder, value).data)
                    continue
                if isinstance(kind, types.Tuple):
                    array, place = cgutils.unpack_tuple(builder, value)
                    data = context.make_array(kind.types[0])(context, builder, array).data
                    pointers.append(builder.gep(data, [place]))
                    continue
                passed = types.int32 if isinstance(kind, types.Integer) else real
                if kind == types.uint8:
                    passed = kind
                number = context.cast(builder, value, kind, passed)
                pointers.append(cgutils.alloca_once_value(builder, number))
            address = [pointer.type for pointer in pointers]
            function = cgutils.get_or_insert_function(
                builder.module,
                LLVM.FunctionType(LLVM.VoidType(), address),
                ("s" if real == types.float32 else "d") + ending,
            )
            builder.call(function, pointers)
            return context.get_dummy_value()

        return types.void(arguments), generate

    return call
