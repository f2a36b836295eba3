"""Plans as kernels for a CUDA device, and the host code that launches them."""

from collections.abc import Sequence

from derivatrix.compiler.emit.cuda.join import join
from derivatrix.compiler.emit.cuda.kernel import RESERVED
from derivatrix.compiler.emit.cuda.module import emit
from derivatrix.compiler.emit.target import Outputs, Target
from derivatrix.compiler.ir.nodes import Leaf
from derivatrix.compiler.plan import plan
from derivatrix.compiler.plan.steps import Plan


def _plan(name: str, arguments: Sequence[Leaf], outputs: Outputs) -> Plan:
    return plan(name, arguments, outputs, RESERVED, join)


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
    plan=_plan,
    emit=emit,
)
