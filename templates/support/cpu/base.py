"""Flags of BLAS and LAPACK; our own helpers describe triangles and transposes by the same ones."""

import numpy as np

NO = np.uint8(ord("N"))
TRANSPOSED = np.uint8(ord("T"))
LEFT = np.uint8(ord("L"))
RIGHT = np.uint8(ord("R"))
LOWER = np.uint8(ord("L"))
UPPER = np.uint8(ord("U"))
UNIT = np.uint8(ord("U"))
VECTORS = np.uint8(ord("V"))
INFO = 0
"""Stands for LAPACK's error code where nothing reads it: the call passes a variable of its own."""
WHOLE = np.uint8(ord("W"))
