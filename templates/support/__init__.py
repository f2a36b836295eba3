"""Run-time support of generated modules: kernels and checks of arguments. A build copies it into
each generated package, where this file has its digest."""

DIGEST = ""
