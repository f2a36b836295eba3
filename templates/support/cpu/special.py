"""Special functions of a number, in double precision also for float32 arrays. Functions `scipy_...`
are SciPy's compiled ones."""

# mypy: allow-untyped-defs

from ..common.series import hurwitz_zeta
from ..internals.functions import compiled, scipy_special

scipy_psi = scipy_special("psi", 1)
scipy_erfinv = scipy_special("erfinv", 1)
scipy_j0 = scipy_special("j0", 1)
scipy_j1 = scipy_special("j1", 1)
scipy_jv = scipy_special("jv", 2)
scipy_y0 = scipy_special("y0", 1)
scipy_y1 = scipy_special("y1", 1)
scipy_yv = scipy_special("yv", 2)
scipy_i0 = scipy_special("i0", 1)
scipy_i1 = scipy_special("i1", 1)
scipy_iv = scipy_special("iv", 2)
scipy_k0 = scipy_special("k0", 1)
scipy_k1 = scipy_special("k1", 1)
scipy_kv = scipy_special("kv", 2)
zeta = compiled(linked=True)(hurwitz_zeta)
