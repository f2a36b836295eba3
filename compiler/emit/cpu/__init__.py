"""Plans as kernels for the CPU, and how threads share their work."""

from derivatrix.compiler.emit.cpu.module import emit
from derivatrix.compiler.emit.target import Target
from derivatrix.compiler.plan import threaded_plan

TARGET = Target(
    name="cpu",
    suffix="",
    place="",
    conventions=(
        "the kernels take C-contiguous arrays of one type, float64 or float32, and numbers for "
        "rank 0; they fill the arrays given last, return nothing and refuse wrong shapes",
    ),
    plan=threaded_plan,
    emit=emit,
    operators=True,
    kernel_functions=True,
)
