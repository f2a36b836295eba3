"""What BLAS and LAPACK take for flags, and what is said of matrices in the same words."""

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
"""Where LAPACK writes whether it succeeded: a number of the call's own, that nothing reads."""
WHOLE = np.uint8(ord("W"))
