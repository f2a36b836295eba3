"""Plans as kernels for the CPU, and how threads share their work."""

from derivatrix.compiler.emit.cpu.module import emit
from derivatrix.compiler.emit.target import Target
from derivatrix.compiler.plan import threaded_plan

TARGET = Target(
    name="cpu",
    suffix="",
    place="",
    conventions=(
        "kernels take C-contiguous arrays of one type and numbers, and fill the arrays given last",
        "a `share` computes rows `part` of `parts`; a `part` sums `first` or later samples",
    ),
    plan=threaded_plan,
    emit=emit,
    operators=True,
    kernel_functions=True,
)
