"""Generated modules in PyTensor's graphs."""
