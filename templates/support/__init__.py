"""What generated modules stand on: kernels and checks of calls, real Python that is copied into
each generated package, where this file has a digest of it."""

DIGEST = ""
