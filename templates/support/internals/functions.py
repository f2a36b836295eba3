"""Compilation of functions with Numba, the cache of their machine code, and calls by address."""

# mypy: allow-untyped-defs

import gc
import pickle
import re
import sys
import warnings
from _thread import interrupt_main
from contextlib import suppress
from copy import copy
from ctypes import (
    CFUNCTYPE,
    PYFUNCTYPE,
    addressof,
    c_char_p,
    c_double,
    c_void_p,
    cast,
    py_object,
    pythonapi,
)
from functools import cache, partial, wraps
from hashlib import blake2b
from importlib import import_module
from importlib.machinery import PathFinder
from importlib.util import module_from_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from weakref import WeakValueDictionary

import llvmlite
import numba
import numpy as np
import scipy
from llvmlite import binding, ir
from numba import config, njit, types
from numba.core import cgutils
from numba.core.caching import CompileResultCacheImpl, FunctionCache
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import Compiler, CompileResult
from numba.core.environment import Environment
from numba.core.runtime.nrt import rtsys
from numba.core.serialize import dumps
from numba.core.typed_passes import NopythonRewrites
from numba.core.typing.templates import make_concrete_template
from numba.core.untyped_passes import InlineClosureLikes, WithLifting
from numba.extending import intrinsic

from .. import DIGEST
from .user_cache import shared_folder, text_digest, untrusted


def compiled_by():
    """List the versions and options that machine code depends on, besides texts, types and the
    processor."""
    options = "OPT", "LOOP_VECTORIZE", "SLP_VECTORIZE", "BOUNDSCHECK", "DEBUGINFO_DEFAULT"
    versions = numba.__version__, llvmlite.__version__, sys.implementation.cache_tag
    return *versions, *(getattr(config, option) for option in options)


class _Cache(FunctionCache):
    """The machine code of a function on disk, a file for each combination of argument types: in the
    user's folder, for all packages with the same texts, or in Numba's folder.

    A file has the names of the functions that the code calls, and a digest, since damaged code
    would run. It has no environments of inner functions: kernels make no objects of Python, and
    loading environments imports modules that only compiling needs. It has LLVM code only if callers
    get a copy of the function (linked). Without a file, or with a damaged one, the function is
    compiled."""

    def __init__(self, function, text, linked, has_wrapper):
        self._py_func, self._linked, self._has_wrapper = function, linked, has_wrapper
        folder = shared_folder() if text else None
        self._shared, self._stamp = folder is not None, ""
        if folder is None:
            locator = CompileResultCacheImpl(function).locator
            folder, self._stamp = Path(locator.get_cache_path()), locator.get_source_stamp()
        self._folder = folder
        self.enable()

    @property
    def cache_path(self):
        return str(self._folder)

    def load_overload(self, sig, target_context):
        # compiled code needs no more of Numba's context; Numba's own method imports modules that
        # only compiling needs, which takes a quarter of a second
        rtsys.initialize(target_context)
        for module in ("", self._py_func.__module__) if self._enabled else ():
            path = self._path(sig, target_context.codegen(), module)
            try:
                problem = untrusted(path) if self._shared else ""
                if problem:
                    raise PermissionError(problem)
                return self._rebuilt(target_context, path.name, path.read_bytes())
            except FileNotFoundError:
                continue
            except Exception as error:  # a damaged pickle may raise anything
                reason = f"{type(error).__name__}: {error}"
                self._say(path, f"is damaged ({reason}) and is written again")
        return None

    def save_overload(self, sig, data):
        if not self._enabled or data.lifted or data.library.has_dynamic_globals:
            return
        code = self._reduced(data)
        module = self._py_func.__module__
        # errors of the package's own are part of the code by the names of their modules
        is_of_package = any(name.encode() in code for name in (module, f"{_SUPPORT}."))
        path = self._path(sig, data.codegen, module if is_of_package else "")
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            with TemporaryDirectory(dir=self._folder) as place:
                file = Path(place) / path.name
                file.write_bytes(_code_digest(path.name, code) + code)
                if self._shared:
                    file.chmod(0o600)  # whatever the umask: others' code is not run
                file.replace(path)
        except OSError as error:
            self.disable()
            self._say(path, f"cannot be written ({error})")

    def _path(self, sig, codegen, module):
        """Return the file for types of arguments. module: the function's, if it alone has this
        code."""
        kinds = tuple(getattr(sig, "args", sig))
        line = self._py_func.__code__.co_firstlineno
        origin = self._stamp, line, module, self._has_wrapper
        key = self._index_key(kinds, codegen), origin, compiled_by()
        digest = blake2b(repr(key).encode(), digest_size=16).hexdigest()
        return self._folder / f"{re.sub('[<>]', '', self._py_func.__qualname__)}-{digest}.nbc"

    def _reduced(self, data):
        functions = data.library._final_module.functions
        names = {function.name for function in functions if function.is_declaration}
        descriptor = copy(data.fndesc)
        descriptor.typemap = descriptor.calltypes = None
        descriptor.modname = ""
        name, kind, (machine_code, text) = data.library.serialize_using_object_code()
        library = name, kind, (machine_code, text if self._linked else _defined(descriptor))
        callees = [_callees_by_name[name] for name in names & {*_callees_by_name}]
        constants = [*data.environment.consts]
        return dumps((callees, library, descriptor, constants, data.signature, data.reload_init))

    def _rebuilt(self, target_context, name, contents):
        digest, code = contents[:_DIGEST_BYTES], contents[_DIGEST_BYTES:]
        if digest != _code_digest(name, code):
            raise ValueError("its digest is that of other code")
        callees, library, descriptor, constants, signature, reload_init = pickle.loads(code)
        for origin, kinds in callees:
            _register_callee(_functions[origin], kinds)
        descriptor.modname = self._py_func.__module__
        environment = Environment(self._py_func.__globals__)
        environment.env_name = descriptor.env_name
        environment.consts[:] = constants
        fields = library, descriptor, environment, signature, False, (), "", reload_init, ()
        return CompileResult._rebuild(target_context, *fields)

    def _say(self, path, problem):
        text = f"{path}: Numba's cache of {self._py_func.__qualname__} {problem}"
        warnings.warn(f"{text}; the function is compiled anew", stacklevel=5)


_DIGEST_BYTES = 64


def _code_digest(name, code):
    """Compute the digest of machine code and of the name of its file."""
    return blake2b(code, key=blake2b(name.encode()).digest()).digest()


def _defined(descriptor):
    """Make LLVM bitcode that defines a function and its wrapper with empty bodies, for a function
    of which no caller gets a copy: its machine code has the contents."""
    names = descriptor.llvm_func_name, descriptor.llvm_cpython_wrapper_name
    text = "".join(f'define void @"{name}"() {{ ret void }}\n' for name in names)
    return binding.parse_assembly(text).as_bitcode()


_SUPPORT = __package__.rpartition(".")[0]
"""The name of the package with the support."""
_functions: WeakValueDictionary = WeakValueDictionary()
"""All compiled functions, by their qualified names and first lines."""
_callees_by_name: dict = {}
"""Name in machine code -> key in `_functions` and types of arguments of the function called."""
_deferred: list = []
"""Functions that compile the deferred functions which compiled code may call."""


def compiled(counted=False, linked=False, is_called_from_python=False, deferred=None, **options):
    """Decorate a function with Numba's njit and a cache of machine code on disk.

    counted: whether references to arrays are counted, which functions that allocate arrays need;
    counting those to the arguments takes longer than many a kernel. linked: whether each caller
    gets a copy of the code, as in Numba, for short functions that are called often; other functions
    are compiled once and called by name. is_called_from_python: whether programs call it, too; else
    the dispatcher for compiled code, `for_kernels()`, has no wrapper for Python, which takes 40 ms
    to compile. deferred: for a function that is compiled not with its callers, but when one calls
    it, as only large matrices do: Numba's type of the result.
    Raises ImportError where Numba is told not to compile.
    """
    if config.DISABLE_JIT:  # type: ignore[attr-defined]
        raise ImportError(
            "NUMBA_DISABLE_JIT is set, and the kernels of derivatrix do not run as plain Python; "
            "unset it"
        )
    options |= {"error_model": "numpy", "nogil": True, "no_cfunc_wrapper": True, "_nrt": counted}

    def decorate(function):
        # compiled code of all processes and packages calls it by this name
        text = text_digest(function)
        file = Path(function.__code__.co_filename).stem if text else function.__module__
        function.__qualname__ = f"{file}.{function.__name__}.{text or DIGEST[:8]}"

        def dispatcher_of(has_wrapper):
            compiler = Compiler if counted else _Compiler
            options_of_numba = options | {"no_cpython_wrapper": not has_wrapper}
            dispatcher = njit(**options_of_numba, pipeline_class=compiler)(function)
            dispatcher.compile = _without_collector(dispatcher.compile)
            with suppress(RuntimeError):  # there is no folder to write it to
                dispatcher._cache = _Cache(function, text, linked, has_wrapper)
            return dispatcher

        dispatcher = dispatcher_of(has_wrapper=True)

        @cache  # a dispatcher takes 0.2 ms to make, and a module calls few functions of a package
        def for_kernels():
            return dispatcher if is_called_from_python else dispatcher_of(has_wrapper=False)

        def call_template(kinds, keywords):
            general_kinds = tuple(map(_general, kinds))
            if deferred is not None:
                folded = dispatcher._compiler.fold_argument_types(general_kinds, keywords)
                _register_callee(dispatcher, tuple(folded[1]))
                name, signature = function.__name__, deferred(*folded[1])
                return make_concrete_template(name, name, [signature]), *folded, {}
            template = type(dispatcher).get_call_template(for_kernels(), general_kinds, keywords)
            if not linked:
                _register_callee(dispatcher, tuple(template[2]))
            return template

        def overload(kinds):
            if deferred is not None:
                return dispatcher.origin, tuple(kinds)
            return type(dispatcher).get_overload(for_kernels(), kinds)

        dispatcher.for_kernels, dispatcher.counted, dispatcher.callees = for_kernels, counted, {}
        dispatcher.deferred = deferred
        dispatcher.origin = function.__qualname__, function.__code__.co_firstlineno
        dispatcher.get_call_template, dispatcher.get_overload = call_template, overload
        _functions[dispatcher.origin] = dispatcher
        return _with_fast_types(dispatcher)

    return decorate


class _Library(JITCodeLibrary):
    """LLVM code of a function that counts no references. Numba's passes over each function, and its
    first passes over all of them, only bring counted references together: LLVM's passes follow."""

    def _optimize_functions(self, ll_module):
        ll_module.data_layout = self._codegen._data_layout

    def _optimize_final_module(self):
        passes = self._codegen._module_pass_manager()
        if not isinstance(passes, tuple):  # before Numba 0.62, which has a builder, too
            passes = (passes,)
        manager, *builder = passes
        manager.run(self._final_module, *builder)


class _Compiler(Compiler):
    """Numba's compiler for functions that count no references and use neither closures nor
    operations of whole arrays: an eighth of the time goes into passes for these."""

    _UNUSED = WithLifting, InlineClosureLikes, NopythonRewrites

    def compile_extra(self, func):
        self.state.library = _Library(self.state.targetctx.codegen(), func.__qualname__)
        self.state.library.enable_object_caching()
        return super().compile_extra(func)

    def define_pipelines(self):
        (manager,) = super().define_pipelines()
        manager.passes = [step for step in manager.passes if step[0] not in self._UNUSED]
        manager.finalize()
        return [manager]


def _without_collector(compile_for):
    """Make a function that compiles while the garbage collector rests: it would search Numba's many
    live objects again and again, which takes up to a quarter of the time."""

    @wraps(compile_for)
    def paused(signature):
        was_enabled = gc.isenabled()
        gc.disable()
        try:
            return compile_for(signature)
        finally:
            if was_enabled:
                gc.enable()

    return paused


def _general(kind):
    """Return the type for which a callee is compiled: with literal types, calls with True and with
    False would compile twice, and the tuple of a caller's *arguments has a type of its own, which
    is equal to the usual one by name and by no comparison."""
    kind = types.unliteral(kind)
    if isinstance(kind, types.StarArgUniTuple):
        return types.UniTuple(kind.dtype, kind.count)
    return types.Tuple(kind.types) if isinstance(kind, types.StarArgTuple) else kind


_REALS = {np.dtype(np.float64): types.float64, np.dtype(np.float32): types.float32}


def _with_fast_types(dispatcher):
    """Make a dispatcher find the type of an array without `numpy.ma`, which Numba imports for the
    first array of each type; this import takes as long as loading a small kernel."""
    numba_type_of = dispatcher.typeof_pyval

    def type_of(value):
        if type(value) is np.ndarray and value.flags.c_contiguous and value.dtype in _REALS:
            return _array_type(_REALS[value.dtype], value.ndim, not value.flags.writeable)
        return numba_type_of(value)

    dispatcher.typeof_pyval = type_of
    return dispatcher


@cache  # Numba drops types that nobody holds, and keeps only their numbers
def _array_type(real, axes, readonly):
    return types.Array(real, axes, "C", readonly=readonly)


def _register_callee(function, kinds):
    """Compile a function for types of arguments and register it under a name that is the same in
    every process; return Numba's description of the function by that name."""
    if kinds in function.callees:
        return function.callees[kinds]
    dispatcher = function.for_kernels()
    digest = blake2b(f"{function.origin} {kinds}".encode(), digest_size=16).hexdigest()
    if function.deferred is not None:
        function.callees[kinds] = _register_deferred(function, kinds, f"derivatrix_{digest}")
        return None
    dispatcher.compile(kinds)
    if function is dispatcher:  # users' code may hold Python's lock while its threads call this
        compile_deferred()
    result = dispatcher.overloads[kinds]
    descriptor = copy(result.fndesc)
    descriptor.mangled_name = f"derivatrix_{digest}"
    address = result.library.get_pointer_to_function(result.fndesc.llvm_func_name)
    binding.add_symbol(descriptor.mangled_name, address)
    # without the definition whose code Numba copies into callers
    del result.target_context._defns[result.entry_point]
    result.target_context.insert_user_function(result.entry_point, descriptor)
    function.callees[kinds] = descriptor
    _callees_by_name[descriptor.mangled_name] = function.origin, kinds
    return descriptor


def _register_deferred(function, kinds, name):
    """Register a place for the address of a function, and a function that compiles it and fills the
    place, under names that are the same in every process; return the former's name."""
    place = c_void_p()

    def fill():
        is_interrupted = False
        while not place.value:
            try:
                place.value = address_of(function, kinds, function.deferred)
            except KeyboardInterrupt:  # the code that called this can raise it no more
                is_interrupted = True
        if is_interrupted:
            interrupt_main()

    entry_point = CFUNCTYPE(None)(fill)
    pythonapi.Py_IncRef(py_object(entry_point))  # code of other packages may call it until the end
    binding.add_symbol(f"{name}_place", addressof(place))
    binding.add_symbol(f"{name}_fill", cast(entry_point, c_void_p).value)
    _callees_by_name[f"{name}_fill"] = function.origin, kinds
    _deferred.append(fill)

    def call(context, builder, signature, values):
        kind = context.call_conv.get_function_type(signature.return_type, kinds)
        address = builder.module.globals.get(f"{name}_place")
        address = address or ir.GlobalVariable(builder.module, kind.as_pointer(), f"{name}_place")
        with cgutils.if_unlikely(builder, cgutils.is_null(builder, builder.load(address))):
            call_named(builder, f"{name}_fill", ir.VoidType(), [])
        with cgutils.if_unlikely(builder, cgutils.is_null(builder, builder.load(address))):
            message = f"{function.__name__} could not be compiled; the reason is printed above"
            context.call_conv.return_user_exc(builder, RuntimeError, (message,))
        callee, result = builder.load(address), signature.return_type
        status, value = context.call_conv.call_function(builder, callee, result, kinds, values)
        with cgutils.if_unlikely(builder, status.is_error):
            context.call_conv.return_status_propagate(builder, status)
        return value

    function.targetctx._defns[function.origin, kinds].append(call, kinds)
    return name


def compile_deferred():
    """Compile all functions that compiled code may call, so that it does not wait for Python."""
    for fill in _deferred:
        fill()


def call_compiled(context, builder, function, kinds, values):
    """Call a function of `compiled` that raises nothing, from an intrinsic; return its result."""
    descriptor = _register_callee(function, kinds)
    callee = context.declare_function(builder.module, descriptor)
    restype = descriptor.restype
    _, result = context.call_conv.call_function(builder, callee, restype, kinds, values)
    return result


def address_of(kernel, arguments, result_type=types.none):
    """Compile a kernel for types of arguments; return the address of a function of C that returns a
    status, as `part_caller` calls it."""
    result = kernel.for_kernels().get_compile_result(result_type(*arguments))
    return result.library.get_pointer_to_function(result.fndesc.llvm_func_name)


def ready(kernel):
    """Make a dispatcher that calls a kernel for the types of arguments that its method `remember`
    has copied, and raises TypeError for other types instead of compiling."""
    dispatcher = njit(kernel.py_func)
    dispatcher._compile_for_args = _unready
    dispatcher.remember = partial(_remember, dispatcher, kernel)
    return _with_fast_types(dispatcher)


def _unready(*arguments, **_):
    raise TypeError


def _remember(ready, kernel):
    """Copy to `ready` the types of arguments for which the kernel is compiled."""
    if len(kernel.overloads) > len(ready.overloads):
        for kinds, compiled_kernel in kernel.overloads.items():
            if kinds not in ready.overloads:
                ready.add_overload(compiled_kernel)


def few_rounds(builder):
    """Mark a loop of few iterations, so that LLVM makes no vector code of it: that would take
    longer than the iterations, and longer to compile."""
    builder.asm(ir.FunctionType(ir.VoidType(), []), "", "", [], side_effect=True)


@intrinsic
def short_loop(context, index):
    """Call `few_rounds` in a loop over `index` of a compiled function."""

    def generate(context, builder, signature, values):
        few_rounds(builder)
        return context.get_dummy_value()

    return types.void(index), generate


def defined_once(module, name, kinds, define):
    """Return the function of an LLVM module with this name and these types of parameters;
    `define(builder, function)` writes its body when it is first asked for."""
    kind = ir.FunctionType(ir.VoidType(), kinds)
    function = cgutils.get_or_insert_function(module, kind, name)
    if function.is_declaration:
        function.linkage = "linkonce_odr"
        builder = ir.IRBuilder(function.append_basic_block())
        define(builder, function)
        builder.ret_void()
    return function


def call_named(builder, name, result, values):
    """Call a function that LLVM knows, or that was registered, by its name; return its result."""
    kind = ir.FunctionType(result, [value.type for value in values])
    return builder.call(cgutils.get_or_insert_function(builder.module, kind, name), values)


def callback(function, count):
    """Make an intrinsic by which compiled code calls a Python function with `count` numbers."""
    name = f"derivatrix_{function.__name__}_{text_digest(function) or function.__module__}"
    entry_point = CFUNCTYPE(None, *[c_double] * count)(function)
    pythonapi.Py_IncRef(py_object(entry_point))  # code of other packages may call it until the end
    binding.add_symbol(name, cast(entry_point, c_void_p).value)

    @intrinsic
    def call(context, numbers):
        def generate(context, builder, signature, values):
            doubles = [
                context.cast(builder, value, kind, types.float64)
                for value, kind in zip(
                    cgutils.unpack_tuple(builder, values[0]), signature.args[0], strict=True
                )
            ]
            call_named(builder, name, ir.VoidType(), doubles)
            return context.get_dummy_value()

        return types.void(numbers), generate

    return call


@cache
def linear_algebra(name):
    """Import SciPy's module `cython_blas` or `cython_lapack` without the package `scipy.linalg`,
    whose import takes ten times as long."""
    full = f"scipy.linalg.{name}"
    if full in sys.modules:
        return sys.modules[full]
    spec = PathFinder.find_spec(full, [f"{folder}/linalg" for folder in scipy.__path__])
    if spec is None or spec.loader is None:  # SciPy lies elsewhere, as in an editable install
        return import_module(full)
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    # Cython has put it there; a later import of the package would not set its attribute
    sys.modules.pop(full, None)
    return module


_capsule_name = PYFUNCTYPE(c_char_p, py_object)(("PyCapsule_GetName", pythonapi))
_capsule_pointer = PYFUNCTYPE(c_void_p, py_object, c_char_p)(("PyCapsule_GetPointer", pythonapi))


def add_symbol(symbol, module, name):
    """Register a function of one of Cython's modules with LLVM."""
    capsule = module.__pyx_capi__[name]
    binding.add_symbol(symbol, _capsule_pointer(capsule, _capsule_name(capsule)))


def register(library, name):
    """Register SciPy's BLAS or LAPACK routine in single and double precision; return the end of its
    name for LLVM, after "s" or "d"."""
    for prefix in "sd":
        add_symbol(f"{prefix}{name}_derivatrix", linear_algebra(f"cython_{library}"), prefix + name)
    return f"{name}_derivatrix"


def routine(library, name):
    """Make an intrinsic that calls SciPy's BLAS or LAPACK routine with one tuple of arguments.

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
                fortran_kind = types.int32 if isinstance(kind, types.Integer) else real
                if kind == types.uint8:
                    fortran_kind = kind
                number = context.cast(builder, value, kind, fortran_kind)
                pointers.append(cgutils.alloca_once_value(builder, number))
            prefix = "s" if real == types.float32 else "d"
            call_named(builder, prefix + ending, ir.VoidType(), pointers)
            return context.get_dummy_value()

        return types.void(arguments), generate

    return call


def scipy_special(name, count):
    """Make an intrinsic that calls SciPy's special function `name` of one number, or of two."""
    library = import_module("scipy.special.cython_special")
    variant = re.compile(rf"(__pyx_fuse_\d+)?{name}")
    signature = f"double ({'double, ' * count}int"  # Cython adds the int
    entry_name = next(
        entry
        for entry, capsule in library.__pyx_capi__.items()
        if variant.fullmatch(entry) and signature in repr(capsule)
    )
    symbol = f"derivatrix_special_{name}"
    add_symbol(symbol, library, entry_name)

    def generate(context, builder, signature, values):
        numbers = [
            context.cast(builder, value, kind, types.float64)
            for value, kind in zip(values, signature.args, strict=True)
        ]
        return call_named(builder, symbol, ir.DoubleType(), [*numbers, ir.IntType(32)(0)])

    @intrinsic
    def of_one(context, x):
        return types.float64(x), generate

    @intrinsic
    def of_two(context, order, x):
        return types.float64(order, x), generate

    return of_one if count == 1 else of_two
