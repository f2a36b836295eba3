"""Plans as kernels for a CUDA device, and the host code that launches them."""

from derivatrix.compiler.device.emit import emit
from derivatrix.compiler.device.join import join
from derivatrix.compiler.device.text import RESERVED

__all__ = ["RESERVED", "emit", "join"]
