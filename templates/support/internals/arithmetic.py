"""Arithmetic as LLVM instructions: functions of a number without branches and calls, which loops
over them need to become vector code; rows of samples; products of matrices."""

# mypy: allow-untyped-defs, disable-error-code=call-arg

from functools import partialmethod

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from .functions import call_compiled, call_named, compiled, defined_once, few_rounds, register

FUSED = ("contract",)
"""The flag of instructions that LLVM may fuse: a product and a sum to one instruction."""
MAX_LOOP_PRODUCTS = 128
"""Most multiplications of a product of matrices for which loops are faster than a call of BLAS:
4 by 4 matrices take 24 ns instead of 50 to 57, 6 by 6 would take as long."""
CHARACTER, INTEGER, INDEX = ir.IntType(8), ir.IntType(32), ir.IntType(64)
"""Types of BLAS's letters and integers, and of offsets of entries."""
GEMM = register("blas", "gemm")
NUMBER_TYPES = {
    CHARACTER: types.uint8,
    INTEGER: types.int32,
    ir.FloatType(): types.float32,
    ir.DoubleType(): types.float64,
}
"""LLVM type -> Numba type of a number that an argument of BLAS points to."""


class Term:
    """A number in a sequence of instructions. Python numbers become constants.

    Products and sums may be fused. Numba gives instructions that have this flag none of the
    caller's `fastmath` flags: if sums could be reordered, the functions would lose accuracy.
    """

    def __init__(self, builder, value):
        self.builder = builder
        self.value = value
        self.double = value.type in (ir.DoubleType(), INDEX)
        self.digits, self.bias = (52, 1023) if self.double else (23, 127)
        self.sign = 1 << (63 if self.double else 31)

    def term(self, value):
        """Wrap the result of an instruction as a term."""
        return Term(self.builder, value)

    def like(self, other):
        """Return the instruction's result of a term, or a number as a constant of this type."""
        return other.value if isinstance(other, Term) else ir.Constant(self.value.type, other)

    def arithmetic(self, name, other, reflected=False):
        """Write an operation of two numbers; reflected: this number is the second operand."""
        values = (self.value, self.like(other))
        left, right = reversed(values) if reflected else values
        return self.term(getattr(self.builder, name)(left, right, flags=FUSED))

    __add__ = __radd__ = partialmethod(arithmetic, "fadd")
    __mul__ = __rmul__ = partialmethod(arithmetic, "fmul")
    __sub__ = partialmethod(arithmetic, "fsub")
    __rsub__ = partialmethod(arithmetic, "fsub", reflected=True)
    __truediv__ = partialmethod(arithmetic, "fdiv")
    __rtruediv__ = partialmethod(arithmetic, "fdiv", reflected=True)

    def times(self, other):
        """Multiply, never fused with a sum. The flag has no effect on products."""
        return self.term(self.builder.fmul(self.value, self.like(other), flags=("afn",)))

    def rounding_error(self, other, product):
        """Return the rounding error of `product`, the product with `other`."""
        negative = self.builder.fneg(product.value)
        return self.term(self.builder.fma(self.value, self.like(other), negative))

    def rounded(self):
        """Round to the nearest integer."""
        function = self.builder.module.declare_intrinsic("llvm.rint", [self.value.type])
        return self.term(self.builder.call(function, [self.value]))

    def in_double(self):
        """Convert from single to double precision."""
        return self.term(self.builder.fpext(self.value, ir.DoubleType()))

    def in_single(self):
        """Round from double to single precision."""
        return self.term(self.builder.fptrunc(self.value, ir.FloatType()))

    def between(self, lowest, highest):
        """Clip to bounds; nan stays nan."""
        above = choose_where(self, "<", lowest, lowest, self)
        return choose_where(above, ">", highest, highest, above)

    def bits(self):
        """Return the bits of the number as an integer."""
        return self.term(self.builder.bitcast(self.value, INDEX if self.double else INTEGER))

    def number(self):
        """Return the number whose bits are this integer."""
        real = ir.DoubleType() if self.double else ir.FloatType()
        return self.term(self.builder.bitcast(self.value, real))

    def integer(self, name, other):
        """Write an operation of two integers."""
        return self.term(getattr(self.builder, name)(self.value, self.like(other)))

    def of_sign(self, other):
        """Return the absolute value with the sign of another number."""
        sign = other.bits().integer("and_", self.sign)
        return self.absolute().bits().integer("or_", sign).number()

    def absolute(self):
        return self.bits().integer("and_", self.sign - 1).number()


def choose_where(left, sign, right, value, otherwise):
    """Select `value` if the comparison `left sign right` holds, else `otherwise`, also for nan."""
    test = left.builder.fcmp_ordered(sign, left.value, left.like(right))
    return left.term(left.builder.select(test, left.like(value), left.like(otherwise)))


def choose_odd(integer, odd, even):
    """Select `odd` if the integer is odd, else `even`."""
    test = integer.builder.trunc(integer.value, ir.IntType(1))
    return odd.term(odd.builder.select(test, odd.value, even.value))


def table_entry(name, numbers, index):
    """Load numbers[index] from a table of doubles."""
    builder, double = index.builder, ir.DoubleType()
    table = builder.module.globals.get(name)
    if table is None:
        kind = ir.ArrayType(double, len(numbers))
        table = cgutils.global_constant(builder.module, name, ir.Constant(kind, numbers))
    place = builder.gep(table, [INDEX(0), index.value], inbounds=True)
    return index.term(builder.load(place))


def polynomial_value(x, coefficients):
    """Evaluate the sum of coefficients[k] x^k by pairs, pairs of pairs, ... (Estrin's scheme): the
    chain of dependent operations is shorter than Horner's."""
    terms = list(coefficients)
    while len(terms) > 1:
        unpaired = terms[len(terms) & ~1 :]
        terms = [terms[k + 1] * x + terms[k] for k in range(0, len(terms) - 1, 2)] + unpaired
        x = x * x
    return terms[0]


def number_function(write, results=None):
    """Make a function of one number for compiled code from `write`, which maps terms to terms.
    results: type of the argument -> type of the result; by default both are one float type."""

    @intrinsic
    def function(context, x):
        kind = x if results or x in (types.float32, types.float64) else types.float64

        def generate(context, builder, signature, values):
            return write(Term(builder, values[0])).value

        return (results[kind] if results else kind)(kind), generate

    return function


def _constant(name):
    """Make a function of compiled code that gives a constant of an array's type, as np.finfo does,
    which takes 60 ms to compile."""

    def constant(context, array):
        def generate(context, builder, signature, values):
            return context.get_constant(array.dtype, getattr(np.finfo(str(array.dtype)), name))

        return array.dtype(array), generate

    return intrinsic(constant)


epsilon, smallest_normal = _constant("eps"), _constant("tiny")
"""The distance from 1 to the next number of an array's type, and its least normal number."""


@intrinsic
def where(context, condition, value, otherwise):
    """Select `value` if condition, else `otherwise`; both are computed. Numba's time to compile
    branches grows with the square of their number."""

    def generate(context, builder, signature, values):
        return builder.select(*values)

    return value(condition, value, otherwise), generate


def pair_function(write):
    """Make a function of two numbers for compiled code, both converted to the larger type."""

    @intrinsic
    def function(context, x, y):
        kind = types.float32 if types.float64 not in (x, y) else types.float64

        def generate(context, builder, signature, values):
            return write(*(Term(builder, value) for value in values)).value

        return kind(kind, kind), generate

    return function


def range_factor(square, sign=1):
    """Return the power of 2 by which numbers are scaled if `square`, the sum of their squares, is
    beyond the range of numbers or loses digits; else 1. sign: -1 for the inverse."""
    low, high, power = (-960, 1000, 600) if square.double else (-100, 120, 90)
    factor = choose_where(square, "<", 2.0**low, 2.0 ** (sign * power), 1.0)
    return choose_where(square, ">", 2.0**high, 2.0 ** (-sign * power), factor)


times = pair_function(lambda x, y: x * y)
"""x y for a quotient x or y. If products can be reordered, LLVM computes x / z * y as x y / z, but
x y may be beyond the range of numbers."""
scaled = pair_function(lambda x, square: x * range_factor(square))
"""A number times the factor of a sum of squares; LLVM does not multiply such factors first."""
unscaled = pair_function(lambda root, square: root * range_factor(square, -1))
"""The root of a sum of squares of `scaled` numbers, divided by their factor."""


def along_samples(name, write):
    """Make the function of kernels that sets target[i, j, s], for all s, to the value that `write`
    computes from it and from entries [k, l, s] of other arrays. The argument is one tuple: target,
    i, j, then array, k, l for each of these arrays.

    The loop is compiled once, not in each caller, where the compiler would add checks whether rows
    overlap, and take longer.
    """

    @intrinsic
    def update(context, places):
        return types.void(places), generate

    def generate(context, builder, signature, values):
        kinds, places = signature.args[0], cgutils.unpack_tuple(builder, values[0])
        rows = []
        for place in range(0, len(places), 3):
            array = context.make_array(kinds[place])(context, builder, places[place])
            _, columns, length = cgutils.unpack_tuple(builder, array.shape)
            row = builder.add(builder.mul(places[place + 1], columns), places[place + 2])
            rows.append(builder.gep(array.data, [builder.mul(row, length)]))
        arguments = [*rows, length]
        function_name = f"{name}_{context.get_value_type(kinds[0].dtype)}"
        kinds = [value.type for value in arguments]
        builder.call(defined_once(builder.module, function_name, kinds, define), arguments)
        return context.get_dummy_value()

    def define(builder, function):
        function.attributes.add("noinline")
        function.args[0].add_attribute("noalias")
        *rows, length = function.args
        with cgutils.for_range(builder, length) as loop:
            places = [builder.gep(row, [loop.index]) for row in rows]
            terms = [Term(builder, builder.load(place)) for place in places]
            builder.store(write(*terms).value, places[0])

    return update


def matrix_product(parts):
    """Make the function gemm(alpha, a, transpose_a, b, transpose_b, beta, c) of kernels. It sets c
    to alpha * op(a) @ op(b) + beta * c, for matrices with contiguous rows. With `parts` it has a
    further argument, (top, bottom, left, right, first, last): rows and columns of c to compute, and
    the columns of op(a) and rows of op(b) to sum over.

    Matrices of BLAS have contiguous columns, so it computes c' = op(b)' @ op(a)'. This is an
    intrinsic, since compiling a function for every combination of array types, or views of parts,
    would take most of the time to compile a kernel.
    """

    def typed(alpha, a, transpose_a, b, transpose_b, beta, c, *ranges):
        def generate(context, builder, signature, values):
            real = c.dtype
            size, zero = INDEX(real.bitwidth // 8), INDEX(0)

            def largest(x, y):
                return builder.select(builder.icmp_signed(">", x, y), x, y)

            def matrix(position):
                kind = signature.args[position]
                array = context.make_array(kind)(context, builder, values[position])
                rows, columns = cgutils.unpack_tuple(builder, array.shape)
                step, _ = cgutils.unpack_tuple(builder, array.strides)
                return array.data, rows, columns, largest(builder.sdiv(step, size), columns)

            def number(position):
                return context.cast(builder, values[position], signature.args[position], real)

            def at(data, step, row, column, flipped):
                line = builder.select(flipped, column, row)
                place = builder.select(flipped, row, column)
                return builder.gep(data, [builder.add(builder.mul(line, step), place)])

            def put(value):
                return cgutils.alloca_once_value(builder, value)

            def integer(value):
                return put(builder.trunc(value, INTEGER))

            def at_least_one(value):
                return integer(largest(value, INDEX(1)))

            def letter(flag):
                return put(builder.select(flag, CHARACTER(ord("T")), CHARACTER(ord("N"))))

            (a_data, a_rows, a_columns, a_step), turned_a = matrix(1), values[2]
            (b_data, _, _, b_step), turned_b = matrix(3), values[4]
            c_data, rows, columns, c_step = matrix(6)
            inner = builder.select(turned_a, a_rows, a_columns)
            if parts:
                top, bottom, left, right, first, last = cgutils.unpack_tuple(builder, values[7])
                a_data = at(a_data, a_step, top, first, turned_a)
                b_data = at(b_data, b_step, first, left, turned_b)
                c_data = at(c_data, c_step, top, left, ir.IntType(1)(0))
                rows, columns = builder.sub(bottom, top), builder.sub(right, left)
                inner = builder.sub(last, first)
            alpha, beta = number(0), number(5)
            # if there are no terms, add alpha * 0, which may be nan
            empty_sum = builder.fadd(beta, builder.fmul(alpha, alpha.type(0.0)))
            beta = builder.select(builder.icmp_signed("==", inner, zero), empty_sum, beta)
            pointers = [letter(turned_b), letter(turned_a)]
            pointers += [at_least_one(columns), at_least_one(rows), integer(inner)]
            pointers += [put(alpha), b_data, at_least_one(b_step), a_data, at_least_one(a_step)]
            pointers += [put(beta), c_data, at_least_one(c_step)]
            kind = types.Tuple([types.CPointer(NUMBER_TYPES[p.type.pointee]) for p in pointers])
            with builder.if_then(builder.icmp_signed(">", builder.mul(rows, columns), zero)):
                pointer_tuple = context.make_tuple(builder, kind, pointers)
                call_compiled(context, builder, loops_or_call, (kind,), [pointer_tuple])
            return context.get_dummy_value()

        return types.void(alpha, a, transpose_a, b, transpose_b, beta, c, *ranges), generate

    if parts:

        @intrinsic
        def call(context, alpha, a, transpose_a, b, transpose_b, beta, c, part):
            return typed(alpha, a, transpose_a, b, transpose_b, beta, c, part)

    else:

        @intrinsic
        def call(context, alpha, a, transpose_a, b, transpose_b, beta, c):
            return typed(alpha, a, transpose_a, b, transpose_b, beta, c)

    return call


@compiled()
def loops_or_call(pointers):
    """Call `multiply`, compiled once for all kernels: in each kernel it would take 0.1 s."""
    multiply(pointers)


@intrinsic
def multiply(context, pointers):
    """Call BLAS's gemm, or run loops for small matrices, for which they are faster.

    pointers: gemm's arguments, with BLAS's letters: c (m, n) = alpha * op(a) (m, k) @ op(b) (k, n)
    + beta * c, for matrices with contiguous columns."""

    def generate(context, builder, signature, values):
        arguments = cgutils.unpack_tuple(builder, values[0])
        m, n, k = (index(builder, size) for size in arguments[2:5])
        work = builder.mul(builder.mul(m, n), k)
        is_tiny = builder.icmp_signed("<=", work, INDEX(MAX_LOOP_PRODUCTS))
        with builder.if_else(is_tiny) as (tiny, large):
            with tiny:
                add_loops(builder, arguments)
            with large:
                prefix = "s" if pointers[5].dtype == types.float32 else "d"
                call_named(builder, prefix + GEMM, ir.VoidType(), arguments)
        return context.get_dummy_value()

    return types.void(pointers), generate


def add_loops(builder, pointers):
    """Compute gemm entry by entry; c is not read if beta is 0."""
    transa, transb, *sizes, alpha, a, lda, b, ldb, beta, c, ldc = pointers
    m, n, k = (index(builder, size) for size in sizes)
    a_row, a_term = strides(builder, transa, lda)
    b_term, b_column = strides(builder, transb, ldb)
    c_column = index(builder, ldc)
    alpha, beta = builder.load(alpha), builder.load(beta)
    zero = alpha.type(0.0)
    is_added = builder.fcmp_unordered("!=", beta, zero)
    total = cgutils.alloca_once(builder, alpha.type)

    def offset(pointer, place, stride):
        return builder.gep(pointer, [builder.mul(place, stride)])

    def plus_product(x, y, addend):
        return builder.fadd(builder.fmul(x, y, flags=FUSED), addend, flags=FUSED)

    with cgutils.for_range(builder, n) as column, cgutils.for_range(builder, m) as row:
        a_line = offset(a, row.index, a_row)
        b_line = offset(b, column.index, b_column)
        entry = builder.gep(offset(c, column.index, c_column), [row.index])
        builder.store(zero, total)
        with cgutils.for_range(builder, k) as term:
            few_rounds(builder)
            x = builder.load(offset(a_line, term.index, a_term))
            y = builder.load(offset(b_line, term.index, b_term))
            builder.store(plus_product(x, y, builder.load(total)), total)
        builder.store(builder.fmul(alpha, builder.load(total)), total)
        with builder.if_then(is_added):
            updated = plus_product(beta, builder.load(entry), builder.load(total))
            builder.store(updated, total)
        builder.store(builder.load(total), entry)


def strides(builder, flag, step):
    """Return the strides of rows and columns of op(matrix), for columns that are `step` apart."""
    is_transposed = builder.icmp_signed("!=", builder.load(flag), CHARACTER(ord("N")))
    step, unit = index(builder, step), INDEX(1)
    return builder.select(is_transposed, step, unit), builder.select(is_transposed, unit, step)


def index(builder, pointer):
    """Load one of BLAS's integers as an offset."""
    return builder.sext(builder.load(pointer), INDEX)
