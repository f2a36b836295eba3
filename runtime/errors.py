"""Typed errors, and a warning. Each error is also a ValueError or a TypeError, so plain handlers
catch them too."""


class DerivatrixError(Exception):
    """Base of every error that derivatrix raises on purpose."""


class DeclarationError(DerivatrixError, ValueError):
    """A function, input or file is declared in a way that has no meaning."""


class ShapeError(DerivatrixError, ValueError):
    """Shapes or dimensions disagree."""


class NotationError(DerivatrixError, ValueError):
    """A text expression cannot be read."""


class UnsupportedError(DerivatrixError, TypeError):
    """An operation, argument or option has no rule here."""


class BuildError(DerivatrixError, ValueError):
    """Generated files cannot be written, or are stale."""


class LoadError(DerivatrixError, ValueError):
    """A file is not a module that derivatrix generated."""


class VerificationError(DerivatrixError, ValueError):
    """A generated module disagrees with its declaration."""


class MissingPackageError(DerivatrixError, ImportError):
    """A package that an adapter is for is not installed, or too old."""


class LongModuleWarning(UserWarning):
    """A generated module has so many lines that its kernels take long to compile."""
