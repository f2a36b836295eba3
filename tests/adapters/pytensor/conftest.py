"""Tests in double precision, which JAX has where it is told."""

from tests.adapters.double_precision import double_precision

__all__ = ["double_precision"]
