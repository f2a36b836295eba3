"""Imported once by the process whose forks answer requests: the compiler, and what a first
derivation makes it look up."""

from derivatrix.compiler.playground.requests import derive

WARM = {
    "text": "sum(log(1+exp(-X*w))) + x'*inv(A)*x",
    "inputs": {"X": "m n", "w": "n", "x": "n", "A": "n n"},
    "wrt": [],
}

for _ in derive(WARM):
    pass
