"""Functions of a number written as LLVM's instructions, without branches and calls, so that loops
over them become vector code."""

# mypy: allow-untyped-defs

from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from .base import LLVM


class Term:
    """A number while an instruction sequence is written. Numbers of Python become constants.

    Products and sums may be fused. As instructions carry this flag, Numba adds none of the
    caller's to them: sums that may be reordered would lose what makes functions exact.
    """

    def __init__(self, builder, value):
        self.builder = builder
        self.value = value
        self.double = value.type in (LLVM.DoubleType(), LLVM.IntType(64))
        self.digits, self.bias = (52, 1023) if self.double else (23, 127)
        self.sign = 1 << (63 if self.double else 31)

    def made(self, value):
        """An instruction's result as a term."""
        return Term(self.builder, value)

    def like(self, other):
        """The instruction's result that a term is, or a constant of this one's type."""
        return other.value if isinstance(other, Term) else LLVM.Constant(self.value.type, other)

    def apply(self, name, left, right):
        return self.made(getattr(self.builder, name)(left, right, flags=("contract",)))

    def __add__(self, other):
        return self.apply("fadd", self.value, self.like(other))

    def __sub__(self, other):
        return self.apply("fsub", self.value, self.like(other))

    def __rsub__(self, other):
        return self.apply("fsub", self.like(other), self.value)

    def __mul__(self, other):
        return self.apply("fmul", self.value, self.like(other))

    def __truediv__(self, other):
        return self.apply("fdiv", self.value, self.like(other))

    def __rtruediv__(self, other):
        return self.apply("fdiv", self.like(other), self.value)

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

    def converted(self, name, kind):
        return self.made(getattr(self.builder, name)(self.value, kind))

    __radd__ = __add__
    __rmul__ = __mul__

    def between(self, lowest, highest):
        """The number, moved between bounds; nan stays."""
        above = choose_where(self, "<", lowest, lowest, self)
        return choose_where(above, ">", highest, highest, above)

    def bits(self):
        """The number's representation, an integer."""
        return self.made(self.builder.bitcast(self.value, LLVM.IntType(64 if self.double else 32)))

    def number(self):
        """The number that an integer represents."""
        real = LLVM.DoubleType() if self.double else LLVM.FloatType()
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
    test = integer.builder.trunc(integer.value, LLVM.IntType(1))
    return odd.made(odd.builder.select(test, odd.value, even.value))


def table_entry(name, numbers, index):
    """numbers[index], of a table of doubles."""
    builder, double = index.builder, LLVM.DoubleType()
    table = builder.module.globals.get(name)
    if table is None:
        kind = LLVM.ArrayType(double, len(numbers))
        table = cgutils.global_constant(builder.module, name, LLVM.Constant(kind, numbers))
    place = builder.gep(table, [LLVM.Constant(LLVM.IntType(64), 0), index.value], inbounds=True)
    return index.made(builder.load(place))


def polynomial_value(x, coefficients):
    """The sum of coefficients[k] x^k, by pairs, pairs of pairs, ..."""
    terms = list(coefficients)
    while len(terms) > 1:
        last = terms[len(terms) & ~1 :]
        terms = [terms[k + 1] * x + terms[k] for k in range(0, len(terms) - 1, 2)] + last
        x = x * x
    return terms[0]


def elementary_function(write):
    """A function of one number for compiled code, in its precision, from how it is written."""

    @intrinsic
    def function(context, x):
        kind = x if x in (types.float32, types.float64) else types.float64

        def generate(context, builder, signature, values):
            return write(Term(builder, values[0])).value

        return kind(kind), generate

    return function
