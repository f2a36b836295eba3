"""LAPACK: its routines, each named once."""

# mypy: allow-untyped-defs

from derivatrix.compiler.kernels.base import routine

lapack_gees = routine("lapack", "gees")
lapack_getrf = routine("lapack", "getrf")
lapack_getri = routine("lapack", "getri")
lapack_getrs = routine("lapack", "getrs")
lapack_gges = routine("lapack", "gges")
lapack_potrf = routine("lapack", "potrf")
lapack_potri = routine("lapack", "potri")
lapack_potrs = routine("lapack", "potrs")
lapack_tgsen = routine("lapack", "tgsen")
lapack_trsyl = routine("lapack", "trsyl")
