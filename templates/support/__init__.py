"""What generated modules stand on: kernels and checks of calls, real Python that is copied."""
