"""The error function, its complement and the normal distribution function without branches, so
that loops over them are vectorised. Errors are below 4 units in the last place."""

# mypy: allow-untyped-defs

from ..internals.arithmetic import choose_where, number_function, polynomial_value
from .elementary import quarter_exponential, scaled_exponential

ERF_SERIES = (
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

SINGLE_ERF_SERIES = (
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
"""`SCALED_ERFC` for single precision, with t = (x - 2) / (x + 2)."""


SCALED_ERFC_SERIES = (1.0, -1 / 2, 3 / 4, -15 / 8, 105 / 16, -945 / 32, 10395 / 64)
"""sqrt(pi) x exp(x^2) erfc(x) as a function of 1 / x^2, for large x (NIST Handbook, 7.12.1)."""
MAX_IN_TABLE, MAX_IN_SINGLE_TABLE = 28.0, 10.6
"""Largest numbers for which `SCALED_ERFC` is used. The complement itself is zero beyond them."""


def write_erf(x):
    """x + x P(x^2) below 1, 1 - exp(-Q(|x|)) above."""
    near_table, far_table = (
        (ERF_SERIES, MINUS_LOG_ERFC) if x.double else (SINGLE_ERF_SERIES, SINGLE_MINUS_LOG_ERFC)
    )
    size = x.absolute().between(0.0, 6.0 if x.double else 4.0)
    scale, r, t = quarter_exponential(0.0 - polynomial_value(size, far_table))
    far_value = 1.0 - 4.0 * (scale + scale * (r + t))
    return choose_where(
        size, "<", 1.0, x + x * polynomial_value(x * x, near_table), far_value.of_sign(x)
    )


def scaled_complement(size):
    """exp(x^2) erfc(x), for x from 0 to the largest number of the table."""
    centre, table = (4.0, SCALED_ERFC) if size.double else (2.0, SINGLE_SCALED_ERFC)
    below = 1.0 / (size + centre)
    scaled = 1.0 + 2.0 * size * below * polynomial_value((size - centre) * below, table)
    return scaled / (1.0 + 2.0 * size)


def complement(size):
    """erfc(x) of a number that is not negative: exp(-x^2) times `scaled_complement`.

    x^2 is h^2 - (h - x)(h + x), where h is x cut to half its digits, so that h^2 is exact."""
    size = size.between(0.0, MAX_IN_TABLE if size.double else MAX_IN_SINGLE_TABLE)
    head = size.bits().integer("and_", -1 << (27 if size.double else 12)).number()
    ratio = scaled_complement(size)
    return scaled_exponential(0.0 - head * head, ratio, (head - size) * (head + size))


def write_erfc(x):
    """`complement`; for negative x, 2 minus the value at -x."""
    result = complement(x.absolute())
    return choose_where(x, "<", 0.0, 2.0 - result, result)


def write_scaled_normcdf(x):
    """The normal distribution function at x, times exp(min(x, 0)^2 / 2)."""
    size = x.absolute() * 0.7071067811865476
    reciprocal = 1.0 / size
    series = polynomial_value(reciprocal * reciprocal, SCALED_ERFC_SERIES)
    far = 0.5641895835477563 * reciprocal * series  # 1 / sqrt(pi)
    limit = MAX_IN_TABLE if x.double else MAX_IN_SINGLE_TABLE
    lower = 0.5 * choose_where(size, ">", limit, far, scaled_complement(size))
    return choose_where(x, "<", 0.0, lower, 1.0 - 0.5 * complement(size))


fast_erf = number_function(write_erf)
fast_erfc = number_function(write_erfc)
fast_scaled_normcdf = number_function(write_scaled_normcdf)
