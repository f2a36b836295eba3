"""Derivatives by derivatrix against other packages and hand-written closed forms:
`python -m tests.benchmarks`; see docs/developers/benchmarks.md."""
