"""Elementwise functions without branches or calls, so that loops over them become vector code.

Each is written as LLVM's instructions, in the precision of its argument. Errors are below 2 units
in the last place, 4 for the hyperbolic functions, at all numbers: infinite ones, nan and
subnormal ones included.
"""

# mypy: allow-untyped-defs

import math

from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

KERNELS = {
    name: f"fast_{name}"
    for name in ("exp", "expm1", "log", "log1p", "sinh", "cosh", "tanh", "erf", "erfc")
}
"""Operator of a scalar (`plan.steps.Operate`) -> the name here of what computes it."""

LLVM = cgutils.ir  # type: ignore[attr-defined]


class Term:
    """A number while an instruction sequence is written. Numbers of Python become constants.

    Products and sums may be fused. As they carry this flag, Numba adds none of its caller's:
    a sum that may be reordered would lose what the functions below rely on.
    """

    def __init__(self, builder, value):
        self.builder = builder
        self.value = value
        self.double = value.type in (LLVM.DoubleType(), LLVM.IntType(64))
        self.digits, self.bias = (52, 1023) if self.double else (23, 127)

    def made(self, value):
        return Term(self.builder, value)

    def like(self, other):
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

    __radd__ = __add__
    __rmul__ = __mul__

    def between(self, lowest, highest):
        """The number, moved between bounds; nan stays."""
        above = choose(self, "<", lowest, lowest, self)
        return choose(above, ">", highest, highest, above)

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
        sign = 1 << (63 if self.double else 31)
        own = self.bits().integer("and_", sign - 1)
        return own.integer("or_", other.bits().integer("and_", sign)).number()

    def absolute(self):
        return self.bits().integer("and_", (1 << (63 if self.double else 31)) - 1).number()


def choose(left, sign, right, chosen, otherwise):
    """`chosen` where `left` compares so with `right`, else `otherwise`; the latter at nan."""
    test = left.builder.fcmp_ordered(sign, left.value, left.like(right))
    return left.made(left.builder.select(test, left.like(chosen), left.like(otherwise)))


def polynomial(x, coefficients):
    """The sum of coefficients[k] x^k, by pairs, pairs of pairs, ..."""
    terms = list(coefficients)
    while len(terms) > 1:
        last = terms[len(terms) & ~1 :]
        terms = [terms[k + 1] * x + terms[k] for k in range(0, len(terms) - 1, 2)] + last
        x = x * x
    return terms[0]


def elementary(write):
    """A function of one number for compiled code, from how its instructions are written."""

    @intrinsic
    def function(context, x):
        kind = x if x in (types.float32, types.float64) else types.float64

        def generate(context, builder, signature, values):
            return write(Term(builder, values[0])).value

        return kind(kind), generate

    return function


EXPONENTIAL = (
    0.5000000000000013,
    0.166666666666667,
    0.041666666666515,
    0.008333333333307196,
    0.0013888888947137003,
    0.00019841269917447965,
    2.4801489804504134e-05,
    2.7557216218816746e-06,
    2.763133359527906e-07,
    2.511789336414908e-08,
)
"""(exp(r) - 1 - r) / r^2 for |r| < log(2) / 2."""

SINGLE_EXPONENTIAL = (
    0.5000000095374832,
    0.16666518604509858,
    0.04166620542259404,
    0.008368917782206314,
    0.0013950513382236438,
)

LOGARITHM = (
    0.6666666666666736,
    0.39999999999400204,
    0.2857142874591507,
    0.22222198181958863,
    0.18183586082591816,
    0.15313459479160962,
    0.14802191699020364,
)
"""(2 artanh(s) - 2 s) / s^3 as a function of s^2, for s < 3 - 2 sqrt(2)."""

SINGLE_LOGARITHM = (0.666667777373068, 0.3997735626443806, 0.2987713527732021)

LOG_TWO = (0.6931471803691238, 1.9082149292705877e-10)
SINGLE_LOG_TWO = (0.693145751953125, 1.428606765330187e-06)
"""log(2) in two parts, the first with so few digits that its product with an exponent is exact."""

ROOT = 0x3FE6A09E667F3BCD
SINGLE_ROOT = 0x3F3504F3
"""The bits of sqrt(1 / 2)."""


ERF = (
    0.12837916709551256,
    -0.3761263890318352,
    0.11283791670944185,
    -0.02686617064311147,
    0.005223977606118481,
    -0.0008548325929316656,
    0.0001205529357702147,
    -1.4924712305189893e-05,
    1.6447131617748237e-06,
    -1.6206314146064028e-07,
    1.3710982127039678e-08,
    -7.779471692267398e-10,
)
"""erf(x) / x - 1 as a function of x^2, for |x| < 1."""

SINGLE_ERF = (
    0.12837916572682917,
    -0.3761262582368373,
    0.11283585142055534,
    -0.026853811673379135,
    0.005188327210657882,
    -0.0008010189599338953,
    7.85384839886155e-05,
)

MINUS_LOG_ERFC = (
    1.063345075284042e-06,
    1.1283687144453214,
    0.6366675693492633,
    0.10263767400754113,
    -0.018865426639636623,
    -0.0005840113958509295,
    0.002098727861264826,
    -0.0009199128240998431,
    0.0002306340532855417,
    -2.799363754044338e-05,
    -3.611992500483674e-06,
    2.673192631254951e-06,
    -6.877876437885748e-07,
    1.0822582790272748e-07,
    -1.090382983592073e-08,
    6.518450108803817e-10,
    -1.7705115254108566e-11,
)
"""-log(1 - erf(x)) for 1 <= x <= 6."""

SINGLE_MINUS_LOG_ERFC = (
    0.0003415955834514262,
    1.127088875202184,
    0.6381453897204101,
    0.1031062418305803,
    -0.021837805184852614,
    0.002947590501212942,
    -0.00018637200223005265,
)

SCALED_ERFC = (
    0.23299511862555256,
    -0.3726162354661158,
    0.38799588756872216,
    -0.31989883331395036,
    0.21885976727837747,
    -0.1251269322824418,
    0.05879656645438536,
    -0.021629050884575673,
    0.00543131700453046,
    -0.00039934725005536664,
    -0.00035842720837282754,
    0.00015917134410750367,
    -8.544876160905128e-06,
    -1.5855798867748828e-05,
    4.621291466374806e-06,
    1.0883941269912646e-06,
    -7.741810411672618e-07,
    -4.629218701184528e-08,
    1.0107449658573422e-07,
    4.581542611776551e-10,
    -8.314801733517504e-09,
)
"""((1 + 2 x) exp(x^2) erfc(x) - 1) / (t + 1) as a function of t = (x - 4) / (x + 4)."""

SINGLE_SCALED_ERFC = (
    0.27697839603941,
    -0.3697424006698276,
    0.20371079858897542,
    -0.039655000694998825,
    -0.014547302578604773,
    0.0064857801928267225,
    0.002138405771286217,
    -0.0008252081500689957,
    -0.00039572041635990127,
)
"""The same with 2 for 4."""


def split(x, more=0.0):
    """k, r, t where x + more = k log(2) + r and exp(r) = 1 + (r + t), |r| < 0.35. k is whole: the
    last bits of a number, which hold it plus twice the bias of exponents."""
    high, low = LOG_TWO if x.double else SINGLE_LOG_TWO
    shift = 1.5 * 2.0**x.digits + 2 * x.bias
    k = x * 1.4426950408889634 + shift
    whole = k - shift
    above = x - whole * high
    below = whole * low - more
    r = above - below
    lost = (above - r) - below
    return k, r, r * r * polynomial(r, EXPONENTIAL if x.double else SINGLE_EXPONENTIAL) + lost


def quarter(x):
    """s, r, t where exp(x) = 4 s (1 + (r + t)), for x at least a few units from overflow."""
    k, r, rest = split(x)
    exponent = k.bits().integer("sub", k.bias + 2)
    return exponent.integer("shl", k.digits).number(), r, rest


def less_one(x):
    """(exp(x) - 1) / 4."""
    scale, r, rest = quarter(x)
    return (scale * r + (scale - 0.25)) + scale * rest


def exponential(x, factor=1.0, more=0.0):
    """exp(x + more) * factor, rounded once more where that is subnormal."""
    lowest, highest = (-746.0, 710.0) if x.double else (-104.0, 89.0)
    k, r, rest = split(x.between(lowest, highest), more)
    bits = k.bits()
    half = bits.integer("lshr", 1)
    other = bits.integer("sub", half)
    first, second = (part.integer("shl", k.digits).number() for part in (half, other))
    return factor * (1.0 + (r + rest)) * first * second


def write_exp(x):
    return exponential(x)


def write_expm1(x):
    lowest, highest = (-40.0, 710.0) if x.double else (-20.0, 89.0)
    result = 4.0 * less_one(x.between(lowest, highest))
    return choose(x.absolute(), "<", 1e-17 if x.double else 1e-9, x, result)


def write_tanh(x):
    size = x.absolute()
    ratio = less_one(2.0 * size.between(0.0, 20.0 if x.double else 10.0))
    result = ratio / (ratio + 0.5)
    return choose(size, "<", 1e-9 if x.double else 1e-5, x, result.of_sign(x))


def write_sinh(x):
    size = x.absolute()
    part = less_one(size.between(0.0, 710.5 if x.double else 89.5))
    result = 2.0 * (part + part / (4.0 * part + 1.0))
    return choose(size, "<", 1e-9 if x.double else 1e-5, x, result.of_sign(x))


def write_cosh(x):
    scale, r, rest = quarter(x.absolute().between(0.0, 710.5 if x.double else 89.5))
    part = scale + scale * (r + rest)
    return 2.0 * (part + 0.0625 / part)


def logarithm(x, lost=None):
    """log(x + lost), where x is no subnormal number and x + lost rounds to x."""
    high, low = LOG_TWO if x.double else SINGLE_LOG_TWO
    one = x.bias << x.digits
    bits = x.bits()
    exponent = bits.integer("add", one - (ROOT if x.double else SINGLE_ROOT))
    exponent = exponent.integer("lshr", x.digits)
    whole = exponent.integer("or_", x.bias + x.digits << x.digits).number()
    k = whole - (2.0**x.digits + x.bias)
    mantissa = bits.integer("add", one).integer("sub", exponent.integer("shl", x.digits))
    f = mantissa.number() - 1.0
    s = f / (f + 2.0)
    z = s * s
    square = 0.5 * f * f
    rest = s * (square + z * polynomial(z, LOGARITHM if x.double else SINGLE_LOGARITHM))
    rest = rest + k * low
    if lost is not None:
        rest = rest + lost / x
    result = k * high - ((square - rest) - f)
    result = choose(x, "<", math.inf, result, x)
    return choose(x, ">", 0.0, result, choose(x, "==", 0.0, -math.inf, math.nan))


def write_log(x):
    least, factor, power = (2.0**-1022, 2.0**54, 54) if x.double else (2.0**-126, 2.0**25, 25)
    normal = choose(x, "<", least, x * factor, x)
    return logarithm(normal) - choose(x, "<", least, power * 0.6931471805599453, 0.0)


def write_log1p(x):
    total = 1.0 + x
    lost = choose(x, ">", 1.0, 1.0 - (total - x), x - (total - 1.0))
    return choose(x.absolute(), "<", 1e-17 if x.double else 1e-9, x, logarithm(total, lost))


def write_erf(x):
    """x + x P(x^2) below 1, 1 - exp(-Q(|x|)) above."""
    near, far = (ERF, MINUS_LOG_ERFC) if x.double else (SINGLE_ERF, SINGLE_MINUS_LOG_ERFC)
    size = x.absolute().between(0.0, 6.0 if x.double else 4.0)
    scale, r, rest = quarter(0.0 - polynomial(size, far))
    above = 1.0 - 4.0 * (scale + scale * (r + rest))
    return choose(size, "<", 1.0, x + x * polynomial(x * x, near), above.of_sign(x))


def write_erfc(x):
    """The function of which the table is one, times exp(-x^2); for negative x 2 less that."""
    centre, table = (4.0, SCALED_ERFC) if x.double else (2.0, SINGLE_SCALED_ERFC)
    size = x.absolute().between(0.0, 28.0 if x.double else 10.6)
    head = size.bits().integer("and_", -1 << (27 if x.double else 12)).number()
    below = 1.0 / (size + centre)
    scaled = 1.0 + 2.0 * size * below * polynomial((size - centre) * below, table)
    ratio = scaled / (1.0 + 2.0 * size)
    result = exponential(0.0 - head * head, ratio, (head - size) * (head + size))
    return choose(x, "<", 0.0, 2.0 - result, result)


fast_exp = elementary(write_exp)
fast_expm1 = elementary(write_expm1)
fast_log = elementary(write_log)
fast_log1p = elementary(write_log1p)
fast_sinh = elementary(write_sinh)
fast_cosh = elementary(write_cosh)
fast_tanh = elementary(write_tanh)
fast_erf = elementary(write_erf)
fast_erfc = elementary(write_erfc)
