"""`python -m derivatrix`: the command line."""

from derivatrix.compiler.cli import main

main(prog_name="derivatrix")
