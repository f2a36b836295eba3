"""Arithmetic written as LLVM's instructions: functions of a number without branches and calls, so
that loops over them become vector code; rows of samples; products of matrices."""

# mypy: allow-untyped-defs, disable-error-code=call-arg

from functools import partialmethod

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from .functions import (
    call_compiled,
    call_named,
    compiled,
    defined_once,
    few_rounds,
    register,
)

FUSED = ("contract",)
"""A product and a sum may be one instruction."""
TINY_WORK = 128
"""Loops are faster than a call of BLAS up to so many multiplications."""
CHARACTER, INTEGER, INDEX = ir.IntType(8), ir.IntType(32), ir.IntType(64)
"""BLAS's letters and numbers; the places of entries."""
GEMM = register("blas", "gemm")
NUMBER_TYPES = {
    CHARACTER: types.uint8,
    INTEGER: types.int32,
    ir.FloatType(): types.float32,
    ir.DoubleType(): types.float64,
}
"""Numba's types of what BLAS's arguments point to."""


class Term:
    """A number while an instruction sequence is written. Numbers of Python become constants.

    Products and sums may be fused. As instructions carry this flag, Numba adds none of the
    caller's to them: sums that may be reordered would lose what makes functions exact.
    """

    def __init__(self, builder, value):
        self.builder = builder
        self.value = value
        self.double = value.type in (ir.DoubleType(), INDEX)
        self.digits, self.bias = (52, 1023) if self.double else (23, 127)
        self.sign = 1 << (63 if self.double else 31)

    def made(self, value):
        """An instruction's result as a term."""
        return Term(self.builder, value)

    def like(self, other):
        """The instruction's result that a term is, or a constant of this one's type."""
        return other.value if isinstance(other, Term) else ir.Constant(self.value.type, other)

    def arithmetic(self, name, other, reflected=False):
        """An operation of numbers; `reflected`: with this one as the second."""
        values = (self.value, self.like(other))
        first, second = reversed(values) if reflected else values
        return self.made(getattr(self.builder, name)(first, second, flags=FUSED))

    __add__ = __radd__ = partialmethod(arithmetic, "fadd")
    __mul__ = __rmul__ = partialmethod(arithmetic, "fmul")
    __sub__ = partialmethod(arithmetic, "fsub")
    __rsub__ = partialmethod(arithmetic, "fsub", reflected=True)
    __truediv__ = partialmethod(arithmetic, "fdiv")
    __rtruediv__ = partialmethod(arithmetic, "fdiv", reflected=True)

    def times(self, other):
        """The product, never fused with a sum. Its flag means nothing for products."""
        return self.made(self.builder.fmul(self.value, self.like(other), flags=("afn",)))

    def lost(self, other, product):
        """What rounding lost in a product with `other`."""
        negative = self.builder.fneg(product.value)
        return self.made(self.builder.fma(self.value, self.like(other), negative))

    def rounded(self):
        """The nearest whole number."""
        function = self.builder.module.declare_intrinsic("llvm.rint", [self.value.type])
        return self.made(self.builder.call(function, [self.value]))

    def in_double(self):
        """A single as a double."""
        return self.made(self.builder.fpext(self.value, ir.DoubleType()))

    def in_single(self):
        """The single that is nearest to a double."""
        return self.made(self.builder.fptrunc(self.value, ir.FloatType()))

    def between(self, lowest, highest):
        """The number, moved between bounds; nan stays."""
        above = choose_where(self, "<", lowest, lowest, self)
        return choose_where(above, ">", highest, highest, above)

    def bits(self):
        """The number's representation, an integer."""
        return self.made(self.builder.bitcast(self.value, INDEX if self.double else INTEGER))

    def number(self):
        """The number that an integer represents."""
        real = ir.DoubleType() if self.double else ir.FloatType()
        return self.made(self.builder.bitcast(self.value, real))

    def integer(self, name, other):
        """An operation of integers."""
        return self.made(getattr(self.builder, name)(self.value, self.like(other)))

    def of_sign(self, other):
        """The absolute value of this with another's sign."""
        sign = other.bits().integer("and_", self.sign)
        return self.absolute().bits().integer("or_", sign).number()

    def absolute(self):
        return self.bits().integer("and_", self.sign - 1).number()


def choose_where(left, sign, right, chosen, otherwise):
    """`chosen` where `left` compares so with `right`, else `otherwise`; the latter at nan."""
    test = left.builder.fcmp_ordered(sign, left.value, left.like(right))
    return left.made(left.builder.select(test, left.like(chosen), left.like(otherwise)))


def choose_odd(integer, odd, even):
    """`odd` where the integer is, else `even`."""
    test = integer.builder.trunc(integer.value, ir.IntType(1))
    return odd.made(odd.builder.select(test, odd.value, even.value))


def table_entry(name, numbers, index):
    """numbers[index], of a table of doubles."""
    builder, double = index.builder, ir.DoubleType()
    table = builder.module.globals.get(name)
    if table is None:
        kind = ir.ArrayType(double, len(numbers))
        table = cgutils.global_constant(builder.module, name, ir.Constant(kind, numbers))
    place = builder.gep(table, [INDEX(0), index.value], inbounds=True)
    return index.made(builder.load(place))


def polynomial_value(x, coefficients):
    """The sum of coefficients[k] x^k, by pairs, pairs of pairs, ..."""
    terms = list(coefficients)
    while len(terms) > 1:
        last = terms[len(terms) & ~1 :]
        terms = [terms[k + 1] * x + terms[k] for k in range(0, len(terms) - 1, 2)] + last
        x = x * x
    return terms[0]


def number_function(write, results=None):
    """A function of one number for compiled code, from how it is written with terms. results: the
    argument's type -> that of what is written; without them both are one type of float."""

    @intrinsic
    def function(context, x):
        kind = x if results or x in (types.float32, types.float64) else types.float64

        def generate(context, builder, signature, values):
            return write(Term(builder, values[0])).value

        return (results[kind] if results else kind)(kind), generate

    return function


@intrinsic
def where(context, condition, chosen, otherwise):
    """chosen if condition else otherwise; both are computed. Numba takes a time to compile branches
    that grows with the square of their number."""

    def generate(context, builder, signature, values):
        return builder.select(*values)

    return chosen(condition, chosen, otherwise), generate


def pair_function(write):
    """A function of two numbers for compiled code, both of the larger type."""

    @intrinsic
    def function(context, x, y):
        kind = types.float32 if types.float64 not in (x, y) else types.float64

        def generate(context, builder, signature, values):
            return write(*(Term(builder, value) for value in values)).value

        return kind(kind, kind), generate

    return function


def range_factor(square, sign=1):
    """The power of 2 that brings numbers into the range of squares where `square`, the sum of
    theirs, is beyond that or loses digits; else 1. `sign`: -1 for the inverse."""
    low, high, power = (-960, 1000, 600) if square.double else (-100, 120, 90)
    factor = choose_where(square, "<", 2.0**low, 2.0 ** (sign * power), 1.0)
    return choose_where(square, ">", 2.0**high, 2.0 ** (-sign * power), factor)


times = pair_function(lambda x, y: x * y)
"""x y where one of them is a quotient. Of x / z * y LLVM makes x y / z where sums and products may
be reordered, and x y may be beyond the range of numbers."""
scaled = pair_function(lambda x, square: x * range_factor(square))
"""A number by the factor of a sum of squares; LLVM does not multiply such factors first."""
unscaled = pair_function(lambda root, square: root * range_factor(square, -1))
"""The root of a sum of squares of `scaled` numbers, without that factor."""


def along_samples(name, write):
    """The function of kernels that sets target[i, j, s], for all s, to what `write` makes of it and
    of the entries [k, l, s] of other arrays. It takes one tuple: target, i, j, then array, k, l for
    each of them.

    It is compiled once, not where it is called: as loops that the compiler sees at each place, and
    has to ask whether the rows overlap, they take longer to compile.
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
        passed = [*rows, length]
        own = f"{name}_{context.get_value_type(kinds[0].dtype)}"
        kinds = [value.type for value in passed]
        builder.call(defined_once(builder.module, own, kinds, define), passed)
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
    """The function gemm(alpha, a, transpose_a, b, transpose_b, beta, c) of kernels: it sets c to
    alpha * op(a) @ op(b) + beta * c, for matrices whose rows are contiguous. With `parts` it has
    an argument more, (top, bottom, left, right, first, last): it does so for these rows and
    columns of c, with these columns of op(a) and rows of op(b).

    BLAS has columns where we have rows, so it computes c' = op(b)' @ op(a)'. An intrinsic, since a
    compiled function for every combination of array types would take most of the time that kernels
    take to compile, and views of parts nearly as much.
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

            def at(data, step, row, column, turned):
                across = builder.select(turned, column, row), builder.select(turned, row, column)
                return builder.gep(data, [builder.add(builder.mul(across[0], step), across[1])])

            def passed(value):
                return cgutils.alloca_once_value(builder, value)

            def integer(value):
                return passed(builder.trunc(value, INTEGER))

            def at_least_one(value):
                return integer(largest(value, INDEX(1)))

            def letter(flag):
                return passed(builder.select(flag, CHARACTER(ord("T")), CHARACTER(ord("N"))))

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
            # where there is nothing to sum, alpha * 0, which may be nan
            nothing = builder.fadd(beta, builder.fmul(alpha, alpha.type(0.0)))
            beta = builder.select(builder.icmp_signed("==", inner, zero), nothing, beta)
            pointers = [letter(turned_b), letter(turned_a)]
            pointers += [at_least_one(columns), at_least_one(rows), integer(inner)]
            pointers += [passed(alpha), b_data, at_least_one(b_step), a_data, at_least_one(a_step)]
            pointers += [passed(beta), c_data, at_least_one(c_step)]
            kind = types.Tuple([types.CPointer(NUMBER_TYPES[p.type.pointee]) for p in pointers])
            with builder.if_then(builder.icmp_signed(">", builder.mul(rows, columns), zero)):
                passed_on = context.make_tuple(builder, kind, pointers)
                call_compiled(context, builder, loops_or_call, (kind,), [passed_on])
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


@compiled(no_cpython_wrapper=True)
def loops_or_call(pointers):
    """`multiply`, compiled once for all kernels: in each it would take 0.1 s."""
    multiply(pointers)


@intrinsic
def multiply(context, pointers):
    """BLAS's gemm, or loops where there is little to do: a call then takes longer.

    pointers: gemm's arguments. The letters here are BLAS's: c (m, n) = alpha * op(a) (m, k) @
    op(b) (k, n) + beta * c, for matrices with one column after the other."""

    def generate(context, builder, signature, values):
        given = cgutils.unpack_tuple(builder, values[0])
        m, n, k = (index(builder, size) for size in given[2:5])
        work = builder.mul(builder.mul(m, n), k)
        is_tiny = builder.icmp_signed("<=", work, INDEX(TINY_WORK))
        with builder.if_else(is_tiny) as (tiny, large):
            with tiny:
                add_loops(builder, given)
            with large:
                prefix = "s" if pointers[5].dtype == types.float32 else "d"
                call_named(builder, prefix + GEMM, ir.VoidType(), given)
        return context.get_dummy_value()

    return types.void(pointers), generate


def add_loops(builder, pointers):
    """What gemm does, entry by entry; c is not read where beta is 0."""
    transa, transb, *sizes, alpha, a, lda, b, ldb, beta, c, ldc = pointers
    m, n, k = (index(builder, size) for size in sizes)
    a_row, a_term = strides(builder, transa, lda)
    b_term, b_column = strides(builder, transb, ldb)
    c_column = index(builder, ldc)
    alpha, beta = builder.load(alpha), builder.load(beta)
    zero = alpha.type(0.0)
    is_added = builder.fcmp_unordered("!=", beta, zero)
    total = cgutils.alloca_once(builder, alpha.type)

    def moved(pointer, place, stride):
        return builder.gep(pointer, [builder.mul(place, stride)])

    def plus_product(x, y, kept):
        return builder.fadd(builder.fmul(x, y, flags=FUSED), kept, flags=FUSED)

    with cgutils.for_range(builder, n) as column, cgutils.for_range(builder, m) as row:
        a_line = moved(a, row.index, a_row)
        b_line = moved(b, column.index, b_column)
        entry = builder.gep(moved(c, column.index, c_column), [row.index])
        builder.store(zero, total)
        with cgutils.for_range(builder, k) as term:
            few_rounds(builder)
            x = builder.load(moved(a_line, term.index, a_term))
            y = builder.load(moved(b_line, term.index, b_term))
            builder.store(plus_product(x, y, builder.load(total)), total)
        builder.store(builder.fmul(alpha, builder.load(total)), total)
        with builder.if_then(is_added):
            kept = plus_product(beta, builder.load(entry), builder.load(total))
            builder.store(kept, total)
        builder.store(builder.load(total), entry)


def strides(builder, flag, step):
    """How far apart the rows and the columns of op(a matrix) are, whose columns are `step`."""
    turned = builder.icmp_signed("!=", builder.load(flag), CHARACTER(ord("N")))
    step, one = index(builder, step), INDEX(1)
    return builder.select(turned, step, one), builder.select(turned, one, step)


def index(builder, pointer):
    """What a pointer to one of BLAS's integers points to."""
    return builder.sext(builder.load(pointer), INDEX)
