"""Preloading for the process whose forks answer requests: the compiler, and all that it imports
during a first derivation."""

from derivatrix.compiler.playground.requests import derive

WARM = {
    "text": "sum(log(1+exp(-X*w))) + x'*inv(A)*x",
    "inputs": {"X": "m n", "w": "n", "x": "n", "A": "n n"},
    "wrt": [],
}

for _ in derive(WARM):
    pass
