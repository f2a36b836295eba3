"""Plans as kernels for a CUDA device, and the host code that launches them."""

from functools import partial

from derivatrix.compiler.emit.cuda.fusion import fuse
from derivatrix.compiler.emit.cuda.kernel import RESERVED
from derivatrix.compiler.emit.cuda.module import emit
from derivatrix.compiler.emit.target import Target
from derivatrix.compiler.plan import Machine, plan

TARGET = Target(
    name="cuda",
    suffix="_cuda",
    place=" for CUDA devices",
    conventions=(
        "arrays of NumPy are copied to the device and results back; arrays on the device (CuPy, "
        "PyTorch, JAX, Numba) are used where they are, on the caller's stream, and results are of "
        "their kind",
        "KERNELS has every kernel with its signature for Numba in float64; in SIGNATURES `real` is "
        "the precision",
    ),
    plan=partial(plan, machine=Machine(fuse, reserved=RESERVED)),
    emit=emit,
    kernel_table=True,
)
