"""The routines of LAPACK that helper kernels call."""

# mypy: allow-untyped-defs

from ..internals.functions import routine

lapack_gecon = routine("lapack", "gecon")
lapack_gees = routine("lapack", "gees")
lapack_geev = routine("lapack", "geev")
lapack_gelqf = routine("lapack", "gelqf")
lapack_gesdd = routine("lapack", "gesdd")
lapack_getrf = routine("lapack", "getrf")
lapack_getri = routine("lapack", "getri")
lapack_getrs = routine("lapack", "getrs")
lapack_gges = routine("lapack", "gges")
lapack_orglq = routine("lapack", "orglq")
lapack_potrf = routine("lapack", "potrf")
lapack_potrs = routine("lapack", "potrs")
lapack_syevd = routine("lapack", "syevd")
lapack_tgsen = routine("lapack", "tgsen")
lapack_trsyl = routine("lapack", "trsyl")
