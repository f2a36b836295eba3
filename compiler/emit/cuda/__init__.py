"""Plans as kernels for a CUDA device, and the host code that launches them."""

from derivatrix.compiler.emit.cuda.join import join
from derivatrix.compiler.emit.cuda.kernel import RESERVED
from derivatrix.compiler.emit.cuda.module import emit

__all__ = ["RESERVED", "emit", "join"]
