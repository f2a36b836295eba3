"""Errors and a warning. Each error is also a built-in one, such as ValueError, so that handlers of
these catch it, too."""


class DerivatrixError(Exception):
    """Base of every error that derivatrix raises on purpose."""


class DeclarationError(DerivatrixError, ValueError):
    """The declaration of a function, input or file has no meaning."""


class ShapeError(DerivatrixError, ValueError):
    """Shapes or dimensions disagree."""


class NotationError(DerivatrixError, ValueError):
    """A text expression cannot be read."""


class UnsupportedError(DerivatrixError, TypeError):
    """An operation, argument or option is not supported."""


class BuildError(DerivatrixError, ValueError):
    """Generated files cannot be written, or are stale."""


class LoadError(DerivatrixError, ValueError):
    """A file is not a module that derivatrix generated."""


class VerificationError(DerivatrixError, ValueError):
    """A generated module disagrees with its declaration."""


class MissingPackageError(DerivatrixError, ImportError):
    """A package that is needed here is not installed, or too old."""


class LongModuleWarning(UserWarning):
    """The kernels of a generated module take long to compile: it has many lines."""
