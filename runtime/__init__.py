"""Load generated modules and verify them. Needs NumPy, SciPy and Numba, and never the compiler."""

from derivatrix.runtime.certificate import certified, read_certificate, write_certificate
from derivatrix.runtime.errors import (
    BuildError,
    DeclarationError,
    DerivatrixError,
    LoadError,
    MissingPackageError,
    NotationError,
    ShapeError,
    UnsupportedError,
    VerificationError,
)
from derivatrix.runtime.load import generated_files, load, load_package
from derivatrix.runtime.report import Report, Row
from derivatrix.runtime.verify import verify

__all__ = [
    "BuildError",
    "DeclarationError",
    "DerivatrixError",
    "LoadError",
    "MissingPackageError",
    "NotationError",
    "Report",
    "Row",
    "ShapeError",
    "UnsupportedError",
    "VerificationError",
    "certified",
    "generated_files",
    "load",
    "load_package",
    "read_certificate",
    "verify",
    "write_certificate",
]
